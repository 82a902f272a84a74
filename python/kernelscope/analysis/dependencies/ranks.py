"""The graphs of several ranks, which meet in collectives: predictions for all of them.

A rank meets others in collectives: it arrives when one starts, and resumes when it ends, which the last rank
decides. Each rank is reduced to the time from each of its meetings to those that follow. So memory holds the
ranks that are read together, which have few events, and the meetings of all.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.changes import check_matches, factors, of_step
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.rank_changes import RankChanges, changed_links, rank_changes
from kernelscope.analysis.dependencies.steps import step_marks
from kernelscope.analysis.grouping import positions
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import Cluster, Source, Window, cluster_of, each_window, windows_of
from kernelscope.analysis.ranks.collective_calls import SYNCHRONISING, TRANSFERS
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.trace import Trace

PLACES = pl.Enum(["arrival", "departure", "start", "end", "gathered", "join"])
"""A rank arrives at a meeting, leaves it, starts or ends a step; all have arrived at a collective; or a rank
is where several of its ways join."""

_EDGE = {"target": pl.UInt32, "source": pl.UInt32, "length_ns": pl.Int64}


class Member(NamedTuple):
    """A window of a rank between its meetings, with or without changes.

    Columns: ``edges`` has those of ``Replay.terms``, and ``most`` the same for the longest time that is to be
        expected. ``steps`` has ``step``, and ``start_ns`` and ``end_ns``
        as recorded.
    Units: ns on the clock of the window.
    """

    edges: pl.DataFrame
    most: pl.DataFrame
    steps: pl.DataFrame
    by: pl.Series
    """Factor of each meeting."""
    missing: set[str]
    """The changes that match nothing."""


def member_of(
    _window: Window,
    trace: Trace,
    rows: pl.Series,
    changes: Mapping[str, float | str],
    share: float,
    step: int | None,
) -> Member:
    """Returns a window of a rank between its meetings, which are the events with the numbers ``rows``.

    All else takes ``share`` of its time.
    """
    graph = dependencies(trace)
    meetings = pl.DataFrame({"event": positions(graph.events["row"], rows)})
    among = of_step(trace, graph, step)
    found = factors(trace, graph, changes, among)
    by = found.likely["own"].gather(meetings["event"])
    shared = pl.select(pl.when(among).then(share).otherwise(1.0)).to_series()
    count = trace.steps.height
    marks = step_marks(trace)

    def terms(changed: pl.DataFrame, *, is_most: bool) -> pl.DataFrame:
        changed = changed.with_columns(pl.col("own") * shared, pl.col("waiting") * shared.clip(upper_bound=1))
        replay = graph.graph.replay(changed, keeps_unknown=is_most)
        return pl.DataFrame(replay.terms(meetings, marks, 2 * count))

    if changes or share != 1:
        edges, most = terms(found.likely, is_most=False), terms(found.most, is_most=True)
    else:
        edges = most = pl.DataFrame(graph.replay.terms(meetings, marks, 2 * count))
    recorded = pl.DataFrame(graph.replay.latest_marks(marks, 2 * count))["at_ns"]
    steps = trace.steps.select("step", start_ns=recorded.head(count), end_ns=recorded.tail(count))
    return Member(edges, most, steps, by, found.missing)


class Job(NamedTuple):
    """The meetings of all ranks, and the time that each rank takes from one to another.

    Columns: ``nodes`` has ``recorded_ns``, ``member`` and ``place`` (one of ``PLACES``), and ``number`` (of
        the meeting of the member, or of the step). ``edges`` has ``target``, ``source`` and ``length_ns``.
        ``most`` has other edges, for the longest time that is to be expected. ``steps`` has ``member``,
        ``step``, and the nodes ``start`` and ``end``. ``rows`` has the event of each meeting of each member.
    Units: ns on the common clock.
    """

    nodes: pl.DataFrame
    edges: pl.DataFrame
    most: pl.DataFrame
    steps: pl.DataFrame
    windows: list[Window]
    rows: list[pl.Series]
    shifts: list[int]
    """The values to subtract from the times of each member."""

    def reached(self) -> pl.DataFrame:
        """Returns when each node is reached: ``at_ns``, and the ``edge`` that decides."""
        return pl.DataFrame(_traceparse.longest_paths(self.nodes.select("recorded_ns"), self.edges))


def job_of(
    source: Source,
    changes: Mapping[str, float | str],
    step: int | None = None,
    executor: Executor | None = None,
    cluster: Cluster | None = None,
) -> Job:
    """Returns the graph of all ranks with changes, and the rank of each member.

    ``cluster`` is that of the source, if it is known.

    Raises: InvalidArgumentError: a change matches nothing in any rank, or is impossible.
    """
    windows = windows_of(source)
    cluster = cluster_of(source if cluster is None else cluster, executor=executor)
    numbers = pl.DataFrame(
        [(window.rank, window.window, number) for number, window in enumerate(windows)],
        schema={"rank": pl.Int64, "window": pl.Int64, "member": pl.Int64},
        orient="row",
    )
    calls = rank_calls(cluster).join(numbers, on=["rank", "window"]).sort("member", "start_ns", "row")
    asked = rank_changes(cluster, calls, changes)
    of_member = calls.partition_by("member", as_dict=True)
    own = [of_member.get((number,), calls.clear()) for number in range(len(windows))]
    rows = [meetings["row"] for meetings in own]
    tasks = [
        (window, of_window, asked.events, asked.shares.get(window.rank, 1.0), step)
        for window, of_window in zip(windows, rows, strict=True)
    ]
    members = list(each_window(member_of, tasks, executor=executor))
    check_matches([change for change in asked.events if all(change in member.missing for member in members)])
    moved = dict(shifts(cluster).iter_rows())
    by = [(moved.get(window.rank) or 0) - window.later_ns for window in windows]
    known = list(map(_on_common_clock, members, by))
    place = {(window.rank, window.window): number for number, window in enumerate(windows)}
    like = [
        known[place.get((asked.typical.get(window.rank, window.rank), window.window), number)]
        for number, window in enumerate(windows)
    ]
    members = [typical._replace(steps=member.steps) for typical, member in zip(like, known, strict=True)]
    nodes, edges, steps = _joined(cluster, members, own, asked)
    slower = [member._replace(edges=member.most) for member in members]
    more, most, _ = _joined(cluster, slower, own, asked, before=nodes)
    return Job(pl.concat([nodes, more]), edges, most, steps, windows, rows, by)


def _on_common_clock(member: Member, shift: int) -> Member:
    length = pl.col("length_ns") - pl.when(pl.col("source").is_null()).then(shift).otherwise(0)
    recorded = pl.col("recorded_ns") - shift
    edges, most = (edges.with_columns(length, recorded) for edges in (member.edges, member.most))
    steps = member.steps.with_columns(pl.col("start_ns", "end_ns") - shift)
    return member._replace(edges=edges, most=most, steps=steps)


def _joined(
    cluster: Cluster,
    members: Sequence[Member],
    calls: Sequence[pl.DataFrame],
    asked: RankChanges,
    before: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The nodes, edges and steps of all members, whose meetings are their ``calls``, in order.

    With the nodes ``before``, which are of the same members, the nodes are joins alone.
    """
    nodes: list[pl.DataFrame] = []
    steps: list[pl.DataFrame] = []
    places: list[pl.DataFrame] = []
    firsts = [0]
    for number, (member, own) in enumerate(zip(members, calls, strict=True)):
        meetings, count, first = own.height, member.steps.height, firsts[-1]
        # Arrivals come first, then departures, then where steps start and end.
        times = {
            "arrival": own["start_ns"],
            "departure": own["start_ns"] + own["dur_ns"],
            "start": member.steps["start_ns"],
            "end": member.steps["end_ns"],
        }
        nodes += [_nodes(recorded, number, place) for place, recorded in times.items()]
        arrival = pl.int_range(first, first + meetings, eager=True)
        places.append(pl.DataFrame({"arrival": arrival, "departure": arrival + meetings, "by": member.by}))
        start = pl.int_range(first + 2 * meetings, first + 2 * meetings + count, eager=True)
        steps.append(member.steps.select("step", member=number, start=start, end=start + count))
        firsts.append(first + 2 * (meetings + count))
    transfers = changed_links(cluster, _transfers(pl.concat(calls).hstack(pl.concat(places))), asked.links)
    # All have arrived at a collective.
    gathered = transfers.group_by("instance").agg(recorded_ns=pl.col("last_ns").first()).sort("instance")
    nodes.append(_nodes(gathered["recorded_ns"], None, "gathered"))
    number = pl.col("instance").rank("dense").cast(pl.Int64) - 1
    together = transfers.with_columns(gathered=firsts[-1] + number).filter("meets")
    edges = [
        transfers.select(target="departure", source="arrival", length_ns=pl.col("length_ns").clip(0)),
        together.select(target="gathered", source="arrival", length_ns=pl.lit(0)),
        together.select(target="departure", source="gathered", length_ns="length_ns"),
    ]
    known = pl.concat(nodes) if before is None else before
    joins: list[pl.DataFrame] = []
    first_join = known.height
    for number, (member, own, first) in enumerate(zip(members, calls, firsts, strict=False)):
        meetings, count = own.height, member.steps.height
        of_joins = member.edges.drop_nulls("recorded_ns").unique("target").sort("target")
        joins.append(_nodes(of_joins["recorded_ns"], number, "join"))
        # Arrivals and departures have the same numbers here, and joins follow the steps.
        target, source = (
            pl.col(name)
            + pl.when(pl.col(name) < meetings)
            .then(first + (meetings if name == "source" else 0))
            .when(pl.col(name) < meetings + 2 * count)
            .then(first + meetings)
            .otherwise(first_join - meetings - 2 * count)
            for name in ("target", "source")
        )
        edges.append(member.edges.select(target, source, "length_ns"))
        first_join += joins[-1].height
    as_edge = [pl.col(name).cast(dtype) for name, dtype in _EDGE.items()]
    found = joins if before is not None else [known, *joins]
    return pl.concat(found), pl.concat([part.select(as_edge) for part in edges]), pl.concat(steps)


