"""Inputs of a call known from other records: its kernels, its gradient, its collective.

Profilers omit information that a cost model may need: the element type of tensor lists, the shape of the
result, the sizes of an expert. If another record of the same trace has it, this module finds it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.costs.launch_sizes import attention_lengths, expert_sizes, list_dtype
from kernelscope.analysis.grouping import Classes, as_text, classes_of, positions
from kernelscope.costs import find_dtype
from kernelscope.costs.bind import shape_of_input, sizes_of_value
from kernelscope.trace import Trace


class ExternalHints(NamedTuple):
    """Inputs of a call from other records. ``note`` gives the source, if that makes the cost an estimate."""

    list_dtype: str | None = None
    output_dims: tuple[int, ...] | None = None
    hints: tuple[tuple[str, int], ...] = ()
    note: str = ""


NOTHING = ExternalHints()

_EXPERTS = r"::moe_forward"
_ATTENTION = r"::unified_(mla_)?attention|paged_attention_ragged|::mla_decode"


class _Register:
    """Numbers for distinct entries, from 1."""

    def __init__(self) -> None:
        self.numbers: dict[ExternalHints, int] = {NOTHING: 0}

    def add(self, entry: ExternalHints) -> int:
        return self.numbers.setdefault(entry, len(self.numbers))


def find_external_hints(
    trace: Trace, calls: pl.DataFrame, classes: Classes
) -> tuple[Mapping[int, ExternalHints], pl.DataFrame]:
    """Returns the inputs of ``calls`` from other records.

    These are the distinct entries by number, and the calls that have one.

    ``classes`` group calls with equal name and inputs.

    Columns: the calls have ``row`` and ``entry``. If a call occurs several times, the last entry counts.
    """
    register, representatives = _Register(), classes.keys
    found = [
        _of_gradients(calls, register),
        _of_parents(calls, representatives, register),
        _of_children(calls, representatives, register),
        _of_lists(trace, calls, classes, register),
        _of_launches(trace, calls, representatives, register),
        _of_steps(trace, calls, representatives, register),
        _of_collectives(trace, register),
    ]
    entries = pl.concat([frame.select("row", "entry") for frame in found])
    return {number: entry for entry, number in register.numbers.items()}, entries


def _frame(rows: list[int], entries: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"row": rows, "entry": entries}, schema={"row": pl.UInt32, "entry": pl.UInt32})


def _numbered(frame: pl.DataFrame, by: list[str], entries: dict[tuple[object, ...], int]) -> pl.DataFrame:
    """The rows of ``frame`` that have an entry for their values of ``by``, with its number."""
    if not entries:
        return _frame([], [])
    schema = {column: frame.schema[column] for column in by}
    numbers = pl.DataFrame(
        [(*key, entry) for key, entry in entries.items()], schema=[*by, "entry"], orient="row"
    )
    numbers = numbers.with_columns(pl.col(column).cast(dtype) for column, dtype in schema.items())
    numbered = frame.join(numbers, on=by, how="inner", nulls_equal=True, maintain_order="left")
    return numbered.select("row", pl.col("entry").cast(pl.UInt32))


def _of_gradients(calls: pl.DataFrame, register: _Register) -> pl.DataFrame:
    """A result is as large as the gradient by it, which autograd's node takes as its first input."""
    if calls["forward_row"].null_count() == calls.height:
        return _frame([], [])
    nodes = calls.select("forward_row", "input_dims").drop_nulls()
    forward = positions(calls["row"], nodes["forward_row"])
    unread = calls["input_dims"].is_not_null() & calls["concrete_inputs"].is_null()
    nodes = nodes.filter(unread.gather(forward))
    # In order, for rows are found faster so.
    nodes = nodes.filter(pl.col("forward_row").is_first_distinct())
    nodes = nodes.select(row="forward_row", gradient="input_dims")
    entries: dict[tuple[object, ...], int] = {}
    for text in nodes["gradient"].unique().cast(pl.String):
        shape = shape_of_input(text, 0)
        if shape:
            entries[(text,)] = register.add(ExternalHints(output_dims=shape))
    return _numbered(nodes, ["gradient"], entries)


# Which input of a library's gradient has the shape of what its parts give: torch before 1.11.
_PARTS = {"_backward_input": 0, "_backward_weight": 2}


