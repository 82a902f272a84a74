"""The report as a folder of CSV or Parquet files."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.report.answers import Answers
from kernelscope.report.document import describe, dump
from kernelscope.report.files import filled_folder
from kernelscope.report.view_frames import view_frames

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def write(trace: "Trace", answers: Answers, out: Path, *, suffix: str) -> None:
    """Writes one file per answer into ``out``; with Parquet also one per table, in ``tables/``.

    ``trace.json`` beside them says which trace it is. Text in CSV that a spreadsheet would take for a formula
    is written as it is.
    """
    with filled_folder(out) as folder:
        (folder / "trace.json").write_text(dump(describe(trace)), encoding="utf-8")
        for name, frame in _frames(trace, answers).items():
            path = folder / f"{name}.{suffix}"
            if suffix == "csv":
                sizes_as_text(frame).write_csv(path)
            else:
                frame.write_parquet(path)
        if suffix == "parquet":
            (folder / "tables").mkdir()
            for name, frame in trace.tables.items():
                frame.write_parquet(folder / "tables" / f"{name}.parquet")


def _frames(trace: "Trace", answers: Answers) -> dict[str, pl.DataFrame]:
    shaped = analysis.op_table(trace, by=("name", "input_dims", "input_types"))
    return {
        "steps": answers.steps,
        "breakdown": answers.breakdown,
        "ops": answers.ops,
        "ops_by_shape": shaped,
        "kernels": answers.kernels,
        "ranges": answers.ranges,
        "kernels_by_op": analysis.kernel_table(trace, by=("op", "name")),
        "gpus": answers.gpus,
        "gpu_time": analysis.temporal_breakdown(trace),
        "overlap": answers.overlap,
        "idle": answers.idle,
        "idle_hosts": answers.idle_hosts,
        "launches_by_call": analysis.launch_summary(trace),
        "queues": analysis.queue_summary(trace),
        "copies": analysis.memory_bandwidth_summary(trace),
        # CSV has no lists.
        "recommendations": answers.recommendations.with_columns(
            pl.col("rows").cast(pl.List(pl.String)).list.join(" ")
        ),
        **view_frames(trace),
        "unlinked": answers.unlinked,
        "diagnostics": answers.diagnostics,
    }
