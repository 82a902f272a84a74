//! Kernels, copies and memsets.

use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{GpuOpRow, Symbol, Tables};
use crate::stats::Code;

/// Longest mangled name that is demangled: a name can repeat its parts, which takes room.
const LONGEST_MANGLED: usize = 1 << 14;

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

/// When and where work ran; nothing if its times are not known. nvprof writes 0 for both where it could not
/// collect them.
fn work(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, kind: &'static str) -> Option<GpuOpRow> {
    if cells.int(Work::START) == Some(0) && cells.int(Work::END) == Some(0) {
        cells.note(Code::MissingTime);
        return None;
    }
    let (start_ns, dur_ns) = cells.extent(Work::START, Work::END)?;
    Some(GpuOpRow {
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
    })
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
    let Some(work) = work(builder, cells, "kernel") else { return false };
    let name = builder.text(cells, Kernel::NAME).map(|name| kernel_name(builder, name));
    let (fixed, dynamic) = (cells.small(Kernel::STATIC_SHARED), cells.small(Kernel::DYNAMIC_SHARED));
    tables.gpu_ops.push(GpuOpRow {
        name: name.map(|(name, _)| name),
        mangled_name: name.and_then(|(_, mangled)| mangled),
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

/// A kernel's name as people write it, and the one the compiler made if they differ.
fn kernel_name(builder: &mut Builder<'_, '_>, name: Symbol) -> (Symbol, Option<Symbol>) {
    let Builder { thread, texts, .. } = builder;
    let derive = || texts.derive(name, |mangled| Some((demangle(mangled)?, ())));
    let demangled = *thread.demangled.entry(name).or_insert_with(|| derive().map(|(name, ())| name));
    demangled.map_or((name, None), |demangled| (demangled, Some(name)))
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
    let Some(work) = work(builder, cells, "memcpy") else { return false };
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
    let Some(work) = work(builder, cells, "memset") else { return false };
    tables.gpu_ops.push(GpuOpRow {
        name: Some(builder.label("[CUDA memset]")),
        destination_memory: builder.memory_kind(&MEMORY, cells.int(Memset::MEMORY_KIND)),
        bytes: cells.int(Memset::BYTES),
        ..work
    });
    true
}

/// The name that a mangled one stands for.
fn demangle(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > LONGEST_MANGLED {
        return None;
    }
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn kernels_are_called_what_people_call_them() {
        let mangled = "_ZN2at6native18elementwise_kernelILi512ELi1EZNS0_4fillEvEUliE_EEviT1_";
        let name = demangle(mangled).unwrap();
        assert!(name.starts_with("void at::native::elementwise_kernel<512, 1, "), "{name}");
        assert_eq!(demangle("_Z4gemmPf").as_deref(), Some("gemm(float*)"));
        assert_eq!(demangle("volta_sgemm_128x64_nn"), None);
        assert_eq!(demangle("_Znonsense"), None);
    }
}
