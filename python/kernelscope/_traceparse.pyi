"""The Rust reader. Private: use ``kernelscope.read``."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, overload

__version__: str
is_debug_build: bool

class ArrowTable:
    """A table that any Arrow consumer can read without a copy."""

    def __len__(self) -> int: ...
    def columns(self) -> list[ArrowTable]:
        """Returns each column as a separate table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Frame(Protocol):
    """Any object that exports its columns over the Arrow C stream interface, such as a Polars frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class RawTrace:
    """A trace as Rust returns it: its tables, and a JSON text about the file."""

    @property
    def meta(self) -> str: ...
    def take_tables(self) -> dict[str, ArrowTable]:
        """Returns every table by name. A second call returns none."""

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
    """Reads the trace at ``path``: all of its ranks, or only ``rank``.

    ``progress`` is called with the bytes read so far and the total.

    ``captures`` are read if the trace replays graphs. With ``captures_are_found``, an unreadable capture is a
    diagnostic and not an error.
    """

class RangeProjector:
    """Collects GPU operations, then calls, then host ranges, and relates them."""

    def __init__(self, by: list[str]) -> None:
        """Groups ranges that have equal values in the integer columns ``by``."""

    def add_work(self, frame: Frame) -> None:
        """Adds GPU operations: ``launch_row``, ``start_ns``, ``dur_ns``. Rows with a null are skipped."""

    def add_calls(self, frame: Frame) -> None:
        """Adds calls: ``row``, ``track``, ``start_ns``, ``dur_ns``, ``process`` (if ranges cross threads)."""

    def add_ranges(self, frame: Frame) -> None:
        """Adds ranges: ``track``, ``start_ns``, ``dur_ns``, and ``process`` and ``crosses_threads`` if any
        do."""

    def project(self) -> ArrowTable:
        """Returns the GPU time of the ranges and clears all inputs."""

    def sums(self) -> ArrowTable:
        """Returns the GPU time of the ranges by group, with the ``first`` range of each, and clears all
        inputs."""

    def pairs(self) -> ArrowTable:
        """Returns every pair of a ``range`` and the ``launch_row`` of a call in it, and clears all inputs."""

class DependencyGraph:
    """Finds what each event waited for; see ``analysis/dependencies/graph.py``."""

    def __init__(
        self, host: Frame, callers: Frame, gpu: Frame, waits: Frame, events: Frame, handed: Frame
    ) -> None: ...
    def edge_names(self) -> list[str]: ...
    def size(self) -> ArrowTable:
        """Returns the numbers of ``nodes``, of ``edges`` and of edges that were ``cut``."""

    def classes(self) -> ArrowTable:
        """Returns the ``class`` of each event of the host, or of the event around it."""

    def enclosing(self, marks: Frame, outermost: bool) -> ArrowTable:
        """Returns the innermost (or outermost) ``marked`` event around each or its launch: ``event``."""

    def replay(
        self, changes: Frame | None = None, skipped: Frame | None = None, *, keeps_unknown: bool = False
    ) -> Replay:
        """Replays with the factors ``own``, ``waiting`` and perhaps ``unknown`` and ``gap`` of each event,
        and without the ``skipped`` parts of threads: ``track``, ``start_ns``, ``end_ns``. Nothing waits for
        ``freed`` operations until the next ``phase``, if there are these columns."""

class Replay:
    """The times of a graph if some edges take longer or shorter."""

    def times(self) -> ArrowTable:
        """Returns ``start_ns`` and ``end_ns`` of every event."""

    def latest_marks(self, marks: Frame, groups: int) -> ArrowTable:
        """Returns ``at_ns``, the latest mark of each ``group``; null without any. A mark is an ``event`` with
        ``is_end``, or a moment of the recording, ``at_ns``."""

    def terms(self, meetings: Frame, marks: Frame, groups: int) -> ArrowTable:
        """Returns ``target``, ``source`` and ``length_ns``: how long after meetings (each an ``event``) have
        ended others start, and groups of marks are reached. Without a ``source`` it is a time. Targets are
        meetings, groups, and joins of several ways, which have ``recorded_ns`` and may be sources, too."""

    def slack(self, end_ns: int) -> ArrowTable:
        """Returns ``slack_ns``, by how much each event could end later without moving ``end_ns``."""

    def critical_paths(self, windows: Sequence[tuple[int, int]], to: Sequence[int | None]) -> ArrowTable:
        """Returns ``window``, ``start_ns``, ``dur_ns``, ``event`` and ``edge`` of each segment. The path of a
        window leads to the start of its event in ``to``, or else to the last event."""

class AllocatorRecords:
    """Matches allocations and frees on each device; see ``analysis/memory/records.py``."""

    def __init__(self, records: Frame, devices: int) -> None:
        """Takes records in order of time, with a ``device`` below ``devices``."""

    def partners(self, anywhere: bool) -> ArrowTable:
        """Returns the free of each allocation and the allocation of each free, as ``partner``."""

    def courses(self) -> ArrowTable: ...
    def curve(self, device: int, most: int | None) -> ArrowTable: ...
    def held(self, device: int, times: Sequence[int]) -> ArrowTable | None: ...
    def alive(self) -> ArrowTable:
        """Returns the positions ``at`` of the allocations alive at the recorded peak."""

class CallTree:
    """Calls with sums over each call alone and including nested calls; see ``analysis/call_tree.py``."""

    def __init__(self, calls: Frame) -> None: ...
    def merge_repeats(self, names: Frame) -> None:
        """Merges a call into its parent if it is the only call inside a parent with the same ``name``."""

    def copy_structure(self) -> CallTree:
        """Returns another tree of the same calls without columns."""

    def kept(self) -> ArrowTable:
        """Returns the row that each call is counted as: ``kept``."""

    def parents(self) -> ArrowTable:
        """Returns the parents of the calls that are not merged: ``parent_row``."""

    def keep_marked(self, marks: Frame, classes: Frame | None = None) -> None:
        """Merges each call that is not ``marked`` (or whose ``class`` is not) into the nearest marked
        ancestor."""

    def put(self, values: Frame) -> None:
        """Sets the value of each call in each column, in order."""

    def put_by_class(self, classes: Frame, values: Frame) -> None:
        """Sets the value of each call in each column by its ``class``."""

    def put_records(self, calls: Frame, records: Frame, device_types: Sequence[int], into: str) -> None:
        """Sets the sums of the memory records of some devices during each call."""

    def add(self, values: Frame) -> None:
        """Adds the values of the other columns to the calls with row ``call``."""

    def add_by_class(
        self, values: Frame, classes: Frame, keys: Frame, counts: list[str], sums: list[str]
    ) -> None:
        """Adds the values of the ``class`` to the calls with row ``call``, and ``value`` if the call is
        marked."""

    def put_own_time(self, calls: Frame, others: Frame, into: str) -> None:
        """Sets the duration of each call, excluding nested calls and nested ``others``."""

    def subtract_children(self, column: str, into: str) -> None:
        """Returns ``column`` minus its sum over the direct children."""

    def with_inner(self, column: str, into: str) -> None:
        """Returns ``column`` including all descendants."""

    def mark_changes(self, column: str, into: str) -> None:
        """Returns 1 if ``column`` differs from its value in the parent or there is no parent, otherwise 0."""

    def columns(self, names: list[str]) -> ArrowTable:
        """Returns columns of the calls that are not merged, in order."""

    def columns_where(self, column: str, names: list[str]) -> ArrowTable:
        """Returns columns of the unmerged calls with a nonzero ``column``, and their position ``at``."""

    def class_sums(self, classes: Frame, count: int, names: list[str]) -> ArrowTable:
        """Returns sums of columns over the calls of each ``class``, and ``calls``."""

    def paths(self, names: Frame, most_levels: int) -> tuple[ArrowTable, ArrowTable]:
        """Returns the ``path`` of each call, and the ``parent`` and ``name`` of each path."""

class TimelineIndex:
    """Collects the events of a trace and returns those that fit on a screen."""

    def __init__(self) -> None: ...
    def add(self, frame: Frame, kind: int, by: list[str]) -> None:
        """Adds events: ``name``, ``start_ns``, ``dur_ns``.

        Events with equal kind and ``by`` share a track.
        """

    def tracks(self) -> ArrowTable:
        """Returns the tracks in order of insertion: first ``event`` of each, and first ``start_ns``."""

    def build(self, numbers: list[int]) -> tuple[int, int] | None:
        """Sorts the added events and renumbers the tracks. Returns the first start and the last end."""

    @overload
    def show(self, start_ns: int, end_ns: int, pixels: int, only: list[int] | None = None) -> ArrowTable:
        """Returns the visible events of ``[start_ns, end_ns)`` on the given number of pixels, optionally
        ``only`` of some tracks."""

    @overload
    def show(
        self, start_ns: int, end_ns: int, pixels: int, only: list[int] | None, most: int
    ) -> ArrowTable | None:
        """Like ``show``, but returns None if there are more than ``most`` marks."""

class TraceEventWriter:
    """Writes a file of events, part by part; see ``framekernels::export`` for the columns.

    It is Chrome JSON with a ``header``, and a protobuf of Perfetto without.
    """

    def __init__(self, path: str | os.PathLike[str], header: str | None = None) -> None: ...
    def name(self, places: Frame) -> None:
        """Names tracks of a protobuf: ``pid``, ``tid``, ``pid_text``, ``tid_text``, ``name``, ``order``."""

    def write(self, frames: Sequence[Frame], extras: Frame) -> None:
        """Writes events: JSON by ``row``, a protobuf by start. ``extras`` has ``row``, ``key``, ``value`` and
        ``is_field``."""

    def finish(self) -> None:
        """Finishes the file."""

def cost_owners(
    calls: Frame, traits: Frame, anchors: Frame | None, outermost: bool
) -> tuple[ArrowTable, ArrowTable]:
    """Returns ``op`` of each GPU operation, and ``at``, ``forward`` and ``outer`` of the calls whose costs
    count."""

def operator_work(pieces: Frame, marks: Frame, count: int) -> ArrowTable:
    """Returns ``device_ns``, ``kernels``, ``tensor_core_ns``, ``cores`` and other sums over the GPU
    operations of each operator."""

def nest_slices(slices: Frame) -> ArrowTable:
    """Returns the ``parent_row`` of each interval from ``group``, ``start_ns``, ``dur_ns`` and ``row``."""

class Intervals:
    """Intervals of several groups (``group``, ``start_ns``, ``end_ns`` or ``dur_ns``), sorted once.

    A ``window`` is a first and a last moment. Time outside it is not counted.
    """

    def __init__(self, frame: Frame) -> None: ...
    def union(self) -> ArrowTable:
        """Returns the union of each group: ``at``, ``start_ns``, ``end_ns``."""

    def covered(self, levels: Frame, of: Frame | None, window: tuple[int, int] | None) -> ArrowTable:
        """Returns the time in which each ``level`` or an earlier one is active: ``at``, ``level``,
        ``covered_ns``."""

    def gaps(self, launched: Frame, launches: Frame) -> ArrowTable:
        """Returns the gaps of each group: ``at``, ``dur_ns``, ``is_late``."""

    def queues(self, launched: Frame, launches: Frame) -> ArrowTable:
        """Returns the changes of each group's queue: ``at``, ``enters``, ``length``, ``lasts_ns``."""

    def filled(self, shares: Frame, of: Frame | None, window: tuple[int, int] | None) -> ArrowTable:
        """Returns the integral over the sum of ``share``, capped at 1: ``at``, ``filled_ns``."""

    def runs(self, labels: Frame) -> ArrowTable:
        """Returns runs of consecutive ``marked`` intervals of a group with one ``label``: ``at``, ``run``."""

    def part(self, marks: Frame, of: Frame | None) -> Intervals:
        """Returns the ``marked`` intervals."""

    def regrouped(self, groups: Frame | None) -> Intervals:
        """Returns the same intervals in other groups ``group``, or all in one."""

    def shared(self) -> ArrowTable:
        """Returns the part of each interval inside the union of its group: ``shared_ns``."""

    def groups(self) -> ArrowTable:
        """Returns the number of each group, ``group``, and the position of one of its intervals, ``at``."""

    def hidden_by(self, cover: Intervals) -> ArrowTable:
        """Returns the part of each interval that the same group of ``cover`` covers: ``hidden_ns``."""

