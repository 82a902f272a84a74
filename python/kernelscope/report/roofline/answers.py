"""Data of ``kernelscope roofline``, computed once, and its formats for programs."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kernelscope.analysis.costs.achieved import cost_findings, coverage_of, kind_sums, step_efficiency
from kernelscope.analysis.costs.attainable import summed
from kernelscope.analysis.costs.counters import counters_with_operators
from kernelscope.analysis.costs.limits import limited_work
from kernelscope.analysis.costs.peaks import DevicePeaks
from kernelscope.analysis.grouping import as_text, gather_rows
from kernelscope.costs import ConventionName
from kernelscope.escaping import for_csv
from kernelscope.report.json_document import SCHEMA_VERSION, describe, dump, listed
from kernelscope.trace import Trace


@dataclass(frozen=True, slots=True)
class RooflineAnswers:
    """Frames of the report: ``table`` has one row per group of ``by``, ``findings`` one per gap."""

    by: tuple[str, ...]
    convention: str
    devices: list[DevicePeaks]
    table: pl.DataFrame
    coverage: pl.DataFrame
    efficiency: pl.DataFrame
    findings: pl.DataFrame
    counters: pl.DataFrame
    """By operator: ``name``, ``calls``, ``measured_flops``, ``modelled_flops``, ``ratio``."""


def answer(
    trace: Trace,
    by: Sequence[str],
    *,
    gpu: str | None = None,
    peak: Mapping[str, float] | None = None,
    convention: ConventionName = "kernelscope",
    tokens: int | None = None,
    failures: Sequence[str] = (),
) -> RooflineAnswers:
    """Returns all data of the report.

    ``tokens`` is the number of tokens of a step, ``failures`` why cost files could not be run.
    """
    work = limited_work(trace, convention=convention, gpu=gpu, peak=peak)
    kinds = kind_sums(work)
    findings = cost_findings(kinds)
    if failures:
        rows = [("cost_file_failed", "lost", None, 1, None, message) for message in failures]
        findings = pl.concat([pl.DataFrame(rows, schema=findings.schema, orient="row"), findings])
    return RooflineAnswers(
        by=tuple(by),
        convention=convention,
        devices=work.devices,
        table=summed(trace, work, by),
        coverage=coverage_of(trace, kinds),
        efficiency=step_efficiency(trace, work, tokens),
        findings=findings,
        counters=_measured(trace),
    )


def _measured(trace: Trace) -> pl.DataFrame:
    """What hardware counters measured of each operator, beside what its model gives for the same calls."""
    kernels = counters_with_operators(trace).filter(pl.col("model_row").is_not_null())
    calls = kernels.unique("model_row", keep="first", maintain_order=True)
    table = (
        calls.with_columns(gather_rows(calls["model_row"], trace.ops, "name")["name"].cast(pl.String))
        .group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            _sum_of_all("operator_flops").alias("measured_flops"),
            _sum_of_all("modelled_flops"),
        )
    )
    ratio = pl.when(pl.col("modelled_flops") > 0).then(pl.col("measured_flops") / pl.col("modelled_flops"))
    order = ["measured_flops", "name"]
    return table.with_columns(ratio=ratio).sort(order, descending=[True, False], nulls_last=True)


def _sum_of_all(column: str) -> pl.Expr:
    """The sum of a column; null where any value is not known."""
    return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).sum())


def to_json(trace: Trace, answers: RooflineAnswers) -> str:
    """Returns the report as one JSON object."""
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "trace": describe(trace),
            "convention": answers.convention,
            "by": answers.by,
            "gpus": [_device(entry) for entry in answers.devices],
            **listed(
                {
                    "coverage": answers.coverage,
                    "efficiency": answers.efficiency,
                    "roofline": answers.table,
                    "findings": answers.findings,
                    "counters": answers.counters,
                    "diagnostics": as_text(trace.diagnostics),
                }
            ),
        }
    )


def _device(entry: DevicePeaks) -> dict[str, Any]:
    gpu = entry.gpu
    return {
        "device": entry.device,
        "name": entry.name or None,
        "gpu": gpu.key if gpu else None,
        "source": gpu.source if gpu else None,
        "vector_flops_per_s": dict(gpu.vector) if gpu else None,
        "matrix_flops_per_s": dict(gpu.matrix) if gpu else None,
        "bandwidth_bytes_per_s": entry.bandwidth,
        "measured": dict(entry.measured),
        "note": entry.note or None,
    }


def to_csv(answers: RooflineAnswers) -> str:
    """Returns the table as CSV."""
    return for_csv(answers.table).write_csv()


def to_parquet(answers: RooflineAnswers, out: Path) -> None:
    """Writes the table as Parquet, replacing ``out``."""
    from kernelscope.report.files import write_bytes

    buffer = io.BytesIO()
    answers.table.write_parquet(buffer)
    write_bytes(out, buffer.getvalue())
