"""The rank in a name: of a file, of its folder, or found by the user's pattern."""

import re
from typing import NamedTuple

from kernelscope.errors import InvalidArgumentError
from kernelscope.meta import LARGEST_RANK

_NAMED = re.compile(r"(?<!node_)(?<!node-)(?<!local_)(?<!local-)(?:rank|worker)[-_.=]?(\d+)", re.IGNORECASE)
# Not after another number, nor a year after a dash: those are dates and versions.
_LAST_NUMBER = re.compile(r"(?:^|(?<!\d)\.|(?<!\d)[-_](?!(?:19|20)\d\d$))(\d{1,6})$")
_SUFFIXES = re.compile(
    r"(\.(json|gz|zst|sqlite|sql|db|pt|trace|tar|tgz|nsys|nsys-rep|pytorch|chrome))+$", re.IGNORECASE
)
_SEPARATORS = re.compile(r"[/\\]|::")
_NO_RUN = re.compile(r"^[^A-Za-z0-9_]|[^A-Za-z0-9_.+-]")
_PATTERN_MOST = 1_000


class Told(NamedTuple):
    """Place of a trace as found: its rank, the source of the rank, and the run found by a pattern."""

    rank: int | None
    rank_from: str | None
    run: str | None = None


NOTHING = Told(None, None)
"""Result for most names."""


def rank_from_name(name: str) -> int | None:
    """Returns the rank in a file's name, or None if there is none.

    ``rank12.pt.trace.json.gz``, ``trace_rank-3.json`` and ``report.7.sqlite`` contain one; numbers of times,
    dates, versions and processes are not ranks.
    """
    stem = _SUFFIXES.sub("", name)
    named = _NAMED.findall(stem)
    last = _LAST_NUMBER.search(stem)
    # The last one, since names grow from the outside in: worker0_rank3.
    return _rank(named[-1] if named else last and last[1])


def told_by_name(path: str) -> Told:
    """Returns the rank in the last part of a path, otherwise in the innermost folder that names a rank.

    ``path`` is relative to the input in which it was found: folders above it are not part of the job.
    """
    *folders, base = _SEPARATORS.split(path)
    rank = rank_from_name(base)
    if rank is not None:
        return Told(rank, "name")
    for folder in reversed(folders):
        named = _NAMED.findall(folder)
        if named:
            rank = _rank(named[-1])
            return NOTHING if rank is None else Told(rank, "folder")
    return NOTHING


def check_pattern(pattern: str) -> None:
    """Checks a pattern for ranks.

    Raises: InvalidArgumentError: it cannot be compiled, is too long, or has no group for the rank.
    """
    told_by_pattern(pattern, "")


def told_by_pattern(pattern: str, name: str) -> Told:
    """Returns the match of ``pattern`` in the name of a source.

    It consists of its group ``rank`` or first group, and its group ``run``.

    It is a regular expression of Rust's regex, whose time is linear in the length of the name for any
    pattern.

    Raises: InvalidArgumentError: as for ``check_pattern``.
    """
    import polars as pl
    from polars.exceptions import PolarsError

    if len(pattern) > _PATTERN_MOST:
        raise InvalidArgumentError(f"--rank-from: a pattern has at most {_PATTERN_MOST} characters")
    try:
        text = name.encode("utf-8", "replace").decode()
        row = pl.Series([text]).str.extract_groups(pattern).struct.unnest().row(0, named=True)
    except PolarsError as error:
        reason = " ".join(str(error).split())[-200:]
        raise InvalidArgumentError(f"--rank-from {pattern!r} is not a regular expression: {reason}") from None
    if not row:
        raise InvalidArgumentError(
            f"--rank-from {pattern!r} has no group: put the digits of the rank into parentheses,"
            r" as in 'gpu(\d+)' or '(?P<rank>\d+)'"
        )
    digits = row.get("rank", next((text for group, text in row.items() if group != "run"), None))
    rank = _rank(digits if digits and digits.isascii() and digits.isdigit() else None)
    run = row.get("run")
    # It becomes the name of a folder.
    named = None if run is None else _NO_RUN.sub("_", run)[:100]
    return Told(rank, None if rank is None else "pattern", named)


def _rank(digits: str | None) -> int | None:
    if not digits or len(digits) > 20:
        return None
    rank = int(digits)
    return rank if rank <= LARGEST_RANK else None
