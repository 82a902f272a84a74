"""Ranges or operators around each launch, as columns, and their meaning."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.grouping import classes_of, gather_rows, positions
from kernelscope.analysis.ranges.projection import enclosing_pairs
from kernelscope.compat.pyprof.markers import Meaning, Stack, Text, kind_of, text_with_number
from kernelscope.trace import Trace

# The NVTX domain of kernelscope.capture.
_DOMAIN = "kernelscope"
_PART_ROWS = 1 << 16
OF_RANGES = ("row", "name", "domain", "kind", "track", "start_ns", "dur_ns", "sequence", "sizes")


def list_column(name: str, values: Sequence[Sequence[int]]) -> pl.Series:
    """Returns a column of lists of integers; Polars would create a series for each."""
    lengths = pl.Series(list(map(len, values)), dtype=pl.UInt32)
    items = pl.Series("items", list(chain.from_iterable(values)), dtype=pl.Int64)
    numbers = pl.select(at=pl.int_range(len(values), dtype=pl.UInt32))
    owners = numbers.select(pl.col("at").repeat_by(lengths).explode().drop_nulls())
    found = owners.with_columns(items).group_by("at", maintain_order=True).agg("items")
    joined = numbers.join(found, on="at", how="left", maintain_order="left")
    return joined.select(pl.col("items").fill_null(NO_NUMBERS).alias(name)).to_series()


NO_NUMBERS = pl.lit(pl.Series([[]], dtype=pl.List(pl.Int64))).first()
"""An empty list, for a column of lists."""


class Around(NamedTuple):
    """Ranges around launches.

    ``pairs`` has one row per range around a launch: ``launch_row`` in ascending order, and ``place``, the
    position of the range in ``ranges``, outermost first. ``ranges`` has ``row``, ``name``, ``sizes``,
    ``types`` and ``values``, as in :class:`Text`, and ``number``, the sequence number.
    """

    pairs: pl.DataFrame
    ranges: pl.DataFrame


def around_launches(trace: Trace) -> Around:
    """Returns the NVTX ranges around each launch, or the operators in a trace without ranges."""
    return _operators_around(trace) if trace.ranges.is_empty() else _ranges_around(trace)


def _ranges_around(trace: Trace) -> Around:
    """The ranges of its thread that begin before and end after each launch."""
    is_known = (pl.col("kind") != "mark") & pl.col("dur_ns").is_not_null()
    ranges = trace.ranges.select(*OF_RANGES, crosses_threads=pl.lit(value=False)).filter(is_known)
    ranges = _with_payloads(ranges, trace.extra_args)
    # Work without a duration was launched, too.
    work = trace.gpu_ops.select("row", "launch_row", "op_row", "start_ns", pl.col("dur_ns").fill_null(0))
    found = enclosing_pairs(replace(trace, gpu_ops=work), ranges, callers=False).select(
        "launch_row", place="range"
    )
    parts = (_inside(part, ranges, trace.launches) for part in found.iter_slices(_PART_ROWS))
    found = pl.concat([found.clear(), *parts])
    end = pl.col("start_ns") + pl.col("dur_ns")
    inwards = ranges.select(pl.arg_sort_by("start_ns", -end, "row")).to_series().arg_sort()
    pairs = found.sort("launch_row", inwards[found["place"]])
    null = pl.lit(None, pl.String)
    texts = ranges.select("row", "name", "sizes", types=null, values=null, number="sequence")
    return Around(pairs, texts)


def _inside(pairs: pl.DataFrame, ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Those of ``pairs`` whose range begins before and ends after the launch."""
    around = ranges.select("start_ns", "dur_ns")[pairs["place"]]
    calls = gather_rows(pairs["launch_row"], launches, "start_ns", "dur_ns")
    begins = around["start_ns"] < calls["start_ns"]
    ends = around["start_ns"] + around["dur_ns"] > calls["start_ns"] + calls["dur_ns"].fill_null(0)
    return pairs.filter(begins & ends)


def _with_payloads(ranges: pl.DataFrame, extra_args: pl.DataFrame) -> pl.DataFrame:
    """Gives ranges of ``kernelscope.capture`` the sequence numbers that are their payloads."""
    is_ours = pl.col("domain").cast(pl.String) == _DOMAIN
    if extra_args.is_empty() or not ranges.select(is_ours.any()).item():
        return ranges
    numbers = extra_args.filter(pl.col("key").cast(pl.String) == "int64Value").select(
        "row", _payload=pl.col("value").cast(pl.String).cast(pl.Int64, strict=False)
    )
    joined = ranges.join(numbers, on="row", how="left", maintain_order="left")
    return joined.with_columns(sequence=pl.coalesce("sequence", pl.when(is_ours).then("_payload")))


