"""The Rust reader. Private: use ``kernelscope.read``."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, overload

__version__: str
is_debug_build: bool

class ArrowTable:
    """A table that any Arrow consumer can take without a copy."""

    def __len__(self) -> int: ...
    def columns(self) -> list[ArrowTable]:
        """The columns as tables of their own, which share nothing."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Frame(Protocol):
    """Whatever hands over its columns over the Arrow C stream interface, as the frames of Polars do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class RawTrace:
    """A trace as it comes from Rust: its tables and a JSON text about the file."""

    @property
    def meta(self) -> str: ...
    def take_tables(self) -> dict[str, ArrowTable]:
        """Hands over every table by name; a second call finds none."""

def read(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    step_range: str | None = None,
    tables: dict[str, list[str]] | None = None,
    only_launching: bool = False,
    filter_time: tuple[int | None, int | None] = (None, None),
    filter_nvtx: str | None = None,
    filter_processes: list[int] = ...,
    filter_of_no_process: bool = False,
    filter_devices: list[int] = ...,
    rank: int | None = None,
    captures: Sequence[str] = (),
    captures_are_found: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> list[RawTrace]:
    """Reads the trace at ``path``, of each rank in it or of the one ``rank``.

    ``progress`` is called with bytes done and bytes in all.

    ``captures`` are read if the trace replays graphs; with ``captures_are_found`` what cannot be read is a
    finding.
    """

class RangeProjector:
    """Collects GPU work, then calls, then host ranges, and relates them."""

    def __init__(self, by: list[str]) -> None:
        """Groups ranges that agree in the columns ``by``, of integers."""

    def add_work(self, frame: Frame) -> None:
        """Adds GPU work: ``launch_row``, ``start_ns``, ``dur_ns``; rows that lack any are left out."""

    def add_calls(self, frame: Frame) -> None:
        """Adds calls: ``row``, ``track``, ``start_ns``, ``dur_ns``, ``process`` if ranges cross threads."""

    def add_ranges(self, frame: Frame) -> None:
        """Adds ranges: ``track``, ``start_ns``, ``dur_ns``, ``process`` and ``crosses_threads`` if any do."""

    def project(self) -> ArrowTable:
        """The GPU time of the ranges; forgets everything."""

    def sums(self) -> ArrowTable:
        """The GPU time of the ranges by group, with the ``first`` of each; forgets everything."""

    def pairs(self) -> ArrowTable:
        """Every pair of a ``range`` and the ``launch_row`` of a call in it; forgets everything."""

class AllocatorRecords:
    """What became of the memory of each device; see ``analysis/memory/records.py``."""

    def __init__(self, records: Frame, devices: int) -> None:
        """Records in order of time, with a ``device`` below ``devices``."""

    def partners(self, anywhere: bool) -> ArrowTable:
        """The free of each allocation and the allocation of each free, as ``partner``."""

    def courses(self) -> ArrowTable: ...
    def curve(self, device: int, most: int | None) -> ArrowTable: ...
    def held(self, device: int, times: Sequence[int]) -> ArrowTable | None: ...
    def alive(self) -> ArrowTable:
        """The places ``at`` of what was allocated at the recorded peak."""

class CallTree:
    """Calls, and the sums of each by itself and with what is inside it; see ``analysis/tree.py``."""

    def __init__(self, calls: Frame) -> None: ...
    def merge_repeats(self, names: Frame) -> None:
        """Counts a call that is the only one inside a call of the same ``name`` as that one."""

    def copy_structure(self) -> CallTree:
        """Another tree of the same calls without columns."""

    def kept(self) -> ArrowTable:
        """Which call each is counted as: ``kept``, its row."""

    def parents(self) -> ArrowTable:
        """The calls around the calls that are not merged: ``parent_row``."""

    def keep_marked(self, marks: Frame, classes: Frame | None = None) -> None:
        """Merges a call that is not ``marked`` (or whose ``class`` is not) into the nearest marked around."""

    def put(self, values: Frame) -> None:
        """Gives each call its value of each column, in order."""

    def put_by_class(self, classes: Frame, values: Frame) -> None:
        """Gives each call the value of its ``class`` of each column."""

    def put_records(self, calls: Frame, records: Frame, device_types: Sequence[int], into: str) -> None:
        """The sums of the records of memory of some devices during each call."""

    def add(self, values: Frame) -> None:
        """Adds to the calls with row ``call`` what the other columns hold."""

    def add_by_class(
        self, values: Frame, classes: Frame, keys: Frame, counts: list[str], sums: list[str]
    ) -> None:
        """Adds to the calls with row ``call`` what the ``class`` has, and ``value`` where it is marked."""

    def put_own_time(self, calls: Frame, others: Frame, into: str) -> None:
        """How long each call itself runs, and not a call or one of ``others`` inside."""

    def subtract_children(self, column: str, into: str) -> None:
        """What ``column`` is less that of the calls directly inside."""

    def with_inner(self, column: str, into: str) -> None:
        """What ``column`` is with that of all calls inside."""

    def mark_changes(self, column: str, into: str) -> None:
        """1 where ``column`` is not what it is of the call around, or there is none, and else 0."""

    def columns(self, names: list[str]) -> ArrowTable:
        """Columns for the calls that are not merged, in order."""

    def columns_where(self, column: str, names: list[str]) -> ArrowTable:
        """The calls that are not merged where ``column`` is not 0: columns, and their position ``at``."""

    def class_sums(self, classes: Frame, count: int, names: list[str]) -> ArrowTable:
        """Sums of columns over the calls of each ``class``, and ``calls``."""

    def paths(self, names: Frame, most_levels: int) -> tuple[ArrowTable, ArrowTable]:
        """The ``path`` of each call; ``parent`` and ``name`` of each path."""

class TimelineIndex:
    """Collects the events of a trace, and says what a screen can show of them."""

    def __init__(self) -> None: ...
    def add(self, frame: Frame, kind: int, by: list[str]) -> None:
        """Adds events: ``name``, ``start_ns``, ``dur_ns``; those alike in kind and ``by`` share a track."""

    def tracks(self) -> ArrowTable:
        """The tracks as they came: the first ``event`` of each, and the first ``start_ns``."""

    def build(self, numbers: list[int]) -> tuple[int, int] | None:
        """Sorts what was added, with a new number for each track; the first start and the last end."""

    @overload
    def show(self, start_ns: int, end_ns: int, pixels: int, only: list[int] | None = None) -> ArrowTable:
        """What is seen of ``[start_ns, end_ns)`` on so many pixels; of the tracks ``only``, if named."""

    @overload
    def show(
        self, start_ns: int, end_ns: int, pixels: int, only: list[int] | None, most: int
    ) -> ArrowTable | None:
        """The same; None if it is more than ``most`` marks."""

class JsonEventWriter:
    """Writes one file of events as Chrome JSON, part by part; see ``traceparse::export`` for the columns."""

    def __init__(self, path: str | os.PathLike[str], header: str) -> None: ...
    def write(self, frames: Sequence[Frame], extras: Frame) -> None:
        """Writes the events by ``row``; ``extras`` has ``row``, ``key``, ``value``, ``is_field``."""

    def finish(self) -> None:
        """Ends the file."""

def cost_owners(
    calls: Frame, traits: Frame, anchors: Frame | None, outermost: bool
) -> tuple[ArrowTable, ArrowTable]:
    """``op`` of each piece of work; ``at``, ``forward`` and ``outer`` of the calls whose costs count."""

def operator_work(pieces: Frame, marks: Frame, count: int) -> ArrowTable:
    """Of the work of each operator ``device_ns``, ``kernels``, ``tensor_core_ns``, ``cores`` and so on."""

def nest_slices(slices: Frame) -> ArrowTable:
    """The interval around each: ``parent_row``; takes ``group``, ``start_ns``, ``dur_ns``, ``row``."""

class Intervals:
    """Intervals of several groups (``group``, ``start_ns``, ``end_ns`` or ``dur_ns``), sorted once.

    A ``window`` is a first and a last moment: what lies outside counts nothing.
    """

    def __init__(self, frame: Frame) -> None: ...
    def union(self) -> ArrowTable:
        """The union of each group: ``at``, ``start_ns``, ``end_ns``."""

    def covered(self, levels: Frame, of: Frame | None, window: tuple[int, int] | None) -> ArrowTable:
        """For how long each ``level``, or an earlier one, runs: ``at``, ``level``, ``covered_ns``."""

    def gaps(self, launched: Frame, launches: Frame) -> ArrowTable:
        """The gaps of each group: ``at``, ``dur_ns``, ``is_late``."""

    def queues(self, launched: Frame, launches: Frame) -> ArrowTable:
        """The changes of each group's queue: ``at``, ``enters``, ``length``, ``lasts_ns``."""

    def filled(self, shares: Frame, of: Frame | None, window: tuple[int, int] | None) -> ArrowTable:
        """The integral of the sum of ``share``, of which at most 1 counts: ``at``, ``filled_ns``."""

    def runs(self, labels: Frame) -> ArrowTable:
        """Intervals in a row of a group that are ``marked`` and have one ``label``: ``at``, ``run``."""

    def part(self, marks: Frame, of: Frame | None) -> Intervals:
        """Some of them, those that are ``marked``."""

    def regrouped(self, groups: Frame | None) -> Intervals:
        """The same by other groups, ``group``, or all in one."""

    def shared(self) -> ArrowTable:
        """The part of each in the time that its group covers: ``shared_ns``."""

    def groups(self) -> ArrowTable:
        """The number of each group, ``group``, and the position of an interval of it, ``at``."""

    def hidden_by(self, cover: Intervals) -> ArrowTable:
        """How much of each interval those of the same group of ``cover`` have: ``hidden_ns``."""

