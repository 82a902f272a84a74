//! Kernels, copies, memsets, and executions of whole graphs.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{GpuOpRow, Tables};

/// Kinds of memory (`ENUM_CUDA_MEM_KIND`), by number.
pub(super) const MEMORY: [&str; 8] =
    ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"];

// What every table of GPU work has.
columns! { Work {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual for [device],
    CONTEXT = "contextId" Usual for [context priority],
    GREEN_CONTEXT = "greenContextId" Newer for [green_context],
    STREAM = "streamId" Usual for [stream priority],
    CORRELATION = "correlationId" Usual for [correlation launch_row],
    GLOBAL_PID = "globalPid" Usual for [pid device launch_row],
} }

/// When and where work ran, and for whom.
fn work(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, kind: &'static str) -> GpuOpRow {
    let (start_ns, dur_ns) = cells.extent_of_work(Work::START, Work::END);
    let machine = &builder.recorder.machine;
    let pid = builder.pid(cells.int(Work::GLOBAL_PID));
    let (context, stream) = (cells.small(Work::CONTEXT), cells.usual(Work::STREAM));
    let device = cells.usual(Work::DEVICE).and_then(|_| cells.small(Work::DEVICE));
    GpuOpRow {
        row: cells.number,
        start_ns,
        dur_ns,
        device: device.map(|device| machine.gpu(pid, device)),
        context,
        green_context: cells.small(Work::GREEN_CONTEXT).filter(|&id| id != 0),
        stream,
        pid: pid.filter(|_| builder.recorder.wanted.gpu_pid),
        priority: machine.priority(pid, context, stream),
        correlation: cells.correlation(Work::CORRELATION),
        kind: builder.label(kind),
        ..Default::default()
    }
}

columns! { Kernel after Work {
    NAME = "demangledName" Usual for [name],
    SHORT_NAME = "shortName" Usual for [short_name],
    MANGLED_NAME = "mangledName" Usual for [mangled_name],
    REGISTERS = "registersPerThread" Usual for [registers],
    GRID_X = "gridX" Usual for [grid],
    GRID_Y = "gridY" Usual for [grid],
    GRID_Z = "gridZ" Usual for [grid],
    BLOCK_X = "blockX" Usual for [block],
    BLOCK_Y = "blockY" Usual for [block],
    BLOCK_Z = "blockZ" Usual for [block],
    STATIC_SHARED = "staticSharedMemory" Usual for [static_shared_memory_bytes shared_memory_bytes],
    DYNAMIC_SHARED = "dynamicSharedMemory" Usual for [dynamic_shared_memory_bytes shared_memory_bytes],
    LOCAL_PER_THREAD = "localMemoryPerThread" Usual for [local_memory_per_thread_bytes],
    GRAPH_NODE = "graphNodeId" Newer for [graph_node_id],
    GRAPH = "graphId" Newer for [graph_id],
    CLUSTER_X = "clusterX" Newer for [cluster],
    CLUSTER_Y = "clusterY" Newer for [cluster],
    CLUSTER_Z = "clusterZ" Newer for [cluster],
} }

/// Kernels.
pub(super) static KERNELS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_KERNEL", "gpu_ops", Feature::Cuda, Kernel::ALL, push_kernel);

fn push_kernel(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "kernel");
    let (fixed, dynamic) = (cells.small(Kernel::STATIC_SHARED), cells.small(Kernel::DYNAMIC_SHARED));
    // A launch without clusters has zeros here.
    let has_cluster = cells.int(Kernel::CLUSTER_X).is_some_and(|x| x > 0);
    let cluster = [Kernel::CLUSTER_X, Kernel::CLUSTER_Y, Kernel::CLUSTER_Z];
    tables.gpu_ops.push(GpuOpRow {
        name: builder.usual_string(cells, Kernel::NAME),
        short_name: builder.string(cells, Kernel::SHORT_NAME),
        mangled_name: builder.string(cells, Kernel::MANGLED_NAME),
        grid: cells.triple([Kernel::GRID_X, Kernel::GRID_Y, Kernel::GRID_Z]),
        block: cells.triple([Kernel::BLOCK_X, Kernel::BLOCK_Y, Kernel::BLOCK_Z]),
        cluster: if has_cluster { cells.triple(cluster) } else { None },
        registers: cells.small(Kernel::REGISTERS),
        shared_memory_bytes: fixed
            .zip(dynamic)
            .filter(|_| builder.recorder.wanted.shared_memory)
            .and_then(|(fixed, dynamic)| fixed.checked_add(dynamic)),
        static_shared_memory_bytes: fixed,
        dynamic_shared_memory_bytes: dynamic,
        local_memory_per_thread_bytes: cells.small(Kernel::LOCAL_PER_THREAD),
        graph_id: cells.int(Kernel::GRAPH).filter(|&id| id != 0),
        graph_node_id: cells.id(Kernel::GRAPH_NODE),
        ..work
    });
    true
}

columns! { Graph after Work {
    GRAPH = "graphId" Usual for [name graph_id],
    GRAPH_EXEC = "graphExecId" Usual for [graph_exec_id],
} }

/// Whole-graph executions: the default way of recording graphs.
pub(super) static GRAPHS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "gpu_ops", Feature::WholeGraphs, Graph::ALL, push_graph);

fn push_graph(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "graph");
    let graph_id = cells.int(Graph::GRAPH);
    tables.gpu_ops.push(GpuOpRow {
        name: graph_id.map(|id| builder.coded("graph", id, |id| format!("[CUDA graph {id}]"))),
        graph_id,
        graph_exec_id: cells.int(Graph::GRAPH_EXEC),
        ..work
    });
    true
}

columns! { Memcpy after Work {
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
    let work = work(builder, cells, "memcpy");
    let kind = cells.int(Memcpy::COPY_KIND);
    tables.gpu_ops.push(GpuOpRow {
        name: Some(builder.copy_name(kind)),
        copy_kind: kind.filter(|_| builder.recorder.wanted.copy_kind).map(|kind| builder.copy_kind(kind)),
        source_memory: builder.memory_kind(&MEMORY, cells.int(Memcpy::SOURCE_KIND)),
        destination_memory: builder.memory_kind(&MEMORY, cells.int(Memcpy::DESTINATION_KIND)),
        bytes: cells.int(Memcpy::BYTES),
        graph_node_id: cells.id(Memcpy::GRAPH_NODE),
        ..work
    });
    if kind.is_some_and(|kind| MIGRATIONS.contains(&kind))
        && let Some(address) = cells.int(Memcpy::ADDRESS)
    {
        builder.argument(cells, tables, "virtual_address", address);
    }
    true
}

columns! { Memset after Work {
    BYTES = "bytes" Usual for [bytes],
    MEMORY_KIND = "memKind" Usual for [destination_memory],
    GRAPH_NODE = "graphNodeId" Newer for [graph_node_id],
} }

/// Memsets.
pub(super) static MEMSETS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_ops", Feature::Cuda, Memset::ALL, push_memset);

fn push_memset(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let work = work(builder, cells, "memset");
    tables.gpu_ops.push(GpuOpRow {
        name: Some(builder.label("[CUDA memset]")),
        destination_memory: builder.memory_kind(&MEMORY, cells.int(Memset::MEMORY_KIND)),
        bytes: cells.int(Memset::BYTES),
        graph_node_id: cells.id(Memset::GRAPH_NODE),
        ..work
    });
    true
}