def _nodes(recorded: pl.Series, member: int | None, place: str) -> pl.DataFrame:
    return pl.select(
        recorded_ns=recorded,
        member=pl.lit(member, pl.Int64),
        place=pl.lit(place, PLACES),
        number=pl.int_range(recorded.len()),
    )


def _transfers(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls with ``length_ns``: how long each takes after the last rank has arrived (at ``last_ns``) if
    it ``meets`` the others, or else after its own start."""
    kind, ends = pl.col("kind").cast(pl.String), pl.col("start_ns") + pl.col("dur_ns")
    last = pl.col("start_ns").max().over("instance")
    # A message that is over before the other rank has begun was stored in between.
    meets = kind.is_in(SYNCHRONISING) | (kind.is_in(TRANSFERS) & (last <= ends.min().over("instance")))
    meets = meets.fill_null(value=False) & (pl.col("ranks_seen") > 1)
    length = ends - pl.when(meets).then(last).otherwise("start_ns")
    by = pl.when(length > 0).then("by").otherwise(1.0)
    return calls.with_columns(meets=meets, last_ns=last, length_ns=(length * by).round().cast(pl.Int64))


def what_if_ranks(
    source: Source, changes: Mapping[str, float | str], step: int | None, executor: Executor | None
) -> pl.DataFrame:
    """Predicts the steps of all ranks; see :func:`kernelscope.analysis.what_if`.

    Columns: ``rank``, ``step``, ``before_ns``, ``after_ns``, ``after_max_ns``.
    """
    job = job_of(source, changes, step, executor)
    ranks = pl.Series("rank", [window.rank for window in job.windows], pl.Int64)
    longest = job._replace(edges=job.most)
    before, after, at_most = (
        times.gather(job.steps["end"]) - times.gather(job.steps["start"])
        for times in (job.nodes["recorded_ns"], job.reached()["at_ns"], longest.reached()["at_ns"])
    )
    rows = job.steps.select(
        ranks.gather(job.steps["member"]), "step", before_ns=before, after_ns=after, after_max_ns=at_most
    )
    return at_least(rows.sort("rank", maintain_order=True), step)


def at_least(found: pl.DataFrame, step: int | None) -> pl.DataFrame:
    """Predictions of this step, or of all, with the less favourable duration at least the expected one.

    A step can seem shorter under the less favourable assumptions, as the step before it then ends later.
    """
    found = found.with_columns(after_max_ns=pl.max_horizontal("after_ns", "after_max_ns"))
    return found if step is None else found.filter(pl.col("step") == step)
