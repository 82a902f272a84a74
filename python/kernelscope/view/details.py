"""Details of one event: its own properties, its operator, its launch, its costs, and linked events."""

from dataclasses import replace
from typing import Any

import polars as pl

from kernelscope import analysis, schema
from kernelscope.analysis.grouping import positions, sizes_as_text
from kernelscope.analysis.kernels.occupancy import launch_metrics
from kernelscope.memo import per_trace
from kernelscope.report.names import safe
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.window import origin_ns
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import Event, event, place

_TITLES = {
    "gpu_ops": "GPU operation",
    "ops": "Operator",
    "launches": "Launch",
    "python": "Python frame",
    "ranges": "NVTX range",
}
_OWN = {
    "gpu_ops": (
        "kind", "step", "device", "stream", "grid", "block", "registers", "shared_memory_bytes",
        "occupancy_pct", "blocks_per_sm", "bytes", "bandwidth_gb_per_s", "graph_id", "graph_node_id",
        "correlation", "link",
    ),
    "ops": (
        "category", "step", "phase", "module", "input_dims", "input_strides", "input_types",
        "concrete_inputs", "call_stack", "sequence", "depth",
    ),
    "launches": ("step", "correlation", "error"),
    "python": ("module_id", "call_stack"),
    "ranges": ("domain", "category", "step", "op_id", "sequence", "sizes", "depth"),
}  # fmt: skip
_COLLECTIVE = (
    "name", "dtype", "in_elements", "out_elements", "group_size", "process_group",
    "process_group_description", "process_group_ranks", "rank", "source_rank", "destination_rank", "is_async",
)  # fmt: skip
_COSTS = (
    "flops", "bytes_read", "bytes_written", "intensity", "flops_per_s", "bytes_per_s", "attained_pct",
    "bound", "limit_type",
)  # fmt: skip
_MOST_LINKED = 20
_MOST_LINES = 8


