"""A rule about operators that run far below the limits of the GPU."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.attention_rules import attention
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, most_common, rule
from kernelscope.units import format_ns

_SAVEABLE = 0.05
# A well tuned kernel reaches about this much of a peak; an operator below half of it is far from that.
_REACHED, _FAR_PCT = 0.8, 40.0
# Shorter kernels take as long as a kernel takes at least.
_SHORT_NS = 10_000
_REMEDIES = {
    "compute": (
        'bound by computation: select another kernel (torch.compile(mode="max-autotune"), '
        "PYTORCH_TUNABLEOP_ENABLED=1), and use sizes that are multiples of 64"
    ),
    "memory": (
        "bound by memory: use contiguous inputs, and fuse consecutive operators (torch.compile) to "
        "read and write less"
    ),
}
_MOST = 3


@rule("Operators run far below the limits of the GPU", _SAVEABLE)
def below_attainable(facts: Facts) -> Iterator[Advice]:
    """Finds operators that take much longer than the roofline allows for their FLOPs and bytes."""
    if not facts.kernel_ns:
        return
    from kernelscope.analysis.costs.attainable import roofline

    totals = roofline(facts.trace, by=("name", "device")).filter(pl.col("bound").is_in(list(_REMEDIES)))
    saved = pl.col("saveable_ns") - (pl.col("attainable_ns") * (1 / _REACHED - 1)).cast(pl.Int64)
    far = totals.drop_nulls("attainable_ns").with_columns(attained="attained_pct", saved=saved).filter(
        (pl.col("attained") < _FAR_PCT) & (pl.col("saved") > 0)
        & (pl.col("device_ns") > _SHORT_NS * pl.col("kernels"))
    )  # fmt: skip
    if facts.share(int(far["saved"].sum())) <= _SAVEABLE:
        return
    yield from _advice(facts, far.sort("saved", "name", descending=[True, False]))


def _advice(facts: Facts, far: pl.DataFrame) -> Iterator[Advice]:
    """Advice for each GPU about operators that are ``far`` from what it could attain."""
    work = facts.trace.gpu_ops
    # Attention and grids that are too small have rules of their own.
    is_full = (work["blocks_per_sm"] >= 1).fill_null(value=True)
    is_known = facts.are_kernels & is_full & ~attention(facts).marks
    names = facts.trace.ops["name"][facts.work.callers].cast(pl.String)
    works = facts.rows_of(is_known).with_columns(names.filter(is_known).alias("name"))
    part = far.select("device", "name", "bound", "attained", part=pl.col("saved") / pl.col("device_ns"))
    works = works.join(part, on=["device", "name"], nulls_equal=True)
    for gpu in facts.on_gpus(works.with_columns(saved=(pl.col("dur_ns") * pl.col("part")).cast(pl.Int64))):
        value = facts.share(int(gpu.works["saved"].sum()))
        if value <= _SAVEABLE:
            continue
        by_name = gpu.works.group_by("name").agg(
            pl.col("bound", "attained").first(), pl.col("dur_ns", "saved").sum()
        )
        rows = by_name.sort("saved", "name", descending=[True, False]).rows(named=True)
        listed = most_common(
            f"{row['name'][:40]} ({format_ns(row['dur_ns'])}, {row['attained']:.0f} %)" for row in rows
        )
        bounds = dict.fromkeys(row["bound"] for row in rows[:_MOST])
        yield Advice(
            f"{gpu.who}By FLOPs and bytes, these reach less than {_FAR_PCT:.0f} % of the GPU's limit: "
            f"{listed}.",
            f"Where {'; where '.join(_REMEDIES[bound] for bound in bounds)}.",
            value,
            change=facts.faster(gpu.works, "saved"),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )
