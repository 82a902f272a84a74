"""What a job of 16,384 ranks would take on 64 machines, from what was measured on this one."""

from inputs import GB, MB
from kernelscope.batch.sizing import JSON_SHARE, WORKER_BYTES
from tables import Sample, Table

RANKS, TRACE_BYTES, COLLECTIVES, MACHINES = 16_384, GB, 10_000, 64
CORES, MEMORY_BYTES = 64, 256 * GB
"""Of each machine; nothing is measured about them."""
STORAGE_PER_S = 20 * GB
"""What a large shared file system gives to all machines together, bytes a second."""


def paper_table(spread: Sample, many: Sample, simulated: Sample, cores: int) -> Table:
    """The calculation; ``cores`` are those that the batches and the answers were measured on.

    The storage breaks first. The cross-rank answers take longest in one process, and are shared by as many as
    there are.
    """
    total = RANKS * TRACE_BYTES
    per_core = spread["all_per_s"] * MB / cores
    reading_s, storage_s = total / (MACHINES * CORES * per_core), total / STORAGE_PER_S
    worker = WORKER_BYTES + JSON_SHARE * TRACE_BYTES
    at_once = min(CORES, int(MEMORY_BYTES * 0.8 / worker))
    # A pass over a lake in which nothing has changed does all that the coordinator does, but the renames.
    serial_s = many["again_s"] / many["ranks"] * RANKS
    leader_mb = many["few_mb"] + max(many["many_mb"] - many["few_mb"], 0) / max(many["ranks"] - 8, 1) * RANKS
    calls = RANKS * COLLECTIVES
    answers_s = calls * simulated["seconds"] / simulated["calls"]
    # While rows change places, they lie in two files.
    files = 2 * calls * simulated["files_mb"] * MB / simulated["calls"]
    rows = [
        ("traces", f"{total / 1e12:.1f} TB of JSON, {RANKS:,} ranks"),
        ("lake", f"{total * spread['lake_share'] / 1e12:.1f} TB ({spread['lake_share']:.2f} of the JSON)"),
        ("reading", f"{reading_s:,.0f} s at {per_core / MB:,.0f} MB/s on each of {MACHINES * CORES:,} cores"),
        ("storage", f"{storage_s:,.0f} s at {STORAGE_PER_S / GB:.0f} GB/s; a tenth of that for gzip"),
        ("storage, of reading", f"{storage_s / reading_s:.0f} x"),
        ("memory", f"{at_once} workers of {worker / GB:.2f} GB on a machine, {at_once * worker / GB:.0f} GB"),
        ("coordinator", f"{serial_s:.0f} s of its own work in all, {leader_mb:.0f} MB"),
        ("cross-rank answers", f"of {calls / MB:,.0f} M calls, {answers_s:,.0f} s in one process"),
        ("files of those", f"{files / GB:,.0f} GB while they are answered"),
        ("memory of those", f"{simulated['memory_mb'] / 1000:,.1f} GB a process, as asked for"),
    ]
    machines = f"{MACHINES} machines of {CORES} cores and {MEMORY_BYTES / GB:.0f} GB"
    title = f"On paper, {RANKS:,} ranks x {TRACE_BYTES / GB:.0f} GB on {machines}"
    return Table(title, ("what", "how much"), rows)
