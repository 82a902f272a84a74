"""``kernelscope schema``: prints what the tables and columns are."""

import argparse
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import Subparsers

if TYPE_CHECKING:
    from kernelscope.schema import Table


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("schema", help="the tables of a trace and what their columns mean")
    parser.add_argument("table", metavar="TABLE", nargs="?", help="one table with its columns")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints all tables, or the columns of one."""
    from kernelscope import schema

    if options.table is None:
        _print_tables(list(schema.TABLES.values()))
    else:
        _print_columns(schema.table(options.table))
    return 0


def _print_tables(tables: "list[Table]") -> None:
    width = max(len(table.name) for table in tables)
    for table in tables:
        print(f"{table.name:{width}}  {table.doc}")


def _print_columns(table: "Table") -> None:
    print(f"{table.name}: {table.doc}\n")
    name_width = max(len(column.name) for column in table.columns)
    type_width = max(len(column.dtype) for column in table.columns)
    for column in table.columns:
        null = "null" if column.nullable else "    "
        print(f"{column.name:{name_width}}  {column.dtype:{type_width}}  {null}  {column.doc}")
