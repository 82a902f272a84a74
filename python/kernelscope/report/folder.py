"""The report as a folder of CSV or Parquet files."""

from pathlib import Path

import polars as pl

from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.escaping import for_csv
from kernelscope.report import views
from kernelscope.report.files import filled_folder
from kernelscope.report.json_document import describe, dump
from kernelscope.trace import Trace


def write(trace: Trace, out: Path, *, suffix: str) -> None:
    """Writes one file per answer into ``out``; with Parquet also one per table, in ``tables/``.

    ``trace.json`` describes the trace. In CSV, text that a spreadsheet would interpret as a formula is
    prefixed with an apostrophe.
    """
    with filled_folder(out) as folder:
        (folder / "trace.json").write_text(dump(describe(trace)), encoding="utf-8")
        for name, frame in _frames(trace).items():
            path = folder / f"{name}.{suffix}"
            if suffix == "csv":
                for_csv(sizes_as_text(frame)).write_csv(path)
            else:
                frame.write_parquet(path)
        if suffix == "parquet":
            (folder / "tables").mkdir()
            for name, frame in trace.tables.items():
                frame.write_parquet(folder / "tables" / f"{name}.parquet")


def _frames(trace: Trace) -> dict[str, pl.DataFrame]:
    found = views.frames(trace, more=True)
    # CSV has no lists.
    joined = pl.col("rows").cast(pl.List(pl.String)).list.join(" ")
    return {**found, "recommendations": found["recommendations"].with_columns(joined)}
