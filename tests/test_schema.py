"""The documented tables and columns."""

import dataclasses

import pytest

import kernelscope as ks
from kernelscope import schema

COLUMNS = [(table, column) for table in schema.TABLES.values() for column in table.columns]


@pytest.mark.parametrize("table", schema.TABLES.values(), ids=lambda table: table.name)
def test_table_says_what_a_row_is(table: schema.Table) -> None:
    assert table.doc.endswith(".")
    assert len({column.name for column in table.columns}) == len(table.columns) > 0


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda each: each.name)
def test_column_says_what_it_means_and_its_unit(table: schema.Table, column: schema.Column) -> None:
    assert column.doc.endswith((".", "`")), table.name
    if column.name.endswith("_ns"):
        assert column.dtype == "Int64"
        assert "ns" in column.doc
    if column.name.endswith("bytes"):
        assert "ytes" in column.doc
    if column.dtype == "UInt64":
        assert column.name.endswith(("_id", "address")), "only true identifiers are unsigned 64-bit"


def test_trace_has_an_attribute_per_table() -> None:
    fields = [field.name for field in dataclasses.fields(ks.Trace) if field.init]
    assert fields == ["meta", *schema.TABLES, "parts"]


def test_lookup() -> None:
    assert schema.table("gpu_ops").column("link").dtype == "Categorical"
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"no table 'gpus'.*gpu_ops"):
        schema.table("gpus")
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"no column 'nane'.*name"):
        schema.table("ops").column("nane")
    assert schema.table("ops").of_role("row", "track") == ["row", "track", "caller_track"]
