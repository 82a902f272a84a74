//! Kernels.

use super::reader::Builder;
use super::source::sources;
use crate::schema::GpuOpRow;
use crate::sqlite::cells::Cells;
use crate::stats::Code;

sources! {
    kernels;
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual,
    CONTEXT = "contextId" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
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
}

// Work of a stream one after the other, or side by side; nvprof writes the one or the other.
kernels!(CONCURRENT: "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", gpu_ops, push);
kernels!(SERIAL: "CUPTI_ACTIVITY_KIND_KERNEL", gpu_ops, push);

fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    let Some((start_ns, dur_ns)) = times(cells, START, END) else { return false };
    let name = builder.text(cells, NAME).map(|name| builder.strings.kernel(&mut builder.symbols, name));
    let (fixed, dynamic) = (cells.small(STATIC_SHARED), cells.small(DYNAMIC_SHARED));
    let row = GpuOpRow {
        row: cells.number,
        kind: builder.symbols.intern("kernel"),
        name: name.map(|(name, _)| name),
        mangled_name: name.and_then(|(_, mangled)| mangled),
        device: cells.small(DEVICE),
        context: cells.small(CONTEXT),
        stream: cells.int(STREAM),
        pid: builder.pid,
        start_ns,
        dur_ns,
        correlation: cells.correlation(CORRELATION),
        grid: builder.triple(cells, [GRID_X, GRID_Y, GRID_Z]),
        block: builder.triple(cells, [BLOCK_X, BLOCK_Y, BLOCK_Z]),
        registers: cells.small(REGISTERS),
        shared_memory_bytes: fixed.zip(dynamic).and_then(|(fixed, dynamic)| fixed.checked_add(dynamic)),
        static_shared_memory_bytes: fixed,
        dynamic_shared_memory_bytes: dynamic,
        local_memory_per_thread_bytes: cells.small(LOCAL),
        ..Default::default()
    };
    builder.tables.gpu_ops.push(row);
    true
}

/// Start and duration of GPU work; nvprof writes 0 for both where it could not collect them.
pub(super) fn times(cells: &mut Cells<'_, '_>, start: usize, end: usize) -> Option<(i64, Option<i64>)> {
    if cells.int(start) == Some(0) && cells.int(end) == Some(0) {
        cells.note(Code::MissingTime);
        return None;
    }
    cells.extent(start, end)
}
