"""A trace with the operators from the captures of its replayed graphs, as if each replay had run them."""

from dataclasses import replace
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import CallTree, innermost
from kernelscope.analysis.grouping import classes_of, gather_rows
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

# What a captured operator says of each of its replays.
_SAID = (
    "name", "input_dims", "input_types", "input_strides", "concrete_inputs", "is_annotation", "phase",
    "module", "call_stack",
)  # fmt: skip
_OF_LAUNCH = ("track", "pid", "tid", "start_ns", "step")
_SEPARATOR = "/"


class Replays(NamedTuple):
    """Operators and modules replayed by graph launches.

    ``trace`` has the replayed operators and modules after the others, and operations refer to these
    operators. ``ops`` and ``modules`` are only these rows, of ``ops`` and ``python``. ``module_rows`` has for
    each GPU operation the ``row`` of its module in the capture, for this launch; null for none.
    """

    trace: Trace
    ops: pl.DataFrame
    modules: pl.DataFrame
    module_rows: pl.Series


def with_replayed_ops(trace: Trace) -> Trace:
    """Returns ``trace`` with the operators of replayed operations; see :class:`Replays`.

    Such an operator is inside the caller of its graph launch, starts with the launch and takes no host time.
    Returns the trace itself if none of its operations was found in a capture.
    """
    found = replays(trace)
    return trace if found is None else found.trace


@per_trace
def replays(trace: Trace) -> Replays | None:
    """Returns the operators replayed by graph launches according to the captures, or None."""
    work = trace.gpu_ops.select("launch_row", "captured_op_row", "captured_node_row")
    if trace.captured_nodes.is_empty() or work["captured_node_row"].null_count() == work.height:
        return None
    nodes = gather_rows(work["captured_node_row"], trace.captured_nodes, "graph_row", "grid", "block")
    launches, launch_of = _launches(trace, work.select("launch_row").hstack(nodes.select("graph_row")))
    modules, module_of = _modules(trace, launches, launch_of, _first_row(trace))
    ops, op_of = _ops(trace, launches, launch_of, modules, _first_row(trace) + modules.table.height)
    gpu_ops = trace.gpu_ops.with_columns(
        pl.coalesce(op_of, "op_row").alias("op_row"),
        *(pl.coalesce(size, nodes[size]).alias(size) for size in ("grid", "block")),
    )
    told = gather_rows(ops["captured_op_row"], trace.captured_ops, *_SAID)
    told = told.hstack(gather_rows(ops["launch_row"], trace.launches, *_OF_LAUNCH))
    ops = pl.concat(
        [trace.ops.clear(), ops.select("row", "parent_row", "depth", "module_row").hstack(told)],
        how="diagonal",
    )
    of_launch = gather_rows(modules.table["launch_row"], trace.launches, "track", "pid", "tid", "start_ns")
    frames = modules.table.select("row", "parent_row", pl.col("name").cast(pl.Categorical)).hstack(of_launch)
    frames = pl.concat([trace.python.clear(), frames], how="diagonal")
    replayed = replace(
        trace,
        ops=pl.concat([trace.ops, ops]),
        python=pl.concat([trace.python, frames]),
        gpu_ops=gpu_ops,
        # Its work names operators like any other.
        captured_nodes=trace.captured_nodes.clear(),
    )
    return Replays(replayed, ops, frames, module_of)


def _first_row(trace: Trace) -> int:
    """A number above those of all rows."""
    rows = [frame["row"].max() for frame in trace.tables.values() if "row" in frame.columns]
    return max(row for row in rows if isinstance(row, int)) + 1


class _Copies(NamedTuple):
    """The entries of captured graphs, once for each launch that replayed their graph, launch by launch.

    Columns of ``table``: ``row``, and where launch and entry stand, ``launch`` and ``entry``. ``starts`` has
    the row of each launch's first one: those of a launch follow one another as the entries of its graph.
    """

    table: pl.DataFrame
    starts: pl.Series

    def row_of(self, launch: pl.Series, place: pl.Series) -> pl.Series:
        """The row of the copy for a launch of the entry at this place of its graph; null if either is."""
        return (self.starts.gather(launch) + place).alias("row")


def _copies(launches: pl.DataFrame, graphs: pl.Series, first: int) -> _Copies:
    entries = graphs.alias("graph_row").to_frame().with_row_index("entry")
    calls = launches.select("graph_row").with_row_index("launch")
    table = calls.join(entries, on="graph_row", how="inner", maintain_order="left_right")
    table = table.select(
        pl.int_range(first, first + pl.len(), dtype=pl.UInt32).alias("row"), "launch", "entry"
    )
    sizes = calls.join(
        entries.group_by("graph_row").len("size"), on="graph_row", how="left", maintain_order="left"
    )
    before = sizes["size"].fill_null(0).cum_sum().shift(1, fill_value=0)
    return _Copies(table, (before + first).cast(pl.UInt32))


def _places(graphs: pl.Series) -> pl.Series:
    """Where each entry stands among those of its graph."""
    place = pl.int_range(pl.len(), dtype=pl.UInt32).over("graph_row")
    return graphs.alias("graph_row").to_frame().select(place).to_series()


