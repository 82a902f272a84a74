"""Times the costing of a trace beside its reading: ``make bench-costs``, or ``costs.py TRACE...``.

Figures are medians. Promised are a million operators a second, and half the time of reading; nothing fails
on a figure.
"""

import argparse
from functools import partial

from processes import run_task, take_turns
from tables import figures_table

COLUMNS = {
    "operators": "{operators:,.0f}",
    "GPU ops": "{gpu_ops:,.0f}",
    "read s": "{read_s:.3f}",
    "costs s": "{costs_s:.3f}",
    "operators/s": "{operators_per_s:,.0f}",
    "of reading": "{share:.2f} x",
    "roofline s": "{roofline_s:.3f}",
}


def main() -> None:
    """Reads each trace and prints how long its costs and its roofline take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--runs", type=int, default=5, help="of each trace (default: 5)")
    options = parser.parse_args()
    found = take_turns({path: partial(run_task, "costs", path) for path in options.traces}, options.runs)
    print(figures_table("", "trace", COLUMNS, found))


if __name__ == "__main__":
    main()