def longest_spans(waits: Frame, spans: Frame, steps: Frame) -> ArrowTable:
    """The outermost span on its track with which each wait shares most time: ``at``, ``shared_ns``."""

def nest_tracks(intervals: Frame) -> ArrowTable:
    """The ``track`` of its ``group`` on which each interval nests with the others, from 0."""

def find_rows(rows: Frame, wanted: Frame) -> ArrowTable:
    """Where each ``row`` of ``wanted`` stands in ``rows``: ``at``."""

def marked_parents(slices: Frame) -> ArrowTable:
    """The nearest marked slice around each marked one: ``parent_row``."""

def innermost_slices(points: Frame, slices: Frame) -> ArrowTable | None:
    """The ``row`` of the innermost slice around each point; nothing if slices nest very deep."""

def divide_rows(columns: Frame) -> tuple[ArrowTable, ArrowTable]:
    """The ``class`` of each row, and the ``first`` row of each class."""

def path_texts(paths: Frame, texts: list[str], wanted: Frame, root_first: bool) -> ArrowTable:
    """The ``text`` of each of the wanted paths."""

def fold_paths(paths: Frame, texts: list[str], calls: Frame, most: int) -> ArrowTable:
    """By text of paths ``stack`` (for the first ``most``), ``value_ns`` and ``events`` of calls."""

