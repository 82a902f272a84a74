"""What limits GPU work, by definition, from the costs of operators and the peaks of GPUs, which are given.

The least time of an operator is that of its operations at the peak of its type or that of its bytes at the
bandwidth, whichever is longer; each of its works has its part of that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from slow_reader import Row, end
from twin.cost_sums import Cost, Owned
from twin.figures import Figures, duration, grouped
from twin.gpu import Flags

_PRODUCTS = {
    "attention", "attention_libraries", "convolution", "convolution_backward", "gemm", "mixture_of_experts",
    "packed_weights", "quantized", "recurrent", "state_space", "triton_templates",
}  # fmt: skip
_NO_PRODUCT = re.compile("quant|fp8$|topk|conv1d|scan")
_BUS = re.compile("(?i)HtoD|DtoH|PtoP|Host-to|-to-Host|Peer")
_FEWER = re.compile("(?i)winograd|fft|gcgemm|cgemm|strassen")
_WIDER = {"fp16": "fp32", "bf16": "fp32", "fp8": "fp32", "tf32": "fp32"}
_TOLERANCE, _TICK_NS = 1.05, 1_000
_WHY = {
    1: "part of its reads and writes stays in L2",
    2: "its algorithm needs fewer operations than the direct product that is counted",
    3: "its time is recorded in whole microseconds",
    4: "its cost is an estimate",
    5: "above the limit of the GPU: the recorded shapes or times do not cover all of these operations",
    6: "less than 5 % above a peak: clocks above the stated one, and rounding",
}


class Peaks(NamedTuple):
    """What a data sheet says of a GPU: FLOP/s by type, bytes/s and bytes."""

    plain: dict[str, float]
    matrix: dict[str, float]
    bandwidth: float | None
    l2_bytes: int | None

    def of_plain(self, dtype: str | None) -> float | None:
        if dtype is None:
            return None
        return self.plain.get(dtype, self.plain.get(_WIDER.get(dtype, dtype)))

    def of_product(self, dtype: str | None) -> float | None:
        return self.matrix.get(dtype or "") or self.of_plain(dtype)


class Limits(NamedTuple):
    """What limits a piece of work, its part of its operator, and its times."""

    work: Row
    part: float
    least_ns: float | None
    bound: str | None
    limit_type: str | None
    reason: int | None
    saveable_ns: float | None
    tensor_core_ns: float | None
    missed_ns: int | None


class _Works(NamedTuple):
    """All works of an operator."""

    taken_ns: int
    works: list[Row]


def used_cores(works: Iterable[Row], flags: Flags) -> bool | None:
    """Whether an operator used tensor cores: yes if a kernel did, unknown if of one it is not known."""
    used = {flags[work["name"], work["device"]] for work in works if work["kind"] == "kernel"}
    return True if True in used else None if None in used else False


def limits(owned: Owned, peaks: dict[Any, Peaks], flags: Flags) -> dict[int, Limits]:
    """By the row of the work."""
    busy = _shared(owned.rows["gpu_ops"])
    found: dict[int, Limits] = {}
    for row, works in owned.works.items():
        cost, cores = owned.costs[row], used_cores(works, flags)
        on_cores = sum(
            duration(work)
            for work in works
            if work["kind"] == "kernel" and flags[work["name"], work["device"]]
        )
        for work in works:
            part = owned.part(work)
            group = _Works(owned.taken[row], works)
            found[work["row"]] = _of_work(work, group, cost, peaks.get(work["device"]), cores)._replace(
                part=part, tensor_core_ns=None if cores is None else on_cores * part if cores else 0.0
            )
            least = found[work["row"]].least_ns
            if least is not None:
                saveable = max(busy[work["row"]] - least * part, 0.0)
                found[work["row"]] = found[work["row"]]._replace(saveable_ns=saveable)
    return found


def _of_work(work: Row, group: _Works, cost: Cost, peaks: Peaks | None, cores: bool | None) -> Limits:
    is_product = cost["family"] in _PRODUCTS and not _NO_PRODUCT.search(cost["model"] or "")
    own = cost["peak"]
    dtype = cost["math"] if cost["math"] is not None and is_product else own
    rate: float | None = None
    if peaks is not None and is_product:
        rate = peaks.of_product(dtype)
        if dtype == "fp32" and cores is None and peaks.of_product("tf32") is not None:
            rate = peaks.of_product("tf32")
        if dtype == "fp32" and cores is None and rate is not None:
            dtype = "tf32" if "tf32" in peaks.matrix else "fp32"
    elif peaks is not None:
        rate = peaks.of_plain(own)
    eligible = peaks is not None and is_product and own in peaks.matrix
    missed = duration(work) if eligible and cores is False else None if cores is None else 0
    bandwidth = peaks.bandwidth if peaks else None
    operations = None if cost["flops"] is None or rate is None else cost["flops"] / rate * 1e9
    moved = [cost["bytes_read"], cost["bytes_written"]]
    memory = None if None in moved or bandwidth is None else sum(moved) / bandwidth * 1e9
    bound = "communication" if work["is_communication"] else None
    if bound is None and work["kind"] == "memcpy" and _BUS.search(work["name"] or ""):
        bound = "bus"
    # Without a peak of its own, only the memory limits.
    computing = 0.0 if operations is None and rate is None else operations
    least: float | None = None
    if bound is None and memory is not None and computing is not None:
        least, bound = max(computing, memory), "compute" if computing > memory else "memory"
    reason = None
    if least is not None and memory is not None and least > group.taken_ns:
        l2 = peaks.l2_bytes if peaks else None
        through = (
            None if l2 is None or not bandwidth else sum(max(n - l2, 0) for n in moved) / bandwidth * 1e9
        )
        reason = _reason(group, (operations, memory, through), is_estimate=cost["status"] == "estimate")
    limit_type = None if rate is None else dtype
    return Limits(work, 0.0, least, bound, limit_type, reason, None, None, missed)


def _reason(group: _Works, times: tuple[float | None, float, float | None], *, is_estimate: bool) -> int:
    """Why an operator seems to be faster than can be."""
    operations, memory, through = times
    taken, works = group
    most = max(operations or 0.0, memory)
    too_many = operations is not None and operations > _TOLERANCE * taken
    if most <= _TOLERANCE * taken:
        return 6
    if not too_many and through is not None and through <= _TOLERANCE * taken:
        return 1
    if too_many and any(_FEWER.search(work["name"] or "") for work in works):
        return 2
    if taken % _TICK_NS == 0 and most <= _TOLERANCE * (taken + _TICK_NS * len(works)):
        return 3
    return 4 if is_estimate else 5


def _shared(works: list[Row]) -> dict[int, float]:
    """The part of each work in the time of its GPU: those that run at once share it equally."""
    found: defaultdict[int, float] = defaultdict(float)
    for members in grouped(works, lambda work: work["device"]).values():
        ordered = sorted(members, key=lambda work: work["start_ns"])
        running: list[Row] = []
        begun = 0
        for start, stop in pairwise(sorted({at for work in members for at in (work["start_ns"], end(work))})):
            while begun < len(ordered) and ordered[begun]["start_ns"] <= start:
                running.append(ordered[begun])
                begun += 1
            running = [work for work in running if end(work) > start]
            for work in running:
                found[work["row"]] += (stop - start) / len(running)
    return found


def roofline(owned: Owned, found: dict[int, Limits], *by: str) -> Figures:
    """By the columns ``by``, as :func:`twin.cost_sums.roofline`: what was attained of what could be."""
    groups: defaultdict[Any, list[tuple[Limits, Cost]]] = defaultdict(list)
    for row, limit in found.items():
        cost = owned.costs[owned.owner[row]]
        values = {**limit.work, **cost, "kernel": limit.work["name"], "kind": limit.work["kind"]}
        groups[tuple(values[name] for name in by)].append((limit, cost))
    return {key: _summed(members) for key, members in groups.items()}


def _summed(members: list[tuple[Limits, Cost]]) -> dict[str, Any]:
    def time(counts: Iterable[bool]) -> int:
        pairs = zip(members, counts, strict=True)
        return sum(duration(limit.work) for (limit, _), counted in pairs if counted)

    bounded = [limit.least_ns is not None for limit, _ in members]
    has_flops = [cost["flops"] is not None for _, cost in members]
    has_bytes = [None not in (cost["bytes_read"], cost["bytes_written"]) for _, cost in members]
    flops = [(cost["flops"] or 0) * limit.part for limit, cost in members]
    moved = [
        (cost["bytes_read"] + cost["bytes_written"]) * limit.part if known else 0.0
        for (limit, cost), known in zip(members, has_bytes, strict=True)
    ]
    attainable = _sum(None if limit.least_ns is None else limit.least_ns * limit.part for limit, _ in members)
    both_flops = sum(f for f, known in zip(flops, has_bytes, strict=True) if known)
    both_bytes = sum(b for b, known in zip(moved, has_flops, strict=True) if known)
    known_ns, moved_ns, bounded_ns = time(has_flops), time(has_bytes), time(bounded)
    bounded_flops = sum(f for f, known in zip(flops, bounded, strict=True) if known)
    # What the longest says; of equally long ones, the first.
    order = sorted((limit for limit, _ in members), key=lambda one: (-duration(one.work), one.work["row"]))
    longest = next((limit for limit in order if limit.bound is not None), None)
    flagged = next((limit.reason for limit in order if limit.reason is not None), None)
    is_over = attainable is not None and attainable > bounded_ns
    return {
        "intensity": both_flops / both_bytes if both_bytes else None,
        "flops_per_s": sum(flops) / (known_ns * 1e-9) if known_ns else None,
        "bytes_per_s": sum(moved) / (moved_ns * 1e-9) if moved_ns else None,
        "attainable_ns": attainable,
        "attainable_flops_per_s": bounded_flops / (attainable * 1e-9) if attainable else None,
        "attained_pct": 100.0 * attainable / bounded_ns if attainable is not None and bounded_ns else None,
        "bound": None if longest is None else longest.bound,
        "limit_type": None if longest is None else longest.limit_type,
        "saveable_ns": _sum(limit.saveable_ns for limit, _ in members),
        "tensor_core_ns": _sum(limit.tensor_core_ns for limit, _ in members),
        "missed_ns": _sum(limit.missed_ns for limit, _ in members),
        "flag": None if not is_over or flagged is None else _WHY[flagged],
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
