"""Recorded values that are impossible, or that should be checked before everything else."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.names import safe
from kernelscope.report.parts import Note, Part
from kernelscope.report.text.cells import Shape, heading, note
from kernelscope.trace import Trace

ORDER = 5
TABLES = ("gpu_ops", "untimed_gpu_ops", "untimed_events", "ops", "launches", "python", "memory", "steps")
_MOST = 5


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"doubts": analysis.doubts(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns a sentence for each of the first few doubts, or nothing."""
    found = sentences(trace)
    rest = len(found) - _MOST
    shown = [*found[:_MOST], *([f"and {rest} more in --format json and html"] if rest > 0 else [])]
    return [heading("Doubts"), *(note(sentence, shape) for sentence in shown)] if shown else []


def notes(trace: Trace) -> list[Part]:
    """Returns a sentence for each doubt, for the first view of the page."""
    return [Note(sentence) for sentence in sentences(trace)]


def sentences(trace: Trace) -> list[str]:
    """Returns a sentence for each doubt."""
    return [safe(text) for text in analysis.doubts(trace)["text"]]
