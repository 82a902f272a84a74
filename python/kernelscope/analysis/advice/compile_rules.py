"""Rules about torch.compile: compilation inside steps, recompilation, and code that is not compiled."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, most_common, rule
from kernelscope.analysis.grouping import classes_of, gather_rows, positions
from kernelscope.units import format_ns

_COMPILING, _VERSIONS, _BREAKS = 0.01, 2, 0.5
# A region's name ends with the number of a function and that of its version, and with that of an attempt.
_REGION = r"^Torch-Compiled Region: (?:.*/)?(\d+)/(\d+)(?:_\d+)?$"
# Of one function of autograd, which recorders before regions wrote.
_REGIONS = r"^Torch-Compiled Region|^CompiledFunction$"
_RECOMPILING = (
    "TORCH_LOGS=recompiles shows the guard that failed. Mark changing sizes with "
    "torch._dynamo.mark_dynamic or dynamic=True, and pass changing Python values as tensors."
)


@rule("Steps compile", _COMPILING)
def recompilation(facts: Facts) -> Iterator[Advice]:
    """Finds compilation inside steps."""
    found = facts.compiling
    if found.is_empty():
        return
    change, saving_ns = facts.without(found)
    value = facts.share(saving_ns)
    if value <= _COMPILING:
        return
    yield Advice(
        f"torch.compile delayed the steps by {format_ns(saving_ns)}.",
        f"Warm up before the recorded steps. If it continues: {_RECOMPILING}",
        value,
        change=change,
        saving_ns=saving_ns,
        cites=citing("ops", found),
    )


@rule("A function is recompiled repeatedly", _VERSIONS, "versions of a function")
def recompiled_functions(facts: Facts) -> Iterator[Advice]:
    """Finds functions that torch.compile compiled into more than two versions (fixed and dynamic sizes)."""
    regions = facts.ops_named(_REGION)
    if regions.is_empty():
        return
    numbers = pl.col("name").cast(pl.String).str.extract_groups(_REGION)
    numbers = regions.with_columns(numbers.struct.rename_fields(["function", "version"]).struct.unnest())
    made = pl.col("version").cast(pl.Int64, strict=False).max() + 1
    functions = numbers.group_by("function").agg(made=made).sort("made", "function", descending=[True, False])
    functions = functions.filter(pl.col("made") > _VERSIONS)
    if functions.is_empty():
        return
    listed = most_common(f"function {name} {made:,} x" for name, made in functions.iter_rows())
    again = numbers.filter(pl.col("function").is_in(functions["function"].implode()))
    yield Advice(
        f"torch.compile compiled {listed} (by the names of its regions).",
        _RECOMPILING,
        functions["made"][0],
        cites=citing("ops", again),
        cause=("recompilation",),
    )


@rule("Eager operators run between compiled regions", _BREAKS, "breaks per step")
def graph_breaks(facts: Facts) -> Iterator[Advice]:
    """Finds steps with several compiled regions and eager operators between them."""
    regions = facts.ops_named(_REGIONS)
    if regions.height < 2 or not facts.steps:
        return
    breaks = _breaks(facts, regions)
    value = breaks.height / facts.steps
    if value <= _BREAKS:
        return
    tracks = gather_rows(breaks["row"], facts.trace.ops, "track")
    change = facts.savings.idle(breaks.hstack(tracks))
    saving_ns = facts.savings.of(change)
    names = breaks.explode("eager").group_by("eager").len().sort("len", "eager", descending=[True, False])
    yield Advice(
        f"In {counted(facts.steps, 'step')}, operators ran eagerly between two compiled regions "
        f"{counted(breaks.height, 'time')}, most often {most_common(names['eager'])}. They "
        f"delayed the steps by {format_ns(saving_ns)}.",
        "TORCH_LOGS=graph_breaks shows the lines that break the graph, and fullgraph=True turns "
        "breaks into errors. Compile the code between the regions, too.",
        value,
        change=change,
        saving_ns=saving_ns,
        cites=citing("ops", _after(breaks, regions)),
    )


def _after(breaks: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """The regions after each break."""
    return regions.filter(pl.col("row").is_in(breaks["row"].implode()))


def _breaks(facts: Facts, regions: pl.DataFrame) -> pl.DataFrame:
    """Regions before which operators ran eagerly since the one before, on its thread and in its step.

    Columns: ``row`` (of the region), ``start_ns`` and ``end_ns`` (of what lies between), ``eager`` (the names
        of the outermost operators in it).
    """
    of_ops = ("row", pl.col("name").cast(pl.String), "start_ns", "dur_ns")
    among = classes_of(facts.trace.ops.select("track", "step", "parent_row")).of
    ops = facts.trace.ops.select(of_ops).with_columns(among=among)
    is_region = positions(regions["row"].sort(), ops["row"]).is_not_null()
    parts = (
        ops.filter(is_region)
        .sort("start_ns")
        .with_columns(
            before_ns=(pl.col("start_ns") + pl.col("dur_ns").fill_null(0)).shift().over("among"),
            before=pl.col("name").shift().over("among"),
        )
    )
    # The same region again is a layer of many, each of which was compiled by itself.
    again = pl.col("name").str.starts_with("Torch") & (pl.col("before") == pl.col("name"))
    parts = parts.filter(pl.col("before_ns").is_not_null() & ~again)
    is_eager = pl.col("name").str.contains("::") & ~pl.col("name").str.starts_with("autograd::")
    eager = ops.filter(~is_region & is_eager).select("among", "start_ns", eager="name")
    between = eager.sort("start_ns").join_asof(
        parts.select("among", "row", "before_ns", end_ns="start_ns"),
        left_on="start_ns",
        right_on="end_ns",
        by="among",
        strategy="forward",
        check_sortedness=False,
    )
    between = between.filter(pl.col("start_ns") >= pl.col("before_ns"))
    return between.group_by("row", maintain_order=True).agg(
        pl.col("before_ns").first().alias("start_ns"), pl.col("end_ns").first(), "eager"
    )
