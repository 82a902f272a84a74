"""Programs of which a small model of a host and its GPUs works out when everything happens.

The host does one thing after the other. Work on a stream begins when it has been launched and the work before
it on its stream is done. So a program can be run with and without what makes it slow, and the difference is
what a finding about that may promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events import V100, Events

LATENCY = 2


class Simulated(Events):
    """Steps of a program, in microseconds."""

    def __init__(self, *devices: dict[str, Any]) -> None:
        super().__init__(*devices or (V100,))
        self.now = 10.0
        self.busy: dict[int, float] = {}
        self.works = 0
        self.step = 0
        self.length = 0.0

    def run(
        self,
        name: str,
        dur: float,
        *,
        host: float = 5,
        stream: int = 7,
        after: float = 0,
        op: str | None = None,
        call: str = "cudaLaunchKernel",
        dims: Any = None,
        **args: Any,
    ) -> float:
        """A kernel that takes the host ``host`` to launch, and begins no earlier than at ``after``."""
        self.works += 1
        if op is not None:
            inputs = {} if dims is None else {"Input_Dims": dims, "Input_type": ["float"] * len(dims)}
            self.op(op, self.now, host, **inputs)
        self.call(self.now + host / 4, host / 2, self.works, name=call)
        start = max(self.now + host / 4 + LATENCY, self.busy.get(stream, 0), after)
        self.kernel(name, start, dur, self.works, **{"stream": stream, **args})
        self.now += host
        self.busy[stream] = start + dur
        return start + dur

    def copy_in(self, kind: str, dur: float, *, stream: int = 7, waits: bool = False) -> None:
        """A copy to the GPU; the host goes on at once, or when it is done if it ``waits``."""
        self.works += 1
        start = max(self.now + LATENCY, self.busy.get(stream, 0))
        args = {"device": 0, "stream": stream, "correlation": self.works, "bytes": int(dur * 10_000)}
        self.add("gpu_memcpy", f"Memcpy HtoD ({kind} -> Device)", start, dur, args=args, pid=0, tid=stream)
        self.busy[stream] = start + dur
        end = start + dur + 1 if waits else self.now + 4
        self.call(self.now, end - self.now, self.works, name="cudaMemcpyAsync")
        self.now = end

    def work(self, name: str, dur: float, cat: str = "cpu_op") -> None:
        """Something that the host does."""
        if dur:
            (self.op if cat == "cpu_op" else self.annotation)(name, self.now, dur)
            self.now += dur

    def frame(self, name: str, steps: Callable[[], object]) -> None:
        """A Python frame around what ``steps`` does."""
        begin = self.now
        self.now += 0.5
        steps()
        self.now += 0.5
        args = {"Python id": next(self.ids)}
        self.add("python_function", name, begin, self.now - begin, args=args)

    def runtime(self, name: str, dur: float) -> None:
        """A call of the host that launches nothing."""
        self.works += 1
        self.call(self.now, dur, self.works, name=name)
        self.now += dur

    def wait(self) -> None:
        """The host waits for the GPU."""
        self.runtime("cudaStreamSynchronize", max(0, max(self.busy.values(), default=0) + 1 - self.now))

    def begin(self) -> None:
        self.began = self.now

    def end(self) -> None:
        """Ends a step, for whose GPU work the host waits."""
        self.wait()
        self.annotation(f"ProfilerStep#{self.step}", self.began, self.now - self.began)
        self.length += self.now - self.began
        self.step += 1
        self.now += 1
