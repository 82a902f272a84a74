"""Adds up a profile of the reader by stage: where its processor time goes.

    cargo build --profile profiling --example read
    perf record -e cpu-clock -F 2000 --call-graph dwarf,2048 target/profiling/examples/read TRACE
    perf script --no-inline -F comm,ip,sym | python benches/stages.py

A sample belongs to the first stage of the list below that one of its frames belongs to.
"""

import sys
from collections import Counter
from collections.abc import Iterator

LINK = "traceparse::link::"

STAGES = (
    ("inflating", ("flate2", "zlib_rs")),
    ("reading the file", ("Source::fill", "Counted")),
    ("cutting into chunks", ("next_chunk",)),
    ("export to Arrow", ("into_batch",)),
    ("appending to the tables", ("Tables::append", "::append", "shift_rows")),
    ("interning", ("Interner", "::symbol", "::intern")),
    ("scanning arguments", ("Args::parse",)),
    ("scanning events", ("RawEvent::parse",)),
    ("numbers and times", ("micros_to_ns", "::time", "::integer", "number::")),
    ("filling rows", ("rows::", "Column<T>::push", "RowBuilder", "fields::")),
    ("the rest of parsing", ("traceparse::kineto",)),
)


def main() -> None:
    """Reads ``perf script`` from standard input and prints a share per stage."""
    counts = Counter(stage(frames) for frames in samples(sys.stdin))
    total = sum(counts.values())
    for name, count in counts.most_common():
        print(f"{100 * count / total:5.1f} %  {name}")
    print(f"{total} samples")


def samples(lines: Iterator[str]) -> Iterator[list[str]]:
    """The frames of every sample, innermost first."""
    frames: list[str] = []
    for line in lines:
        if line.startswith(("\t", " ")):
            frames.append(line.strip().split(" ", 1)[-1])
        elif not line.strip():
            if frames:
                yield frames
            frames = []
    if frames:
        yield frames


def stage(frames: list[str]) -> str:
    """The stage that a sample belongs to."""
    text = "\n".join(frames)
    if LINK in text:
        innermost = next(frame for frame in frames if LINK in frame)
        return f"linking: {innermost.split(LINK)[1].split('::')[0]}"
    return next((name for name, marks in STAGES if any(mark in text for mark in marks)), "everything else")


if __name__ == "__main__":
    main()
