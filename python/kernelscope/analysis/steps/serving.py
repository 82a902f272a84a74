"""Token rate of serving steps."""

from collections.abc import Sequence

import polars as pl

from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_BY = ("phase", "requests", "tokens")


def serving_throughput(trace: Trace, *, by: Sequence[str] = ("phase",)) -> pl.DataFrame:
    """Number of tokens that serving steps processed, and their rate, for prefill and decode separately.

    ``by`` accepts ``phase``, ``requests`` (the batch size) and ``tokens``: ``("phase", "requests")`` is the
    curve over batch sizes. Only complete steps whose annotation contains phase or requests count. A request
    decodes one token in each step, so ``step_p50_ns`` of ``decode`` is its time per token.

    Columns: the columns of ``by``; ``steps``, ``tokens_sum``, ``total_ns`` (wall time of these steps),
        ``step_p50_ns``, ``step_p90_ns``, ``tokens_per_s`` and ``ns_per_token`` (over steps with known tokens;
        null without any).
    Units: ns; tokens per second. Order: by ``by``.
    Raises: InvalidArgumentError: ``by`` is empty or contains something else.
    Source: the table ``steps``.
    Example: ``serving_throughput(trace, by=("phase", "requests"))``
    """
    unknown = [name for name in by if name not in _BY]
    if unknown or not by:
        what = f"by={unknown[0]!r} is not one of them" if unknown else "by is empty"
        raise InvalidArgumentError(f"serving steps are grouped by {', '.join(_BY)}: {what}")
    steps = trace.steps.filter(
        ~pl.col("is_partial"), pl.col("phase").is_not_null() | pl.col("requests").is_not_null()
    ).with_columns(pl.col("phase").cast(pl.String))
    counted_ns = pl.col("total_ns").filter(pl.col("tokens").is_not_null()).sum()
    tokens = pl.col("tokens").sum()
    found = steps.group_by(*by).agg(
        steps=pl.len().cast(pl.Int64),
        tokens_sum=pl.when(pl.col("tokens").count() > 0).then(tokens),
        total_ns=pl.col("total_ns").sum(),
        step_p50_ns=pl.col("total_ns").quantile(0.5, "linear"),
        step_p90_ns=pl.col("total_ns").quantile(0.9, "linear"),
        tokens_per_s=pl.when(counted_ns > 0, tokens > 0).then(tokens * 1e9 / counted_ns),
        ns_per_token=pl.when(tokens > 0).then(counted_ns / tokens),
    )
    return found.sort(*by, nulls_last=True)
