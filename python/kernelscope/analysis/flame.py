"""Folded stacks, from which flame graphs are drawn."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.averages.call_stacks import frames_of, recorded_texts
from kernelscope.analysis.averages.events import host_events, torch_events
from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.name_trie import name_trie, path_texts
from kernelscope.analysis.tree import nest
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.trace import Trace

VIEWS = ("python", "module", "op")
METRICS = ("self_cpu", "self_cuda")

# What torch writes as "_", and whatever else could end a line.
_SPECIAL = r"[ ;\p{Cc}\x{2028}\x{2029}]"
_MODULE = "nn.Module: "
_UNNAMED = "(no_name)"
_UNLINKED = "(no_operator)"
_LONGEST_NAME = 1024


def folded_stacks(
    trace: "Trace", *, by: str = "python", metric: str = "self_cpu", aggregate: bool = True
) -> pl.DataFrame:
    """The time of each call stack, in the form of which flame graphs are drawn.

    ``by`` says what a stack is made of. ``python``: Python frames, as torch's ``export_stacks`` has them, a
    gradient in the stack of its forward operator; where the profiler did not record call stacks
    (``verbose=True``) they are put together from the Python frames in the trace. ``op``: operators,
    annotations, API calls and, for ``self_cuda``, GPU work; NVTX ranges in a trace without operators.
    ``module``: the same within the modules of the network, gradients in the module of their forward
    operator. ``metric`` is the host time (``self_cpu``) or the time of GPU work (``self_cuda``) that belongs
    to the end of the stack and to nothing below it.

    With ``aggregate`` there is a row per stack. Without, there is one per event with a stack and at least a
    microsecond, in order of events: the lines of ``export_stacks``.

    Columns: ``stack`` (root first, ``;`` between frames; blanks, ``;`` and control characters are ``_``),
        ``value_ns``, ``value_us`` (without its fraction, as torch writes it), ``events``.
    Units: ns; us.
    Order: longest first, then by stack; without ``aggregate`` as the events.
    Raises: InvalidArgumentError: ``by`` or ``metric`` is unknown.
    Source: torch/autograd/profiler_util.py, EventList.export_stacks.

    Example: ``folded_stacks(trace, by="module", metric="self_cuda")``
    """
    if by not in VIEWS or metric not in METRICS:
        raise InvalidArgumentError(
            f"by= takes {', '.join(VIEWS)} and metric= {', '.join(METRICS)}, not {by!r} and {metric!r}"
        )
    if by == "python":
        rows = _python_rows(trace, "cpu_self_ns" if metric == "self_cpu" else "device_self_ns")
    else:
        rows = _nested_rows(trace, by=by, metric=metric)
    rows = rows.select("stack", "value_ns", value_us=pl.col("value_ns") // 1000)
    if not aggregate:
        return rows.filter(pl.col("value_us") > 0).with_columns(events=pl.lit(1, pl.Int64))
    table = rows.group_by("stack").agg(pl.col("value_ns").sum(), events=pl.len().cast(pl.Int64))
    table = table.filter(pl.col("value_ns") > 0).sort(["value_ns", "stack"], descending=[True, False])
    return table.select("stack", "value_ns", value_us=pl.col("value_ns") // 1000, events="events")


def _python_rows(trace: "Trace", value: str) -> pl.DataFrame:
    """Stack and time of each host event that has a stack, in torch's order."""
    texts = recorded_texts(trace)
    if texts["text"].null_count() == texts.height:
        texts = _rebuilt_texts(trace)
    events = torch_events(trace, stacks=texts).filter(
        (pl.col("device") == "cpu") & pl.col("stack").is_not_null()
    )
    frames = pl.element().str.replace_all(_SPECIAL, "_")
    folded = frames_of(events["stack"]).select(
        "stack", _folded=pl.col("frames").list.eval(frames).list.reverse().list.join(";")
    )
    rows = events.join(folded, on="stack", how="left", maintain_order="left")
    return rows.filter(pl.col("_folded") != "").select(stack="_folded", value_ns=value)