def _operators_around(trace: Trace) -> Around:
    """The operators and annotations that each launch lies in."""
    launched = trace.gpu_ops.select("launch_row", "op_row").drop_nulls()
    launched = launched.unique("launch_row", keep="last", maintain_order=True)
    at = launched.select("launch_row", place=positions(trace.ops["row"], launched["op_row"]))
    parents = positions(trace.ops["row"], trace.ops["parent_row"])
    levels: list[pl.DataFrame] = []
    while at.height:
        levels.append(at.with_columns(level=pl.lit(-len(levels), pl.Int32)))
        at = at.with_columns(place=parents.gather(at["place"])).drop_nulls()
    schema = {"launch_row": pl.UInt32, "place": pl.UInt32, "level": pl.Int32}
    pairs = pl.concat([pl.DataFrame(schema=schema), *levels]).sort("launch_row", "level").drop("level")
    named = {"sizes": "input_dims", "types": "input_types", "values": "concrete_inputs", "number": "sequence"}
    return Around(pairs, trace.ops.select("row", "name", **named))


class Meanings(NamedTuple):
    """Meaning of the ranges around each launch that has any.

    ``launches`` has ``launch_row``; ``meaning``, a position in ``known``; ``numbers``, those of the meaning's
    ``sequences``; and ``first``, the position of its first range in ``rows``, the rows of all ranges.
    """

    launches: pl.DataFrame
    known: list[Meaning]
    rows: pl.Series


def meanings_of(around: Around, *, compat: bool) -> Meanings:
    """Returns the meaning of the ranges around each launch."""
    texts, of, numbers = _texts(around.ranges, compat=compat)
    codes: dict[Meaning, int] = {Meaning(): 0}
    found = _Launches(texts, codes, compat=compat)
    pairs = around.pairs
    launches = pairs["launch_row"].rle().struct.unnest()
    ends = launches["len"].cum_sum().cast(pl.UInt32)
    frames: list[pl.DataFrame] = []
    bounds = pl.DataFrame({"launch_row": launches["value"], "end": ends, "first": ends - launches["len"]})
    for part in bounds.iter_slices(_PART_ROWS):
        first, end = part["first"][0], part["end"][-1]
        places = pairs["place"].slice(first, end - first)
        lengths = [0, *(part["end"] - first)]
        meaning, kept = found.read(lengths, of[places].to_list(), numbers[places].to_list())
        frames.append(
            part.select(
                "launch_row", "first", pl.Series("meaning", meaning, pl.UInt32), list_column("numbers", kept)
            )
        )
    schema = {"launch_row": pl.UInt32, "first": pl.UInt32, "meaning": pl.UInt32, "numbers": pl.List(pl.Int64)}
    rows = around.ranges["row"][pairs["place"]]
    return Meanings(pl.concat([pl.DataFrame(schema=schema), *frames]), list(codes), rows)


class _Launches:
    """Reads stacks of texts, each only once."""

    def __init__(self, texts: list[Text], codes: dict[Meaning, int], *, compat: bool) -> None:
        self._texts = texts
        self._codes = codes
        self._compat = compat
        self._stacks: dict[tuple[int, ...], Stack] = {}
        self._known: dict[tuple[Stack, tuple[int, ...]], int] = {}

    def read(
        self, bounds: list[int], texts: list[int], numbers: list[int | None]
    ) -> tuple[list[int], list[list[int]]]:
        """The meaning and the numbers of each launch, whose texts lie between two ``bounds``."""
        meanings: list[int] = []
        kept: list[list[int]] = []
        for first, end in pairwise(bounds):
            key = tuple(texts[first:end])
            stack = self._stacks.get(key)
            if stack is None:
                stack = self._stacks[key] = Stack([self._texts[at] for at in key], compat=self._compat)
            own = [
                (numbers[first + entry.place] or 0) if entry.number is None else entry.number
                for entry in stack.numbered
            ]
            counted = stack.kept(own)
            meaning = self._known.get((stack, counted))
            if meaning is None:
                meaning = self._codes.setdefault(stack.meaning(counted), len(self._codes))
                self._known[stack, counted] = meaning
            meanings.append(meaning)
            kept.append([own[at] for at in counted])
        return meanings, kept


def _texts(ranges: pl.DataFrame, *, compat: bool) -> tuple[list[Text], pl.Series, pl.Series]:
    """The distinct texts, which of them each range has, and the number that it adds to its text."""
    names = classes_of(ranges.select("name"))
    # Elsewhere the number is part of the text.
    is_apart = [_has_number_apart(name or "", compat=compat) for name in names.keys["name"].cast(pl.String)]
    apart = names.spread(pl.Series(is_apart, dtype=pl.Boolean))
    keys = ranges.select("name", "sizes", "types", "values", "number").with_columns(
        number=pl.when(~apart).then("number"), is_numbered=apart & pl.col("number").is_not_null()
    )
    classes = classes_of(keys)
    texts = [
        Text(text_with_number(name or "", number), *inputs, is_numbered=is_numbered)
        for name, *inputs, number, is_numbered in classes.keys.iter_rows()
    ]
    return texts, classes.of, ranges["number"]


def _has_number_apart(text: str, *, compat: bool) -> bool:
    return text.startswith("{") or kind_of(text, compat=compat) == "other"
