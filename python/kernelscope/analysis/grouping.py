"""Resolves what a table is to be grouped by."""

from collections.abc import Iterable, Sequence

import polars as pl

from kernelscope.errors import InvalidArgumentError


def check_by(by: str | Sequence[str], known: Iterable[str]) -> list[str]:
    """The columns of ``by`` as a list.

    Raises: InvalidArgumentError: ``by`` is empty, or names an unknown column or one twice.
    """
    columns = [by] if isinstance(by, str) else list(by)
    allowed = set(known)
    unknown = [c for c in columns if c not in allowed]
    if unknown:
        raise InvalidArgumentError(
            f"cannot group by {', '.join(unknown)}; known are {', '.join(sorted(allowed))}"
        )
    if not columns or len(set(columns)) != len(columns):
        raise InvalidArgumentError("by= needs one or more different columns")
    return columns


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Categories as plain text, so that a result can be joined, sorted and written anywhere."""
    return frame.with_columns_seq(pl.col(pl.Categorical).cast(pl.String))


def size_text(column: str) -> pl.Expr:
    """The three numbers of a launch size as text, such as ``[80, 1, 1]``."""
    return pl.format("[{}, {}, {}]", *(pl.col(column).arr.get(axis) for axis in range(3))).alias(column)


def sizes_as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with launch sizes as text, for what takes no lists."""
    sizes = (name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Array))
    return frame.with_columns(size_text(name) for name in sizes)


def by_name(frame: pl.DataFrame, **flags: pl.Expr) -> pl.DataFrame:
    """Adds columns that depend on ``name`` only, evaluated once per distinct name.

    Each expression refers to the text of the name as column ``text``.
    """
    names = frame["name"].unique()
    decided = pl.DataFrame({"name": names, "text": names.cast(pl.String)}).select("name", **flags)
    return frame.join(decided, on="name", how="left", nulls_equal=True, maintain_order="left")
