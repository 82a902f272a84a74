"""Kernels of a trace or of records as columns: the context of their launches, and their sequence numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import polars as pl

from kernelscope.analysis.grouping import by_name, classes_of
from kernelscope.compat.pyprof.around import NO_NUMBERS, around_launches, list_column, meanings_of
from kernelscope.compat.pyprof.markers import Meaning
from kernelscope.compat.pyprof.names import compat_short_name, short_name
from kernelscope.trace import Trace


class Kernels(NamedTuple):
    """Kernels in the order of a report, with the context of their launches.

    ``frame`` has ``short_name``, ``long_name``, ``dur_ns``, ``pid``, ``tid``, ``device``, ``stream``,
    ``grid``, ``block``; ``meaning``, a position in ``meanings``; ``numbers``, those of the meaning's
    ``sequences``; ``seq`` and ``altseq``, autograd's sequence numbers; ``sub``, the index among the kernels
    of an operator; and ``first``, the position of its first range in ``rows``, the rows of all ranges.
    ``devices`` is the table of a trace, and null for records.
    """

    frame: pl.DataFrame
    meanings: list[Meaning]
    rows: pl.Series
    devices: pl.DataFrame | None = None


def kernels_of(trace: Trace, *, compat: bool) -> Kernels:
    """Returns the kernels of a trace of NVTX ranges, or of the operators of the PyTorch profiler.

    Order: of the launches; with ``compat`` of the table of kernels, without those whose launch is not in the
    trace, as in PyProf.
    """
    around = around_launches(trace)
    # Nothing else looks at the ranges, and the caller may have let go of the trace.
    trace = replace(trace, ranges=trace.ranges.clear())
    launches, known, rows = meanings_of(around, compat=compat)
    del around
    if not compat:
        launches = _with_own_numbers(launches, known)
    frame = _launched(trace, compat=compat).join(launches, on="launch_row", how="left", maintain_order="left")
    frame = frame.drop("launch_row").with_columns(
        pl.col("meaning").fill_null(0), pl.col(pl.List(pl.Int64)).fill_null(NO_NUMBERS)
    )
    numbered = _numbered_as_pyprof(frame, known) if compat else _with_places(frame, known, rows)
    return Kernels(numbered, known, rows, trace.devices)


def _launched(trace: Trace, *, compat: bool) -> pl.DataFrame:
    """The kernels in order, with the threads of their launches and their short names."""
    launches = trace.launches.select("tid", launch_row="row", launch_pid="pid", launch_start="start_ns")
    kernels = (
        trace.gpu_ops.filter(pl.col("kind") == "kernel")
        .select("row", "launch_row", "pid", "name", "start_ns", *_OF_KERNELS)
        .join(launches, on="launch_row", how="inner" if compat else "left")
        .with_columns(pl.coalesce("launch_pid", "pid").alias("pid"))
    )
    order = ["row"] if compat else [pl.coalesce("launch_start", "start_ns"), pl.col("row")]
    kernels = kernels.sort(order).drop("row", "start_ns", "launch_start", "launch_pid")
    shorten = compat_short_name if compat else short_name
    short = pl.col("text").fill_null("").map_elements(shorten, pl.String).cast(pl.Categorical)
    return by_name(kernels, short_name=short, long_name=pl.col("text").fill_null("").cast(pl.Categorical))


_OF_KERNELS = ("dur_ns", "device", "stream", "grid", "block")


def _with_own_numbers(launches: pl.DataFrame, known: Sequence[Meaning]) -> pl.DataFrame:
    """Adds the number of the kernels of each launch, and the others.

    Forward, the innermost range makes the node of the backward pass, and numbers grow inwards; backward,
    the outermost is that node.
    """
    is_one = pl.col("numbers").list.n_unique() < 2
    no_others = NO_NUMBERS.alias("altseq")
    single = launches.filter(is_one).with_columns(no_others, seq=pl.col("numbers").list.head(1))
    several = launches.filter(~is_one)
    own: list[list[int]] = []
    others: list[list[int]] = []
    for meaning, kept in _meant(several):
        ids = sorted(set(kept))
        numbers = [number for number in ids if number != 0] or ids
        current = numbers[0] if known[meaning].is_backward else numbers[-1]
        own.append([current])
        others.append([number for number in numbers if number != current])
    several = several.with_columns(list_column("altseq", others), list_column("seq", own))
    return pl.concat([single, several])


def _meant(frame: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """The meaning and the numbers of each row."""
    return cast("Iterator[tuple[int, list[int]]]", frame.select("meaning", "numbers").iter_rows())


def _with_places(frame: pl.DataFrame, known: Sequence[Meaning], rows: pl.Series) -> pl.DataFrame:
    """Adds the place of each kernel among those that follow one another on a thread in one node, from 0."""
    node = pl.Series([meaning.node for meaning in known], dtype=pl.UInt32)[frame["meaning"]]
    threads = frame.select(thread=classes_of(frame.select("pid", "tid")).of, node=rows[frame["first"] + node])
    ordered = threads.with_row_index("at").sort("thread", maintain_order=True)
    same = (pl.col("thread") == pl.col("thread").shift()) & (pl.col("node") == pl.col("node").shift())
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    begun = pl.when(~same.fill_null(value=False)).then(number).forward_fill()
    return frame.with_columns(ordered.select("at", sub=number - begun).sort("at")["sub"])


def _numbered_as_pyprof(frame: pl.DataFrame, known: Sequence[Meaning]) -> pl.DataFrame:
    numbering = _Numbering()
    places = [numbering.place(sorted(set(numbers)), known[meaning]) for meaning, numbers in _meant(frame)]
    return frame.with_columns(
        list_column("seq", [place.own for place in places]),
        list_column("altseq", [place.others for place in places]),
        pl.Series("sub", [place.sub for place in places], pl.Int64),
    )


class _Place(NamedTuple):
    """The numbers of a kernel and its place among the kernels of its operator."""

    own: list[int]
    others: list[int]
    sub: int


_CELLS = ("LSTMCell", "GRUCell", "RNNCell")


class _Numbering:
    """Numbers the kernels of each operator as PyProf does: by sequence numbers, in the order of the file.

    The state is one for the whole file, which mixes up the numbers of processes and threads.
    """

    def __init__(self) -> None:
        self._sequence: int = -1
        self._sub: int = -1
        self._ops: tuple[str, ...] = ("na",)

    def place(self, ids: Sequence[int], meaning: Meaning) -> _Place:
        """The numbers of the next kernel, whose ranges have the numbers ``ids`` in ascending order."""
        numbers = [number for number in ids if number != 0] or list(ids)
        if not numbers:
            return _Place([], [], 0)
        if meaning.is_backward:
            current = numbers[0]
        else:
            current = next((number for number in numbers if number > self._sequence), self._sequence)
        is_cell = meaning.ops[:1] == ("forward",) and bool(meaning.mods) and meaning.mods[0] in _CELLS
        is_same = meaning.ops == self._ops and (current == self._sequence or is_cell)
        sub = self._sub + 1 if is_same else 0
        self._sequence, self._sub, self._ops = current, sub, meaning.ops
        return _split(numbers, current, sub)


def _split(numbers: list[int], current: int, sub: int) -> _Place:
    """PyProf removes from the list that it walks, and so passes over the number behind each."""
    own, others, at = list(numbers), list[int](), 0
    while at < len(own):
        if own[at] != current:
            others.append(own.pop(at))
        at += 1
    return _Place(own, sorted(set(others)), sub)
