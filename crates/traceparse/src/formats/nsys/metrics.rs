//! Samples of GPU metrics: a row for each value, or in older exports one for all of a moment, as JSON.

use rusqlite::types::ValueRef;
use serde_json::{Map, Value};

use super::capture::Feature;
use super::recording::{Builder, Shown, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::metric_names::{Scale, unit};
use crate::schema::{CounterRow, Symbol, Tables};
use crate::stats::Code;

columns! { Metric {
    AT = "timestamp" Required,
    TYPE = "typeId" Usual,
    METRIC = "metricId" Usual,
    VALUE = "value" Required,
} }

/// Samples of GPU metrics.
pub(super) static METRICS: Source =
    Source::new("GPU_METRICS", "counters", Feature::GpuMetrics, Metric::ALL, push_metric);

columns! { Generic {
    AT = "timestamp" Former,
    RAW = "rawTimestamp" Former,
    TYPE = "typeId" Required,
    DATA = "data" Required,
} }

/// The same of exports without the table above, where they are events of a kind that the file describes.
pub(super) static GENERIC: Source =
    Source::new("GENERIC_EVENTS", "counters", Feature::Any, Generic::ALL, push_generic);

/// The low bits of a type id are the number that PerfWorks gives the GPU.
const GPU_MASK: i64 = 0xff;
/// Longest text of one event that is read; those of nsys have some kB.
const MOST_BYTES: usize = 1 << 20;

/// A GPU that is sampled, and the track of its samples.
#[derive(Clone, Copy)]
struct Place {
    device: Option<i32>,
    track_name: Symbol,
    track: u32,
}

fn place_of(builder: &mut Builder<'_, '_>, kind: Option<i64>) -> Place {
    let device = kind.map(|kind| builder.recorder.machine.sampled_gpu((kind & GPU_MASK) as i32));
    let track_name = match device {
        Some(device) => builder.coded("metrics of", device.into(), |gpu| format!("GPU {gpu} metrics")),
        None => builder.label("GPU metrics"),
    };
    Place { device, track_name, track: builder.tracks.named(track_name) }
}

fn counter_row(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    place: Place,
    start_ns: i64,
    (shown, recorded): (Shown, Option<f64>),
) -> CounterRow {
    let value = recorded.and_then(|recorded| shown.scale.value(recorded));
    if recorded.is_some() && value.is_none() {
        cells.note(Code::ImpossibleMetric);
    }
    CounterRow {
        row: cells.number,
        name: Some(place.track_name),
        category: Some(builder.label("gpu_metrics")),
        track: place.track,
        device: place.device,
        start_ns,
        dur_ns: None,
        counter: shown.name,
        value,
        unit: shown.unit,
    }
}

fn push_metric(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(Metric::AT) else { return false };
    let (kind, metric) = (cells.usual(Metric::TYPE), cells.usual(Metric::METRIC));
    let place = place_of(builder, kind);
    let shown = name_of(builder, cells, kind, metric);
    let recorded = cells.real(Metric::VALUE);
    if recorded.is_none() && cells.is_null(Metric::VALUE) {
        cells.note(Code::UnexpectedNull);
    }
    let row = counter_row(builder, cells, place, start_ns, (shown, recorded));
    tables.counters.push(row);
    true
}

/// A metric as the name shows it.
fn shown(builder: &mut Builder<'_, '_>, name: &str) -> Shown {
    let unit = unit(name);
    Shown {
        name: builder.texts.intern_clean(name),
        unit: unit.map(|unit| builder.texts.intern_clean(unit)),
        scale: Scale::of(unit),
    }
}

/// How a metric is shown that has a number.
fn name_of(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    kind: Option<i64>,
    metric: Option<i64>,
) -> Shown {
    let Some(metric) = metric else {
        return Shown { name: builder.label("unknown metric"), unit: None, scale: Scale::Count };
    };
    if let Some(&known) = builder.thread.metrics.get(&(kind, metric)) {
        return known;
    }
    let Some(name) = builder.recorder.machine.metric(kind, metric) else {
        cells.note(Code::UnknownMetric);
        let name = builder.coded("metric", metric, |metric| format!("metric {metric}"));
        return Shown { name, unit: None, scale: Scale::Count };
    };
    let found = shown(builder, name);
    builder.thread.metrics.insert((kind, metric), found);
    found
}

fn push_generic(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let kind = cells.int(Generic::TYPE);
    let Some(has_session_times) = kind.and_then(|kind| builder.recorder.machine.samples_metrics(kind)) else {
        cells.note(Code::OtherGenericEvent);
        return false;
    };
    // Times are converted where those of the recorder are on another clock.
    let is_raw = has_session_times && matches!(cells.value(Generic::AT), ValueRef::Null);
    let at = if is_raw { Generic::RAW } else { Generic::AT };
    let Some(start_ns) = cells.start(at) else { return false };
    let text = cells.text(Generic::DATA).unwrap_or_default();
    if text.len() > MOST_BYTES {
        cells.note(Code::OversizedEvent);
        return false;
    }
    let Ok(values) = serde_json::from_slice::<Map<String, Value>>(text) else {
        cells.note(Code::BrokenEvent);
        return false;
    };
    let place = place_of(builder, kind);
    for (name, value) in &values {
        let shown = shown(builder, name);
        let recorded = number_of(cells, value);
        let row = counter_row(builder, cells, place, start_ns, (shown, recorded));
        tables.counters.push(row);
    }
    true
}

/// The number in a value: nsys writes texts of digits.
fn number_of(cells: &mut Cells<'_, '_>, value: &Value) -> Option<f64> {
    let found = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null => {
            cells.note(Code::UnexpectedNull);
            return None;
        }
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if found.is_none() {
        cells.note(Code::WrongType);
    }
    found
}
