"""A job of FSDP of which a small model works out when computation waits for what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulated import Simulated

from events import GRADIENT


class Sharded(Simulated):
    """Steps of a job of FSDP on a GPU, which computes on stream 7 and communicates on others."""

    GATHER, REDUCE = 20, 24

    def __init__(
        self, *devices: dict[str, Any], names: str = "fsdp2", host: float = 5, elements: int = 100
    ) -> None:
        super().__init__(*devices)
        self.names, self.host, self.elements = names, host, elements
        self.expected: list[tuple[str, str, str, bool | None, int]] = []
        self.ready: dict[int, float] = {}
        self.early: set[int] = set()
        self.sequence = 0

    def inside(self, name: str, steps: Callable[[], object], *, op: bool = False, **args: Any) -> None:
        """An annotation, or an operator, around what ``steps`` does."""
        begin = self.now
        self.now += 0.5
        steps()
        self.now += 0.5
        if op:
            self.op(name, begin, self.now - begin, **args)
        elif self.names == "fsdp2" or name.startswith("ProfilerStep"):
            self.annotation(name, begin, self.now - begin)

    def collective(self, kind: str, stream: int, size: int, dur: float, after: float = 0) -> float:
        parts = {"In msg nelems": size, "Out msg nelems": 2 * size}
        if kind == "reduce_scatter":
            parts = {"In msg nelems": 2 * size, "Out msg nelems": size}
        known = {
            "Collective name": f"_{kind}_base", "dtype": "Float", "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]", **parts,
        }  # fmt: skip
        name = f"ncclDevKernel_{kind}"
        return self.run(name, dur, host=self.host, stream=stream, after=after, op="nccl:call", **known)

    def gather(self, unit: int, dur: float, *, early: bool = False) -> None:
        if early:
            self.early.add(unit)

        def launch() -> None:
            self.ready[unit] = self.collective("all_gather", self.GATHER, self.elements + unit, dur)

        self.inside(f"FSDP::all_gather (layers.{unit})", launch)

    def use(self, unit: int, direction: str) -> None:
        """Copies the parameters out as soon as they are there."""

        def copy() -> None:
            needed = max(self.busy.get(7, 0), self.now + self.host / 4)
            waits = round(1000 * max(0.0, self.ready[unit] - needed))
            self.expected.append((f"layers.{unit}", "all_gather", direction, unit in self.early, waits))
            self.run("split", 3, host=self.host, after=self.ready[unit], op="fsdp::split_with_sizes_copy")

        self.inside(f"FSDP::all_gather_copy_out (layers.{unit})", copy)

    def forward(self, unit: int, gather: float, compute: float, prefetch: bool, last: int) -> None:
        def hook() -> None:
            if unit not in self.ready:
                self.gather(unit, gather)
            self.use(unit, "forward")

        self.inside(f"FSDP::pre_forward (layers.{unit})", hook)
        if prefetch and unit < last:
            following = f"FSDP::forward_prefetch for layers.{unit + 1}"
            self.inside(following, lambda: self.gather(unit + 1, gather, early=True))
        self.sequence += 1
        number = {"Sequence_number": self.sequence}
        self.inside("aten::mm", lambda: self.run("gemm", compute, host=self.host), op=True, **number)
        self.inside(f"FSDP::post_forward (layers.{unit})", lambda: None)
        del self.ready[unit]
        self.early.discard(unit)

    def backward(self, unit: int, gather: float, compute: float, reduce: float) -> None:
        def hook() -> None:
            if unit not in self.ready:
                self.gather(unit, gather)
            self.use(unit, "backward")
            if unit:
                following = f"FSDP::backward_prefetch for layers.{unit - 1}"
                self.inside(following, lambda: self.gather(unit - 1, gather, early=True))

        def node() -> None:
            self.inside(f"FSDP::pre_backward (layers.{unit})", hook)
            self.run("gemm", compute, host=self.host, op="aten::mm")
            self.inside(f"FSDP::post_backward_reshard (layers.{unit})", lambda: None)
            computed = self.busy[7]

            def launch() -> None:
                end = self.collective(
                    "reduce_scatter", self.REDUCE, self.elements + unit, reduce, after=computed
                )
                self.reduced.append((unit, computed, end))
                self.run("divide", 2, host=self.host, stream=self.REDUCE, op="aten::div_")

            self.inside(f"FSDP::post_backward_reduce (layers.{unit})", launch)

        number = {"Sequence_number": self.sequence, "Fwd_thread_id": 1}
        self.inside(GRADIENT, node, op=True, **number)
        self.sequence -= 1
        del self.ready[unit]
        self.early.discard(unit)

    def train(
        self, units: int, gather: float, compute: float, reduce: float, *, prefetch: bool = False
    ) -> None:
        """Both passes of some units, and the step of an optimizer."""
        self.reduced: list[tuple[int, float, float]] = []
        for unit in range(units):
            self.forward(unit, gather, compute, prefetch, units - 1)
        top = self.sequence
        for unit in reversed(range(units)):
            self.backward(unit, gather, 2 * compute, reduce)
        self.sequence = top
        before = self.reduced[-1][1]
        for unit, _, end in self.reduced:
            waits = round(1000 * max(0.0, end - before))
            self.expected.append((f"layers.{unit}", "reduce_scatter", "backward", None, waits))
            before = max(before, end)
        self.run("adam", 5, host=self.host, after=before, op="aten::_fused_adamw_")