def _launches(trace: Trace, work: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The launches whose graphs are known: ``launch_row``, ``graph_row``, and what is around each.

    That is ``op`` with its ``op_depth``, and the Python ``frame``. Beside it, where the launch of each piece
    of ``work`` stands; null for none.
    """
    classes = classes_of(work)
    known = classes.keys.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
    launches = classes.keys.filter(known)
    number = pl.select(pl.when(known).then(known.cum_sum() - 1)).to_series().cast(pl.UInt32)
    calls = gather_rows(launches["launch_row"], trace.launches, "row", "track", "start_ns", "dur_ns")
    ops, frames = innermost(calls, trace.ops), innermost(calls, trace.python)
    depths = gather_rows(ops, trace.ops, "depth")["depth"]
    launches = launches.with_columns(ops.alias("op"), depths.alias("op_depth"), frames.alias("frame"))
    return launches, classes.spread(number)


class _Modules(NamedTuple):
    """The modules that launches replayed: ``row``, ``parent_row``, ``launch_row`` and ``name``.

    ``places`` tells where each ``path`` stands among the modules of its ``graph_row``, as ``place``.
    """

    table: pl.DataFrame
    copies: _Copies
    places: pl.DataFrame


def _modules(
    trace: Trace, launches: pl.DataFrame, launch_of: pl.Series, first: int
) -> tuple[_Modules, pl.Series]:
    """The modules that each launch replayed, and the row of that of each piece of work."""
    paths = trace.captured_nodes.select("row", "graph_row", path=pl.col("module_path").cast(pl.String))
    seen: dict[tuple[int, str], tuple[str | None, str]] = {}
    for graph, path in paths.select("graph_row", "path").drop_nulls().unique(maintain_order=True).iter_rows():
        above = None
        for name in path.split(_SEPARATOR):
            inside = name if above is None else f"{above}{_SEPARATOR}{name}"
            seen.setdefault((graph, inside), (above, f"nn.Module: {name}"))
            above = inside
    schema = {"graph_row": pl.UInt32, "path": pl.String, "above": pl.String, "name": pl.String}
    known = pl.DataFrame([(*key, *value) for key, value in seen.items()], schema=schema, orient="row")
    known = known.with_columns(_places(known["graph_row"]).alias("place"))
    places = known.select("graph_row", "path", "place")
    around = places.rename({"path": "above", "place": "around"})
    known = known.join(around, on=["graph_row", "above"], how="left", maintain_order="left")
    copies = _copies(launches, known["graph_row"], first)
    of_launch = launches[copies.table["launch"]].select("launch_row", "frame")
    table = copies.table.select("row").hstack(of_launch).hstack(known[copies.table["entry"]])
    parent = pl.coalesce(pl.col("row") - pl.col("place") + pl.col("around"), "frame")
    table = table.select("row", parent.alias("parent_row"), "launch_row", "name")
    nodes = paths.join(places, on=["graph_row", "path"], how="left", maintain_order="left")
    place = gather_rows(trace.gpu_ops["captured_node_row"], nodes, "place")["place"]
    return _Modules(table, copies, places), copies.row_of(launch_of, place)


def _ops(
    trace: Trace, launches: pl.DataFrame, launch_of: pl.Series, modules: _Modules, first: int
) -> tuple[pl.DataFrame, pl.Series]:
    """The captured ops that each launch replayed: those that work of it belongs to, and those around them.

    Columns: ``row``, ``parent_row``, ``depth``, ``module_row``, ``launch_row`` and ``captured_op_row``.
    Beside it, the row of the op of each piece of work.
    """
    captured = trace.captured_ops.filter(pl.col("graph_row").is_not_null()).select(
        "row", "graph_row", "depth", "parent_row", path=pl.col("module_path").cast(pl.String)
    )
    captured = captured.with_columns(_places(captured["graph_row"]).alias("place"))
    around = gather_rows(captured["parent_row"], captured, "graph_row", "place")
    in_graph = around["graph_row"] == captured["graph_row"]
    captured = captured.with_columns(around["place"].alias("around"), in_graph.alias("is_inside"))
    captured = captured.join(
        modules.places.rename({"place": "module"}),
        on=["graph_row", "path"],
        how="left",
        maintain_order="left",
    )
    copies = _copies(launches, captured["graph_row"], first)
    found = copies.table.hstack(launches[copies.table["launch"]].select("launch_row", "op", "op_depth"))
    found = found.hstack(
        captured[copies.table["entry"]].select(
            "depth",
            "place",
            "module",
            pl.when("is_inside").then("around").alias("around"),
            captured_op_row="row",
        )
    )
    found = found.with_columns(parent_row=pl.col("row") - pl.col("place") + pl.col("around"))
    tree = CallTree(found)
    places = gather_rows(trace.gpu_ops["captured_op_row"], captured, "place")["place"]
    op_of = copies.row_of(launch_of, places)
    tree.add(pl.DataFrame({"call": op_of}).with_columns(works=pl.lit(1, pl.Int64)))
    tree.with_inner("works", into="inside")
    found = found.filter(tree.columns(["inside"])["inside"] > 0)
    parent = pl.coalesce("parent_row", "op")
    depth = pl.col("depth") + (pl.col("op_depth") + 1).fill_null(0)
    module = modules.copies.row_of(found["launch"], found["module"])
    return found.select(
        "row",
        parent.alias("parent_row"),
        depth.alias("depth"),
        module.alias("module_row"),
        "launch_row",
        "captured_op_row",
    ), op_of
