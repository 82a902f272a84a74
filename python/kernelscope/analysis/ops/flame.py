"""Folded stacks, the input of flame graphs."""

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
from kernelscope.analysis.ops.host_events import call_slices, host_events, shown_name, timed_calls, times_of
from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.analysis.replays import replays, with_replayed_ops
from kernelscope.analysis.timeline import thread_labels
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

VIEWS = ("python", "module", "op")
METRICS = {"self_cpu": "cpu_self_ns", "self_cuda": "device_self_ns"}
"""Views with their columns of ``timed_calls``."""

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
    by_thread: bool = False,
    most_stacks: int | None = None,
) -> pl.DataFrame:
    """Time of each call stack, as folded stacks for flame graphs.

    ``by`` selects the frames of a stack. ``python``: Python frames, as in torch's ``export_stacks``, with a
    gradient in the stack of its forward operator. If the profiler did not record call stacks
    (``verbose=True``), they are assembled from the Python frames in the trace. ``op``: operators,
    annotations, API calls, NVTX ranges and, for ``self_cuda``, GPU operations.
    ``module``: the same inside the modules of the network, with gradients in the module of their forward
    operator. ``metric`` is the host time (``self_cpu``) or the GPU time (``self_cuda``) of the end of the
    stack, excluding frames below it.

    With ``aggregate``, there is one row per stack; with ``by_thread``, one per thread and stack, because the
    times of concurrent threads cannot be added. ``most_stacks`` limits the number of rows with a text.
    Without ``aggregate``, there is one row per event with a stack and at least one microsecond, in order of
    events: the lines of ``export_stacks``.

    Columns: ``thread`` (with ``by_thread``), ``stack`` (root first, separated by ``;``; blanks, ``;`` and
        control characters become ``_``), ``value_ns``, ``value_us`` (truncated, as torch writes it),
        ``events``.
    Units: ns; us. Order: longest first, then by stack; without ``aggregate`` in order of events.
    Raises: InvalidArgumentError: ``by`` or ``metric`` is unknown, or ``most_stacks`` is negative.
    Source: torch/autograd/profiler_util.py, EventList.export_stacks.

    Example: ``folded_stacks(trace, by="module", metric="self_cuda")``
    """
    if by not in VIEWS or metric not in METRICS:
        raise InvalidArgumentError(
            f"by= takes {', '.join(VIEWS)} and metric= {', '.join(METRICS)}, not {by!r} and {metric!r}"
        )
    if by_thread and not aggregate:
        raise InvalidArgumentError("by_thread= sums stacks, which aggregate=False keeps separate")
    if most_stacks is not None and most_stacks < 0:
        raise InvalidArgumentError(f"most_stacks must be 0 or more, not {most_stacks}")
    rows, trie = stack_rows(trace, by, metric)
    own = rows.drop_nulls("value_ns")
    most = own.height if most_stacks is None else most_stacks
    if by_thread:
        table = _by_thread(trace, trie, own, most)
    elif aggregate:
        table = trie.folded(own.select("path", "value_ns"), most=most)
    else:
        own = own.filter(pl.col("value_ns") >= _SHORTEST_NS).sort("start_ns", "before", "row")
        paths = classes_of(own.select("path"))
        stacks = paths.spread(trie.text_of(paths.keys["path"])).alias("stack")
        table = own.select(stacks, "value_ns", events=pl.lit(1, pl.Int64)).filter(pl.col("stack") != "")
    columns = ["thread"] if by_thread else []
    return table.select(*columns, "stack", "value_ns", value_us=pl.col("value_ns") // 1000, events="events")


def _by_thread(trace: Trace, trie: Trie, own: pl.DataFrame, most: int) -> pl.DataFrame:
    """The stacks of each thread; GPU work counts for the thread of its operator."""
    labels = dict(thread_labels(trace.threads).select("track", "label").iter_rows())
    own = own.with_columns(track=of_thread(pl.col("track")))
    tables = [
        trie.folded(part.select("path", "value_ns"), most=most).with_columns(
            thread=pl.lit(labels.get(thread, _UNLINKED))
        )
        for (thread,), part in own.group_by("track", maintain_order=True)
    ]
    # For the columns, where there is no thread.
    tables.append(trie.folded(own.select("path", "value_ns").clear(), most=0).with_columns(thread=pl.lit("")))
    return pl.concat(tables).sort("value_ns", "thread", descending=[True, False], maintain_order=True)


def of_thread(track: pl.Expr) -> pl.Expr:
    """Returns the track of the thread: calls that belong to no operator have a number below 0 for it."""
    return pl.when(track < 0).then(-1 - track).otherwise(track)


def stack_rows(trace: Trace, by: str, metric: str) -> tuple[pl.DataFrame, Trie]:
    """Returns ``row``, ``start_ns``, ``track``, ``path`` and ``value_ns`` of each event, and the paths."""
    if by == "python":
        return _python_rows(trace, metric)
    return _nested_rows(trace, metric, with_modules=by == "module")


def _python_rows(trace: Trace, metric: str) -> tuple[pl.DataFrame, Trie]:
    """Path and times of each host event, and the paths."""
    events, texts, trie = host_events(trace), recorded_stacks(trace), None
    if not has_recorded_stacks(trace):
        texts, trie = _rebuilt_stacks(trace, events)
    tree = timed_calls(trace, events)
    stacked = with_event_stacks(trace, events, texts)
    calls = stacked.select("row", "start_ns", "track", before=-pl.col("dur_ns"), path="stack")
    calls = calls.filter(tree.is_kept())
    rows = calls.hstack(times_of(tree, [METRICS[metric]]).rename({METRICS[metric]: "value_ns"}))
    if trie is None:
        recorded = classes_of(rows.select("path"))
        frames = pl.element().str.replace_all(_SPECIAL, "_")
        texts = split_frames(recorded.keys["path"]).select(
            pl.col("frames").list.eval(frames).list.reverse().list.join(";")
        )
        trie = flat_trie(recorded.of, texts.to_series().to_list())
        rows = rows.with_columns(recorded.of.alias("path"))
    return (rows, trie) if metric == "self_cpu" else _with_captured_stacks(trace, rows, trie)


def _with_captured_stacks(trace: Trace, rows: pl.DataFrame, trie: Trie) -> tuple[pl.DataFrame, Trie]:
    """Gives replayed work the stacks in which it was captured."""
    replayed = replays(trace)
    if replayed is None:
        return rows, trie
    gpu_ops = replayed.trace.gpu_ops
    stacks = gather_rows(gpu_ops["captured_node_row"], trace.captured_nodes, "call_stack")
    tracks = gather_rows(gpu_ops["launch_row"], trace.launches, "track")
    loose = gpu_ops.select(
        "row",
        "start_ns",
        *stacks,
        tracks["track"].cast(pl.Int64),
        before=pl.lit(0, pl.Int64),
        value_ns=pl.col("dur_ns").fill_null(0),
    ).filter(gpu_ops["op_row"].is_null() & stacks["call_stack"].is_not_null())
    captured = pl.concat([replayed.ops.select("row", "call_stack"), loose.select("row", "call_stack")])
    distinct = classes_of(captured.select("call_stack"))
    frames = pl.element().str.replace_all(_SPECIAL, "_")
    split = distinct.keys["call_stack"].cast(pl.String).fill_null("").str.split(";")
    texts = split.list.eval(frames).list.reverse().list.join(";").to_list()
    paths = pl.DataFrame({"row": captured["row"], "captured": distinct.of + trie.paths.height})
    rows = pl.concat([rows, loose.drop("call_stack")], how="diagonal")
    rows = rows.join(paths, on="row", how="left", maintain_order="left")
    rows = rows.with_columns(path=pl.coalesce("captured", "path")).drop("captured")
    names = pl.int_range(len(trie.texts), len(trie.texts) + len(texts), dtype=pl.UInt32, eager=True)
    added = names.alias("name").to_frame()
    return rows, Trie(trie.path_of, pl.concat([trie.paths, added], how="diagonal"), [*trie.texts, *texts])


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


def has_recorded_stacks(trace: Trace) -> bool:
    """Returns whether operators or Python frames have call stacks as texts."""
    stacks = recorded_stacks(trace)["text"]
    return stacks.null_count() < stacks.len()


def python_frames(trace: Trace) -> pl.DataFrame:
    """Returns the Python frames that stacks are assembled from: ``row``, ``start_ns``, ``track``, ``path``.

    Paths are as in :func:`stack_rows` by Python frames. Each row has the path of its frame.
    """
    trie = name_trie(trace.python, _frame_texts)
    texts = pl.Series(trie.texts, dtype=pl.String).gather(trie.paths["name"]).gather(trie.path_of)
    frames = trace.python.select("row", "start_ns", "track").with_columns(trie.path_of.alias("path"))
    return frames.filter(texts != "")


def _frame_texts(names: pl.DataFrame) -> pl.Series:
    cleaned = names.select(clean_name(pl.col("name").cast(pl.String)).alias("name"))
    return cleaned.select(pl.when(~is_hidden_frame(pl.col("name"))).then("name")).to_series()


def _nested_rows(trace: Trace, metric: str, *, with_modules: bool) -> tuple[pl.DataFrame, Trie]:
    """Path and times of each event and each piece of GPU work, and the paths."""
    nodes = _nodes(trace, with_modules=with_modules)
    if metric == "self_cpu":
        tree = CallTree(nodes)
        tree.put_own_time(nodes, into="value_ns")
        nodes = nodes.hstack(tree.columns(["value_ns"]))
    else:
        nodes = nodes.with_columns(value_ns=pl.lit(0, pl.Int64))
    if with_modules:
        # An operator that runs in no module lies in that of its forward operator. A call of a module that
        # began no earlier may lie in the operator itself.
        begun = gather_rows(nodes["module_row"], trace.python, "start_ns")["start_ns"]
        module = pl.when(begun < nodes["start_ns"]).then("module_row")
        nodes = nodes.with_columns(pl.coalesce("parent_row", module).alias("parent_row"))
    columns = ("row", "parent_row", "name", "start_ns", "track")
    nodes = nodes.select(*columns, "value_ns", part=pl.lit(_HOST, pl.UInt8))
    if metric == "self_cuda":
        work = _work(trace, with_modules=with_modules)
        work = work.hstack(gather_rows(work["parent_row"], nodes, "track"))
        nodes = pl.concat([nodes, work], how="diagonal")
    text = pl.col("name").cast(pl.String)
    shown = pl.when(pl.col("part") == _HOST).then(shown_frame_name(text)).otherwise(text)
    alone = pl.when(pl.col("part") == _ALONE).then(pl.lit(f"{_UNLINKED};")).otherwise(pl.lit(""))
    cleaned = alone + clean_name(shown)
    trie = name_trie(nodes, lambda names: names.select(cleaned).to_series(), keys=("name", "part"))
    return nodes.select(
        "row", "start_ns", "track", "value_ns", before=pl.lit(0, pl.Int8), path=trie.path_of
    ), trie


def _nodes(trace: Trace, *, with_modules: bool) -> pl.DataFrame:
    """Host events nested as calls, with the modules of the network among them if wanted."""
    frames = trace.python.clear()
    if with_modules:
        names = classes_of(trace.python.select("name"))
        is_module = names.keys["name"].cast(pl.String).str.starts_with(_MODULE).fill_null(value=False)
        frames = trace.python.filter(names.spread(is_module))
    parts = [call_slices(trace, frames, "module_row").drop("is_python")]
    ranges = ranges_beside_operators(trace)
    if ranges.height:
        # On the tracks of operators, or of calls that belong to none.
        track = pl.col("track").cast(pl.Int64)
        ranges = ranges.filter(pl.col("kind") == "push_pop").select(
            "row", "start_ns", pl.col("dur_ns").fill_null(0), "name",
            track=-1 - track if trace.ops.is_empty() else track, module_row=pl.lit(None, pl.UInt32),
        )  # fmt: skip
        parts.append(ranges)
    nodes = nest(pl.concat(parts))
    replayed = replays(trace)
    if replayed is None:
        return nodes
    track = pl.col("track").cast(pl.Int64)
    columns = ("row", "name", "start_ns", track, "module_row", "parent_row")
    ops = replayed.ops.select(columns)
    if with_modules:
        # The outermost in a module lie there, and not in what launched the graph.
        is_outermost = ~pl.col("parent_row").is_in(ops["row"].implode()).fill_null(value=False)
        inside = pl.when(is_outermost).then(pl.coalesce("module_row", "parent_row")).otherwise("parent_row")
        modules = replayed.modules.select("row", "name", "start_ns", track, "parent_row")
        ops = pl.concat([ops.with_columns(inside.alias("parent_row")), modules], how="diagonal")
    ops = ops.with_columns(dur_ns=pl.lit(0, pl.Int64))
    return pl.concat([nodes, ops.select(nodes.columns)])


def _work(trace: Trace, *, with_modules: bool) -> pl.DataFrame:
    """GPU work as nodes below the operator or range that it belongs to, or the module it was captured in."""
    parent = pl.coalesce("op_row", "range_row")
    replayed = replays(trace)
    if with_modules and replayed is not None:
        parent = pl.coalesce("op_row", replayed.module_rows, "range_row")
    return with_replayed_ops(trace).gpu_ops.select(
        "row",
        parent_row=parent,
        name="name",
        start_ns="start_ns",
        value_ns=pl.col("dur_ns").fill_null(0),
        part=pl.when(parent.is_null()).then(_ALONE).otherwise(_LINKED).cast(pl.UInt8),
    )


def shown_frame_name(name: pl.Expr) -> pl.Expr:
    """Returns the name of an event as shown in a frame, without characters that would end a frame."""
    return shown_name(name).str.strip_prefix(_MODULE)


def clean_name(name: pl.Expr) -> pl.Expr:
    """Returns a name in the form required in folded stacks."""
    text = name.str.slice(0, _LONGEST_NAME).str.replace_all(_SPECIAL, "_")
    return pl.when(text.str.len_bytes() > 0).then(text).otherwise(pl.lit(_UNNAMED))
