//! Copies and memsets.

use super::reader::Builder;
use crate::schema::Symbol;
use crate::sqlite::codes::listed;

/// Directions of copies (`CUpti_ActivityMemcpyKind`), by number.
const DIRECTIONS: [&str; 11] = [
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
];

/// Kinds of memory (`CUpti_ActivityMemoryKind`), by number.
const MEMORY: [&str; 8] =
    ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];

fn memory_kind(builder: &mut Builder<'_>, code: Option<i64>) -> Option<Symbol> {
    code.map(|code| builder.symbols.intern(&listed(&MEMORY, code, "kind")))
}

/// Copies.
pub(super) mod memcpy {
    use super::{DIRECTIONS, memory_kind};
    use crate::nvprof::kernels::times;
    use crate::nvprof::reader::Builder;
    use crate::nvprof::source::sources;
    use crate::schema::GpuOpRow;
    use crate::sqlite::cells::Cells;
    use crate::sqlite::codes::listed;

    sources! {
        copies;
        START = "start" Required,
        END = "end" Required,
        DEVICE = "deviceId" Usual,
        CONTEXT = "contextId" Usual,
        STREAM = "streamId" Usual,
        CORRELATION = "correlationId" Usual,
        BYTES = "bytes" Usual,
        COPY_KIND = "copyKind" Usual,
        SOURCE_KIND = "srcKind" Usual,
        DESTINATION_KIND = "dstKind" Usual,
    }

    copies!(WITHIN: "CUPTI_ACTIVITY_KIND_MEMCPY", gpu_ops, push);
    copies!(BETWEEN: "CUPTI_ACTIVITY_KIND_MEMCPY2", gpu_ops, push);

    fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
        let Some((start_ns, dur_ns)) = times(cells, START, END) else { return false };
        let direction = cells.int(COPY_KIND).map(|code| listed(&DIRECTIONS, code, "kind"));
        let name =
            direction.as_ref().map_or_else(|| "[CUDA memcpy]".to_owned(), |d| format!("[CUDA memcpy {d}]"));
        let row = GpuOpRow {
            row: cells.number,
            kind: builder.symbols.intern("memcpy"),
            name: Some(builder.symbols.intern(&name)),
            copy_kind: direction.map(|direction| builder.symbols.intern(&direction)),
            source_memory: memory_kind(builder, cells.int(SOURCE_KIND)),
            destination_memory: memory_kind(builder, cells.int(DESTINATION_KIND)),
            device: cells.small(DEVICE),
            context: cells.small(CONTEXT),
            stream: cells.int(STREAM),
            pid: builder.pid,
            start_ns,
            dur_ns,
            correlation: cells.correlation(CORRELATION),
            bytes: cells.int(BYTES),
            ..Default::default()
        };
        builder.tables.gpu_ops.push(row);
        true
    }
}

/// Memsets.
pub(super) mod memset {
    use super::memory_kind;
    use crate::nvprof::kernels::times;
    use crate::nvprof::reader::Builder;
    use crate::nvprof::source::sources;
    use crate::schema::GpuOpRow;
    use crate::sqlite::cells::Cells;

    sources! {
        memsets;
        START = "start" Required,
        END = "end" Required,
        DEVICE = "deviceId" Usual,
        CONTEXT = "contextId" Usual,
        STREAM = "streamId" Usual,
        CORRELATION = "correlationId" Usual,
        BYTES = "bytes" Usual,
        MEMORY_KIND = "memoryKind" Usual,
    }

    memsets!(SOURCE: "CUPTI_ACTIVITY_KIND_MEMSET", gpu_ops, push);

    fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
        let Some((start_ns, dur_ns)) = times(cells, START, END) else { return false };
        let row = GpuOpRow {
            row: cells.number,
            kind: builder.symbols.intern("memset"),
            name: Some(builder.symbols.intern("[CUDA memset]")),
            destination_memory: memory_kind(builder, cells.int(MEMORY_KIND)),
            device: cells.small(DEVICE),
            context: cells.small(CONTEXT),
            stream: cells.int(STREAM),
            pid: builder.pid,
            start_ns,
            dur_ns,
            correlation: cells.correlation(CORRELATION),
            bytes: cells.int(BYTES),
            ..Default::default()
        };
        builder.tables.gpu_ops.push(row);
        true
    }
}
