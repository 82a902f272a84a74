"""What a job of 16,384 ranks would take on 64 machines, from what was measured on this one."""

from typing import Any

RANKS, TRACE_BYTES, MACHINES = 16_384, 10**9, 64
CORES, MEMORY_BYTES = 64, 256 * 10**9
"""Of each machine; nothing is measured about them."""
STORAGE_PER_S = 20 * 10**9
"""What a large shared file system gives to all machines together, bytes a second."""
_WORKER_BYTES, _JSON_SHARE = 110_000_000, 0.5
"""As in kernelscope/batch/sizing.py."""
_GB = 10**9


def lines(spread: dict[str, float], many: dict[str, Any]) -> list[str]:
    """The calculation as text."""
    total = RANKS * TRACE_BYTES
    per_core = spread["all_per_s"] / spread["cores"]
    reading_s = total / (MACHINES * CORES * per_core)
    storage_s = total / STORAGE_PER_S
    worker = _WORKER_BYTES + _JSON_SHARE * TRACE_BYTES
    at_once = min(CORES, int(MEMORY_BYTES * 0.8 / worker))
    # A pass over a lake in which nothing has changed does all that the coordinator does, but the renames.
    serial_s = many["again_s"] / many["ranks"] * RANKS
    per_rank = max(many["many_peak"] - many["few_peak"], 0) / max(many["ranks"] - 8, 1)
    leader = many["few_peak"] + per_rank * RANKS
    # If collectives come as densely in large traces as in small ones.
    calls = total * many["calls"] / many["bytes"]
    call_bytes = max(many["bytes_per_call"], 0)
    rows = [
        ("traces", f"{total / 1e12:.1f} TB of JSON, {RANKS:,} ranks"),
        ("lake", f"{total * spread['lake_share'] / 1e12:.1f} TB ({spread['lake_share']:.2f} of the JSON)"),
        (
            "reading",
            f"{reading_s:,.0f} s at {per_core / 1e6:,.0f} MB/s on each of {MACHINES * CORES:,} cores",
        ),
        ("storage", f"{storage_s:,.0f} s at {STORAGE_PER_S / _GB:.0f} GB/s; a tenth of that for gzip"),
        (
            "memory",
            f"{at_once} workers of {worker / _GB:.2f} GB on a machine, {at_once * worker / _GB:.0f} GB",
        ),
        ("coordinator", f"{serial_s:.0f} s of its own work in all, {leader / 1e6:.0f} MB"),
        ("cross-rank answers", f"{calls / 1e6:,.0f} M calls of collectives"),
    ]
    machine = f"{CORES} cores and {MEMORY_BYTES / _GB:.0f} GB"
    text = (
        f"The storage breaks first: plain JSON keeps it busy {storage_s / reading_s:.0f} x as long as the"
        " cores. Then the cross-rank answers: they hold a row for every collective of every rank,"
        f" {call_bytes:,.0f} bytes each here, {calls * call_bytes / _GB:,.0f} GB in one process, so that a"
        " lake of that size is to be asked some steps at a time."
    )
    return [
        f"On paper, {RANKS:,} ranks x 1 GB on {MACHINES} machines of {machine}:",
        "",
        "| what | how much |",
        "|---|---|",
        *(f"| {what} | {much} |" for what, much in rows),
        "",
        text,
        "",
    ]
