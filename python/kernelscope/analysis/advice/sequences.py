"""Sequences of kernels worth fusing or launching as a graph, found without naming an operator."""

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.savings import Change
from kernelscope.analysis.costs.limits import OVER_BUS
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.launching import last_waits, launches_of_works
from kernelscope.analysis.grouping import by_name, gather_rows
from kernelscope.analysis.kernels.categories import work_categories
from kernelscope.trace import Trace

_FUSABLE = (
    "elementwise", "activation", "norm", "softmax", "reduction", "rope", "quantisation", "indexing", "copy",
)  # fmt: skip
_NAMES = 20
_LEAST = {"fuse": 2, "graph": 3}


def sequence_savings(trace: Trace, *, most: int = 10) -> pl.DataFrame:
    """Returns sequences of kernels with what fusing them, or launching them as one graph, would save.

    To fuse: kernels in a row on a stream that are limited by memory (elementwise, normalization, softmax and
    the like, by :func:`kernel_categories`), but for the optimizer. At best one kernel takes as long as the
    longest, and nothing else is launched. To launch as a graph: GPU operations that a thread launches in a
    row without waiting for the GPU or copying from the host. Then launches take no time after the first.
    Runs of a step with the same names are one sequence. The ``most`` sequences of each kind with most to save
    are replayed: see :func:`what_if`. Only complete steps count.

    Columns: ``change`` (fuse or graph), ``works`` (operations of a run), ``runs``, ``gpu_ns`` (of all runs),
        ``saving_ns`` (reduction of the time of all steps), ``saving_share`` (relative to it), ``kernels`` and
        ``ops`` (names of the first 20 operations of a run and of their operators), ``module`` and ``row`` (of
        the first operation of the first run).
    Units: ns; shares between 0 and 1. Savings overlap.
    Order: by saving, largest first; without sequences that save nothing.

    Example: ``sequence_savings(trace).filter(change="fuse").select("kernels", "saving_ns")``
    """
    facts = Facts(trace)
    works = _works(facts)
    found: list[dict[str, object]] = []
    for change, runs in {"fuse": _to_fuse(works), "graph": _to_launch(works)}.items():
        for sequence in _largest(facts.inside(runs), change, most):
            chosen = _fused(facts, sequence) if change == "fuse" else _as_graph(facts, sequence)
            saving_ns = facts.savings.of(chosen)
            if saving_ns > 0:
                share = saving_ns / facts.total_ns
                row = {"change": change, "saving_ns": saving_ns, "saving_share": share}
                found.append(row | _described(trace, sequence))
    table = pl.DataFrame(found, schema=_SCHEMA, orient="row")
    return table.sort("saving_ns", "gpu_ns", "row", descending=[True, True, False])


_SCHEMA = {
    "change": pl.String,
    "works": pl.Int64,
    "runs": pl.Int64,
    "gpu_ns": pl.Int64,
    "saving_ns": pl.Int64,
    "saving_share": pl.Float64,
    "kernels": pl.List(pl.String),
    "ops": pl.List(pl.String),
    "module": pl.String,
    "row": pl.UInt32,
}


def _works(facts: Facts) -> pl.DataFrame:
    """The GPU operations with their launches.

    Columns: ``row``, ``id`` (of the name), ``pid``, ``device``, ``stream``, ``step``, ``op_row``,
        ``start_ns``, ``dur_ns``, ``fusable``, ``capturable``, ``track``, ``call_ns`` and ``called_ns`` (start
        and end of the launch), and ``after`` (the last wait of the host before it).
    """
    trace = facts.trace
    graph = dependencies(trace)
    calls = launches_of_works(trace)
    works = by_name(
        trace.gpu_ops.select("row", "name", "kind", "pid", "device", "stream", "step", "op_row", "start_ns"),
        is_over_bus=pl.col("text").str.contains(OVER_BUS).fill_null(value=False),
    )
    at = graph.times[calls].select(call_ns="start_ns", called_ns="end_ns")
    is_limited = work_categories(trace).cast(pl.String).is_in(_FUSABLE)
    is_alone = ~trace.gpu_ops["launch_row"].is_duplicated()
    return works.select(
        pl.exclude("name", "kind", "is_over_bus"),
        trace.gpu_ops["dur_ns"].fill_null(0),
        pl.col("name").cast(pl.Categorical).to_physical().alias("id"),
        graph.events["track"].gather(calls).alias("track"),
        *at,
        last_waits(trace).alias("after"),
        # An optimizer that goes through parameters one by one computes no chain.
        fusable=(pl.col("kind") == "kernel") & is_limited & ~facts.updates,
        # What a graph launched is in one already.
        capturable=is_alone & ~((pl.col("kind") == "memcpy") & pl.col("is_over_bus")),
    )


