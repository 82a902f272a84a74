"""Time losses of a job of many ranks, as a few lines of text."""

import textwrap

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.analysis.ranks.stragglers import rank_steps
from kernelscope.report.names import safe
from kernelscope.units import format_bytes, format_count, format_ns, format_percent

_WIDTH = 80
_RANKS_NAMED = 3
"""Maximum number of findings about ranks and links; there may be a hundred."""


def to_text(source: "Source | Cluster") -> str:
    """Returns the three most important findings with their costs.

    They are slow ranks, exposed communication and idle GPUs.

    Raises: InvalidArgumentError: there are no ranks.
    """
    cluster = analysis.cluster_of(source)
    findings = analysis.cluster_findings(cluster)
    steps = rank_steps(cluster)
    lines = [_head(cluster, steps), "", "Look first at"]
    lines += _numbered(1, _slow_ranks(findings))
    lines += _numbered(2, _exposed(cluster, steps))
    lines += _numbered(3, _idle(steps))
    lines += ["", *_clocks(cluster)]
    return "\n".join(part for line in lines for part in _wrapped(safe(line))).rstrip() + "\n"


def _wrapped(line: str) -> list[str]:
    """A line as several of up to ``_WIDTH`` characters, the others as far in as its text."""
    indent = "   " if line[:3] == "   " or line[1:3] == ". " else ""
    return textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False) or [""]


def _numbered(number: int, lines: list[str]) -> list[str]:
    return [f"{number}. {lines[0]}", *(f"   {line}" for line in lines[1:])]


def _head(cluster: Cluster, steps: pl.DataFrame) -> str:
    ranks, hosts = cluster.ranks.height, cluster.ranks["host"].drop_nulls().n_unique()
    where = f" on {format_count(hosts)} hosts" if hosts > 1 else ""
    text = f"{format_count(ranks)} ranks{where}" if ranks != 1 else "1 rank"
    if steps.is_empty():
        return f"{text}; no step is recorded completely"
    numbers = steps["step"]
    count = numbers.n_unique()
    is_range = count > 1 and not numbers.has_nulls()
    which = f", {numbers.min()} to {numbers.max()}" if is_range else ""
    middle = format_ns(_total(steps.select(pl.col("total_ns").median())))
    return f"{text}, {count} step{'s' if count != 1 else ''}{which}, median {middle}"


def _slow_ranks(findings: pl.DataFrame) -> list[str]:
    ranks = findings.filter(pl.col("finding") != "clock_offset")
    if ranks.is_empty():
        return ["No rank is slower than the others."]
    lines = [_finding(row) for row in ranks.head(_RANKS_NAMED).iter_rows(named=True)]
    more = ranks.height - len(lines)
    return [*lines, f"... and {format_count(more)} more: ks.analysis.cluster_findings"] if more else lines


def _finding(row: dict[str, object]) -> str:
    lost = row["lost_ns"]
    cost = f" ({format_ns(lost)} in all)" if isinstance(lost, float) else ""
    return f"{str(row['finding']).replace('_', ' ')}: {row['message']}{cost}"


def _exposed(cluster: Cluster, steps: pl.DataFrame) -> list[str]:
    table = analysis.communication(cluster, by=("kind", "group_size", "message_bytes"))
    table = table.filter(pl.col("exposed_ns") > 0).sort("exposed_ns", descending=True)
    if table.is_empty():
        return ["All communication is hidden behind computation, or there is none."]
    row = table.row(0, named=True)
    size = f" of {format_bytes(row['message_bytes'])}" if row["message_bytes"] is not None else ""
    group = f" among {format_count(row['group_size'])} ranks" if row["group_size"] is not None else ""
    name = f"{row['kind'] or 'unknown collective'}{size}{group}"
    share = row["exposed_ns"] / _total(table.select(pl.col("exposed_ns").sum()))
    exposed = steps.select(pl.col("network_ns").sum() + pl.col("wait_ns").sum())
    total = _total(steps.select(pl.col("total_ns").sum()))
    head = (
        f"Exposed communication takes {format_percent(_total(exposed) / total)} of the steps;"
        if total
        else "Exposed communication:"
    )
    lines = [head, f"{name} accounts for {format_percent(share)} of it."]
    if row["wait_ns"] is not None and row["total_ns"]:
        waited = format_percent(row["wait_ns"] / row["total_ns"])
        lines.append(f"{waited} of the time of that collective is waiting for late ranks.")
    return [*lines, *_by_dimension(cluster)]


def _by_dimension(cluster: Cluster) -> list[str]:
    """The exposed time of each dimension of parallelism, if the process groups tell any."""
    table = analysis.communication(cluster, by=("dimension",)).sort("exposed_ns", descending=True)
    total = _total(table.select(pl.col("exposed_ns").sum()))
    if not total or table["dimension"].null_count() == table.height:
        return []
    rows = table.filter(pl.col("exposed_ns") > 0).select(
        pl.col("dimension").fill_null("unknown"), "exposed_ns"
    )
    shares = [f"{name} {format_percent(exposed / total)}" for name, exposed in rows.iter_rows()]
    return [f"By dimension of parallelism: {', '.join(shares)}."]


def _idle(steps: pl.DataFrame) -> list[str]:
    total = _total(steps.select(pl.col("total_ns").sum()))
    if not total:
        return ["No step is recorded completely, so idle time is unknown."]
    data = _total(steps.select(pl.col("data_ns").sum())) / total
    host = _total(steps.select(pl.col("launch_ns").sum())) / total
    causes = [
        (data, "while the host loads data"),
        (host, "while the host does other work, or none is recorded"),
    ]
    causes.sort(reverse=True)
    lines = [f"GPUs are idle for {format_percent(data + host)} of the steps:"]
    return [*lines, *(f"{format_percent(share)} {cause}." for share, cause in causes)]


def _clocks(cluster: Cluster) -> list[str]:
    offsets = analysis.clock_offsets(cluster).drop_nulls("offset_ns")
    if offsets.height < 2:
        return []
    apart = _total(offsets.select(pl.col("offset_ns").max() - pl.col("offset_ns").min()))
    residual = _total(offsets.select(pl.col("residual_ns").median()))
    aligned = f"aligned on collectives to {format_ns(residual)}"
    return [f"Clocks of the ranks differ by up to {format_ns(apart)}; {aligned}."]


def _total(frame: pl.DataFrame) -> float:
    return float(frame.item() or 0)
