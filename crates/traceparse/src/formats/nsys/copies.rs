//! Copies and memsets.

use super::capture::Feature;
use super::kernels::Place;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::labels::listed;
use crate::formats::sqlite::source::columns;
use crate::schema::{GpuOpRow, Symbol, Tables};

/// Kinds of memory (`ENUM_CUDA_MEM_KIND`), by number.
const MEMORY: [&str; 8] =
    ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"];

/// The name of a kind of memory.
pub(super) fn memory_kind(builder: &mut Builder<'_, '_>, code: Option<i64>) -> Option<Symbol> {
    code.map(|code| builder.coded("memory kind", code, |code| listed(&MEMORY, code, "kind")))
}

columns! { Memcpy {
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
} }

/// Copies.
pub(super) static COPIES: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_ops", Feature::Cuda, Memcpy::ALL, push_copy);

/// Directions of migrations of unified memory.
const MIGRATIONS: std::ops::RangeInclusive<i64> = 11..=13;

fn push_copy(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Memcpy::START, Memcpy::END) else { return false };
    let place = Place::of(
        builder,
        cells,
        [Memcpy::DEVICE, Memcpy::CONTEXT, Memcpy::GREEN_CONTEXT, Memcpy::STREAM, Memcpy::GLOBAL_PID],
    );
    let kind = cells.int(Memcpy::COPY_KIND);
    let row = GpuOpRow {
        name: Some(builder.copy_name(kind)),
        copy_kind: kind.filter(|_| builder.recorder.wanted.copy_kind).map(|kind| builder.copy_kind(kind)),
        source_memory: memory_kind(builder, cells.int(Memcpy::SOURCE_KIND)),
        destination_memory: memory_kind(builder, cells.int(Memcpy::DESTINATION_KIND)),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Memcpy::CORRELATION),
        bytes: cells.int(Memcpy::BYTES),
        graph_node_id: cells.int(Memcpy::GRAPH_NODE).map(i64::cast_unsigned).filter(|&id| id != 0),
        ..place.row(builder.label("memcpy"), cells)
    };
    if let Some(kind) = kind
        && MIGRATIONS.contains(&kind)
        && let Some(address) = cells.int(Memcpy::ADDRESS)
    {
        builder.argument(cells, tables, "virtual_address", address);
    }
    tables.gpu_ops.push(row);
    true
}

columns! { Memset {
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
} }

/// Memsets.
pub(super) static MEMSETS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_ops", Feature::Cuda, Memset::ALL, push_memset);

fn push_memset(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Memset::START, Memset::END) else { return false };
    let place = Place::of(
        builder,
        cells,
        [Memset::DEVICE, Memset::CONTEXT, Memset::GREEN_CONTEXT, Memset::STREAM, Memset::GLOBAL_PID],
    );
    let row = GpuOpRow {
        name: Some(builder.label("[CUDA memset]")),
        destination_memory: memory_kind(builder, cells.int(Memset::MEMORY_KIND)),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Memset::CORRELATION),
        bytes: cells.int(Memset::BYTES),
        graph_node_id: cells.int(Memset::GRAPH_NODE).map(i64::cast_unsigned).filter(|&id| id != 0),
        ..place.row(builder.label("memset"), cells)
    };
    tables.gpu_ops.push(row);
    true
}
