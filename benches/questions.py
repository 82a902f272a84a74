"""Times questions about a trace beside its reading: ``make bench-costs``, ``make bench-dependencies``.

Figures are medians. Nothing fails on a figure. Promised of costs are a million operators a second, and half
the time of reading. Of critical paths, half the time of reading is promised for the paths of all steps, a
fifth for a replay, and 64 bytes for each edge of the graph.
"""

import argparse
from functools import partial

from processes import run_task, take_turns
from tables import figures_table

COLUMNS = {
    "costs": {
        "operators": "{operators:,.0f}",
        "GPU ops": "{gpu_ops:,.0f}",
        "read s": "{read_s:.3f}",
        "costs s": "{costs_s:.3f}",
        "operators/s": "{operators_per_s:,.0f}",
        "of reading": "{share:.2f} x",
        "roofline s": "{roofline_s:.3f}",
    },
    "critical_path": {
        "steps": "{steps:,.0f}",
        "edges": "{edges:,.0f}",
        "bytes per edge": "{bytes_per_edge:.0f}",
        "read s": "{read_s:.3f}",
        "paths s": "{path_s:.3f}",
        "of reading": "{path_share:.2f} x",
        "replay s": "{replay_s:.3f}",
        "of it": "{replay_share:.2f} x",
        "what_if s": "{what_if_s:.3f}",
    },
}
"""Columns of the table of each task."""


def main() -> None:
    """Reads each trace and prints how long the answers of a task take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=COLUMNS)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--runs", type=int, default=5, help="of each trace (default: 5)")
    options = parser.parse_args()
    tasks = {path: partial(run_task, options.task, path) for path in options.traces}
    print(figures_table("", "trace", COLUMNS[options.task], take_turns(tasks, options.runs)))


if __name__ == "__main__":
    main()
