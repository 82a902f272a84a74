"""Makes copies of traces in which some kernels take longer and everything behind them comes later."""

import bisect
import json
from collections.abc import Callable
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def _ns(us: Any) -> int:
    return int(Decimal(us) * 1000)


def slowed(source: Path, target: Path, is_slow: Callable[[Event], bool], *, percent: int) -> list[int]:
    """Writes ``target`` and gives what each slow kernel takes longer, in ns, in order of their ends.

    Time is stretched where a slow kernel ends, for every thread and stream, so that what is nested stays so.
    """
    document = json.loads(source.read_text(), parse_float=Decimal)
    events: list[Event] = document["traceEvents"]
    slow = sorted(
        (_ns(e["ts"]) + _ns(e["dur"]), _ns(e["dur"]) * percent // 100)
        for e in events
        if e.get("cat") == "kernel" and is_slow(e)
    )
    ends = [end for end, _ in slow]
    added = [0, *accumulate(more for _, more in slow)]

    def stretched(at: int) -> int:
        return at + added[bisect.bisect_right(ends, at)]

    for event in events:
        if event["ph"] == "M":
            continue
        start = _ns(event["ts"])
        if "dur" in event:
            event["dur"] = _us(stretched(start + _ns(event["dur"])) - stretched(start))
        event["ts"] = _us(stretched(start))
    # Decimal text keeps every nanosecond.
    target.write_text(json.dumps(document, default=str))
    return [more for _, more in slow]


def _us(ns: int) -> Decimal:
    return Decimal(ns) / 1000
