"""GPU time of annotations, from ``record_function`` and from the profiler."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.ranges.projection import recorded_annotations, times_on_gpu
from kernelscope.trace import Trace

_ON_GPU = (
    "device_total_ns", "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns", "gpu_ops",
)  # fmt: skip
_IMAGES = ("images", "image_ns")


def annotation_table(trace: Trace, by: str | Sequence[str] = ("name",)) -> pl.DataFrame:
    """Costs of annotations on the host and on the GPU, summed over annotations with equal ``by``.

    A GPU operation belongs to every annotation that is open on the launching thread from the start to the end
    of the launch, regardless of operators between or around them. Operations that an autograd thread launches
    also belong to the annotations that are open on the thread that called ``backward``. ``by`` accepts any
    columns of the table ``ops``: with ``("row", "name")``, each annotation has its own row. Nested
    annotations of one group count separately; only ``gpu_exclusive_ns`` counts every operation once.

    Columns: the columns of ``by``; ``calls``; ``host_total_ns``; ``device_total_ns`` (summed durations of the
        operations); ``gpu_start_ns`` and ``gpu_end_ns`` (of the first and the last operation of all);
        ``gpu_span_ns`` (from the start of the first operation of an annotation to the end of its last);
        ``gpu_busy_ns`` (time with any operation of an annotation running); ``gpu_exclusive_ns`` (the same for
        operations whose innermost annotation it is); ``other_thread_ns`` (the part of ``device_total_ns``
        that other threads launched); ``gpu_ops`` (number of operations); ``images`` and ``image_ns`` (the
        spans that the profiler recorded for them on streams, ``gpu_user_annotation``, including those of
        unknown annotations, which have no call). GPU columns are null in a trace without GPU operations,
        image columns in one without images.
    Units: ns on the trace's clock.
    Order: by busy time, then by time on the host, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` contains a name that is not a column of ``ops``.
    Source: ``gpu_user_annotation`` of Kineto, which HolisticTraceAnalysis sums in
        ``get_gpu_user_annotation_breakdown``.

    Example: ``annotation_table(trace).filter(pl.col("gpu_busy_ns") > 0)``
    """
    columns = check_by(by, trace.ops.columns)
    annotations = trace.ops.filter(pl.col("is_annotation"))
    found = times_on_gpu(trace, recorded_annotations(trace))
    found = found.with_columns(recorded_annotations(trace)["row"].gather(found["range"]))
    calls = annotations.select(*columns, calls=pl.lit(1, pl.Int64), host_total_ns="dur_ns", _row="row").join(
        _of_instances(found), on="_row", how="left", maintain_order="left"
    )
    rows = pl.concat([calls, _images(trace, columns)], how="diagonal")
    table = rows.group_by(columns).agg(
        pl.col("calls", "host_total_ns", "device_total_ns").sum(),
        pl.col("gpu_start_ns").min(),
        pl.col("gpu_end_ns").max(),
        pl.col(*_ON_GPU[1:], *_IMAGES).sum(),
    )
    unknown = [*(_ON_GPU if trace.gpu_ops.is_empty() else ())]
    unknown += _IMAGES if trace.gpu_annotations.is_empty() else ()
    order = ["gpu_busy_ns", "host_total_ns", *columns]
    return as_text(table.with_columns(pl.lit(None, pl.Int64).alias(name) for name in unknown)).sort(
        order, descending=[True, True, *(False for _ in columns)], nulls_last=True
    )


def _of_instances(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(
        "gpu_start_ns",
        "gpu_end_ns",
        "gpu_busy_ns",
        pl.col("gpu_ops").cast(pl.Int64),
        _row="row",
        device_total_ns="gpu_work_ns",
        gpu_span_ns=pl.col("gpu_end_ns") - pl.col("gpu_start_ns"),
        other_thread_ns="other_thread_ns",
        gpu_exclusive_ns=pl.col("own_busy_ns").fill_null(0),
    )


def _images(trace: Trace, columns: Sequence[str]) -> pl.DataFrame:
    """A row for each span that the recorder drew on a stream, with the columns of its annotation.

    One whose annotation is not known has its own name, and nothing else.
    """
    images = trace.gpu_annotations.select(
        "op_row", _name="name", images=pl.lit(1, pl.Int64), image_ns=pl.col("dur_ns").fill_null(0)
    )
    named = images.join(
        trace.ops.select(*columns, op_row="row"), on="op_row", how="left", maintain_order="left"
    )
    if "name" in columns:
        named = named.with_columns(name=pl.coalesce("name", "_name"))
    return named.select(*columns, *_IMAGES)


def work_beside_operators(trace: Trace, only: pl.Series | None = None) -> pl.DataFrame:
    """Returns GPU operations that count for annotations, but for no operator inside them.

    These are operations of an operator around the annotation, and operations that Python launches directly.

    Columns: ``row`` of the annotation; ``total_ns`` of the operations launched inside, and ``works``, their
        number; ``self_ns``, the part launched by no operator whose innermost annotation this is.
    Units: ns. ``only`` selects the rows of ``gpu_ops`` that count.
    """
    annotations = recorded_annotations(trace)
    counts = pl.repeat(value=True, n=trace.gpu_ops.height, eager=True) if only is None else only
    found = times_on_gpu(trace, annotations, only=counts)
    alone = times_on_gpu(trace, annotations, only=counts & trace.gpu_ops["op_row"].is_null())
    tree = CallTree(trace.ops)
    known = trace.gpu_ops.filter(counts).drop_nulls("dur_ns")
    tree.add(known.select(call="op_row", time="dur_ns", works=pl.lit(1, pl.Int64)))
    for column in ("time", "works"):
        tree.with_inner(column, into=column)
    inside = trace.ops.select("row").hstack(tree.columns(["time", "works"]))
    table = found.select(annotations["row"].gather(found["range"]), "gpu_work_ns", "gpu_ops")
    alone = alone.select(annotations["row"].gather(alone["range"]), self_ns="own_work_ns")
    table = table.join(inside, on="row", how="left").join(alone, on="row", how="left")
    return table.select(
        "row",
        total_ns=pl.col("gpu_work_ns") - pl.col("time"),
        works=pl.col("gpu_ops") - pl.col("works"),
        self_ns=pl.col("self_ns").fill_null(0),
    )