def details(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the details of the event ``row``.

    The result has its ``place``, ``parts`` of facts, the enclosing lines of ``python``, the innermost first,
    and ``links`` to other events.

    A fact is a label, a value, its unit and its meaning. A link has a ``kind`` and the ``place`` of another
    event. ``arrow`` gives the direction of the arrow between the two, if there is one.
    """
    found = event(trace, asked.whole("row"))
    here = place(trace, found.values)
    parts = [{"title": _TITLES[found.table], "facts": _own(trace, found)}]
    links: list[dict[str, Any]] = []
    operator = _operator(trace, found)
    if operator is not None and operator.values["row"] != found.values["row"]:
        parts.append({"title": _TITLES[operator.table], "facts": _named(operator)})
        links.append(_link(trace, "operator", operator.values))
    if found.table == "gpu_ops":
        parts += _launch(trace, found, links)
    else:
        _gpu_work(trace, found, links)
    _differentiated(trace, found, operator, links)
    lines = _python_lines(trace, operator or found)
    if lines:
        links.append(_link(trace, "Python frame", lines[0]))
    parts += _collective(trace, found, operator)
    return {
        "table": found.table,
        "place": here,
        "op_row": None if operator is None else operator.values["row"],
        "operator": None if operator is None else safe(operator.values["name"]),
        "parts": [part for part in parts if part["facts"]],
        "python": [safe(line["name"]) for line in lines],
        "links": links,
    }


def cost(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the costs of the operator ``row`` as facts, and its position under the roofline."""
    found = _costs(trace).filter(pl.col("op_row") == asked.whole("row"))
    if found.is_empty():
        return {"facts": [], "status": "an operator around or inside it may have them"}
    row = found.row(0, named=True)
    return {"facts": [_fact(name, row[name]) for name in _COSTS if row[name] is not None], "status": None}


@per_trace
def _costs(trace: Trace) -> pl.DataFrame:
    """The costs of every operator, by its row."""
    return analysis.roofline(trace, by=("op_row",)).select("op_row", *_COSTS)


def _fact(column: str, value: object, *, label: str | None = None, what: str | None = None) -> list[Any]:
    """A label, a value, its unit and what it means."""
    known = COLUMNS.get(column)
    title = label or (known.title if known else column.replace("_", " ").capitalize())
    unit = "text" if isinstance(value, str) or known is None else known.unit
    return [title, value, unit, what or (known.what if known else "")]


def _facts(table: str, values: dict[str, Any], columns: tuple[str, ...]) -> list[list[Any]]:
    """What is known of these columns, explained as the schema explains them."""
    docs = {column.name: column.doc for column in schema.TABLES[table].columns}
    return [
        _fact(name, safe(values[name]) if isinstance(values[name], str) else values[name], what=docs[name])
        for name in columns
        if values[name] is not None
    ]


def _own(trace: Trace, found: Event) -> list[list[Any]]:
    values = found.values
    times = [
        _fact("name", safe(values["name"])),
        _fact("start_ns", values["start_ns"] - origin_ns(trace), what="Since the first event of the trace."),
        _fact("dur_ns", values["dur_ns"], label="Duration", what="Duration of the event."),
    ]
    if found.table == "gpu_ops":
        row = trace.gpu_ops.filter(pl.col("row") == values["row"])
        values = sizes_as_text(launch_metrics(row, trace.devices)).row(0, named=True)
    return times + _facts(found.table, values, _OWN[found.table])


def _named(found: Event) -> list[list[Any]]:
    values = found.values
    facts = [_fact("name", safe(values["name"])), _fact("dur_ns", values["dur_ns"])]
    return facts + _facts(found.table, values, _OWN[found.table])


def _operator(trace: Trace, found: Event) -> Event | None:
    """The operator (or the NVTX range that stands for it) that an event is, or belongs to."""
    if found.table == "ops":
        return found
    for column in ("op_row", "range_row"):
        if found.values.get(column) is not None:
            return event(trace, found.values[column])
    return None


def _launch(trace: Trace, found: Event, links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The call that launched a work, and how long after it the work began."""
    if found.values["launch_row"] is None:
        return []
    call = event(trace, found.values["launch_row"]).values
    links.append(_link(trace, "launch", call, arrow="from"))
    own = trace.gpu_ops.filter(pl.col("row") == found.values["row"])
    delay = analysis.launches(replace(trace, gpu_ops=own))["launch_delay_ns"]
    facts = [_fact("call", safe(call["name"])), _fact("dur_ns", call["dur_ns"], label="Call took")]
    if delay.len():
        what = "From the end of the call to the start of the operation; 0 if it starts earlier."
        facts.append(_fact("dur_ns", delay[0], label="Delay", what=what))
    return [{"title": "Launch", "facts": facts}]


def _gpu_work(trace: Trace, found: Event, links: list[dict[str, Any]]) -> None:
    """Adds links to the GPU operations that a call or an operator launched."""
    column = {"launches": "launch_row", "ops": "op_row", "ranges": "range_row"}.get(found.table)
    if column is None:
        return
    works = trace.gpu_ops.filter(pl.col(column) == found.values["row"]).sort("start_ns", "row")
    arrow = "to" if found.table == "launches" else None
    shown = works.head(_MOST_LINKED).iter_rows(named=True)
    links.extend(_link(trace, "GPU operation", work, arrow=arrow) for work in shown)


def _differentiated(trace: Trace, found: Event, operator: Event | None, links: list[dict[str, Any]]) -> None:
    """The forward operator of a backward one, or the other way round; arrows go between operators only."""
    if operator is None or operator.table != "ops":
        return
    to, back = ("to", "from") if found == operator else (None, None)
    forward = operator.values["forward_row"]
    if forward is not None:
        links.append(_link(trace, "forward", event(trace, forward).values, arrow=back))
    backward = trace.ops.filter(pl.col("forward_row") == operator.values["row"]).sort("start_ns", "row")
    shown = backward.head(_MOST_LINKED).iter_rows(named=True)
    links.extend(_link(trace, "backward", op, arrow=to) for op in shown)


def _python_lines(trace: Trace, found: Event) -> list[dict[str, Any]]:
    """The innermost Python frames around an event of the host that say in which line they are."""
    values = found.values
    if found.table in ("gpu_ops", "python") or trace.python.is_empty():
        return []
    end = values["start_ns"] + (values["dur_ns"] or 0)
    around = trace.python.filter(
        pl.col("track") == values["track"],
        pl.col("start_ns") <= values["start_ns"],
        pl.col("start_ns") + pl.col("dur_ns") >= end,
    ).sort("start_ns", "row", descending=True)
    lines = around.filter(pl.col("name").cast(pl.String).str.contains(r"\.py\(\d+\)"))
    return lines.head(_MOST_LINES).to_dicts()


def _collective(trace: Trace, found: Event, operator: Event | None) -> list[dict[str, Any]]:
    """What is known of the collective that an event is."""
    rows = [one.values["row"] for one in (found, operator) if one is not None]
    at = positions(trace.collectives["row"], pl.Series(rows, dtype=pl.UInt32)).drop_nulls()
    if at.is_empty():
        return []
    values = trace.collectives.row(at[0], named=True)
    return [{"title": "Collective", "facts": _facts("collectives", values, _COLLECTIVE)}]


def _link(trace: Trace, kind: str, values: dict[str, Any], *, arrow: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "arrow": arrow, "place": place(trace, values)}
