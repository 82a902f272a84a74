//! Kernels, copies and memsets.

use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{GpuOpRow, Tables};

/// Kinds of memory (`CUpti_ActivityMemoryKind`), by number.
const MEMORY: [&str; 8] =
    ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];

// What every table of GPU work has.
columns! { Work {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual,
    CONTEXT = "contextId" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
} }

/// When and where work ran. nvprof writes 0 for both times where it could not collect them.
fn work(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, kind: &'static str) -> GpuOpRow {
    let (start_ns, dur_ns) = cells.extent_of_work(Work::START, Work::END);
    GpuOpRow {
        row: cells.number,
        start_ns,
        dur_ns,
        device: cells.small(Work::DEVICE),
        context: cells.small(Work::CONTEXT),
        stream: cells.int(Work::STREAM),
        pid: builder.recorder.pid,
        correlation: cells.correlation(Work::CORRELATION),
        kind: builder.label(kind),
        ..Default::default()
    }
}

columns! { Kernel after Work {
    NAME = "name" Usual,
    GRID_X = "gridX" Usual,
    GRID_Y = "gridY" Usual,
    GRID_Z = "gridZ" Usual,
    BLOCK_X = "blockX" Usual,
    BLOCK_Y = "blockY" Usual,
    BLOCK_Z = "blockZ" Usual,
    REGISTERS = "registersPerThread" Usual,
    STATIC_SHARED = "staticSharedMemory" Usual,
    DYNAMIC_SHARED = "dynamicSharedMemory" Usual,
    LOCAL = "localMemoryPerThread" Usual,
} }

// Work of a stream one after the other, or side by side; nvprof writes the one or the other.
pub(super) static CONCURRENT: Source =
    Source::new("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "gpu_ops", (), Kernel::ALL, push_kernel);
pub(super) static SERIAL: Source =
    Source::new("CUPTI_ACTIVITY_KIND_KERNEL", "gpu_ops", (), Kernel::ALL, push_kernel);

fn push_kernel(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "kernel");
    let (fixed, dynamic) = (cells.small(Kernel::STATIC_SHARED), cells.small(Kernel::DYNAMIC_SHARED));
    tables.gpu_ops.push(GpuOpRow {
        name: builder.text(cells, Kernel::NAME),
        grid: cells.triple([Kernel::GRID_X, Kernel::GRID_Y, Kernel::GRID_Z]),
        block: cells.triple([Kernel::BLOCK_X, Kernel::BLOCK_Y, Kernel::BLOCK_Z]),
        registers: cells.small(Kernel::REGISTERS),
        shared_memory_bytes: fixed.zip(dynamic).and_then(|(fixed, dynamic)| fixed.checked_add(dynamic)),
        static_shared_memory_bytes: fixed,
        dynamic_shared_memory_bytes: dynamic,
        local_memory_per_thread_bytes: cells.small(Kernel::LOCAL),
        ..work
    });
    true
}

columns! { Memcpy after Work {
    BYTES = "bytes" Usual,
    COPY_KIND = "copyKind" Usual,
    SOURCE_KIND = "srcKind" Usual,
    DESTINATION_KIND = "dstKind" Usual,
} }

pub(super) static WITHIN: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_ops", (), Memcpy::ALL, push_copy);
pub(super) static BETWEEN: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMCPY2", "gpu_ops", (), Memcpy::ALL, push_copy);

fn push_copy(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "memcpy");
    let kind = cells.int(Memcpy::COPY_KIND);
    tables.gpu_ops.push(GpuOpRow {
        name: Some(builder.copy_name(kind)),
        copy_kind: kind.map(|kind| builder.copy_kind(kind)),
        source_memory: builder.memory_kind(&MEMORY, cells.int(Memcpy::SOURCE_KIND)),
        destination_memory: builder.memory_kind(&MEMORY, cells.int(Memcpy::DESTINATION_KIND)),
        bytes: cells.int(Memcpy::BYTES),
        ..work
    });
    true
}

columns! { Memset after Work {
    BYTES = "bytes" Usual,
    MEMORY_KIND = "memoryKind" Usual,
} }

pub(super) static MEMSETS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_ops", (), Memset::ALL, push_memset);

fn push_memset(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "memset");
    tables.gpu_ops.push(GpuOpRow {
        name: Some(builder.label("[CUDA memset]")),
        destination_memory: builder.memory_kind(&MEMORY, cells.int(Memset::MEMORY_KIND)),
        bytes: cells.int(Memset::BYTES),
        ..work
    });
    true
}
