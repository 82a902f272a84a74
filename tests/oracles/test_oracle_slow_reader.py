"""Every table of every shared trace against the slow reader, which shares no code with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from traces import ORACLES, VALID, files

import kernelscope as ks
import slow_reader

# Numbered by each reader in its own order, or not filled by the slow reader.
OPAQUE = {"track", "phase", "module"}
JSON_TEXT = ("input_dims", "input_types", "input_strides", "concrete_inputs")
TABLES = [name for name in slow_reader.SCHEMAS if name not in ("threads", "diagnostics")]


def comparable(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The columns in plain types and in order of the file; JSON text in one spelling."""
    plain = frame.select(columns).with_columns(pl.col(pl.Categorical).cast(pl.String))
    for column in set(columns) & set(JSON_TEXT):
        spelled = {text: respelled(text) for text in plain[column].drop_nulls().unique()}
        plain = plain.with_columns(pl.col(column).replace(spelled))
    keys = [c for c in ("row", "start_ns", "device") if c in columns]
    return plain.sort(keys, maintain_order=True)


def respelled(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


@pytest.mark.parametrize("path", [*VALID, *files(ORACLES / "tb-plugin" / "unit", "*.trace.json")])
def test_tables(path: Path) -> None:
    fast, slow = ks.read(path), slow_reader.read(path)
    different: dict[str, str] = {}
    for table in TABLES:
        ours, theirs = fast.tables[table], slow.tables[table]
        columns = [c for c in theirs.columns if c in ours.columns and c not in OPAQUE]
        try:
            assert_frame_equal(
                comparable(ours, columns), comparable(theirs, columns), check_dtypes=False, rel_tol=1e-12
            )
        except AssertionError as error:
            different[table] = str(error)
    assert different == {}


@pytest.mark.parametrize("path", VALID)
def test_every_event_is_in_one_table(path: Path) -> None:
    tables: dict[str, Any] = ks.read(path).tables
    seen = ks.read(path).meta.seen
    extra = ("extra_args", "collectives", "steps")
    rows = pl.concat(
        frame.select(pl.col("row").unique())
        for name, frame in tables.items()
        if "row" in frame.columns and name not in extra
    )["row"]
    assert rows.is_duplicated().sum() == 0
    assert rows.len() == seen
