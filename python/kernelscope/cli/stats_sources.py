"""Sources of ``kernelscope stats``: a database, several, or the ranks of a lake."""

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope import remote
from kernelscope.cli import arguments
from kernelscope.cli.console import say
from kernelscope.cli.inputs import on_disk
from kernelscope.cli.reading import Bar, tell_loss
from kernelscope.errors import InvalidArgumentError, NotATraceError, NotRecordedError

if TYPE_CHECKING:
    import polars as pl

    from kernelscope.compat.nsys import Field, Question, Report
    from kernelscope.trace import Trace

FILE = "file"
"""Columns of ``--by`` that keep the rows of several databases apart."""


class Sources(contextlib.ExitStack):
    """The databases passed to the command, during the context."""

    def __init__(self, options: argparse.Namespace, *, is_apart: bool) -> None:
        from kernelscope.batch.rank_folders import is_lake

        super().__init__()
        self._options = options
        self._paths: list[str] = list(options.database)
        self._is_apart = is_apart
        self._lakes = {path for path in self._paths if not remote.is_url(path) and is_lake(Path(path))}
        if self._lakes and any(arguments.filters_of(options).values()):
            raise InvalidArgumentError(
                "the traces of a lake were read already: filters apply only to databases"
            )
        self._local: dict[str, str] = {}

    def __enter__(self) -> "Sources":
        super().__enter__()
        for path in self._lakes:
            _refuse_empty(path)
        for path in self._paths:
            if path not in self._lakes and path not in self._local:
                self._local[path] = self.enter_context(on_disk(path, for_json="analyze"))
        return self

    def made(self, name: str, by: Sequence[str]) -> "tuple[Sequence[Field], Iterator[pl.DataFrame]]":
        """Returns the columns of a report and its parts, with at least one part.

        Raises: NotRecordedError: no database contains its data.
        """
        from kernelscope.compat.nsys import parse

        report, question = parse(name, by=by)
        is_one = len(self._paths) == 1 and not self._lakes and not self._is_apart
        if is_one:
            (trace,) = (trace for _, trace in self._read(report, question, is_one=True))
            # The parts hold what they need of the tables.
            return report.fields_by(question.by), report.parts(trace, question)
        if report.sample is None or self._is_apart:
            return self._apart(report, question)
        return self._together(report, question)

    def _together(
        self, report: "Report", question: "Question"
    ) -> "tuple[Sequence[Field], Iterator[pl.DataFrame]]":
        from kernelscope.compat.nsys import Pool

        pool = Pool(report, question)
        for name, trace in self._read(report, question):
            pool.add(name, trace)
        return pool.fields, iter((pool.table(),))

    def _apart(
        self, report: "Report", question: "Question"
    ) -> "tuple[Sequence[Field], Iterator[pl.DataFrame]]":
        import polars as pl

        from kernelscope.compat.nsys import Field

        fields = (Field("File", FILE), *report.fields_by(question.by))
        every = self._read(report, question)
        first = next(every)

        def parts() -> "Iterator[pl.DataFrame]":
            for name, trace in _chained(first, every):
                for part in report.parts(trace, question):
                    yield part.with_columns(pl.lit(name).alias(FILE))

        return fields, parts()

    def _read(
        self, report: "Report", question: "Question", *, is_one: bool = False
    ) -> "Iterator[tuple[str, Trace]]":
        """Those of the traces that hold anything of a report, with their names."""
        lacks: list[str] = []
        read = 0
        for path in self._paths:
            for name, trace, lack in self._traces(path, report, question):
                if lack is None:
                    read += 1
                    yield name, trace
                else:
                    lacks.append(lack if is_one else f"{name}: {lack}")
        if not read:
            raise NotRecordedError("\n".join(lacks))
        for lack in lacks:
            say(lack)

    def _traces(
        self, path: str, report: "Report", question: "Question"
    ) -> "Iterator[tuple[str, Trace, str | None]]":
        if path in self._lakes:
            from kernelscope.batch import scan
            from kernelscope.compat.nsys import tables_for

            tables = tables_for(report, question)
            for trace in scan(path).traces(tables):
                # A lake does not say which tables a database had.
                is_there = any(trace.tables[table].height for table in tables)
                yield (
                    trace.meta.path,
                    trace,
                    None if is_there else f"{report.name}: none of its tables has rows",
                )
            return
        from kernelscope.compat.nsys import left_out_note, missing_reason, overhead_note, read_for

        with Bar("reading") as bar:
            trace = read_for(
                self._local[path],
                report,
                question,
                strict=self._options.strict,
                threads=self._options.threads,
                progress=bar.update,
                **arguments.filters_of(self._options),
            )
        tell_loss(trace, self._options)
        lack = missing_reason(trace, report)
        if lack is None:
            for note in (left_out_note(trace, report), overhead_note(trace, report)):
                if note is not None:
                    say(note)
        yield path, trace, lack


def _chained(
    first: "tuple[str, Trace]", others: "Iterable[tuple[str, Trace]]"
) -> "Iterator[tuple[str, Trace]]":
    yield first
    del first
    yield from others


def _refuse_empty(lake: str) -> None:
    from kernelscope.batch import scan

    if not scan(lake).runs:
        raise NotATraceError(f"{lake}: is a lake without ranks; add some with kernelscope batch", path=lake)