def _rebuilt_texts(trace: "Trace") -> pl.DataFrame:
    """The call stacks of operators and Python frames, put together from the frames in the trace.

    Like the recorded ones: leaf first, and without the frame itself.
    """
    frames = trace.python.select("row", "parent_row", name=_clean(pl.col("name")))
    trie = name_trie(frames)
    texts = path_texts(trie.levels, root_first=False).with_columns(pl.col("text").cast(pl.Categorical))
    of_frame = (
        frames.select("row", path=trie.path_of).join(texts, on="path", how="left").select("row", "text")
    )
    events = host_events(trace)
    places = Places(events["row"])
    marked = pl.concat([pl.Series([False]), events["is_python"]])
    parents = places.of(events["parent_row"])
    around = nearest(marked, pl.concat([pl.Series([0], dtype=pl.UInt32), parents])).gather(parents)
    rows = pl.concat([pl.Series([None], dtype=pl.UInt32), events["row"]])
    callers = trace.python.select("row", _caller="parent_row")
    inner = events.select("row", "is_python", _around=rows.gather(around)).join(callers, on="row", how="left")
    # A frame knows its caller, who may be on another thread.
    inner = inner.select("row", frame=pl.when("is_python").then("_caller").otherwise("_around"))
    return inner.join(of_frame.rename({"row": "frame"}), on="frame", how="inner").select("row", "text")


def _nested_rows(trace: "Trace", *, by: str, metric: str) -> pl.DataFrame:
    """Stack and time of each event and each piece of GPU work, in order."""
    nodes = _with_own_time(_nodes(trace, with_modules=by == "module"))
    if metric == "self_cuda":
        nodes = pl.concat([nodes.with_columns(value_ns=pl.lit(0, pl.Int64)), _work(trace)], how="diagonal")
    trie = name_trie(nodes)
    texts = path_texts(trie.levels)
    placed = nodes.select("start_ns", "row", "value_ns", path=trie.path_of).sort("start_ns", "row")
    return placed.join(texts, on="path", how="left", maintain_order="left").rename({"text": "stack"})


def _nodes(trace: "Trace", *, with_modules: bool) -> pl.DataFrame:
    """Host events nested as calls, with the modules of the network among them if wanted."""
    events = host_events(trace)
    is_module = pl.col("is_python") & pl.col("name").str.starts_with(_MODULE)
    events = events.filter(~pl.col("is_python") | (is_module if with_modules else pl.lit(value=False)))
    columns = ("row", "name", "start_ns", "dur_ns", "track", "is_python")
    parts = [events.select(columns)]
    if trace.ops.is_empty():
        ranges = trace.ranges.filter(pl.col("kind") == "push_pop").select(
            "row", pl.col("name").cast(pl.String), "start_ns", pl.col("dur_ns").fill_null(0),
            track=-1 - pl.col("track").cast(pl.Int64), is_python=pl.lit(value=False),
        )  # fmt: skip
        parts.append(ranges)
    nested = nest(pl.concat(parts)).with_columns(name=_clean(pl.col("name").str.strip_prefix(_MODULE)))
    return nested if not with_modules else _with_gradients(trace, nested)


def _with_gradients(trace: "Trace", nodes: pl.DataFrame) -> pl.DataFrame:
    """Hangs operators that run in no module below the module of their forward operator."""
    joined = nodes.join(trace.ops.select("row", "module_row"), on="row", how="left", maintain_order="left")
    own_time = _with_own_time(joined)
    outside = pl.col("parent_row").is_null() & pl.col("module_row").is_not_null()
    return own_time.with_columns(parent_row=pl.when(outside).then("module_row").otherwise("parent_row"))


def _with_own_time(nodes: pl.DataFrame) -> pl.DataFrame:
    """Adds ``value_ns``, the duration less that of the children, once."""
    if "value_ns" in nodes.columns:
        return nodes
    children = nodes.group_by(row="parent_row").agg(pl.col("dur_ns").sum().alias("_children_ns"))
    joined = nodes.join(children, on="row", how="left", maintain_order="left")
    own = pl.col("dur_ns") - pl.col("_children_ns").fill_null(0)
    return joined.with_columns(value_ns=own).drop("_children_ns")


def _work(trace: "Trace") -> pl.DataFrame:
    """GPU work as nodes below the operator or range that it belongs to."""
    work = trace.gpu_ops.select(
        "row",
        parent_row=pl.coalesce("op_row", "range_row"),
        name=_clean(pl.col("name")),
        start_ns="start_ns",
        value_ns=pl.col("dur_ns").fill_null(0),
    )
    alone = pl.col("parent_row").is_null()
    return work.with_columns(
        name=pl.when(alone).then(pl.lit(f"{_UNLINKED};") + pl.col("name")).otherwise("name")
    )


def _clean(name: pl.Expr) -> pl.Expr:
    """A name as a frame of a folded stack."""
    text = name.cast(pl.String).str.slice(0, _LONGEST_NAME).str.replace_all(_SPECIAL, "_")
    return pl.when(text.str.len_bytes() > 0).then(text).otherwise(pl.lit(_UNNAMED)).alias("name")
