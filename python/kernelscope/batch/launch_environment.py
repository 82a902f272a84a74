"""The rank of the process that an nsys database describes, from its environment or MPI.

Databases contain the whole environment of the launched program, including secrets. The query returns only the
variables named here.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from kernelscope.meta import LARGEST_RANK

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
"""Variables with the rank: set by the program itself first, then by launchers."""
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
_MOST_VARIABLES = 10_000

_ENVIRONMENT = """
    SELECT substr(value, 1, instr(value, '=') - 1), substr(value, instr(value, '=') + 1, 20)
    FROM META_DATA_CAPTURE
    WHERE name LIKE 'PROCESS%:ENVIRONMENT_VARIABLE%' AND typeof(value) = 'text' LIMIT ?
"""
_MPI = """
    SELECT DISTINCT rank FROM MPI_RANKS
    WHERE typeof(rank) = 'integer' AND (?1 IS NULL OR (globalTid >> 24) & 0xFFFFFF = ?1) LIMIT 2
"""


class Launch(NamedTuple):
    """Known properties of the launch of a process; null if unknown."""

    rank: int | None
    rank_from: str | None
    world_size: int | None


def launch_of(database: Path, pid: int | None) -> Launch:
    """Returns the recorded properties of the only process of an nsys database, or of ``pid``.

    If there are several processes, the environment belongs to their launcher, and gives only an upper bound
    of their number.
    """
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(database))}?immutable=1", uri=True)) as opened:
        variables = _variables(opened)
        size = _first(variables, _SIZES)
        ranks = [rank for (rank,) in _rows(opened, _MPI, pid)]
        if len(ranks) == 1 and isinstance(ranks[0], int) and 0 <= ranks[0] <= LARGEST_RANK:
            return Launch(ranks[0], "mpi", size)
    rank = _first(variables, _RANKS) if pid is None else None
    return Launch(rank, None if rank is None else "environment", size)


def _variables(database: sqlite3.Connection) -> dict[str, set[str]]:
    """The values of the variables; several where several programs were launched."""
    found: dict[str, set[str]] = {}
    for name, value in _rows(database, _ENVIRONMENT, _MOST_VARIABLES):
        if name in _RANKS or name in _SIZES:
            found.setdefault(str(name), set()).add(str(value))
    return found


def _rows(database: sqlite3.Connection, query: str, *arguments: int | None) -> Iterator[tuple[object, ...]]:
    # The table is not there, has other columns, or is damaged.
    with contextlib.suppress(sqlite3.Error):
        yield from database.execute(query, arguments)


def _first(variables: dict[str, set[str]], names: tuple[str, ...]) -> int | None:
    """The number in the first of the variables that has one, and one only."""
    for name in names:
        values = variables.get(name, set())
        if len(values) == 1:
            (value,) = values
            if value.isascii() and value.isdigit() and int(value) <= LARGEST_RANK:
                return int(value)
    return None