def _of_parents(calls: pl.DataFrame, representatives: pl.DataFrame, register: _Register) -> pl.DataFrame:
    """A gradient by input or by weight is as large as the input or the weight of the call around it."""
    names = representatives.select("name").unique().with_columns(text=pl.col("name").cast(pl.String))
    frames: list[pl.DataFrame] = []
    for suffix, index in _PARTS.items():
        wanted = names.filter(pl.col("text").str.ends_with(suffix))
        if wanted.is_empty():
            continue
        parts = calls.filter(pl.col("concrete_inputs").is_null()).join(wanted, on="name", how="semi")
        dims = calls["input_dims"].gather(positions(calls["row"], parts["parent_row"]))
        around = parts.select("row").with_columns(outer=dims.cast(pl.String))
        entries: dict[tuple[object, ...], int] = {}
        for text in around["outer"].drop_nulls().unique():
            shape = shape_of_input(text, index)
            if shape:
                entries[(text,)] = register.add(ExternalHints(output_dims=shape))
        frames.append(_numbered(around, ["outer"], entries))
    return pl.concat(frames) if frames else _frame([], [])


# Calls inside that get the shape of the result: torch lays the table of ``index`` out as its result before it
# picks, and sizes the result of ``nonzero`` when it has counted.
_SIZED_BY = (("aten::index", "aten::as_strided"), ("aten::nonzero", "aten::resize_"))


def _of_children(calls: pl.DataFrame, representatives: pl.DataFrame, register: _Register) -> pl.DataFrame:
    """A result has the shape that the first call inside which shapes it was given as its second input."""
    names = set(representatives["name"].unique().cast(pl.String))
    frames: list[pl.DataFrame] = []
    for outer, inner in _SIZED_BY:
        if outer not in names or inner not in names:
            continue
        wanted = calls.filter(pl.col("name") == outer).select("row")
        inside = calls.filter((pl.col("name") == inner) & pl.col("concrete_inputs").is_not_null())
        inside = inside.filter(pl.col("parent_row").is_in(wanted["row"].implode()))
        inside = inside.filter(pl.col("parent_row").is_first_distinct())
        sized = inside.select(row="parent_row", values="concrete_inputs")
        entries: dict[tuple[object, ...], int] = {}
        for text in sized["values"].cast(pl.String).unique():
            shape = sizes_of_value(text, 1)
            if shape is not None:
                entries[(text,)] = register.add(ExternalHints(output_dims=shape))
        frames.append(_numbered(sized, ["values"], entries))
    return pl.concat(frames) if frames else _frame([], [])


def _of_lists(trace: Trace, calls: pl.DataFrame, classes: Classes, register: _Register) -> pl.DataFrame:
    """The element type of tensor lists stands in the names of the kernels that work on them."""
    has_list = pl.col("input_types").cast(pl.String).str.contains("TensorList", literal=True)
    takes_list = classes.keys.select(has_list.fill_null(value=False)).to_series()
    if not takes_list.any():
        return _frame([], [])
    rows = calls["row"].filter(classes.spread(takes_list))
    kernels = trace.gpu_ops.select("name", "op_row", "dur_ns").filter(pl.col("op_row").is_in(rows.implode()))
    names = kernels["name"].unique().drop_nulls()
    dtypes = [list_dtype(text) for text in names.cast(pl.String)]
    entries = [register.add(ExternalHints(list_dtype=dtype)) if dtype else 0 for dtype in dtypes]
    known = pl.DataFrame({"name": names, "entry": pl.Series(entries, dtype=pl.UInt32)}).filter(
        pl.col("entry") > 0
    )
    if known.is_empty():
        return _frame([], [])
    kernels = kernels.join(known, on="name", how="inner")
    longest = kernels.sort("dur_ns", "entry", descending=[True, False], nulls_last=True)
    longest = longest.filter(pl.col("op_row").is_first_distinct())
    return longest.select("entry", row="op_row").sort("row")


