//! Slices of other tables: the operating system, overhead, graph building; the recorder's own messages, and
//! samples of GPU metrics.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::labels::listed;
use crate::formats::sqlite::source::columns;
use crate::schema::{CounterRow, InstantRow, SpanRow, Symbol, Tables};
use crate::stats::Code;

columns! { OsCall {
    START = "start" Required,
    END = "end" Required,
    EVENT_CLASS = "eventClass" Usual,
    GLOBAL_TID = "globalTid" Usual,
    NAME = "nameId" Usual,
} }

/// Calls of the operating system's libraries.
pub(super) static OS_CALLS: Source =
    Source::new("OSRT_API", "spans", Feature::OsRuntime, OsCall::ALL, push_os_call);

/// Class of whole calls; other classes are the begin or end of one that the recording cut.
const WHOLE_CALL: i64 = 27;

fn push_os_call(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(OsCall::START, OsCall::END) else { return false };
    let is_whole = cells.int(OsCall::EVENT_CLASS).is_none_or(|class| class == WHOLE_CALL);
    tables.spans.push(SpanRow {
        row: cells.number,
        name: builder.string(cells, OsCall::NAME),
        category: Some(builder.label(if is_whole { "osrt" } else { "osrt_cut" })),
        kind: builder.label("X"),
        track: builder.thread_track(cells.int(OsCall::GLOBAL_TID)),
        start_ns,
        dur_ns,
        ..Default::default()
    });
    true
}

/// Kinds of overhead (`ENUM_CUPTI_OVERHEAD_TYPE`), by number.
const OVERHEAD: [&str; 9] = [
    "Undefined",
    "Unknown",
    "Driver JIT compiler",
    "CUPTI buffer flush",
    "CUPTI instrumentation",
    "CUPTI resource",
    "Runtime module loading",
    "Lazy function loading",
    "Command buffer full",
];

fn overhead_kind(builder: &mut Builder<'_, '_>, code: i64) -> Symbol {
    builder.coded("overhead", code, |code| listed(&OVERHEAD, code, "overhead"))
}

columns! { Overhead {
    START = "start" Required,
    END = "end" Required,
    GLOBAL_TID = "globalTid" Usual,
    CORRELATION = "correlationId" Usual,
    NAME = "nameId" Usual,
    KIND = "overheadType" Usual,
} }

/// Overhead of the driver.
pub(super) static OVERHEADS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_OVERHEAD", "spans", Feature::Cuda, Overhead::ALL, push_overhead);

fn push_overhead(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Overhead::START, Overhead::END) else { return false };
    let kind = cells.int(Overhead::KIND).map(|code| overhead_kind(builder, code));
    tables.spans.push(SpanRow {
        row: cells.number,
        name: kind.or_else(|| builder.string(cells, Overhead::NAME)),
        category: Some(builder.label("overhead")),
        kind: builder.label("X"),
        track: builder.thread_track(cells.int(Overhead::GLOBAL_TID)),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Overhead::CORRELATION),
        external_id: None,
    });
    true
}

columns! { Named {
    START = "start" Required,
    END = "end" Required,
    GLOBAL_TID = "globalTid" Usual,
    NAME = "nameId" Usual,
} }

/// Overhead of the profiler itself.
pub(super) static PROFILER: Source =
    Source::new("PROFILER_OVERHEAD", "spans", Feature::Any, Named::ALL, |builder, cells, tables| {
        push_named(builder, cells, tables, "profiler_overhead")
    });

/// Creation and instantiation of graphs.
pub(super) static GRAPHS: Source =
    Source::new("CUDA_GRAPH_EVENTS", "spans", Feature::Any, Named::ALL, |builder, cells, tables| {
        push_named(builder, cells, tables, "cuda_graph")
    });

/// Creation of the nodes of graphs.
pub(super) static GRAPH_NODES: Source =
    Source::new("CUDA_GRAPH_NODE_EVENTS", "spans", Feature::Any, Named::ALL, |builder, cells, tables| {
        push_named(builder, cells, tables, "cuda_graph_node")
    });

fn push_named(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    category: &'static str,
) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Named::START, Named::END) else { return false };
    tables.spans.push(SpanRow {
        row: cells.number,
        name: builder.string(cells, Named::NAME),
        category: Some(builder.label(category)),
        kind: builder.label("X"),
        track: builder.thread_track(cells.int(Named::GLOBAL_TID)),
        start_ns,
        dur_ns,
        ..Default::default()
    });
    true
}

columns! { Message {
    AT = "timestamp" Required,
    SEVERITY = "severity" Usual,
    TEXT = "text" Required,
    GLOBAL_PID = "globalPid" Usual,
} }

/// Messages of the recorder.
pub(super) static MESSAGES: Source =
    Source::new("DIAGNOSTIC_EVENT", "instants", Feature::Any, Message::ALL, push_message);

/// Severities (`ENUM_DIAGNOSTIC_SEVERITY_LEVEL`), by number.
const SEVERITIES: [&str; 5] = ["unknown", "info", "warning", "error", "verbose"];

fn push_message(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(Message::AT) else { return false };
    let severity = cells.int(Message::SEVERITY).and_then(|code| usize::try_from(code).ok()).unwrap_or(0);
    if matches!(severity, 2 | 3) {
        cells.note(Code::RecorderWarning);
    }
    let row = InstantRow {
        row: cells.number,
        name: builder.texts.cell(cells, Message::TEXT),
        category: Some(builder.label(match severity {
            3 => "nsys error",
            2 => "nsys warning",
            _ => "nsys message",
        })),
        scope: Some(builder.label(SEVERITIES.get(severity).copied().unwrap_or("unknown"))),
        track: builder.process_track(cells.int(Message::GLOBAL_PID)),
        start_ns,
    };
    tables.instants.push(row);
    true
}

columns! { Metric {
    AT = "timestamp" Required,
    TYPE = "typeId" Usual,
    METRIC = "metricId" Usual,
    VALUE = "value" Required,
} }

/// Samples of GPU metrics.
pub(super) static METRICS: Source =
    Source::new("GPU_METRICS", "counters", Feature::GpuMetrics, Metric::ALL, push_metric);

/// The low bits of a type id are the GPU.
const GPU_MASK: i64 = 0xff;

fn push_metric(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
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
