"""Takes rows in order of a column part by part, without sorting all of them at once."""

import itertools
from collections.abc import Iterator

import polars as pl

from kernelscope.compat.nsys.report import PART_ROWS

_SAMPLES_PER_PART = 64
_MOST_PARTS = 64


def ordered_parts(column: pl.Series, *, descending: bool = False) -> Iterator[pl.Series]:
    """Positions of all rows in order of ``column``, part by part; equal values stay together.

    A sort of all rows holds several times their keys. Here a sample tells where parts end, and each is
    found and sorted by itself. Equal values are in order of their positions; the column has no nulls.
    """
    # Each part looks at all rows once, so there are not arbitrarily many.
    step = max(PART_ROWS, len(column) // _MOST_PARTS) // _SAMPLES_PER_PART
    sample = column.gather_every(step).sort()
    bounds = sample.gather_every(_SAMPLES_PER_PART).unique().sort()
    # The first part begins before every sample, the last ends behind it.
    windows = [None, *bounds.to_list()[1:], None]
    pairs = list(itertools.pairwise(windows))
    for low, high in reversed(pairs) if descending else pairs:
        inside = pl.repeat(value=True, n=len(column), eager=True)
        if low is not None:
            inside &= column >= low
        if high is not None:
            inside &= column < high
        chosen = inside.arg_true()
        part = pl.DataFrame({"position": chosen, "value": column.gather(chosen)})
        if len(part) or len(column) == 0:
            yield part.sort("value", "position", descending=[descending, False])["position"]
        if len(column) == 0:
            return
