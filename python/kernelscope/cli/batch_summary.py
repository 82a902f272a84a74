"""The text at the end of a batch, made in a process of its own: the one that leads stays small."""

from pathlib import Path


def text_of(lake: Path, run: str) -> str:
    """What to look at first in ``run`` of ``lake``."""
    from kernelscope.batch import ProcessPool, cores

    with ProcessPool(1, threads=cores()) as pool:
        return pool.submit(make_text, str(lake), run).result()


def make_text(lake: str, run: str) -> str:
    """The same, in this process."""
    from kernelscope.batch import scan
    from kernelscope.report import cluster_text

    return cluster_text.to_text(scan(lake, run=run))
