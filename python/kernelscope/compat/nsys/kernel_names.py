"""The names that summaries show kernels by."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.row_lookup import positions
from kernelscope.compat.nsys.range_text import TEXT_COLUMNS, range_text, text_keys
from kernelscope.compat.nsys.report import Question

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_PREFIX = "range_"


def asked_name(trace: "Trace", question: Question) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Puts the name that was asked for into ``name`` of a frame of kernels.

    ``base`` is without arguments, ``mangled`` as the compiler wrote it, or in full where that was not
    recorded; ``nvtx-name`` puts the text of the innermost range around the launch in front, for which
    the frame needs ``range_row``. Other work keeps its name.
    """
    column = "short_name" if question.has("base") else "mangled_name" if question.has("mangled") else "name"

    def rename(frame: pl.DataFrame) -> pl.DataFrame:
        if column != "name":
            complete = not frame[column].null_count()
            name = pl.col(column) if complete else pl.coalesce(column, "name").cast(pl.Categorical)
            frame = frame.with_columns(name=name)
        if not question.has("nvtx-name"):
            return frame
        ranges, _ = text_keys(trace, trace.ranges.select("row", *TEXT_COLUMNS))
        texts = ranges.select(range_text(ranges, domain=False).alias("_text"), range_row="row")
        joined = frame.join(texts, on="range_row", how="left", maintain_order="left")
        text = pl.col("name").cast(pl.String)
        is_kernel = pl.col("kind") == "kernel"
        named = pl.when(is_kernel).then(pl.coalesce(pl.col("_text") + "/" + text, text)).otherwise(text)
        return joined.with_columns(name=named).drop("_text")

    return rename


def with_range_keys(trace: "Trace", frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Adds the columns that tell the texts of innermost ranges apart, instead of the texts."""
    ranges, keys = text_keys(trace, trace.ranges.select("row", *TEXT_COLUMNS))
    at = positions(ranges["row"], frame["range_row"])
    columns = ranges[at].select(pl.col(key).alias(_PREFIX + key) for key in keys if key != "domain")
    return pl.concat([frame.drop("range_row"), columns], how="horizontal"), columns.columns


def with_range_in_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Puts the text of the range in front of the name, from the columns of :func:`with_range_keys`."""
    keys = [column for column in frame.columns if column.startswith(_PREFIX)]
    texts = range_text(frame.select(pl.col(key).alias(key.removeprefix(_PREFIX)) for key in keys))
    name = pl.col("name").cast(pl.String)
    return frame.with_columns(_text=texts).with_columns(name=pl.coalesce(pl.col("_text") + "/" + name, name))
