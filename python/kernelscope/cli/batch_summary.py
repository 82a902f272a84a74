"""Text and page about a lake, made in processes of their own: the one that leads a batch stays small."""

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


def write_page(lake: Path, run: str, out: Path) -> None:
    """Writes the page about ``run`` of ``lake``."""
    from kernelscope.batch import ProcessPool, cores

    with ProcessPool(1, threads=cores()) as pool:
        pool.submit(make_page, str(lake), run, str(out)).result()


def make_page(lake: str, run: str, out: str) -> None:
    """The same, in this process."""
    from kernelscope.batch import scan
    from kernelscope.batch.reports import consistency_warnings
    from kernelscope.report.html.cluster import write_cluster_page

    opened = scan(lake, run=run)
    notes = [
        f"{warning[:1].upper()}{warning[1:]}." for warning in consistency_warnings(opened.entries, run=run)
    ]
    write_cluster_page(opened, Path(out), title=f"{lake} {run}", sources=opened.manifest, notes=notes)
