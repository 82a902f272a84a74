"""Which rank a trace is of, where the trace itself does not say: its name may."""

import re

_NAMED = re.compile(r"(?<!node_)(?<!node-)(?<!local_)(?<!local-)(?:rank|worker)[-_.=]?(\d+)", re.IGNORECASE)
# Not after another number, nor a year after a dash: those are dates and versions.
_LAST_NUMBER = re.compile(r"(?:^|(?<!\d)\.|(?<!\d)[-_](?!(?:19|20)\d\d$))(\d{1,6})$")
_SUFFIXES = re.compile(
    r"(\.(json|gz|zst|sqlite|sql|db|pt|trace|tar|tgz|nsys|nsys-rep|pytorch|chrome))+$", re.IGNORECASE
)


def rank_from_name(name: str) -> int | None:
    """The rank that a file's name tells; null if it tells none.

    ``rank12.pt.trace.json.gz``, ``trace_rank-3.json`` and ``report.7.sqlite`` do; the numbers of times,
    dates, versions and processes do not.
    """
    stem = _SUFFIXES.sub("", name)
    named = _NAMED.findall(stem)
    if named:
        # The last one, since names grow from the outside in: worker0_rank3.
        return int(named[-1])
    last = _LAST_NUMBER.search(stem)
    return int(last[1]) if last else None
