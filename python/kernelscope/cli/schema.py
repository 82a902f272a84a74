"""``kernelscope schema``: prints descriptions of the tables, their columns and the figures of reports."""

import argparse
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import show

if TYPE_CHECKING:
    from kernelscope.schema import Table


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("schema", help="list the tables of a trace and describe their columns")
    parser.add_argument("table", metavar="TABLE", nargs="?", help="one table with its columns")
    parser.add_argument(
        "--figures",
        metavar="WORD",
        nargs="?",
        const="",
        help="describe the figures of reports, or only those that match WORD",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints all tables, the columns of one, or the meaning of the figures of reports."""
    from kernelscope import schema

    if options.figures is not None:
        _print_figures(options.figures)
    elif options.table is None:
        _print_tables(list(schema.TABLES.values()))
    else:
        _print_columns(schema.table(options.table))
    return 0


def _print_tables(tables: "list[Table]") -> None:
    width = max(len(table.name) for table in tables)
    for table in tables:
        show(f"{table.name:{width}}  {table.doc}")


def _print_columns(table: "Table") -> None:
    show(f"{table.name}: {table.doc}")
    show("")
    name_width = max(len(column.name) for column in table.columns)
    type_width = max(len(column.dtype) for column in table.columns)
    for column in table.columns:
        null = "null" if column.nullable else "    "
        show(f"{column.name:{name_width}}  {column.dtype:{type_width}}  {null}  {column.doc}")


def _print_figures(word: str) -> None:
    from kernelscope.errors import InvalidArgumentError
    from kernelscope.report.parts.glossary import terms

    found = terms(word)
    if not found:
        raise InvalidArgumentError(f"no figure of a report has {word!r} in its name or meaning")
    for term in found:
        unit = "" if term.unit in ("text", "sentence", "flag") else f" Unit: {term.unit}."
        show(f"{term.title} ({term.key}): {term.what}{unit}")
