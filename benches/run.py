"""Measures reading speed and memory beside other readers: ``make bench``.

Every measurement is a process of its own; the contestants take turns, so that what else the
machine does meets all of them; the figures are medians.
"""

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import performance
from contestants import CONTESTANTS, PROGRAMS, run_program
from inputs import DATA, KEEP_BYTES, LAYOUTS, MB, RECORDED, Input, inputs, provide
from processes import take_turns
from promises import promises
from tables import NotMeasuredError, Sample, Table, figures_table, promises_table

Results = dict[str, Any]

COLUMNS = {
    "s": "{seconds:.3f}",
    "MB/s": "{mb_per_s:,.0f}",
    "events/s": "{events_per_s:,.0f}",
    "peak, MB": "{peak_mb:,.0f}",
    "above imports, MB": "{above_imports_mb:,.0f}",
    "of the JSON": "{share:.2f}",
    "x kernelscope": "{times:.2f}",
}


def main() -> int:
    """Runs the benchmarks; 1 if kernelscope itself did not read something."""
    options = _options()
    results: Results = {"machine": options.machine, "inputs": [], "programs": {}, "missing": []}
    tables: list[Table] = []
    try:
        for wanted in inputs(options.sizes, options.layouts):
            if not (wanted.gzip and options.plain_only):
                tables += _measure_input(wanted, options, results)
            if (wanted.gzip or options.plain_only) and wanted.size_bytes > KEEP_BYTES and not options.keep:
                for made in (wanted, wanted.plain):
                    made.path.unlink(missing_ok=True)
        if not options.no_programs:
            tables += _measure_programs(options, results)
    finally:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    kept = promises_table(promises(results))
    print(f"{kept}\n\nresults: {options.out}")
    performance.record(options, "figures", "bench", [kept, *tables])
    return int(any("reason" in entry["readings"].get("kernelscope", {}) for entry in results["inputs"]))


def _options() -> argparse.Namespace:
    parser = performance.parser(__doc__, repeats=5, sizes="10MB 100MB 1GB", layouts="native compact")
    parser.epilog = f"layouts: {', '.join(LAYOUTS)}"
    parser.add_argument("--only", help="contestants, such as 'kernelscope json_load' (default: all)")
    parser.add_argument("--budget", type=float, default=25, help="seconds of repeats for each (default: 25)")
    parser.add_argument("--plain-only", action="store_true", help="no gzip files")
    parser.add_argument("--no-programs", action="store_true", help="no start-up times")
    parser.add_argument("--keep", action="store_true", help="keep files above 1 GB")
    parser.add_argument("--out", type=Path, default=DATA / "results.json", help="where the results go")
    return performance.parse(parser)


def _provided(wanted: Input, results: Results) -> Path | None:
    try:
        return provide(wanted)
    except NotMeasuredError as reason:
        print(f"\n{wanted.name}: {reason}", flush=True)
        results["missing"].append({"input": wanted.name, "reason": str(reason)})
        return None


def _measure_input(wanted: Input, options: argparse.Namespace, results: Results) -> list[Table]:
    path = _provided(wanted, results)
    if path is None:
        return []
    content_bytes, file_bytes = provide(wanted.plain).stat().st_size, path.stat().st_size
    running = {
        contestant.name: partial(contestant.read, path, content_bytes)
        for contestant in CONTESTANTS
        if options.only is None or contestant.name in options.only.split()
        if ("gzip" if wanted.gzip else "plain") in contestant.files
    }
    found = take_turns(running, options.repeats, options.budget)
    _compare(found, content_bytes / MB)
    entry = {**asdict(wanted), "name": wanted.name, "content_bytes": content_bytes, "file_bytes": file_bytes}
    results["inputs"].append({**entry, "readings": found})
    packed = f" in {file_bytes / MB:,.0f} MB" if wanted.gzip else ""
    title = f"{wanted.name}: {content_bytes / MB:,.0f} MB of JSON{packed}"
    titles = {contestant.name: contestant.title for contestant in CONTESTANTS}
    shown = {titles[name]: sample for name, sample in found.items()}
    return _shown(figures_table(title, "Reader", COLUMNS, shown))


def _compare(found: dict[str, Sample], content_mb: float) -> None:
    """Adds the ratios to what was measured."""
    events = next((sample["events"] for sample in found.values() if "events" in sample), None)
    own = found.get("kernelscope", {}).get("seconds")
    for sample in found.values():
        if "seconds" in sample:
            sample["mb_per_s"] = content_mb / sample["seconds"]
            if events is not None:
                sample["events_per_s"] = events / sample["seconds"]
            if own is not None:
                sample["times"] = sample["seconds"] / own
            if "above_imports_mb" in sample:
                sample["share"] = sample["above_imports_mb"] / content_mb


def _measure_programs(options: argparse.Namespace, results: Results) -> list[Table]:
    trace: Path | None = RECORDED / "owlv2-h100.json.gz"
    if not trace.exists():
        trace = _provided(Input("demo", "native", 50 * MB, gzip=True), results)
    if trace is None:
        return []
    running = {name: partial(run_program, name, trace) for name in PROGRAMS}
    results["programs"] = take_turns(running, max(options.repeats, 3))
    columns = {"s": "{seconds:.3f}", "peak, MiB": "{peak_mib:,.0f}"}
    title = f"Whole processes, on {trace.name}"
    return _shown(figures_table(title, "Process", columns, results["programs"]))


def _shown(table: Table) -> list[Table]:
    print(table, flush=True)
    return [table]


if __name__ == "__main__":
    sys.exit(main())
