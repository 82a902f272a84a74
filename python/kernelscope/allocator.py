"""The memory of a process: its size, and how the allocators of one are set that is ours alone.

There are two, that of Polars and that of the C library.
"""

import os
import sys

VARIABLE = "_RJEM_MALLOC_CONF"
"""The variable of the environment with the settings."""

WORKER = "dirty_decay_ms:100,muzzy_decay_ms:0,narenas:1,tcache:false"
"""For one of many processes, whose memory the others wait for: an arena without caches per thread leaves less
of it in pieces. Giving back every page at once would make writing a table a third slower."""


# Of malloc.h.
_ARENA_MAX = -8
_NEARLY = 0.95


def keep_freed(milliseconds: int) -> None:
    """Has freed memory given back after so long, and not after half a second and another second.

    An arena per core, where four are usual, leaves less of it in pieces. Settings of the user's own stay, and
    once Polars is there nothing changes.
    """
    if "polars" not in sys.modules:
        _share_arenas()
        settings = f"dirty_decay_ms:{milliseconds},muzzy_decay_ms:0,narenas:{os.cpu_count() or 1}"
        os.environ.setdefault(VARIABLE, settings)


def _share_arenas() -> None:
    """Has four threads share an arena of glibc, which gives each one of its own.

    What one frees another can use then: a page of a large trace peaks lower by 3 % of the JSON, and takes no
    longer.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, max(1, (os.cpu_count() or 1) // 4))


def status_bytes(field: str) -> int | None:
    """A size of this process, all threads together, as proc_pid_status(5) names it; null elsewhere."""
    if sys.platform != "linux":
        return None
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as status:
        sizes = (line.split()[1] for line in status if line.startswith(f"{field}:"))
        return next((int(size) * 1024 for size in sizes), None)


def trim_heap() -> None:
    """Gives memory that is free back to the system.

    Columns are freed in the middle of the heap, whose pages glibc keeps for later unless it is told
    not to. Other C libraries give them back, or cannot be told.
    """
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def near_peak() -> bool:
    """Whether this process holds nearly as much memory as it ever did; true where that is not known.

    Where it does not, memory that is free may stay: what is asked next is faster with it.
    """
    held, most = status_bytes("VmRSS"), status_bytes("VmHWM")
    return held is None or most is None or held > _NEARLY * most