def attribute_windows(claims: Frame, windows: list[tuple[int, int]]) -> ArrowTable:
    """Gives every moment of the windows one owner; ``window``, ``id`` (null for nobody) and ``ns``."""

def align_events(a: Frame, b: Frame, levels: list[str]) -> ArrowTable:
    """Which rows of two frames of tokens correspond, group by group: ``a``, ``b`` and ``level``."""

def host_collectives() -> list[str]:
    """Beginnings of the names of operators that are collectives which the host runs itself."""

def step_lengths(name: str) -> list[list[int]] | None:
    """Sums over requests that the name of a step of serving tells: queries q, keys k, q * q and q * k.

    Those of the prompts, and those of decoding requests; empty if not all are there, None if it is no such
    name.
    """

def describe_tables() -> list[tuple[str, str, list[tuple[str, str, bool, str, str | None]]]]:
    """Name and description of every table, and name, type, nullability and meaning of its columns."""

def error_classes() -> dict[str, type[BaseException]]:
    """The exception class of every kind of error, by the kind's name."""

def demo_layouts() -> list[str]:
    """Names of the layouts that ``write_demo`` knows."""

def write_demo(
    folder: str | os.PathLike[str],
    *,
    size_bytes: int,
    ranks: int,
    seed: int,
    layout: str,
    gzip: bool,
    truth: bool,
    progress: Callable[[int, int], object] | None = None,
) -> list[tuple[Path, Path | None, int, int]]:
    """Writes a trace per rank; gives the trace, its truth if asked for, bytes of JSON, and steps."""

def write_demo_serving(
    folder: str | os.PathLike[str], *, steps: int, seed: int, marks: bool
) -> list[tuple[Path, str]]:
    """Writes the traces of an engine, one per recorder; gives the path and the truth of each as JSON."""

def write_demo_database(
    path: str | os.PathLike[str],
    *,
    kind: str,
    size_bytes: int,
    ranks: int,
    seed: int,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, int, str]:
    """Writes a database of nsys or nvprof; gives its bytes, its steps, and its truth as JSON."""

def gather_row_groups(
    parts: Sequence[tuple[str | os.PathLike[str], int, int, str, int, int]], out: str | os.PathLike[str]
) -> int:
    """Writes rows of several Parquet files of a table into the new file ``out``, undecoded; gives its size.

    A part is a file, the row at which it begins, its rows, and the run, rank and window that all have.

    Raises: ValueError: the part whose number it has differs in its columns from the first one.
        OSError: a file cannot be read or written, or a part is not whole row groups.
    """
