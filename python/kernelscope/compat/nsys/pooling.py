"""Summaries over the values of several databases, as the recipes of nsys print them for all ranks.

NVIDIA's recipes take the median of medians, the minimum of first quartiles and the maximum of third
quartiles. Here the values of all databases are pooled, so every figure is exact for all of them.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.compat.nsys.report import Field, Question, Report, distribution, in_order, share
from kernelscope.compat.nsys.reports import parse
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_FILE = "_file"
_QUARTILES = {"q1": 0.25, "q3": 0.75}


class Pool:
    """Pooled values of a report, added one database at a time."""

    def __init__(self, report: Report, question: Question) -> None:
        """Raises: InvalidArgumentError: the rows of the report belong to single databases."""
        if report.sample is None:
            raise InvalidArgumentError(
                f"{report.name} has rows of single databases; only summaries by name can be combined, "
                "such as cuda_gpu_kern_sum and nvtx_sum"
            )
        self._sample = report.sample
        self._report = report
        self._question = question
        self._names: list[str] = []
        self._parts: list[pl.DataFrame] = []

    def add(self, name: str, trace: Trace) -> None:
        """Adds the values of a trace, which has ``name`` in the columns that locate extremes."""
        values = self._sample(trace, self._question)
        number = pl.lit(len(self._names), pl.UInt32)
        self._names.append(name)
        # Few texts repeat, and are shared by the databases.
        texts = pl.col(pl.String).cast(pl.Categorical)
        self._parts.append(values.with_columns(texts, number.alias(_FILE)))

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns of the table with their headings."""
        found: list[Field] = []
        for field in self._report.fields_by(self._question.by):
            statistic, _, suffix = field.column.partition("_")
            if statistic in _QUARTILES or field.column not in _columns_of(self._report.sample_columns):
                continue
            quartiles = [
                Field(field.heading.replace("Med", name.upper()), f"{name}_{suffix}", field.figure)
                for name in _QUARTILES
                if statistic == "median"
            ]
            found += [*quartiles[:1], field, *quartiles[1:]]
        return (*found, Field("Min File", "min_file"), Field("Max File", "max_file"))

    def table(self) -> pl.DataFrame:
        """Returns the summary of all values.

        Raises: InvalidArgumentError: no trace was added.
        """
        if not self._parts:
            raise InvalidArgumentError("a report of several databases needs at least one")
        *keys, value = self._report.sample_columns
        keys = [*self._question.by, *keys]
        suffix = value.rpartition("_")[2]
        values = pl.concat(self._parts, how="vertical_relaxed").drop_nulls(value)
        number = pl.col(value)
        table = values.group_by(keys).agg(
            number.sum().alias(f"total_{suffix}"),
            pl.len().cast(pl.Int64).alias("instances"),
            *distribution(number, suffix),
            *(
                number.quantile(at, interpolation="linear").alias(f"{name}_{suffix}")
                for name, at in _QUARTILES.items()
            ),
            # Of equal extremes that of the first database.
            min_file=pl.col(_FILE).sort_by(number, _FILE).first(),
            max_file=pl.col(_FILE).sort_by(-number, _FILE).first(),
        )
        names = pl.Series(self._names, dtype=pl.String)
        table = table.with_columns(
            *(names.gather(table[column]).alias(column) for column in ("min_file", "max_file")),
            time_pct=share(f"total_{suffix}"),
        )
        ordered = in_order(as_text(table), f"total_{suffix}", ascending=[*keys])
        return ordered.select(field.column for field in self.fields)


def _columns_of(sample_columns: Sequence[str]) -> set[str]:
    """The columns of a pooled summary."""
    *keys, value = sample_columns
    suffix = value.rpartition("_")[2]
    statistics = ("total", "mean", "median", "min", "max", "std", *_QUARTILES)
    from_by = {"device", "stream", "process", "rank"}
    return {*keys, *from_by, "time_pct", "instances", *(f"{name}_{suffix}" for name in statistics)}


def nsys_pooled(traces: Mapping[str, Trace], report: str, *, by: Sequence[str] = ()) -> pl.DataFrame:
    """A summary of ``nsys stats``, or ``nccl_sum``, over the values of several databases.

    ``traces`` maps the names shown in the columns ``min_file`` and ``max_file``, such as paths, to traces.
    ``by`` keeps devices, streams, processes or ranks apart.

    Columns: the columns of ``by``, then the report's share, total, count, mean, quartiles (``q1_``,
        ``median_``, ``q3_``), minimum, maximum and standard deviation, and its keys, such as ``name``;
        ``min_file`` and ``max_file``, the locations of minimum and maximum. Quartiles are exact, with linear
        interpolation.
    Units: ns and bytes, not rounded. Order: largest total first, then by the keys.
    Raises: InvalidArgumentError: there is no trace or no such report, it does not have such an argument or
        breakdown, or its rows belong to single databases.

    Example: ``nsys_pooled({path: ks.read(path) for path in paths}, "cuda_gpu_kern_sum")``
    """
    pool = Pool(*parse(report, by=by))
    for name, trace in traces.items():
        pool.add(name, trace)
    return pool.table()