def longest_paths(nodes: Frame, edges: Frame) -> ArrowTable:
    """Returns ``at_ns``, when each node is reached, and the ``edge`` that decides, without which it has its
    ``recorded_ns``; see ``analysis/dependencies/ranks.py``."""

def longest_spans(waits: Frame, spans: Frame, steps: Frame) -> ArrowTable:
    """Returns the outermost span on its track that shares most time with each wait: ``at``, ``shared_ns``."""

def nest_tracks(intervals: Frame) -> ArrowTable:
    """Returns the ``track`` of its ``group``, from 0, on which each interval nests with the others."""

def find_rows(rows: Frame, wanted: Frame) -> ArrowTable:
    """Returns the position ``at`` of each ``row`` of ``wanted`` in ``rows``."""

def marked_parents(slices: Frame) -> ArrowTable:
    """Returns the nearest marked slice around each marked slice: ``parent_row``."""

def innermost_slices(points: Frame, slices: Frame) -> ArrowTable | None:
    """Returns the ``row`` of the innermost slice around each point, or None if slices nest too deep."""

def divide_rows(columns: Frame) -> tuple[ArrowTable, ArrowTable]:
    """Returns the ``class`` of each row, and the ``first`` row of each class."""

def path_texts(paths: Frame, texts: list[str], wanted: Frame, root_first: bool) -> ArrowTable:
    """Returns the ``text`` of each of the wanted paths."""

