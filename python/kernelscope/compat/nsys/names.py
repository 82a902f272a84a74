"""Texts of NVTX ranges as given by the program, and kernel names as shown in reports."""

import polars as pl

from kernelscope.analysis.grouping import positions
from kernelscope.compat.nsys.report import Question
from kernelscope.trace import Trace

TEXT_COLUMNS = ("name", "domain", "op_id", "sequence", "sizes")
"""Columns of ``ranges`` that texts are assembled from."""

_PREFIX = "range_"
_APPENDED = {"sequence": "seq", "op_id": "op_id", "sizes": "sizes", "inputs": "input_op_ids"}


def text_keys(trace: Trace, ranges: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Adds ``inputs`` if any text has this part, and returns the columns in which texts differ.

    Two ranges have the same text if they agree in these columns, which are much smaller than the text.
    """
    inputs = trace.extra_args.filter(pl.col("key") == "input_op_ids") if trace.extra_args.height else None
    if inputs is not None and inputs.height:
        known = inputs.select("row", inputs="value")
        ranges = ranges.join(known, on="row", how="left", maintain_order="left")
    columns = [name for name in (*TEXT_COLUMNS, "inputs") if name in ranges.columns]
    keys = [name for name in columns if name == "name" or ranges[name].null_count() < ranges.height]
    empty = [name for name in columns if name not in keys]
    return ranges.drop(empty), keys


def range_text(ranges: pl.DataFrame, *, domain: bool = True) -> pl.Series:
    """Returns the text of each range, prefixed with its domain as ``domain:text``.

    PyTorch appends data to the name of an operator, which ``ranges`` stores in separate columns. This
    function appends it again. Columns may be missing if no text uses them.
    """
    parts: list[pl.Expr] = []
    if domain and "domain" in ranges.columns:
        parts.append((pl.col("domain").cast(pl.String) + ":").fill_null(""))
    parts.append(pl.col("name").cast(pl.String))
    for column, key in _APPENDED.items():
        if column in ranges.columns:
            parts.append((pl.lit(f", {key} = ") + pl.col(column).cast(pl.String)).fill_null(""))
    # A text without a name is none.
    return ranges.select(text=parts[0] if len(parts) == 1 else pl.concat_str(parts))["text"]


def with_kernel_names(
    kernels: pl.DataFrame, trace: Trace, question: Question, *, ranged: bool = True
) -> pl.DataFrame:
    """Sets ``name`` of GPU operations to the form requested by the report's arguments.

    ``base`` is without arguments. ``mangled`` is as the compiler wrote it, or in full if that was not
    recorded. ``nvtx-name`` adds the text of the innermost range around the launch as a prefix, from
    ``range_row``, unless ``ranged`` is false. Only kernels have this prefix.
    """
    for column in kernel_name_columns(question)[:1]:
        complete = not kernels[column].null_count()
        name = pl.col(column) if complete else pl.coalesce(column, "name").cast(pl.Categorical)
        kernels = kernels.with_columns(name=name)
    if not (ranged and question.has("nvtx-name")):
        return kernels
    ranges, _ = text_keys(trace, trace.ranges.select("row", *TEXT_COLUMNS))
    texts = ranges.select(range_text(ranges, domain=False).alias("_text"), range_row="row")
    joined = kernels.join(texts, on="range_row", how="left", maintain_order="left")
    text = pl.col("name").cast(pl.String)
    is_kernel = pl.col("kind") == "kernel"
    named = pl.when(is_kernel).then(pl.coalesce(pl.col("_text") + "/" + text, text)).otherwise(text)
    return joined.with_columns(name=named).drop("_text")


def kernel_name_columns(question: Question) -> tuple[str, ...]:
    """Returns the columns of kernels with the names requested by the report's arguments."""
    return ("short_name",) * question.has("base") + ("mangled_name",) * question.has("mangled")


def with_range_keys(trace: Trace, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Adds the columns in which the texts of innermost ranges differ, instead of the texts."""
    ranges, keys = text_keys(trace, trace.ranges.select("row", *TEXT_COLUMNS))
    at = positions(ranges["row"], frame["range_row"])
    columns = ranges[at].select(pl.col(key).alias(_PREFIX + key) for key in keys if key != "domain")
    return pl.concat([frame.drop("range_row"), columns], how="horizontal"), columns.columns


def with_range_in_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds the text of the range as a prefix of the name, from the columns of :func:`with_range_keys`."""
    keys = [column for column in frame.columns if column.startswith(_PREFIX)]
    texts = range_text(frame.select(pl.col(key).alias(key.removeprefix(_PREFIX)) for key in keys))
    name = pl.col("name").cast(pl.String)
    return frame.with_columns(_text=texts).with_columns(name=pl.coalesce(pl.col("_text") + "/" + name, name))
