//! Slices of other tables: the operating system, overhead, graph building; and the recorder's own messages.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::labels::listed;
use crate::formats::sqlite::source::columns;
use crate::schema::{InstantRow, SpanRow, Symbol, Tables};
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
    let is_whole = cells.int(OsCall::EVENT_CLASS).is_none_or(|class| class == WHOLE_CALL);
    let category = if is_whole { "osrt" } else { "osrt_cut" };
    let places = [OsCall::START, OsCall::END, OsCall::GLOBAL_TID];
    let Some(span) = slice(builder, cells, places, category) else { return false };
    tables.spans.push(SpanRow { name: builder.string(cells, OsCall::NAME), ..span });
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
    let places = [Overhead::START, Overhead::END, Overhead::GLOBAL_TID];
    let Some(span) = slice(builder, cells, places, "overhead") else { return false };
    let kind = cells.int(Overhead::KIND).map(|code| overhead_kind(builder, code));
    let name = kind.or_else(|| builder.string(cells, Overhead::NAME));
    let correlation = cells.correlation(Overhead::CORRELATION);
    tables.spans.push(SpanRow { name, correlation, ..span });
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

columns! { Graph after Named {
    NODE = "graphNodeId" Former for [graph_node_id],
    ORIGINAL_NODE = "originalGraphNodeId" Former for [original_graph_node_id],
} }

/// Creation and instantiation of graphs; before schema 3.24 also of their nodes.
pub(super) static GRAPHS: Source =
    Source::new("CUDA_GRAPH_EVENTS", "spans", Feature::Any, Graph::ALL, |builder, cells, tables| {
        let ids = [Graph::NODE, Graph::ORIGINAL_NODE].map(|cell| cells.id(cell));
        let category = if ids[0].is_some() { GRAPH_NODE } else { "cuda_graph" };
        push_node(builder, cells, tables, category, ids)
    });

columns! { GraphNode after Named {
    NODE = "graphNodeId" Usual for [graph_node_id],
    ORIGINAL_NODE = "originalGraphNodeId" Usual for [original_graph_node_id],
} }

/// Creation of the nodes of graphs, and their clones.
pub(super) static GRAPH_NODES: Source =
    Source::new("CUDA_GRAPH_NODE_EVENTS", "spans", Feature::Any, GraphNode::ALL, |builder, cells, tables| {
        let ids = [GraphNode::NODE, GraphNode::ORIGINAL_NODE].map(|cell| cells.id(cell));
        push_node(builder, cells, tables, GRAPH_NODE, ids)
    });

const GRAPH_NODE: &str = "cuda_graph_node";

fn push_node(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    category: &'static str,
    [graph_node_id, original_graph_node_id]: [Option<u64>; 2],
) -> bool {
    let Some(span) = named(builder, cells, category) else { return false };
    tables.spans.push(SpanRow { graph_node_id, original_graph_node_id, ..span });
    true
}

fn push_named(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    category: &'static str,
) -> bool {
    let Some(span) = named(builder, cells, category) else { return false };
    tables.spans.push(span);
    true
}

fn named(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    category: &'static str,
) -> Option<SpanRow> {
    let span = slice(builder, cells, [Named::START, Named::END, Named::GLOBAL_TID], category)?;
    Some(SpanRow { name: builder.string(cells, Named::NAME), ..span })
}

/// A slice of a thread, of which the cells hold start, end and thread; nothing where it has no place in time.
pub(super) fn slice(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    [start, end, thread]: [usize; 3],
    category: &'static str,
) -> Option<SpanRow> {
    let (start_ns, dur_ns) = cells.extent(start, end)?;
    Some(SpanRow {
        row: cells.number,
        category: Some(builder.label(category)),
        kind: builder.label("X"),
        track: builder.thread_track(cells.int(thread)),
        start_ns,
        dur_ns,
        ..Default::default()
    })
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
