"""Times critical paths beside HolisticTraceAnalysis: ``make bench-paths BENCH="TRACE ..."``.

Both follow the path of the whole trace, which includes building the graph. Figures are medians. Promised is a
path in a fiftieth of the time. Nothing fails on a figure.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from kernelscope import _traceparse
from processes import PEERS, run_task, take_turns
from tables import Promise, Sample, figures_table, promises_table

SIZE_BYTES = 25_000_000
AT_LEAST = 50
COLUMNS = {"load": "{read_s:.3f} s", "path": "{path_s:.3f} s", "both": "{both_s:.3f} s"}


def main() -> None:
    """Follows the path of each trace with both, and prints how long each takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE", help="(default: one of the demo)")
    parser.add_argument("--runs", type=int, default=3, help="of each trace (default: 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces: list[Path] = options.traces or [_demo(Path(folder))]
        rows: dict[str, Sample] = {}
        promises: list[Promise] = []
        for trace in traces:
            path = trace.resolve()
            found = take_turns(
                {
                    "kernelscope": partial(run_task, "whole_path", path),
                    "HolisticTraceAnalysis": partial(run_task, "hta_whole_path", path, python=PEERS),
                },
                options.runs,
            )
            rows |= {f"{path.name}, {name}": sample for name, sample in found.items()}
            ours, theirs = found.values()
            if "reason" not in theirs:
                ratio = theirs["path_s"] / ours["path_s"]
                title = "HolisticTraceAnalysis' time for a path, of kernelscope's"
                promises.append(Promise(title, path.name, ratio, AT_LEAST, at_least=True))
    print(figures_table("", "trace", COLUMNS, rows))
    print(promises_table(promises))


def _demo(folder: Path) -> Path:
    written = _traceparse.write_demo(
        folder, size_bytes=SIZE_BYTES, ranks=1, seed=0, layout="native", gzip=False, truth=False
    )
    return written[0][0]


if __name__ == "__main__":
    main()
