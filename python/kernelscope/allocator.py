"""How the allocator of Polars is set; it looks when Polars is imported."""

import os
import sys

VARIABLE = "_RJEM_MALLOC_CONF"
"""The variable of the environment with the settings."""

WORKER = "dirty_decay_ms:100,muzzy_decay_ms:0,narenas:1,tcache:false"
"""For one of many processes, whose memory the others wait for: an arena without caches per thread leaves less
of it in pieces. Giving back every page at once would make writing a table a third slower."""


def keep_freed(milliseconds: int) -> None:
    """Has freed memory given back after so long, and not after ten seconds.

    An arena per core, where four are usual, leaves less of it in pieces. Settings of the user's own stay, and
    once Polars is there nothing changes.
    """
    if "polars" not in sys.modules:
        settings = f"dirty_decay_ms:{milliseconds},muzzy_decay_ms:0,narenas:{os.cpu_count() or 1}"
        os.environ.setdefault(VARIABLE, settings)