def _of_launches(
    trace: Trace, calls: pl.DataFrame, representatives: pl.DataFrame, register: _Register
) -> pl.DataFrame:
    """What the names and grids of a call's kernels say of its experts."""
    names = representatives["name"].unique().drop_nulls()
    sized = names.filter(names.cast(pl.String).str.contains(_EXPERTS))
    if sized.is_empty() or trace.gpu_ops.is_empty():
        return _frame([], [])
    wanted = calls.select("row", "name", "input_dims").filter(pl.col("name").is_in(sized.implode()))
    kernels = trace.gpu_ops.filter(kind="kernel").select(
        row="op_row", kernel="name", grid="grid", dur_ns="dur_ns"
    )
    work = kernels.join(wanted, on="row", how="inner")
    of, launches = classes_of(work.select("kernel", "grid"))
    launches = as_text(launches)
    order = launches["kernel"].rank("dense")
    # The hints of a call are of what it launched, the longest in front.
    by_call = (
        work.with_columns(of.alias("launch"), order.gather(of).alias("order"))
        .sort("dur_ns", "order", descending=[True, False], nulls_last=True)
        .group_by("row", maintain_order=True)
        .agg(pl.col("name", "input_dims").first(), pl.col("launch"))
        .with_columns(launched=pl.col("launch").list.sort().cast(pl.List(pl.String)).list.join(" "))
    )
    by = ["name", "input_dims", "launched"]
    entries: dict[tuple[object, ...], int] = {}
    for call in by_call.unique(by, keep="first").iter_rows(named=True):
        launched = [(kernel or "", grid) for kernel, grid in launches[call["launch"]].iter_rows()]
        entry = _launched(call["input_dims"], launched)
        if entry != NOTHING:
            entries[tuple(call[column] for column in by)] = register.add(entry)
    return _numbered(by_call, by, entries)


def _launched(dims: str | None, kernels: list[tuple[str, list[int] | None]]) -> ExternalHints:
    x, logits = shape_of_input(dims, 0), shape_of_input(dims, 1)
    hints = expert_sizes(kernels, tokens=x, logits=logits) if x and logits else None
    note = "sizes of the experts from the launched kernels"
    return ExternalHints(hints=hints, note=note) if hints else NOTHING


def _of_steps(
    trace: Trace, calls: pl.DataFrame, representatives: pl.DataFrame, register: _Register
) -> pl.DataFrame:
    """The lengths of the sequences, from the annotation of the step that a call of attention lies in.

    A call that lies in none, as on a thread of its own, has those of the trace's only step.
    """
    names = representatives["name"].unique().drop_nulls()
    sized = names.filter(names.cast(pl.String).str.contains(_ATTENTION))
    steps = step_annotations(names)
    if sized.is_empty() or steps.is_empty() or trace.ops.is_empty():
        return _frame([], [])
    tree = CallTree(calls)
    tree.keep_marked(calls["name"].is_in(steps.implode()).fill_null(value=False))
    around = calls["name"].gather(positions(calls["row"], tree.kept()))
    attending = calls.select("row", "name", "input_dims", around.alias("step"))
    attending = attending.filter(pl.col("name").is_in(sized.implode()))
    every = steps.cast(pl.String).to_list()
    by = ["name", "input_dims", "step"]
    entries: dict[tuple[object, ...], int] = {}
    note = "sequences from the step's annotation; a window of the mask is not known and not counted"
    for name, dims, step in as_text(attending.select(by)).unique().iter_rows():
        # The query of a page-wise operator stands behind its result and its workspace.
        query = shape_of_input(dims, 2 if "ragged" in name else 0)
        hints = attention_lengths(every if step is None else [step], query) if query else None
        if hints:
            entries[(name, dims, step)] = register.add(ExternalHints(hints=hints, note=note))
    return _numbered(attending, by, entries)


def step_annotations(names: pl.Series) -> pl.Series:
    """Returns the names of serving steps that tell the lengths of their sequences."""
    is_step = [_traceparse.step_lengths(name) is not None for name in names.cast(pl.String)]
    return names.filter(pl.Series(is_step, dtype=pl.Boolean))


def _of_collectives(trace: Trace, register: _Register) -> pl.DataFrame:
    """Elements and type of a collective's message stand in the recorder's own arguments."""
    messages = trace.collectives.filter(pl.col("source").cast(pl.String) == "op").select(
        "row", "in_elements", "out_elements", pl.col("dtype").cast(pl.String), "group_size"
    )
    by = ["in_elements", "out_elements", "dtype", "group_size"]
    messages = messages.drop_nulls(["in_elements", "out_elements", "dtype"]).unique("row", keep="first")
    messages = messages.with_columns(pl.col("group_size").fill_null(0))
    entries: dict[tuple[object, ...], int] = {}
    for sent, received, dtype, ranks in messages.select(by).unique().iter_rows():
        known = find_dtype(dtype)
        if known is not None and sent >= 0 and received >= 0:
            hints = (("bytes_in", sent * known.bytes), ("bytes_out", received * known.bytes))
            hints += (("group_size", ranks),) if ranks else ()
            entries[(sent, received, dtype, ranks)] = register.add(ExternalHints(hints=hints))
    return _numbered(messages, by, entries)
