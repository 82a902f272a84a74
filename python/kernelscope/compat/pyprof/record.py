"""What is known of a kernel before its costs are counted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel with the NVTX markers around the call that launched it, outermost first.

    ``sequence_ids`` are autograd's sequence numbers; ``sub`` counts the kernels of one operator from 0.
    Not part of a file of records, and empty there: ``pid``; ``calls``, the rows of the ranges that
    ``markers`` stand for; ``node``, the row of the range whose kernels ``sub`` counts.
    """

    short_name: str
    duration_ns: int | None
    layers: list[str]
    trace: list[str]
    repr_markers: list[str]
    markers: list[str]
    sequence_markers: list[str]
    sequence_ids: list[int]
    sub: int
    alternate_ids: list[int]
    direction: str
    mods: list[str]
    ops: list[str]
    tid: int | None
    device: int | None
    stream: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    long_name: str
    pid: int | None = None
    calls: tuple[int, ...] = ()
    node: int | None = None

    @property
    def is_backward(self) -> bool:
        """Whether the kernel belongs to the backward pass."""
        return self.direction == "bprop"
