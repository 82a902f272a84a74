"""Where more seems to be achieved than a GPU can do, and why."""

import polars as pl

TOLERANCE = 1.05
"""How far above a peak a figure may lie: clocks above the stated one, and rounding."""

_REASONS = {
    1: "part of what it reads and writes stays in L2",
    2: "its algorithm needs fewer operations than the direct product, which is counted",
    3: "its time is recorded in whole microseconds",
    4: "its cost is an estimate",
    5: "more than the GPU can do: the recorded shapes or times are not those of this work",
}


def flags() -> pl.Expr:
    """Why work seems to reach more than 1.05 of a peak, from the number of the ``reason``; null without one.

    Reasons, the first that explains it: the GPU's L2 holds part of what is read and written (at most its size
    each way never passes through memory); the kernel's algorithm needs fewer operations than the direct one;
    the duration is recorded in whole microseconds; the cost is an estimate; or none of them.
    """
    return pl.col("reason").replace_strict(_REASONS, default=None, return_dtype=pl.String)
