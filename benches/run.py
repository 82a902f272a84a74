"""Measures reading speed and memory beside other readers: ``make bench``.

Every measurement is a process of its own; the contestants take turns, so that what else the
machine does meets all of them; the figures are medians.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import figures
import floors
import machine
import performance
import processes
from contestants import CONTESTANTS, GB, MB, PROGRAMS, Contestant
from inputs import DATA, LAYOUTS, RECORDED, Input, MissingInputError, parse_size, provide, sources, warm
from processes import FailedError, Sample

Results = dict[str, Any]

DEFAULT_SIZES = "10MB 100MB 1GB"
# Files above this are removed once they are measured.
KEEP_BYTES = 1.1 * GB


def main() -> int:
    """Runs the benchmarks; 1 if kernelscope itself failed to read something."""
    options = _options()
    warning = machine.busy()
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    results: Results = {"machine": machine.describe(), "inputs": [], "programs": {}, "missing": []}
    try:
        for plain, gzipped in _inputs(options):
            for wanted in (plain, gzipped):
                if wanted is not None:
                    _measure_input(wanted, options, results)
            for wanted in (plain, gzipped):
                if wanted is not None and wanted.size_bytes > KEEP_BYTES and not options.keep:
                    wanted.path.unlink(missing_ok=True)
        if not options.no_programs:
            _measure_programs(options, results)
    finally:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(floors.text(floors.judge(results)))
    print(f"\nresults: {options.out}")
    if options.record:
        performance.record("figures", "bench", figures.markdown(results))
    return int(any("failed" in entry.get("kernelscope", {}) for entry in _readings(results)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=DEFAULT_SIZES, help=f"of the JSON (default: {DEFAULT_SIZES})")
    parser.add_argument("--layouts", default="native compact", help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--only", help="contestants, such as 'kernelscope json_load' (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement at most (default: 5)")
    parser.add_argument("--budget", type=float, default=25, help="seconds of repeats for each (default: 25)")
    parser.add_argument("--plain-only", action="store_true", help="no gzip files")
    parser.add_argument("--no-programs", action="store_true", help="no start-up times")
    parser.add_argument("--keep", action="store_true", help="keep files above 1 GB")
    parser.add_argument("--record", action="store_true", help="renew the figures in benches/results.json")
    parser.add_argument("--out", type=Path, default=DATA / "results.json", help="where the results go")
    return parser.parse_args()


def _inputs(options: argparse.Namespace) -> Iterator[tuple[Input, Input | None]]:
    for size_bytes in sorted(parse_size(text) for text in options.sizes.split()):
        for layout in options.layouts.split():
            for source in sources(layout):
                plain = Input(source, layout, size_bytes, gzip=False)
                gzipped = None if options.plain_only else Input(source, layout, size_bytes, gzip=True)
                yield plain, gzipped


def _measure_input(wanted: Input, options: argparse.Namespace, results: Results) -> None:
    try:
        path = provide(wanted)
        plain = provide(Input(wanted.source, wanted.layout, wanted.size_bytes, gzip=False))
    except MissingInputError as reason:
        print(f"\n{wanted.name}: left out: {reason}", flush=True)
        results["missing"].append({"input": wanted.name, "reason": str(reason)})
        return
    warm(path)
    content_bytes = plain.stat().st_size
    entry = {**asdict(wanted), "name": wanted.name, "content_bytes": content_bytes}
    entry["file_bytes"] = path.stat().st_size
    print(f"\n{wanted.name}: {content_bytes / MB:,.0f} MB of JSON", flush=True)
    entry["readings"] = _take_turns(wanted, path, content_bytes, options)
    for line in figures.reading_lines(entry):
        print(line, flush=True)
    results["inputs"].append(entry)


def _take_turns(
    wanted: Input, path: Path, content_bytes: int, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    readings: dict[str, dict[str, Any]] = {}
    running: dict[str, Contestant] = {}
    samples: dict[str, list[Sample]] = {}
    for contestant in CONTESTANTS:
        task = contestant.task
        asked = options.only is None or task in options.only.split()
        if not asked or not (contestant.gzip if wanted.gzip else contestant.plain):
            continue
        available = machine.available_bytes()
        reason = contestant.skip_reason(content_bytes=content_bytes, available_bytes=available)
        if reason is not None:
            readings[task] = {"skipped": reason}
        else:
            running[task], samples[task] = contestant, []
    for _ in range(options.repeats):
        for task, contestant in list(running.items()):
            outcome = _attempt(partial(processes.call, contestant, path))
            if isinstance(outcome, str):
                readings[task] = {"failed": outcome}
                del running[task]
                continue
            samples[task].append(outcome)
            spent = sum(sample.seconds for sample in samples[task])
            # Another turn must fit, too.
            if spent + spent / len(samples[task]) > options.budget:
                del running[task]
    return readings | {task: _medians(taken) for task, taken in samples.items() if task not in readings}


def _measure_programs(options: argparse.Namespace, results: Results) -> None:
    trace = RECORDED / "owlv2-h100.json.gz"
    if not trace.exists():
        demo = Input("demo", "native", 50 * MB, gzip=True)
        try:
            trace = provide(demo)
        except MissingInputError as reason:
            results["missing"].append({"input": demo.name, "reason": str(reason)})
            return
    warm(trace)
    samples: dict[str, list[Sample]] = {}
    failures: dict[str, dict[str, str]] = {}
    for _ in range(max(options.repeats, 3)):
        for wanted in PROGRAMS:
            outcome = _attempt(partial(processes.program, wanted, trace))
            if isinstance(outcome, str):
                failures[wanted.name] = {"failed": outcome}
            else:
                samples.setdefault(wanted.name, []).append(outcome)
    results["programs"] = {name: _medians(taken) for name, taken in samples.items() if taken} | failures
    results["programs_trace"] = trace.name
    print(f"\nwhole processes; the trace is {trace.name}")
    for line in figures.program_lines(results):
        print(line, flush=True)


def _attempt(measure: Callable[[], Sample]) -> Sample | str:
    """A measurement, or how it failed."""
    try:
        return measure()
    except FailedError as error:
        return str(error)


def _medians(samples: list[Sample]) -> dict[str, Any]:
    peaks = [s.peak_bytes for s in samples if s.peak_bytes is not None]
    above = [
        s.peak_bytes - s.imports_bytes
        for s in samples
        if s.peak_bytes is not None and s.imports_bytes is not None
    ]
    return {
        "seconds": statistics.median(sample.seconds for sample in samples),
        "peak_bytes": statistics.median(peaks) if peaks else None,
        "peak_above_imports_bytes": statistics.median(above) if above else None,
        "events": samples[0].events,
        "samples": [asdict(sample) for sample in samples],
    }


def _readings(results: Results) -> Iterator[dict[str, Any]]:
    for entry in results["inputs"]:
        yield entry["readings"]


if __name__ == "__main__":
    sys.exit(main())
