"""Answers about a trace are worked out once, and for that trace only."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from pathlib import Path

import polars as pl

import kernelscope as ks
from kernelscope.memo import Memo, per_trace

_ASKED: list[tuple[int, str]] = []


@per_trace
def _rows(trace: ks.Trace, *, table: str = "ops") -> pl.DataFrame:
    _ASKED.append((id(trace), table))
    return trace.tables[table].select("row")


def test_each_question_is_answered_once_for_its_options(tiny: Path) -> None:
    trace = ks.read(tiny)
    _ASKED.clear()
    assert _rows(trace) is _rows(trace) is _rows(trace, table="ops")
    assert _rows(trace, table="launches") is _rows(trace, table="launches")
    assert [table for _, table in _ASKED] == ["ops", "launches"]
    assert _rows(trace, table="launches").height != _rows(trace).height


def test_a_changed_copy_begins_without_answers(tiny: Path) -> None:
    trace = ks.read(tiny)
    assert _rows(trace).height == trace.ops.height
    changed = dataclasses.replace(trace, ops=trace.ops.clear())
    assert _rows(changed).is_empty()
    assert ks.analysis.op_table(changed).is_empty()


def test_a_pickled_trace_begins_without_answers(tiny: Path) -> None:
    trace = ks.read(tiny)
    expected = _rows(trace)
    again = pickle.loads(pickle.dumps(trace))
    _ASKED.clear()
    assert _rows(again).equals(expected)
    assert len(_ASKED) == 1


def test_threads_share_one_answer(tiny: Path) -> None:
    begun, found = threading.Barrier(8), []
    memo, calls = Memo(), []

    def answer() -> object:
        calls.append(threading.get_ident())
        return object()

    def ask() -> None:
        begun.wait()
        found.append(memo.find("key", answer))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(set(map(id, found))) == 1
