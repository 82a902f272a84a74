"""What a batch tells while it runs, and at its end."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernelscope.batch.manifest import Entry

Status = Literal["done", "unchanged", "failed"]


@dataclass(frozen=True, slots=True)
class RankReport:
    """What became of a source in this batch, and what it took."""

    entry: Entry
    status: Status
    seconds: float | None = None
    peak_bytes: int | None = None

    def to_line(self) -> str:
        """The report as a line of JSON."""
        entry = self.entry
        value = {
            "source": entry.source,
            "status": self.status,
            "run": entry.run,
            "rank": entry.rank,
            "bytes": entry.bytes,
            "content_bytes": entry.meta.get("content_bytes"),
            "events": entry.meta.get("seen"),
            "lost": entry.lost,
            "error": entry.error,
            "error_kind": entry.error_kind,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }
        return json.dumps(value) + "\n"


@dataclass(slots=True)
class BatchReport:
    """How far a batch is: sources by what became of them, out of ``total``; and all entries of the lake."""

    lake: Path
    total: int
    total_bytes: int
    done: int = 0
    unchanged: int = 0
    failed: int = 0
    seen_bytes: int = 0
    read_bytes: int = 0
    """Bytes of the sources that are done in this batch."""
    started: float = field(default_factory=time.monotonic)
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict[tuple[str, str], Entry])

    @property
    def finished(self) -> int:
        """Sources that nothing is left to do for."""
        return self.done + self.unchanged + self.failed

    @property
    def failures(self) -> list[Entry]:
        """The entries that have an error."""
        return [entry for entry in self.entries.values() if entry.outcome == "failed"]
