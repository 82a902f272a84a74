"""Adds up a profile of the reader by stage: where its processor time goes.

    cargo build --profile profiling --example read
    perf record -e cpu-clock -F 2000 --call-graph dwarf,2048 target/profiling/examples/read TRACE
    perf script --no-inline -F comm,ip,sym | python benches/stages.py

A sample belongs to the first stage of the list below that one of its frames belongs to.
"""

import sys
from collections import Counter

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
    ("the rest of parsing", ("formats::kineto",)),
)


def main() -> None:
    """Reads ``perf script`` from standard input and prints a share per stage."""
    # Samples stand in blocks between blank lines; the lines of frames, innermost first, are indented.
    blocks = (
        [line for line in block.splitlines() if line[:1].isspace()]
        for block in sys.stdin.read().split("\n\n")
    )
    counts = Counter(stage(frames) for frames in blocks if frames)
    for name, count in counts.most_common():
        print(f"{100 * count / counts.total():5.1f} %  {name}")
    print(f"{counts.total()} samples")


def stage(frames: list[str]) -> str:
    """The stage that a sample belongs to."""
    innermost = next((frame for frame in frames if LINK in frame), None)
    if innermost is not None:
        return f"linking: {innermost.split(LINK)[1].split('::')[0]}"
    text = "\n".join(frames)
    return next((name for name, marks in STAGES if any(mark in text for mark in marks)), "everything else")


if __name__ == "__main__":
    main()
