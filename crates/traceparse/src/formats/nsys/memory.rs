//! Allocations of device memory, and page faults of unified memory.

use super::capture::Feature;
use super::gpu_ops::MEMORY;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{MemoryRow, SpanRow, Symbol, Tables};

columns! { Allocation {
    AT = "start" Required,
    GLOBAL_PID = "globalPid" Usual,
    DEVICE = "deviceId" Usual,
    ADDRESS = "address" Usual,
    BYTES = "bytes" Usual,
    MEMORY_KIND = "memKind" Usual,
    OPERATION = "memoryOperationType" Usual,
    NAME = "name" Usual,
} }

/// Allocations of device memory.
pub(super) static ALLOCATIONS: Source = Source::new(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "memory",
    Feature::GpuMemory,
    Allocation::ALL,
    push_allocation,
);

/// Operation that frees; 0 allocates.
const FREE: i64 = 1;

/// PyTorch's number for CUDA devices.
const CUDA: i32 = 1;

fn push_allocation(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(Allocation::AT) else { return false };
    let global_pid = cells.int(Allocation::GLOBAL_PID);
    let pid = builder.pid(global_pid);
    let sign = if cells.int(Allocation::OPERATION) == Some(FREE) { -1 } else { 1 };
    let row = MemoryRow {
        row: cells.number,
        // Variables that the loader allocates have a name.
        name: name(builder, cells),
        track: builder.process_track(global_pid),
        start_ns,
        address: cells.int(Allocation::ADDRESS).map(i64::cast_unsigned),
        bytes: cells.int(Allocation::BYTES).and_then(|bytes| bytes.checked_mul(sign)),
        memory_kind: builder.memory_kind(&MEMORY, cells.int(Allocation::MEMORY_KIND)),
        device_type: Some(CUDA),
        device_id: cells.small(Allocation::DEVICE).map(|device| builder.recorder.machine.gpu(pid, device)),
        ..Default::default()
    };
    tables.memory.push(row);
    true
}

/// Versions differ in whether the name stands here or is referred to.
fn name(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> Option<Symbol> {
    match cells.value(Allocation::NAME) {
        rusqlite::types::ValueRef::Integer(_) => builder.string(cells, Allocation::NAME),
        _ => builder.texts.cell(cells, Allocation::NAME),
    }
}

columns! { HostFault {
    AT = "start" Required,
    GLOBAL_PID = "globalPid" Usual,
    ADDRESS = "address" Usual,
    INSTRUCTION = "CpuInstruction" Usual,
} }

/// Faults of the host.
pub(super) static ON_CPU: Source =
    Source::new("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "spans", Feature::Any, HostFault::ALL, push_host_fault);

fn push_host_fault(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(HostFault::AT) else { return false };
    let row = SpanRow {
        row: cells.number,
        name: builder.string(cells, HostFault::INSTRUCTION),
        category: Some(builder.label("um_cpu_page_fault")),
        kind: builder.label("i"),
        track: builder.process_track(cells.int(HostFault::GLOBAL_PID)),
        start_ns,
        ..Default::default()
    };
    tables.spans.push(row);
    if let Some(address) = cells.int(HostFault::ADDRESS) {
        builder.argument(cells, tables, "virtual_address", address);
    }
    true
}

columns! { GpuFault {
    START = "start" Required,
    END = "end" Required,
    GLOBAL_PID = "globalPid" Usual,
    DEVICE = "deviceId" Usual,
    ADDRESS = "address" Usual,
    COUNT = "numberOfPageFaults" Usual,
} }

/// Groups of faults of a GPU.
pub(super) static ON_GPU: Source =
    Source::new("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "spans", Feature::Any, GpuFault::ALL, push_gpu_faults);

fn push_gpu_faults(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(GpuFault::START, GpuFault::END) else { return false };
    let row = SpanRow {
        row: cells.number,
        category: Some(builder.label("um_gpu_page_fault")),
        kind: builder.label("X"),
        track: builder.process_track(cells.int(GpuFault::GLOBAL_PID)),
        start_ns,
        dur_ns,
        ..Default::default()
    };
    tables.spans.push(row);
    let numbers = [
        (GpuFault::DEVICE, "device"),
        (GpuFault::ADDRESS, "virtual_address"),
        (GpuFault::COUNT, "page_faults"),
    ];
    for (cell, key) in numbers {
        if let Some(value) = cells.int(cell) {
            builder.argument(cells, tables, key, value);
        }
    }
    true
}
