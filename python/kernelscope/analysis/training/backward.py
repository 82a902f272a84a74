"""The backward pass."""

import polars as pl


def in_backward(phase: str = "phase") -> pl.Expr:
    """Returns whether a column of phases is of the backward pass, which recomputation is a part of."""
    return pl.col(phase).is_in(["backward", "recompute"])
