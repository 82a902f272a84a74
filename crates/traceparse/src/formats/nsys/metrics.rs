//! Samples of GPU metrics.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{CounterRow, Tables};

columns! { Metric {
    AT = "timestamp" Required,
    TYPE = "typeId" Usual,
    METRIC = "metricId" Usual,
    VALUE = "value" Required,
} }

/// Samples of GPU metrics.
pub(super) static METRICS: Source =
    Source::new("GPU_METRICS", "counters", Feature::GpuMetrics, Metric::ALL, push);

/// The low bits of a type id are the GPU.
const GPU_MASK: i64 = 0xff;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(Metric::AT) else { return false };
    let (kind, metric) = (cells.int(Metric::TYPE), cells.int(Metric::METRIC).unwrap_or(0));
    let gpu = kind.map_or(0, |id| id & GPU_MASK);
    let track_name = builder.coded("metrics of", gpu, |gpu| format!("GPU {gpu} metrics"));
    let names = &builder.recorder.machine.metrics;
    let name = |kind: i64| names.get(&(kind, metric)).cloned().unwrap_or_else(|| format!("metric {metric}"));
    // Both ids are small: together they are one code.
    let code = kind.unwrap_or(0).wrapping_mul(1 << 16).wrapping_add(metric);
    let row = CounterRow {
        row: cells.number,
        name: Some(track_name),
        category: Some(builder.label("gpu_metrics")),
        track: builder.tracks.named(track_name),
        start_ns,
        dur_ns: None,
        counter: builder.coded("metric", code, |_| name(kind.unwrap_or(0))),
        value: cells.real(Metric::VALUE),
    };
    tables.counters.push(row);
    true
}
