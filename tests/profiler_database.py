"""Databases of SQLite as profilers write them, for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


class ProfilerDatabase:
    """A database being written; every method that adds a row says which rowid it has."""

    def __init__(self, path: Path, schema: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        for table, columns in schema.items():
            if table not in without:
                self.connection.execute(f"CREATE TABLE {table} ({columns})")

    def insert(self, table: str, **values: Any) -> int:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        statement = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
        rowid = self.connection.execute(statement, list(values.values())).lastrowid
        assert rowid is not None
        return rowid

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path
