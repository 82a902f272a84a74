"""The kernels of a trace on another GPU, as far from its limits as they were from the limits of their own."""

import polars as pl

from kernelscope.analysis.costs.limits import OVER_BUS, limited_work, work_rows
from kernelscope.analysis.costs.peaks import device_peaks
from kernelscope.analysis.dependencies.graph import Dependencies
from kernelscope.analysis.gpu.devices import UNNAMED
from kernelscope.analysis.grouping import by_name
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace


def on_gpu(trace: Trace, graph: Dependencies, gpu: str) -> pl.DataFrame:
    """Returns the factors of events if all kernels ran on another GPU.

    A kernel keeps its share of the roofline; one without a known cost is taken to be limited by memory. The
    time of the shortest kernel is part of each, and stays. At most, a kernel gains no more than memory does,
    and nothing if its cost is unknown. Communication, and copies between host and GPU, take as long as
    recorded.

    Columns: ``FACTORS`` of ``changes``.
    Raises: InvalidArgumentError: one of the GPUs is unknown.
    """
    works = by_name(
        trace.gpu_ops.select("row", "name", "device", "kind", "is_communication", "dur_ns"),
        is_over_bus=pl.col("text").str.contains(OVER_BUS).fill_null(value=False),
    )
    for name, of_gpu in {"here": None, "there": gpu}.items():
        known = work_rows(trace, limited_work(trace, gpu=of_gpu)).drop_nulls("attainable_ns")
        sums = known.group_by("row").agg(pl.col("attainable_ns").sum().alias(name))
        works = works.join(sums, on="row", how="left", maintain_order="left")
    works = works.join(_memory(trace, gpu), on="device", how="left", maintain_order="left")
    stays = pl.col("is_communication") | ((pl.col("kind") == "memcpy") & pl.col("is_over_bus"))
    roofline = pl.when(pl.col("here") > 0).then(pl.col("there") / pl.col("here"))
    likely = pl.coalesce(roofline, "memory")
    most = pl.max_horizontal(roofline.fill_null(1.0), "memory")
    is_kernel = pl.col("kind") == "kernel"
    shortest = pl.when(is_kernel & (pl.col("dur_ns") > 0)).then("dur_ns").min().over("device")
    floor = pl.when(is_kernel).then(shortest / pl.col("dur_ns")).otherwise(0.0)

    def factor(ratio: pl.Expr) -> pl.Expr:
        changed = pl.when(stays.fill_null(value=False)).then(1.0).otherwise(floor + (1 - floor) * ratio)
        return pl.when(pl.col("dur_ns") > 0).then(changed).otherwise(1.0)

    own = works.select(own=factor(likely), most_own=factor(most))
    one = pl.repeat(1.0, graph.events.height - works.height, eager=True)
    rest = pl.repeat(1.0, graph.events.height, eager=True)
    likely, most = (pl.concat([one, own[name]]) for name in ("own", "most_own"))
    return pl.select(own=likely, waiting=rest, gap=rest, most_own=most, most_gap=rest)


def _memory(trace: Trace, gpu: str) -> pl.DataFrame:
    """The time of each GPU's work if memory limits it, of its time: ``device``, ``memory``."""
    found: list[tuple[int, float]] = []
    for here, there in zip(device_peaks(trace), device_peaks(trace, gpu=gpu), strict=True):
        if not here.bandwidth or not there.bandwidth:
            name = here.name or UNNAMED
            raise InvalidArgumentError(f"gpu={gpu} needs the peaks of the recorded GPU, {name}: unknown")
        found.append((here.device, here.bandwidth / there.bandwidth))
    if not found:
        raise InvalidArgumentError(f"gpu={gpu} needs the peaks of the recorded GPU: none ran")
    schema = {"device": trace.gpu_ops.schema["device"], "memory": pl.Float64}
    return pl.DataFrame(found, schema=schema, orient="row")
