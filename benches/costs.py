"""Times the costing of a trace beside its reading: ``costs.py TRACE...`` prints a line per trace.

    python benches/costs.py rank0.pt.trace.json

Each figure is the best of several runs. The floors: a million operators a second, and half the time of
reading. Nothing fails on a figure.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from kernelscope import analysis, read


def main() -> None:
    """Reads each trace and prints how long its costs and its roofline take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument(
        "--runs", type=int, default=5, help="runs of each, of which the best counts (default: 5)"
    )
    options = parser.parse_args()
    print("trace | operators | GPU ops | read s | costs s | operators/s | of reading | roofline s")
    print("---|---|---|---|---|---|---|---")
    for path in options.traces:
        print(" | ".join(_measured(path, options.runs)), flush=True)


def _measured(path: str, runs: int) -> list[str]:
    reading, trace = _best(lambda: read(path), min(runs, 3))
    costing, _ = _best(lambda: analysis.costs(trace), runs)
    roofing, _ = _best(lambda: analysis.roofline(trace), runs)
    return [
        path,
        f"{trace.ops.height:,}",
        f"{trace.gpu_ops.height:,}",
        f"{reading:.3f}",
        f"{costing:.3f}",
        f"{trace.ops.height / costing:,.0f}",
        f"{costing / reading:.2f} x",
        f"{roofing:.3f}",
    ]


def _best(call: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The shortest time of several calls, and what the last one gave."""
    times: list[float] = []
    result: Any = None
    for _ in range(max(runs, 1)):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return min(times), result


if __name__ == "__main__":
    main()
