//! Copies and memsets.

use super::builder::Builder;
use crate::schema::Symbol;
use crate::sqlite::codes::listed;

/// Directions of copies (`ENUM_CUDA_MEMCPY_OPER`), by number.
const DIRECTIONS: [&str; 14] = [
    "Unknown",
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
];

/// Kinds of memory (`ENUM_CUDA_MEM_KIND`), by number.
const MEMORY: [&str; 8] =
    ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"];

/// The name of a kind of memory.
pub(super) fn memory_kind(builder: &mut Builder<'_, '_>, code: Option<i64>) -> Option<Symbol> {
    code.map(|code| builder.coded("memory kind", code, |code| listed(&MEMORY, code, "kind")))
}

/// Copies.
pub(super) mod memcpy {
    use super::{DIRECTIONS, memory_kind};
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::kernels::Place;
    use crate::nsys::source::source;
    use crate::schema::{GpuOpRow, Tables};
    use crate::sqlite::codes::listed;

    source! {
        /// Copies.
        SOURCE: "CUPTI_ACTIVITY_KIND_MEMCPY", gpu_ops, Cuda, push;
        START = "start" Required,
        END = "end" Required,
        DEVICE = "deviceId" Usual for [device],
        CONTEXT = "contextId" Usual for [context priority],
        GREEN_CONTEXT = "greenContextId" Newer for [green_context],
        STREAM = "streamId" Usual for [stream priority],
        CORRELATION = "correlationId" Usual for [correlation launch_row],
        GLOBAL_PID = "globalPid" Usual for [pid device launch_row],
        BYTES = "bytes" Usual for [bytes],
        COPY_KIND = "copyKind" Usual for [name copy_kind],
        SOURCE_KIND = "srcKind" Usual for [source_memory],
        DESTINATION_KIND = "dstKind" Usual for [destination_memory],
        GRAPH_NODE = "graphNodeId" Newer for [graph_node_id],
        ADDRESS = "virtualAddress" Usual for [copy_kind],
    }

    /// Directions of migrations of unified memory.
    const MIGRATIONS: std::ops::RangeInclusive<i64> = 11..=13;

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
        let place = Place::of(builder, cells, [DEVICE, CONTEXT, GREEN_CONTEXT, STREAM, GLOBAL_PID]);
        let kind = cells.int(COPY_KIND);
        let named = |code| format!("[CUDA memcpy {}]", listed(&DIRECTIONS, code, "kind"));
        let row = GpuOpRow {
            name: Some(match kind {
                Some(kind) => builder.coded("copy", kind, named),
                None => builder.label("[CUDA memcpy]"),
            }),
            copy_kind: kind
                .filter(|_| builder.context.keeps.copy_kind)
                .map(|kind| builder.coded("copy kind", kind, |code| listed(&DIRECTIONS, code, "kind"))),
            source_memory: memory_kind(builder, cells.int(SOURCE_KIND)),
            destination_memory: memory_kind(builder, cells.int(DESTINATION_KIND)),
            start_ns,
            dur_ns,
            correlation: cells.correlation(CORRELATION),
            bytes: cells.int(BYTES),
            graph_node_id: cells.int(GRAPH_NODE).map(i64::cast_unsigned).filter(|&id| id != 0),
            ..place.row(builder.label("memcpy"), cells)
        };
        if let Some(kind) = kind
            && MIGRATIONS.contains(&kind)
            && let Some(address) = cells.int(ADDRESS)
        {
            builder.argument(cells, tables, "virtual_address", address);
        }
        tables.gpu_ops.push(row);
        true
    }
}

/// Memsets.
pub(super) mod memset {
    use super::memory_kind;
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::kernels::Place;
    use crate::nsys::source::source;
    use crate::schema::{GpuOpRow, Tables};

    source! {
        /// Memsets.
        SOURCE: "CUPTI_ACTIVITY_KIND_MEMSET", gpu_ops, Cuda, push;
        START = "start" Required,
        END = "end" Required,
        DEVICE = "deviceId" Usual for [device],
        CONTEXT = "contextId" Usual for [context priority],
        GREEN_CONTEXT = "greenContextId" Newer for [green_context],
        STREAM = "streamId" Usual for [stream priority],
        CORRELATION = "correlationId" Usual for [correlation launch_row],
        GLOBAL_PID = "globalPid" Usual for [pid device launch_row],
        BYTES = "bytes" Usual for [bytes],
        MEMORY_KIND = "memKind" Usual for [destination_memory],
        GRAPH_NODE = "graphNodeId" Newer for [graph_node_id],
    }

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
        let place = Place::of(builder, cells, [DEVICE, CONTEXT, GREEN_CONTEXT, STREAM, GLOBAL_PID]);
        let row = GpuOpRow {
            name: Some(builder.label("[CUDA memset]")),
            destination_memory: memory_kind(builder, cells.int(MEMORY_KIND)),
            start_ns,
            dur_ns,
            correlation: cells.correlation(CORRELATION),
            bytes: cells.int(BYTES),
            graph_node_id: cells.int(GRAPH_NODE).map(i64::cast_unsigned).filter(|&id| id != 0),
            ..place.row(builder.label("memset"), cells)
        };
        tables.gpu_ops.push(row);
        true
    }
}
