"""What of a trace each form of a report asks for; the rest takes memory for nothing."""

from kernelscope.schema import TABLES

# Numbers by which the reader links events, and what no answer or only the export of all events looks at.
_UNASKED = frozenset(
    {
        "depth",
        "event_index",
        "external_id",
        "graph_exec_id",
        "graph_id",
        "graph_node_id",
        "memory_kind",
        "python_id",
        "python_parent_id",
        "queued_ns",
        "record_function_id",
    }
)
# A track stands for them: the table of threads has both.
_OF_THREADS = {name: {"pid", "tid"} for name in ("ops", "python", "memory")}
# Only their rows are counted.
_COUNTED = {"flows"}
# What the page shows in no view.
_NOT_ON_PAGE = {
    "launches": {"callback_id", "correlation", "pid", "tid"},
    "gpu_ops": {"bandwidth_gb_per_s", "context", "correlation"},
}


def asked_tables(form: str) -> dict[str, list[str]] | None:
    """The tables that a form of a report needs and the columns of each, for ``kernelscope.read(tables=...)``.

    Null for all: Parquet files hold the tables themselves.
    """
    if form == "parquet":
        return None
    not_shown = _NOT_ON_PAGE if form == "html" else {}
    unasked = {name: _UNASKED | _OF_THREADS.get(name, set()) | not_shown.get(name, set()) for name in TABLES}
    return {
        name: ["row"] if name in _COUNTED else [c.name for c in table.columns if c.name not in unasked[name]]
        for name, table in TABLES.items()
    }
