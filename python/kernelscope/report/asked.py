"""What of a trace the reports ask for; the rest takes memory for nothing."""

from kernelscope.schema import TABLES

# Numbers by which the reader links events, and what only the export of all events writes.
_UNASKED = frozenset(
    {
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
_OF_THREADS = {"ops": {"tid"}, "python": {"pid", "tid"}, "memory": {"pid", "tid"}}
# Reports only count their rows.
_COUNTED = {"flows"}


def asked_tables() -> dict[str, list[str]]:
    """The tables that reports need and the columns of each, for ``kernelscope.read(tables=...)``."""
    unasked = {name: _UNASKED | _OF_THREADS.get(name, set()) for name in TABLES}
    return {
        name: ["row"] if name in _COUNTED else [c.name for c in table.columns if c.name not in unasked[name]]
        for name, table in TABLES.items()
    }
