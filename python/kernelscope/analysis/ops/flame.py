"""Folded stacks, from which flame graphs are drawn."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.call_tree import CallTree, nest
from kernelscope.analysis.grouping import classes_of, gather_rows, positions
from kernelscope.analysis.ops.call_stacks import (
    Trie,
    flat_trie,
    is_hidden_frame,
    name_trie,
    recorded_stacks,
    split_frames,
    with_event_stacks,
)
from kernelscope.analysis.ops.host_events import call_slices, host_events, shown_name, timed_calls
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

VIEWS = ("python", "module", "op")
METRICS = ("self_cpu", "self_cuda")

_METRIC = {"cpu_self_ns": "self_cpu", "device_self_ns": "self_cuda"}
"""The metrics by the columns of ``timed_calls``."""
_SELF = {metric: column for column, metric in _METRIC.items()}

# What torch writes as "_", and whatever else could end a line.
_SPECIAL = r"[ ;\p{Cc}\x{2028}\x{2029}]"
_MODULE = "nn.Module: "
_UNNAMED = "(no_name)"
_UNLINKED = "(no_operator)"
_LONGEST_NAME = 1024
_SHORTEST_NS = 1_000
# What a node is: an event of the host, or GPU work that belongs to one, or to none.
_HOST, _LINKED, _ALONE = 0, 1, 2


def folded_stacks(
    trace: Trace,
    *,
    by: str = "python",
    metric: str = "self_cpu",
    aggregate: bool = True,
    most_stacks: int | None = None,
) -> pl.DataFrame:
    """The time of each call stack, in the form of which flame graphs are drawn.

    ``by`` says what a stack is made of. ``python``: Python frames, as torch's ``export_stacks`` has them, a
    gradient in the stack of its forward operator; where the profiler did not record call stacks
    (``verbose=True``) they are put together from the Python frames in the trace. ``op``: operators,
    annotations, API calls and, for ``self_cuda``, GPU work; NVTX ranges in a trace without operators.
    ``module``: the same within the modules of the network, gradients in the module of their forward
    operator. ``metric`` is the host time (``self_cpu``) or the time of GPU work (``self_cuda``) that belongs
    to the end of the stack and to nothing below it.

    With ``aggregate`` there is a row per stack; only the first ``most_stacks`` have a text, if that is given.
    Without, there is one per event with a stack and at least a microsecond, in order of events: the lines of
    ``export_stacks``.

    Columns: ``stack`` (root first, ``;`` between frames; blanks, ``;`` and control characters are ``_``),
        ``value_ns``, ``value_us`` (without its fraction, as torch writes it), ``events``.
    Units: ns; us.
    Order: longest first, then by stack; without ``aggregate`` as the events.
    Raises: InvalidArgumentError: ``by`` or ``metric`` is unknown, or ``most_stacks`` is negative.
    Source: torch/autograd/profiler_util.py, EventList.export_stacks.

    Example: ``folded_stacks(trace, by="module", metric="self_cuda")``
    """
    if by not in VIEWS or metric not in METRICS:
        raise InvalidArgumentError(
            f"by= takes {', '.join(VIEWS)} and metric= {', '.join(METRICS)}, not {by!r} and {metric!r}"
        )
    if most_stacks is not None and most_stacks < 0:
        raise InvalidArgumentError(f"most_stacks must be 0 or more, not {most_stacks}")
    return stack_tables(trace, by, [metric], aggregate=aggregate, most_stacks=most_stacks)[0]


def stack_tables(
    trace: Trace, by: str, metrics: Sequence[str], *, aggregate: bool = True, most_stacks: int | None = None
) -> list[pl.DataFrame]:
    """The table of :func:`folded_stacks` for each of several metrics, of one walk through the trace."""
    if by == "python":
        rows, trie = _python_rows(trace, metrics)
    else:
        rows, trie = _nested_rows(trace, metrics, with_modules=by == "module")
    tables: list[pl.DataFrame] = []
    for metric in metrics:
        own = rows.select("row", "start_ns", "before", "path", value_ns=metric).drop_nulls("value_ns")
        if aggregate:
            most = own.height if most_stacks is None else most_stacks
            table = trie.folded(own.select("path", "value_ns"), most=most)
        else:
            own = own.filter(pl.col("value_ns") >= _SHORTEST_NS).sort("start_ns", "before", "row")
            paths = classes_of(own.select("path"))
            stacks = paths.spread(trie.text_of(paths.keys["path"])).alias("stack")
            table = own.select(stacks, "value_ns", events=pl.lit(1, pl.Int64)).filter(pl.col("stack") != "")
        tables.append(table.select("stack", "value_ns", value_us=pl.col("value_ns") // 1000, events="events"))
    return tables


def _python_rows(trace: Trace, metrics: Sequence[str]) -> tuple[pl.DataFrame, Trie]:
    """Path and times of each host event, and the paths."""
    events, texts, trie = host_events(trace), recorded_stacks(trace), None
    if texts["text"].null_count() == texts.height:
        texts, trie = _rebuilt_stacks(trace, events)
    tree = timed_calls(trace, events)
    stacked = with_event_stacks(trace, events, texts)
    calls = stacked.select("row", "start_ns", before=-pl.col("dur_ns"), path="stack").filter(tree.is_kept())
    rows = calls.hstack(tree.columns([_SELF[metric] for metric in metrics]).rename(_METRIC, strict=False))
    if trie is None:
        recorded = classes_of(rows.select("path"))
        frames = pl.element().str.replace_all(_SPECIAL, "_")
        texts = split_frames(recorded.keys["path"]).select(
            pl.col("frames").list.eval(frames).list.reverse().list.join(";")
        )
        trie = flat_trie(recorded.of, texts.to_series().to_list())
        rows = rows.with_columns(recorded.of.alias("path"))
    return rows, trie


def _rebuilt_stacks(trace: Trace, events: pl.DataFrame) -> tuple[pl.DataFrame, Trie]:
    """The call stacks of operators and Python frames, put together from the frames in the trace.

    Like the recorded ones without the frame itself: ``text`` is a path of the trie.
    """
    trie = name_trie(trace.python, _frame_texts)
    tree = CallTree(events)
    tree.keep_marked(events["is_python"])
    # A frame knows its caller, who may be on another thread.
    callers = gather_rows(events["row"], trace.python, "parent_row")["parent_row"]
    frames = callers.zip_with(events["is_python"], tree.kept())
    paths = trie.path_of.gather(positions(trace.python["row"], frames))
    return events.select("row", paths.alias("text")), trie


def _frame_texts(names: pl.DataFrame) -> pl.Series:
    cleaned = names.select(_clean(pl.col("name").cast(pl.String)).alias("name"))
    return cleaned.select(pl.when(~is_hidden_frame(pl.col("name"))).then("name")).to_series()


def _nested_rows(trace: Trace, metrics: Sequence[str], *, with_modules: bool) -> tuple[pl.DataFrame, Trie]:
    """Path and times of each event and each piece of GPU work, and the paths."""
    nodes = _nodes(trace, with_modules=with_modules)
    nodes = nodes.with_columns(self_cuda=pl.lit(0, pl.Int64))
    if "self_cpu" in metrics:
        tree = CallTree(nodes)
        tree.put(nodes.select("dur_ns"))
        tree.subtract_children("dur_ns", into="self_cpu")
        nodes = nodes.hstack(tree.columns(["self_cpu"]))
    if with_modules:
        # An operator that runs in no module lies in that of its forward operator.
        nodes = nodes.with_columns(pl.coalesce("parent_row", "module_row").alias("parent_row"))
    nodes = nodes.select("row", "parent_row", "name", "start_ns", *metrics, part=pl.lit(_HOST, pl.Int32))
    if "self_cuda" in metrics:
        nodes = pl.concat([nodes, _work(trace)], how="diagonal")
    text = pl.col("name").cast(pl.String)
    shown = pl.when(pl.col("part") == _HOST).then(shown_name(text).str.strip_prefix(_MODULE)).otherwise(text)
    alone = pl.when(pl.col("part") == _ALONE).then(pl.lit(f"{_UNLINKED};")).otherwise(pl.lit(""))
    cleaned = alone + _clean(shown)
    trie = name_trie(nodes, lambda names: names.select(cleaned).to_series(), keys=("name", "part"))
    return nodes.select("row", "start_ns", *metrics, before=pl.lit(0), path=trie.path_of), trie


def _nodes(trace: Trace, *, with_modules: bool) -> pl.DataFrame:
    """Host events nested as calls, with the modules of the network among them if wanted."""
    frames = trace.python.clear()
    if with_modules:
        names = classes_of(trace.python.select("name"))
        is_module = names.keys["name"].cast(pl.String).str.starts_with(_MODULE).fill_null(value=False)
        frames = trace.python.filter(names.spread(is_module))
    columns = ("row", "name", "start_ns", "dur_ns", "track", "module_row")
    parts = [call_slices(trace, frames).select(columns)]
    if trace.ops.is_empty():
        ranges = trace.ranges.filter(pl.col("kind") == "push_pop").select(
            "row", "name", "start_ns", pl.col("dur_ns").fill_null(0),
            track=-1 - pl.col("track").cast(pl.Int64), module_row=pl.lit(None, pl.UInt32),
        )  # fmt: skip
        parts.append(ranges)
    return nest(pl.concat(parts))


def _work(trace: Trace) -> pl.DataFrame:
    """GPU work as nodes below the operator or range that it belongs to."""
    parent = pl.coalesce("op_row", "range_row")
    return trace.gpu_ops.select(
        "row",
        parent_row=parent,
        name="name",
        start_ns="start_ns",
        self_cuda=pl.col("dur_ns").fill_null(0),
        part=pl.when(parent.is_null()).then(_ALONE).otherwise(_LINKED).cast(pl.Int32),
    )


def _clean(name: pl.Expr) -> pl.Expr:
    """A name as a frame of a folded stack."""
    text = name.str.slice(0, _LONGEST_NAME).str.replace_all(_SPECIAL, "_")
    return pl.when(text.str.len_bytes() > 0).then(text).otherwise(pl.lit(_UNNAMED))
