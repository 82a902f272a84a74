"""Completes kernels of the backward pass from forward kernels with the same sequence numbers."""

from collections.abc import Hashable, Iterator
from typing import cast

import polars as pl

from kernelscope.compat.pyprof.kernels import Kernels
from kernelscope.compat.pyprof.markers import Meaning


class _ForwardKernels:
    """Finds the forward kernel of a backward one: the last before it with its sequence number.

    A number found among the others counts only where no kernel has it as its own.
    """

    def __init__(self) -> None:
        self._own: dict[Hashable, int] = {}
        self._others: dict[Hashable, int] = {}

    def add(self, pid: int | None, own: list[int], others: list[int], meaning: int) -> None:
        """Takes note of a kernel."""
        for number in own:
            self._own[pid, number] = meaning
        for number in others:
            self._others[pid, number] = meaning

    def find(self, pid: int | None, numbers: list[int], *, compat: bool) -> int | None:
        """The meaning of the forward kernel of one with these ``numbers``."""
        for number in numbers:
            found = self._own.get((pid, number), self._others.get((pid, number)))
            # An operator that needs no gradient has the number 0, or that of the next which does.
            if found is not None and (compat or number != 0):
                return found
        return None


def completed(kernels: Kernels, *, compat: bool) -> Kernels:
    """Returns the kernels, with the meaning of backward kernels taken from their forward kernels."""
    meanings = dict(zip(kernels.meanings, range(len(kernels.meanings)), strict=True))
    is_numbered = (pl.col("seq").list.len() > 0) | (pl.col("altseq").list.len() > 0)
    columns = kernels.frame.select("meaning", "pid", "seq", "altseq")
    numbered = columns.with_row_index("at").filter(is_numbered)
    forward = _ForwardKernels()
    pairs: dict[tuple[int, int], int] = {}
    at: list[int] = []
    codes: list[int] = []
    rows = cast("Iterator[tuple[int, int, int | None, list[int], list[int]]]", numbered.iter_rows())
    for place, code, pid, own, others in rows:
        meaning = kernels.meanings[code]
        if not meaning.is_backward:
            forward.add(pid, own, others, code)
        elif not (compat and meaning.arguments):
            found = forward.find(pid, own[:1] if compat else own + others, compat=compat)
            if found is None:
                continue
            pair = code, found
            if pair not in pairs:
                full = _completed(meaning, kernels.meanings[found])
                pairs[pair] = meanings.setdefault(full, len(meanings))
            at.append(place)
            codes.append(pairs[pair])
    changed = kernels.frame["meaning"].scatter(at, codes)
    return kernels._replace(frame=kernels.frame.with_columns(meaning=changed), meanings=list(meanings))


def _completed(meaning: Meaning, forward: Meaning) -> Meaning:
    layers, trace = meaning.layers or forward.layers, meaning.trace or forward.trace
    if meaning.arguments:
        # Its own markers say what it computes; where in the model it stands, those of the forward pass.
        return meaning._replace(layers=layers, trace=trace)
    return meaning._replace(
        arguments=forward.arguments,
        reprs=forward.reprs,
        mods=forward.mods,
        ops=forward.ops,
        layers=forward.layers,
        trace=forward.trace,
    )
