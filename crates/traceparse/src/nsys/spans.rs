//! Slices of other tables: the operating system, overhead, graph building; and the recorder's own messages.

use super::builder::Builder;
use super::cells::Cells;
use crate::schema::{SpanRow, Symbol, Tables};
use crate::sqlite::codes::listed;

/// What a slice is made of.
struct Slice {
    name: Option<Symbol>,
    category: Symbol,
    extent: (i64, Option<i64>),
    global_tid: Option<i64>,
    correlation: Option<i64>,
}

fn add(builder: &mut Builder<'_, '_>, cells: &Cells<'_, '_>, tables: &mut Tables, slice: &Slice) -> bool {
    let row = SpanRow {
        row: cells.number,
        name: slice.name,
        category: Some(slice.category),
        kind: builder.label("X"),
        track: builder.tracks.thread(slice.global_tid),
        start_ns: slice.extent.0,
        dur_ns: slice.extent.1,
        correlation: slice.correlation,
        external_id: None,
    };
    tables.spans.push(row);
    true
}

/// Calls of the operating system's libraries.
pub(super) mod osrt {
    use super::{Slice, add};
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::Tables;

    source! {
        /// Calls of the operating system's libraries.
        SOURCE: "OSRT_API", spans, OsRuntime, push;
        START = "start" Required,
        END = "end" Required,
        EVENT_CLASS = "eventClass" Usual,
        GLOBAL_TID = "globalTid" Usual,
        NAME = "nameId" Usual,
    }

    /// Class of whole calls; other classes are the begin or end of one that the recording cut.
    const WHOLE_CALL: i64 = 27;

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some(extent) = cells.extent(START, END) else { return false };
        let is_whole = cells.int(EVENT_CLASS).is_none_or(|class| class == WHOLE_CALL);
        let slice = Slice {
            name: builder.string(cells, NAME),
            category: builder.label(if is_whole { "osrt" } else { "osrt_cut" }),
            extent,
            global_tid: cells.int(GLOBAL_TID),
            correlation: None,
        };
        add(builder, cells, tables, &slice)
    }
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

/// Overhead of the driver: compilation, loading of modules, a full command buffer.
pub(super) mod overhead {
    use super::{Slice, add, overhead_kind};
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::Tables;

    source! {
        /// Overhead of the driver.
        SOURCE: "CUPTI_ACTIVITY_KIND_OVERHEAD", spans, Cuda, push;
        START = "start" Required,
        END = "end" Required,
        GLOBAL_TID = "globalTid" Usual,
        CORRELATION = "correlationId" Usual,
        NAME = "nameId" Usual,
        KIND = "overheadType" Usual,
    }

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some(extent) = cells.extent(START, END) else { return false };
        let kind = cells.int(KIND).map(|code| overhead_kind(builder, code));
        let slice = Slice {
            name: kind.or_else(|| builder.string(cells, NAME)),
            category: builder.label("overhead"),
            extent,
            global_tid: cells.int(GLOBAL_TID),
            correlation: cells.correlation(CORRELATION),
        };
        add(builder, cells, tables, &slice)
    }
}

/// Declares tables whose slices have a name, a thread and nothing else.
macro_rules! named_slices {
    ($( $(#[doc = $doc:literal])+ $module:ident: $table:literal, $category:literal; )*) => { $(
        $(#[doc = $doc])+
        pub(super) mod $module {
            use super::{Slice, add};
            use crate::nsys::builder::Builder;
            use crate::nsys::cells::Cells;
            use crate::nsys::source::source;
            use crate::schema::Tables;

            source! {
                $(#[doc = $doc])+
                SOURCE: $table, spans, Any, push;
                START = "start" Required,
                END = "end" Required,
                GLOBAL_TID = "globalTid" Usual,
                NAME = "nameId" Usual,
            }

            fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
                let Some(extent) = cells.extent(START, END) else { return false };
                let slice = Slice {
                    name: builder.string(cells, NAME),
                    category: builder.label($category),
                    extent,
                    global_tid: cells.int(GLOBAL_TID),
                    correlation: None,
                };
                add(builder, cells, tables, &slice)
            }
        }
    )* };
}

named_slices! {
    /// Overhead of the profiler itself.
    profiler: "PROFILER_OVERHEAD", "profiler_overhead";
    /// Creation and instantiation of graphs.
    graphs: "CUDA_GRAPH_EVENTS", "cuda_graph";
    /// Creation of the nodes of graphs.
    graph_nodes: "CUDA_GRAPH_NODE_EVENTS", "cuda_graph_node";
}

/// What the recorder has to say.
pub(super) mod diagnostics {
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::{InstantRow, Tables};
    use crate::stats::Code;

    source! {
        /// Messages of the recorder.
        SOURCE: "DIAGNOSTIC_EVENT", instants, Any, push;
        AT = "timestamp" Required,
        SEVERITY = "severity" Usual,
        TEXT = "text" Required,
        GLOBAL_PID = "globalPid" Usual,
    }

    /// Severities (`ENUM_DIAGNOSTIC_SEVERITY_LEVEL`), by number.
    const SEVERITIES: [&str; 5] = ["unknown", "info", "warning", "error", "verbose"];

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some(start_ns) = cells.start(AT) else { return false };
        let severity = cells.int(SEVERITY).and_then(|code| usize::try_from(code).ok()).unwrap_or(0);
        if matches!(severity, 2 | 3) {
            cells.note(Code::RecorderWarning);
        }
        let row = InstantRow {
            row: cells.number,
            name: builder.texts.cell(cells, TEXT),
            category: Some(builder.label(match severity {
                3 => "nsys error",
                2 => "nsys warning",
                _ => "nsys message",
            })),
            scope: Some(builder.label(SEVERITIES.get(severity).copied().unwrap_or("unknown"))),
            track: builder.tracks.process(cells.int(GLOBAL_PID)),
            start_ns,
        };
        tables.instants.push(row);
        true
    }
}
