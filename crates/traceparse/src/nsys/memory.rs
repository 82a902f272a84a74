//! Allocations of device memory.

use super::builder::Builder;
use super::cells::Cells;
use super::copies::memory_kind;
use super::source::source;
use crate::schema::{MemoryRow, Tables};

source! {
    /// Allocations of device memory.
    SOURCE: "CUDA_GPU_MEMORY_USAGE_EVENTS", memory, GpuMemory, push;
    AT = "start" Required,
    GLOBAL_PID = "globalPid" Usual,
    DEVICE = "deviceId" Usual,
    ADDRESS = "address" Usual,
    BYTES = "bytes" Usual,
    MEMORY_KIND = "memKind" Usual,
    OPERATION = "memoryOperationType" Usual,
    NAME = "name" Usual,
}

/// Operation that frees; 0 allocates.
const FREE: i64 = 1;

/// PyTorch's number for CUDA devices.
const CUDA: i32 = 1;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(AT) else { return false };
    let global_pid = cells.int(GLOBAL_PID);
    let pid = builder.pid(global_pid);
    let sign = if cells.int(OPERATION) == Some(FREE) { -1 } else { 1 };
    let row = MemoryRow {
        row: cells.number,
        // Variables that the loader allocates have a name.
        name: name(builder, cells),
        track: builder.tracks.process(global_pid),
        start_ns,
        address: cells.int(ADDRESS).map(i64::cast_unsigned),
        bytes: cells.int(BYTES).and_then(|bytes| bytes.checked_mul(sign)),
        memory_kind: memory_kind(builder, cells.int(MEMORY_KIND)),
        device_type: Some(CUDA),
        device_id: cells.small(DEVICE).map(|device| builder.context.machine.gpu(pid, device)),
        ..Default::default()
    };
    tables.memory.push(row);
    true
}

/// Versions differ in whether the name stands here or is referred to.
fn name(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> Option<crate::schema::Symbol> {
    match cells.value(NAME) {
        rusqlite::types::ValueRef::Integer(_) => builder.string(cells, NAME),
        _ => builder.texts.cell(cells, NAME),
    }
}
