"""Peaks of GPUs, found by the name and the properties in a trace.

``gpus.toml`` contains the peaks, dense and with a source each. A device that is not in it, or that could be
one of several, is not guessed: :func:`find_gpu` then gives the reason.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Gpu", "Match", "find_gpu", "gpus"]

_GIB = 2**30
_TERA = 1e12

# A share of a GPU in a virtual machine, such as A10-24Q.
_VIRTUAL = r"-\d+[abcq]\b"
# What marks a variant with peaks of its own, in the table or not: on any chip but where a row has it.
_VARIANTS = frozenset(
    "3e active ada blackwell ceo d embedded laptop ls max mobile pro q quadro s server sff super sxm3 ti "
    "workstation".split()
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's peaks, as stated by its vendor. Values missing in the datasheet are None or absent.

    Units: ``vector``, ``matrix`` and ``half_sum`` (matrix operations that accumulate in 16 bits) in
    operations per second by type (fp64, fp32, tf32, fp16, bf16, fp8, fp6, fp4, int8), dense, a multiply-add
    counting 2; ``bandwidth`` in bytes per second of device memory, ``link_bandwidth`` and ``pcie_bandwidth``
    likewise, both directions together; ``l2_bytes``; ``boost_hz``. Without tensor cores ``matrix`` is empty.
    """

    key: str
    vector: Mapping[str, float]
    matrix: Mapping[str, float]
    half_sum: Mapping[str, float]
    bandwidth: float | None
    memory_gb: tuple[int, ...]
    l2_bytes: int | None
    sm_count: int | None
    boost_hz: float | None
    matrix_hz: float | None
    link_bandwidth: float | None
    pcie_bandwidth: float | None
    source: str

    def peak(self, dtype: str, *, tensor_cores: bool) -> float | None:
        """Returns operations per second at ``dtype`` (such as ``bf16``), or None if the datasheet does not
        state them.

        Example: ``find_gpu("NVIDIA H200").gpu.peak("bf16", tensor_cores=True)`` is 989.4e12.
        """
        return (self.matrix if tensor_cores else self.vector).get(dtype)


class Match(NamedTuple):
    """The matching GPU, or None and a sentence with the reason."""

    gpu: Gpu | None
    note: str


class _Row(NamedTuple):
    gpu: Gpu
    chips: frozenset[str]
    marks: frozenset[str]
    needs: frozenset[str]


def _rates(values: Mapping[str, float]) -> dict[str, float]:
    return {dtype: rate * _TERA for dtype, rate in values.items()}


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _row(key: str, values: Mapping[str, Any]) -> _Row:
    l2 = values.get("l2_mb")
    boost = values.get("boost_mhz")
    gpu = Gpu(
        key=key,
        vector=_rates(values["vector"]),
        matrix=_rates(values["matrix"]),
        half_sum=_rates(values.get("half_sum", {})),
        bandwidth=_scaled(values.get("bandwidth_gb_s"), 1e9),
        memory_gb=tuple(values["memory_gb"]),
        l2_bytes=None if l2 is None else int(l2 * 2**20),
        sm_count=values.get("sm_count"),
        boost_hz=_scaled(boost, 1e6),
        matrix_hz=_scaled(values.get("matrix_mhz", boost), 1e6),
        link_bandwidth=_scaled(values.get("link_gb_s"), 1e9),
        pcie_bandwidth=_scaled(values.get("pcie_gb_s"), 1e9),
        source=values["source"],
    )
    chips = frozenset[str]({values["chip"], values.get("arch", values["chip"])})
    return _Row(gpu, chips, frozenset[str](values["marks"]), frozenset[str](values.get("needs", ())))


@cache
def _rows() -> tuple[_Row, ...]:
    text = resources.files("kernelscope.hardware").joinpath("gpus.toml").read_text(encoding="utf-8")
    return tuple(_row(key, values) for key, values in tomllib.loads(text).items())


def gpus() -> dict[str, Gpu]:
    """Every GPU of the table by its key, such as ``h100-sxm5``."""
    return {row.gpu.key: row.gpu for row in _rows()}


def find_gpu(name: str, *, memory_bytes: int | None = None, sm_count: int | None = None) -> Match:
    """Finds a GPU by ``name``, the vendor's spelling in a trace or a key of the table.

    Memory size and number of multiprocessors, if given, distinguish variants.

    Example: ``find_gpu("NVIDIA A100-SXM4-80GB").gpu.key`` is ``a100-sxm4-80gb``.
    """
    exact = gpus().get(name.strip().lower())
    if exact is not None:
        return Match(exact, "")
    tokens = set(re.findall(r"[a-z0-9]+", name.lower()))
    if "mig" in tokens or re.search(_VIRTUAL, name.lower()):
        return Match(None, f"{name!r} is a partition of a GPU, whose share of the peaks is unknown.")
    named = [row for row in _rows() if row.chips & tokens and _fits_name(row, tokens)]
    if not named:
        return Match(None, f"{name!r} is not in the table of GPUs. Name another one, or pass its peaks.")
    fitting = [row.gpu for row in named if _fits_size(row.gpu, memory_bytes, sm_count)]
    if not fitting:
        keys = ", ".join(row.gpu.key for row in named)
        return Match(None, f"{name!r} differs in size from {keys}, so it may be a partition of one.")
    if len({_figures(gpu) for gpu in fitting}) > 1:
        keys = ", ".join(gpu.key for gpu in fitting)
        return Match(None, f"{name!r} can be any of {keys}. Choose one.")
    return Match(fitting[0], "")


def _fits_name(row: _Row, tokens: set[str]) -> bool:
    """Whether the name has what this variant needs, and nothing that stands for another."""
    others = {mark for other in _rows() if other.chips & row.chips for mark in other.marks}
    sizes = {token for token in tokens if re.fullmatch(r"\d+gb", token)}
    own = row.marks | {f"{size}gb" for size in row.gpu.memory_gb}
    return row.needs <= tokens and not ((others | _VARIANTS | sizes) - own) & tokens


def _fits_size(gpu: Gpu, memory_bytes: int | None, sm_count: int | None) -> bool:
    # Drivers keep some memory for themselves; a partition has far fewer multiprocessors.
    if sm_count is not None and gpu.sm_count is not None and sm_count != gpu.sm_count:
        return False
    if memory_bytes is None:
        return True
    return any(0.9 * size * _GIB <= memory_bytes <= 1.1 * size * _GIB for size in gpu.memory_gb)


def _figures(gpu: Gpu) -> tuple[object, ...]:
    """What decides a roofline: variants that agree in it count as one."""
    return (tuple(gpu.vector.items()), tuple(gpu.matrix.items()), gpu.bandwidth)
