//! Samples of GPU metrics.

use hashbrown::HashMap;
use rusqlite::Connection;

use super::builder::Builder;
use super::catalog::Catalog;
use super::cells::Cells;
use super::source::source;
use crate::schema::{CounterRow, Tables};

source! {
    /// Samples of GPU metrics.
    SOURCE: "GPU_METRICS", counters, GpuMetrics, push;
    AT = "timestamp" Required,
    TYPE = "typeId" Usual,
    METRIC = "metricId" Usual,
    VALUE = "value" Required,
}

/// The low bits of a type id are the GPU.
const GPU_MASK: i64 = 0xff;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(AT) else { return false };
    let (kind, metric) = (cells.int(TYPE), cells.int(METRIC).unwrap_or(0));
    let gpu = kind.map_or(0, |id| id & GPU_MASK);
    let track_name = builder.coded("metrics of", gpu, |gpu| format!("GPU {gpu} metrics"));
    let names = &builder.context.machine.metrics;
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
        value: cells.real(VALUE),
    };
    tables.counters.push(row);
    true
}

/// The names of metrics, by type and metric.
pub(super) fn names(connection: &Connection, catalog: &Catalog) -> HashMap<(i64, i64), String> {
    let table = "TARGET_INFO_GPU_METRICS";
    if !catalog.has(table, &["typeId", "metricId", "metricName"]) {
        return HashMap::new();
    }
    let sql = format!("SELECT typeId, metricId, metricName FROM {table}");
    let Ok(mut statement) = connection.prepare(&sql) else { return HashMap::new() };
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
    rows.map(|rows| rows.flatten().collect()).unwrap_or_default()
}