def fold_paths(paths: Frame, texts: list[str], calls: Frame, most: int) -> ArrowTable:
    """Returns ``stack`` (of the first ``most``), ``value_ns`` and ``events`` of calls, by the text of their
    paths."""

def attribute_windows(claims: Frame, windows: list[tuple[int, int]]) -> ArrowTable:
    """Assigns every moment of the windows to one owner: ``window``, ``id`` (null for none) and ``ns``."""

def align_events(a: Frame, b: Frame, levels: list[str]) -> ArrowTable:
    """Aligns the rows of two frames of tokens group by group: ``a``, ``b`` and ``level``."""

def host_collectives() -> list[str]:
    """Returns name prefixes of operators that are collectives run by the host itself."""

def step_lengths(name: str) -> list[list[int]] | None:
    """Returns sums over requests from the name of a serving step: queries q, keys k, q * q and q * k.

    The sums are those of prompts and those of decoding requests. They are empty if incomplete, and None if
    the name has another form.
    """

def describe_tables() -> list[tuple[str, str, list[tuple[str, str, bool, str, str | None]]]]:
    """Returns name and description of every table, and name, type, nullability and meaning of its columns."""

def describe_diagnostics() -> list[tuple[str, str, str]]:
    """Returns code, severity and message of every diagnostic."""

