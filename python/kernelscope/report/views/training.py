"""Training: time by phase and micro-batch, recomputation, and sharded parameters."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.analysis.training.backward import in_backward
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.parallelism import unit_table
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns, share
from kernelscope.trace import Trace
from kernelscope.units import format_bytes, format_percent

ORDER = 107
TEXT_ORDER = 11
TABLES = ("ops",)
PAGE = Page(
    "training", "Training", "Time by phase and micro-batch, recomputation, and sharded parameters."
)  # fmt: skip

_ABSENT = "No operator belongs to a backward pass, so this trace has no training."
_COMPILED = "Recomputation inside kernels of torch.compile is not recorded, so it counts for their phase."
_NO_OPERATOR = "no operator"
_NO_UNIT = "unknown"
_COLUMNS = ("device_ns", "device_share", "kernels", "host_ns", "operators")


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    by_module = analysis.training_phases(trace, by=("phase", "module"))
    return {
        "training_phases": analysis.training_phases(trace),
        "training_micro_batches": analysis.training_phases(trace, by=("micro_batch", "phase")).filter(
            pl.col("micro_batch").is_not_null()
        ),
        "training_recomputed": by_module.filter(phase="recompute")
        .drop("phase")
        .sort("device_ns", "host_ns", "module", descending=[True, True, False], nulls_last=True),
        "fsdp_units": analysis.fsdp_units(trace),
        "fsdp_steps": analysis.fsdp_steps(trace),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the phases and micro-batches; nothing for a trace without training."""
    if not _trains(trace):
        return []
    found = frames(trace)
    phases = found["training_phases"]
    total = int(phases["device_ns"].sum())
    timed = [Field("device", ns("device_ns")), Field("share", share("device_ns", total))] if total else []
    fields = [*timed, Field("on the host", ns("host_ns"))]
    rows = phases.with_columns(name=pl.col("phase").fill_null(_NO_OPERATOR)).to_dicts()
    counted = Field("operators", count("operators"))
    parts: list[RenderableType] = [
        heading("Phases of training"), named_table(rows, "phase", [*fields, counted], shape),
    ]  # fmt: skip
    batches = found["training_micro_batches"]
    if batches["micro_batch"].n_unique() > 1:
        named = batches.with_columns(name=pl.format("{} {}", "micro_batch", "phase"))
        parts += [
            heading("Micro-batches"),
            named_table(named.head(shape.top).to_dicts(), "micro-batch", fields, shape),
        ]
        if named.height > shape.top:
            parts.append(note(f"The first {shape.top} of {named.height} phases of micro-batches.", shape))
    again = found["training_recomputed"].drop_nulls("module")
    if again.height:
        name = pl.col("module").str.replace(r"_\d+$", "")
        named = again.group_by(name=name).agg(pl.col("device_ns", "host_ns").sum())
        named = named.sort("device_ns", "host_ns", "name", descending=[True, True, False]).head(shape.top)
        parts += [heading("Recomputed modules"), named_table(named.to_dicts(), "class", fields, shape)]
    if _is_compiled(trace):
        parts.append(note(_COMPILED, shape))
    units = found["fsdp_units"]
    if units.height:
        named = units.with_columns(name=pl.col("fsdp_unit").fill_null(_NO_UNIT)).head(shape.top)
        fields = [
            Field("waits forward", ns("forward_wait_ns")), Field("waits backward", ns("backward_wait_ns")),
            Field("at the end", ns("reduce_wait_ns")), Field("all-gathers", count("gathers")),
            Field("prefetched", share("prefetched_share", 1)),
        ]  # fmt: skip
        parts += [heading("FSDP units"), named_table(named.to_dicts(), "FSDP unit", fields, shape)]
        parts += [note(held, shape) for held in _held(found["fsdp_steps"])]
    return parts


def page(trace: Trace) -> list[Part]:
    """Returns tables of phases, micro-batches and recomputed modules."""
    if not _trains(trace):
        return [Note(_ABSENT, missing=True)]
    found = frames(trace)
    what = "Operators and the GPU operations that they launched. Those without an operator have no phase."
    parts: list[Part] = []
    again = float(found["training_phases"].filter(phase="recompute")["device_share"].sum())
    if again:
        parts.append(Note(f"Recomputation takes {format_percent(again)} of the GPU time."))
    parts.append(Table("training-phases", "Phases", what, found["training_phases"], ("phase", *_COLUMNS)))
    if found["training_micro_batches"]["micro_batch"].n_unique() > 1:
        what = "Each backward pass, and the forward operators that it differentiates, over all steps."
        columns = ("micro_batch", "phase", *_COLUMNS)
        parts.append(
            Table("training-micro-batches", "Micro-batches", what, found["training_micro_batches"], columns)
        )
    if found["training_recomputed"].height:
        what = "Modules whose operators the backward pass runs again."
        columns = ("module", *_COLUMNS)
        parts.append(Table("training-recomputed", "Recomputed", what, found["training_recomputed"], columns))
    if _is_compiled(trace):
        parts.append(Note(_COMPILED))
    if found["fsdp_units"].height:
        parts += [Note(held) for held in _held(found["fsdp_steps"])]
        parts.append(unit_table(found["fsdp_units"]))
    return parts


def _held(steps: pl.DataFrame) -> list[str]:
    """A sentence about the memory of gathered parameters, if it is known."""
    peaks = steps["peak_bytes"].drop_nulls().sort(descending=True)
    return [
        f"At most {format_bytes(peak)} of gathered parameters are held at a time." for peak in peaks.head(1)
    ]


def _trains(trace: Trace) -> bool:
    return bool(trace.ops.select(in_backward().any()).item())


def _is_compiled(trace: Trace) -> bool:
    return bool((trace.ops["name"] == "CompiledFunctionBackward").any())
