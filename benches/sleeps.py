"""Predicts jobs of two ranks on gloo without the sleeps of one of them: ``make bench-sleeps``.

One rank sleeps in every other step, in the data loader, the forward pass or the optimizer. Steps without the
sleep are predicted, and compared with the steps of the same run that had none. Promised is a difference of at
most 10 % on both ranks. Nothing fails on a figure.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

import kernelscope as ks
from tables import Row, Table

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "gloo_jobs.py"
JOBS = ("ddp", "fsdp")
PHASES = ("loader", "forward", "optimizer")
COLUMNS = ("job", "sleeps in", "rank", "with it", "predicted", "other steps", "difference")


def compared(kind: str, phase: str, options: argparse.Namespace) -> list[Row]:
    """Runs a job, and returns the medians of its steps on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [kind, "2", folder, "--phase", phase]
        for name in ("delay_ms", "steps", "width", "device_ms"):
            asked += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        subprocess.run([sys.executable, str(PROGRAM), *asked], check=True, stderr=subprocess.DEVNULL)
        traces = [ks.read(path) for path in sorted(Path(folder).iterdir())]
        steps = ks.analysis.what_if(traces, {"range:sleep": 0})
    # A sleep in the optimizer holds up the other rank in the next step.
    longest = pl.col("before_ns").median().over("rank", pl.col("step") % 2)
    steps = steps.with_columns(sleeps=longest == longest.max().over("rank"))
    rows: list[Row] = []
    for rank in (0, 1):
        own = steps.filter(rank=rank)
        late, other = own.filter("sleeps"), own.filter(~pl.col("sleeps"))
        before, after, usual = (
            float(of.median()) for of in (late["before_ns"], late["after_ns"], other["after_ns"])
        )
        shown = (f"{ns / 1e6:.1f} ms" for ns in (before, after, usual))
        rows.append((kind, phase, str(rank), *shown, f"{after / usual - 1:+.1%}"))
    return rows


def main() -> None:
    """Runs each job and prints how far the prediction is from its steps without a sleep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=40, help="of each sleep (default: 40)")
    parser.add_argument("--steps", type=int, default=20, help="of each job (default: 20)")
    parser.add_argument("--width", type=int, default=128, help="of the layers (default: 128)")
    device_help = "wait of each block on both ranks, which leaves its core to the others (default: 20)"
    parser.add_argument("--device-ms", type=float, default=20, help=device_help)
    options = parser.parse_args()
    rows = [row for kind in JOBS for phase in PHASES for row in compared(kind, phase, options)]
    print(Table("Steps without a sleep", COLUMNS, rows))


if __name__ == "__main__":
    main()
