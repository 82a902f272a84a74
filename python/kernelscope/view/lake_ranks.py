"""The list of the ranks of a lake, each opened from its tables alone."""

from dataclasses import replace
from pathlib import PurePath

import polars as pl

from kernelscope.batch.lake import Lake
from kernelscope.batch.manifest import Entry
from kernelscope.errors import NotRecordedError
from kernelscope.report.names import safe
from kernelscope.trace import Trace
from kernelscope.view.catalogue import Opening
from kernelscope.view.session import Progress

_COLUMNS = ("rank run window host steps first_step last_step recorded_ns bytes format file error").split()
_TEXTS = ("host", "file", "error")


class LakeRanks:
    """The ranks of a lake by run, rank and window, followed by the sources that could not be read."""

    what = "Each rank is read from its own tables when it is opened. Click one to open it."

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.name = PurePath(str(lake.path)).name or str(lake.path)
        none = -1
        self._entries = sorted(
            lake.entries,
            key=lambda e: (e.outcome == "failed", e.run, none if e.rank is None else e.rank, e.window),
        )

    def look(self, advance: Progress) -> None:
        """Does nothing: the manifest is already read."""
        if not self._entries:
            raise NotRecordedError(f"{self.lake.path}: no rank is in this lake yet")
        advance(0, 0)

    def look_inside(self, advance: Progress) -> None:
        """Does nothing: the manifest contains everything."""

    def rows(self) -> pl.DataFrame:
        """See :class:`kernelscope.view.catalogue.Catalogue`."""
        known = replace(self.lake, entries=tuple(self._entries)).manifest.rename({"source": "file"})
        recorded = [_recorded_ns(entry) for entry in self._entries]
        steps = [len(entry.steps) or None for entry in self._entries]
        # Most lakes have one window of each rank, which then says nothing; one that failed has none.
        has_windows = any(entry.window for entry in self._entries)
        is_done = pl.col("outcome") == "done"
        return known.with_columns(
            pl.when(is_done & has_windows).then("window").alias("window"),
            pl.Series("recorded_ns", recorded, dtype=pl.Int64),
            pl.Series("steps", steps, dtype=pl.Int64),
            *(pl.col(name).map_elements(safe, return_dtype=pl.String) for name in _TEXTS),
        ).select(_COLUMNS)

    def opening(self, number: int) -> Opening:
        """See :class:`kernelscope.view.catalogue.Catalogue`."""
        if not 0 <= number < len(self._entries):
            raise NotRecordedError(f"the lake has {len(self._entries):,} ranks; there is no number {number}")
        entry = self._entries[number]
        if entry.outcome == "failed":
            raise NotRecordedError(f"{entry.source}: {entry.error}")

        def read(watch: Progress) -> Trace:
            watch(0, 0)
            return self.lake.trace_of(entry)

        window = f", window {entry.window}" if entry.window else ""
        return Opening(f"rank {entry.rank} of {entry.run}{window}", read, None)

    @property
    def runs(self) -> list[str]:
        """Returns the runs with ranks."""
        return self.lake.runs

    def of_steps(self, run: str) -> dict[tuple[int, int], int]:
        """Returns the number of the trace with a step, by rank and step, of a run."""
        found: dict[tuple[int, int], int] = {}
        for number, entry in self._of_run(run):
            for step in entry.steps:
                found.setdefault((entry.rank or 0, step), number)
        return found

    def of_sources(self, run: str) -> dict[tuple[str, int], int]:
        """Returns the number of each trace of a run, by the first source of its rank and by its window.

        A trace of several processes is several ranks of a cluster, but one rank of the lake.
        """
        windows: dict[int | None, list[tuple[int, int]]] = {}
        for number, entry in self._of_run(run):
            windows.setdefault(entry.rank, []).append((entry.window, number))
        return {
            (entry.source, window): number
            for _, entry in self._of_run(run)
            for window, number in windows[entry.rank]
        }

    def _of_run(self, run: str) -> list[tuple[int, Entry]]:
        found = enumerate(self._entries)
        return [(number, e) for number, e in found if e.outcome == "done" and e.run == run]

    def close(self) -> None:
        """Does nothing: there are no resources."""


def _recorded_ns(entry: Entry) -> int | None:
    start: int | None = entry.meta.get("start_ns")
    end: int | None = entry.meta.get("end_ns")
    return None if start is None or end is None else end - start
