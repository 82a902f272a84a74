"""Summaries and traces of calls: the CUDA API and the operating system."""

from collections.abc import Iterator

import polars as pl

from kernelscope.compat.nsys.parts import ordered_parts
from kernelscope.compat.nsys.report import HOST_BY, RUNTIME, Field, Question, Report, selected
from kernelscope.compat.nsys.statistics import in_order, summary, summary_fields
from kernelscope.trace import Trace


def versioned_name(launches: pl.DataFrame) -> pl.Expr:
    """The name as CUPTI has it, with the version of the function: ``cudaLaunchKernel_v7000``."""
    version = pl.lit("_v") + pl.col("api_version").cast(pl.String)
    name = pl.col("name").cast(pl.String)
    return pl.coalesce(name + version, name) if "api_version" in launches.columns else name


def _api_sum(trace: Trace, question: Question) -> pl.DataFrame:
    calls = selected(trace, trace.launches, question.by, "dur_ns", "name")
    return in_order(summary(calls, [*question.by, "name"]), "total_ns", ascending=["name", *question.by])


def _api_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    del question
    priorities = _thread_priorities(trace)
    names = trace.threads.select("track", "thread_name")
    calls = trace.launches.select("start_ns", "dur_ns", "name", "correlation", "pid", "tid", "track", "error")
    del trace
    for chosen in ordered_parts(calls["start_ns"]):
        part = calls[chosen]
        joined = part.join(priorities, on="track", how="left", maintain_order="left")
        joined = joined.join(names, on="track", how="left", maintain_order="left")
        yield joined.with_columns(result=pl.col("error").fill_null(0))


def _thread_priorities(trace: Trace) -> pl.DataFrame:
    noted = trace.metadata.filter(pl.col("name").cast(pl.String) == "thread_priority")
    return noted.select("track", priority="value").unique("track", keep="first", maintain_order=True)


def _osrt_sum(trace: Trace, question: Question) -> pl.DataFrame:
    spans = selected(trace, trace.spans, question.by, "dur_ns", "name", "category")
    calls = spans.filter(pl.col("category") == "osrt")
    return in_order(summary(calls, [*question.by, "name"]), "total_ns", ascending=["name", *question.by])


REPORTS = (
    Report(
        name="cuda_api_sum",
        doc="CUDA API summary",
        fields=(*summary_fields("Num Calls"), Field("Name", "name")),
        build=_api_sum,
        sources=(RUNTIME,),
        tables={"launches": ("name", "dur_ns")},
        by=HOST_BY,
    ),
    Report(
        name="cuda_api_trace",
        doc="CUDA API calls",
        fields=(
            Field("Start (ns)", "start_ns"),
            Field("Duration (ns)", "dur_ns"),
            Field("Name", "name"),
            Field("Result", "result"),
            Field("CorrID", "correlation"),
            Field("Pid", "pid"),
            Field("Tid", "tid"),
            Field("T-Pri", "priority"),
            Field("Thread Name", "thread_name"),
        ),
        build=_api_trace,
        sources=(RUNTIME,),
        tables={
            "launches": ("name", "start_ns", "dur_ns", "correlation", "error"),
            "threads": (),
            "metadata": (),
        },
    ),
    Report(
        name="osrt_sum",
        doc="OS runtime summary",
        fields=(*summary_fields("Num Calls"), Field("Name", "name")),
        build=_osrt_sum,
        sources=("OSRT_API",),
        tables={"spans": ("name", "category", "dur_ns")},
        by=HOST_BY,
    ),
)