def _to_fuse(works: pl.DataFrame) -> pl.DataFrame:
    """The kernels to fuse in their order, with ``run``."""
    ordered = works.sort("pid", "device", "stream", "start_ns", "row")
    return _runs(ordered, "fusable", ("pid", "device", "stream", "step", "track", "after"))


def _to_launch(works: pl.DataFrame) -> pl.DataFrame:
    """The operations to launch as a graph in the order of their launches, with ``run``."""
    ordered = works.drop_nulls("call_ns").sort("track", "call_ns", "row")
    return _runs(ordered, "capturable", ("step", "track", "after"))


def _runs(ordered: pl.DataFrame, marked: str, same: tuple[str, ...]) -> pl.DataFrame:
    """The marked rows, with the ``run`` of rows with the ``same`` values and no others in between."""
    place = pl.struct(marked, *same)
    return ordered.with_columns(run=place.rle_id()).filter(marked)


def _largest(works: pl.DataFrame, change: str, most: int) -> list[pl.DataFrame]:
    """The sequences with most to save: the operations of all runs of each."""
    launching_ns = pl.col("called_ns").max() - pl.col("called_ns").min()
    # A graph saves no time on the GPU.
    hidden_ns = pl.col("dur_ns").sum() - pl.col("dur_ns").max() if change == "fuse" else 0
    runs = works.group_by("run", maintain_order=True).agg(
        sequence=pl.col("id").cast(pl.String).str.join(","),
        works=pl.len(),
        most_ns=launching_ns.fill_null(0) + hidden_ns,
    )
    runs = runs.filter(pl.col("works") >= _LEAST[change])
    sums = runs.group_by("sequence", maintain_order=True).agg(pl.col("most_ns").sum())
    largest = sums.top_k(most, by="most_ns")
    chosen = works.join(runs.join(largest, on="sequence").select("run", "sequence"), on="run")
    return chosen.sort("sequence", "run", maintain_order=True).partition_by("sequence", maintain_order=True)


def _fused(facts: Facts, works: pl.DataFrame) -> Change:
    longest = pl.col("dur_ns").arg_max().over("run") == pl.int_range(pl.len()).over("run")
    saved = works.select("row", "dur_ns", saved=pl.when(longest).then(0).otherwise("dur_ns"))
    return facts.faster(saved, "saved", launched=False)


def _as_graph(facts: Facts, works: pl.DataFrame) -> Change:
    runs = works.group_by("run").agg(
        pl.col("track").first(), start_ns=pl.col("called_ns").min(), end_ns=pl.col("called_ns").max()
    )
    later = works.filter(pl.int_range(pl.len()).over("run") > 0)
    return facts.savings.launched(later["row"], runs.filter(pl.col("end_ns") > pl.col("start_ns")))


def _described(trace: Trace, works: pl.DataFrame) -> dict[str, object]:
    first = works.filter(pl.col("run") == works["run"].first())
    names = gather_rows(first["row"], trace.gpu_ops, "name")["name"]
    ops = gather_rows(first["op_row"], trace.ops, "name", "module").cast(pl.String)
    return {
        "works": first.height,
        "runs": works["run"].n_unique(),
        "gpu_ns": works["dur_ns"].sum(),
        "kernels": names.head(_NAMES).cast(pl.String).to_list(),
        "ops": ops["name"].head(_NAMES).to_list(),
        "module": ops["module"][0],
        "row": first["row"][0],
    }
