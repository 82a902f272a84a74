"""Times critical paths beside reading: ``make bench-dependencies``, or ``dependencies.py TRACE...``.

Figures are medians. Half the time of reading was promised for the paths of all steps, a fifth for a replay,
and 64 bytes for each edge of the graph. Nothing fails on a figure.
"""

import argparse
from functools import partial

from processes import run_task, take_turns
from tables import figures_table

COLUMNS = {
    "steps": "{steps:,.0f}",
    "edges": "{edges:,.0f}",
    "bytes per edge": "{bytes_per_edge:.0f}",
    "read s": "{read_s:.3f}",
    "paths s": "{path_s:.3f}",
    "of reading": "{path_share:.2f} x",
    "replay s": "{replay_s:.3f}",
    "of it": "{replay_share:.2f} x",
    "what_if s": "{what_if_s:.3f}",
}


def main() -> None:
    """Reads each trace and prints how long its paths, a replay and a prediction take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--runs", type=int, default=3, help="of each trace (default: 3)")
    options = parser.parse_args()
    tasks = {path: partial(run_task, "critical_path", path) for path in options.traces}
    print(figures_table("", "trace", COLUMNS, take_turns(tasks, options.runs)))


if __name__ == "__main__":
    main()
