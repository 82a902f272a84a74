"""The critical path of several ranks, which moves to the last rank wherever it reaches a collective."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.dependencies.described import described
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.ranks import Job, job_of
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.dependencies.steps import numbered
from kernelscope.analysis.grouping import positions
from kernelscope.analysis.ranks.cluster import Source, Window, each_window
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace


class _Hop(NamedTuple):
    """A part of the path on one member, on the common clock.

    It leads to the arrival at a meeting, or without one to the end of the step. A transfer is the rest of a
    meeting, after the last rank has arrived.
    """

    member: int
    meeting: int | None
    is_transfer: bool
    start_ns: int
    end_ns: int

    def window(self, shift: int) -> tuple[int, int]:
        """Returns its start and end on the clock of the member."""
        return self.start_ns + shift, self.end_ns + shift


def path_of_ranks(
    source: Source, step: int | None, executor: Executor | None, columns: Sequence[str] = ()
) -> pl.DataFrame:
    """Returns the critical path of a step, or of all steps, over all ranks.

    Columns: ``rank``, and as :func:`kernelscope.analysis.critical_path`; then ``columns`` of
        :func:`described`.
    Units: ns on the common clock.
    """
    return path_of_job(job_of(source, {}, executor=executor), step, executor, columns)


def path_of_job(
    job: Job, step: int | None = None, executor: Executor | None = None, columns: Sequence[str] = ()
) -> pl.DataFrame:
    """Returns the same of a job without changes."""
    hops = _hops(job, *_window_of(job, step))
    of_member: dict[int, list[_Hop]] = {}
    for hop in hops:
        of_member.setdefault(hop.member, []).append(hop)
    # A step that takes no time has no path, but columns.
    tasks = [
        (job.windows[number], own, job.rows[number], job.shifts[number], columns)
        for number, own in (of_member or {0: []}).items()
    ]
    return pl.concat(each_window(_of_member, tasks, executor=executor)).sort("start_ns")


def check_alone(window_ns: tuple[int, int] | None, annotation: str | None) -> None:
    """Refuses parts of several ranks other than a step.

    Raises: InvalidArgumentError: there is one.
    """
    if window_ns is not None or annotation is not None:
        raise InvalidArgumentError("the critical path of several ranks takes step= alone")


def _window_of(job: Job, step: int | None) -> tuple[int, int]:
    """The node with which the last rank ends the step, and when the first one starts it."""
    steps = job.steps if step is None else numbered(job.steps, step)
    if steps.is_empty():
        raise InvalidArgumentError("the ranks have no steps")
    recorded = job.nodes["recorded_ns"]
    last = recorded.gather(steps["end"]).arg_max() or 0
    start_ns = recorded.gather(steps["start"]).min()
    return int(steps["end"][last]), int(str(start_ns))


def _hops(job: Job, node: int | None, since: int) -> list[_Hop]:
    """The path back from a node to a moment."""
    solved = job.reached()
    at, deciding = solved["at_ns"], solved["edge"]
    sources, places = job.edges["source"], job.nodes["place"]

    def before(node: int) -> int | None:
        edge = deciding[node]
        return None if edge is None else sources[edge]

    found: list[_Hop] = []
    reached = since if node is None else int(at[node])
    while node is not None and reached > since:
        source = before(node)
        row = job.nodes.row(node, named=True)
        is_transfer = row["place"] == "departure"
        while source is not None and places[source] in ("gathered", "join"):
            source = before(source)
        start = since if source is None else max(int(at[source]), since)
        if start < reached:
            meeting = row["number"] if is_transfer or row["place"] == "arrival" else None
            found.append(_Hop(row["member"], meeting, is_transfer, start, reached))
            reached = start
        node = source
    return found


def _of_member(
    window: Window, trace: Trace, hops: Sequence[_Hop], rows: pl.Series, shift: int, columns: Sequence[str]
) -> pl.DataFrame:
    """The segments of the path on a member."""
    graph = dependencies(trace)
    events = positions(graph.events["row"], rows).to_list()
    own = [hop for hop in hops if not hop.is_transfer]
    to = [None if hop.meeting is None else events[hop.meeting] for hop in own]
    path = segments(graph, graph.replay, [hop.window(shift) for hop in own], to)
    transfers = [
        (events[hop.meeting or 0], hop.start_ns + shift, hop.end_ns - hop.start_ns)
        for hop in hops
        if hop.is_transfer
    ]
    schema = {"event": pl.UInt32, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    inside = pl.DataFrame(transfers, schema=schema, orient="row")
    known = graph.events[inside["event"]].select("row", "table", "kind").cast({pl.Enum: pl.String})
    moved = inside.hstack(known).with_columns(edge=pl.lit("execution"), bound_by=pl.lit("communication"))
    path = pl.concat([path.drop("window"), moved.select(path.drop("window").columns)])
    found = path.select(pl.lit(window.rank, pl.Int64).alias("rank"), pl.exclude("event"))
    found = found.with_columns(pl.col("start_ns") - shift)
    return found.hstack(described(trace, graph, columns)[path["event"]].select(columns)) if columns else found