def error_classes() -> dict[str, type[BaseException]]:
    """Returns the exception class of every kind of error, by the name of the kind."""

def demo_layouts() -> list[str]:
    """Returns the names of the layouts for ``write_demo``."""

def demo_causes() -> list[str]:
    """Returns the names of the causes for ``write_demo`` and ``write_demo_database``."""

def demo_training_causes() -> list[str]:
    """Returns the names of the causes for ``write_demo_training``."""

def demo_recomputes() -> list[str]:
    """Returns the names of what ``write_demo_training`` can compute again."""

def write_demo(
    folder: str | os.PathLike[str],
    *,
    size_bytes: int,
    ranks: int,
    seed: int,
    layout: str,
    gzip: bool,
    truth: bool,
    cause: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[tuple[Path, Path | None, int, int]]:
    """Writes one trace per rank and returns the trace, its truth if requested, bytes of JSON, and steps."""

def write_demo_serving(
    folder: str | os.PathLike[str], *, steps: int, seed: int, marks: bool
) -> list[tuple[Path, str]]:
    """Writes the traces of a serving engine, one per profiler. Returns the path and the truth of each as
    JSON."""

def write_demo_training(
    folder: str | os.PathLike[str],
    *,
    parallel: str,
    recompute: str,
    seed: int,
    steps: int,
    layers: int,
    cause: str | None = None,
    micro_batches: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[list[tuple[Path, str]], str]:
    """Writes the trace of each rank of a training job. Returns the path and the truth of each, and the truth
    of the job, as JSON."""

def write_demo_database(
    path: str | os.PathLike[str],
    *,
    kind: str,
    size_bytes: int,
    ranks: int,
    seed: int,
    cause: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, int, str]:
    """Writes an nsys or nvprof database. Returns its size in bytes, its steps, and its truth as JSON."""

def gather_row_groups(
    parts: Sequence[tuple[str | os.PathLike[str], int, int, str, int, int]], out: str | os.PathLike[str]
) -> int:
    """Copies rows of several Parquet files of one table into the new file ``out`` without decoding. Returns
    its size.

    A part is a file, the row at which it begins, its number of rows, and its run, rank and window.

    Raises: ValueError: the part with the given number has other columns than the first one. OSError: a file
        cannot be read or written, or a part is not whole row groups.
    """
