//! Kernels, and executions of whole graphs.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{GpuOpRow, Tables};

columns! { Kernel {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual for [device],
    CONTEXT = "contextId" Usual for [context priority],
    GREEN_CONTEXT = "greenContextId" Newer for [green_context],
    STREAM = "streamId" Usual for [stream priority],
    CORRELATION = "correlationId" Usual for [correlation launch_row],
    GLOBAL_PID = "globalPid" Usual for [pid device launch_row],
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
    let Some((start_ns, dur_ns)) = cells.extent(Kernel::START, Kernel::END) else { return false };
    let (static_shared, dynamic_shared) =
        (cells.small(Kernel::STATIC_SHARED), cells.small(Kernel::DYNAMIC_SHARED));
    let place = Place::of(
        builder,
        cells,
        [Kernel::DEVICE, Kernel::CONTEXT, Kernel::GREEN_CONTEXT, Kernel::STREAM, Kernel::GLOBAL_PID],
    );
    // A launch without clusters has zeros here.
    let has_cluster = cells.int(Kernel::CLUSTER_X).is_some_and(|x| x > 0);
    let row = GpuOpRow {
        name: builder.usual_string(cells, Kernel::NAME),
        short_name: builder.string(cells, Kernel::SHORT_NAME),
        mangled_name: builder.string(cells, Kernel::MANGLED_NAME),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Kernel::CORRELATION),
        grid: cells.triple([Kernel::GRID_X, Kernel::GRID_Y, Kernel::GRID_Z]),
        block: cells.triple([Kernel::BLOCK_X, Kernel::BLOCK_Y, Kernel::BLOCK_Z]),
        cluster: if has_cluster {
            cells.triple([Kernel::CLUSTER_X, Kernel::CLUSTER_Y, Kernel::CLUSTER_Z])
        } else {
            None
        },
        registers: cells.small(Kernel::REGISTERS),
        shared_memory_bytes: static_shared
            .zip(dynamic_shared)
            .filter(|_| builder.recorder.wanted.shared_memory)
            .and_then(|(a, b)| a.checked_add(b)),
        static_shared_memory_bytes: static_shared,
        dynamic_shared_memory_bytes: dynamic_shared,
        local_memory_per_thread_bytes: cells.small(Kernel::LOCAL_PER_THREAD),
        graph_id: cells.int(Kernel::GRAPH).filter(|&id| id != 0),
        graph_node_id: cells.int(Kernel::GRAPH_NODE).map(i64::cast_unsigned).filter(|&id| id != 0),
        ..place.row(builder.label("kernel"), cells)
    };
    tables.gpu_ops.push(row);
    true
}

/// Where work ran, and for whom.
#[derive(Default)]
pub(super) struct Place {
    pub(super) device: Option<i32>,
    pub(super) context: Option<i32>,
    pub(super) green_context: Option<i32>,
    pub(super) stream: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) priority: Option<i32>,
}

impl Place {
    /// From the cells of device, context, green context, stream and global process id.
    pub(super) fn of(builder: &Builder<'_, '_>, cells: &mut Cells<'_, '_>, at: [usize; 5]) -> Self {
        let [device, context, green_context, stream, global_pid] = at;
        let machine = &builder.recorder.machine;
        let pid = builder.pid(cells.int(global_pid));
        let (context, stream) = (cells.small(context), cells.usual(stream));
        Self {
            device: cells
                .usual(device)
                .and_then(|_| cells.small(device))
                .map(|device| machine.gpu(pid, device)),
            context,
            green_context: cells.small(green_context).filter(|&id| id != 0),
            stream,
            pid: pid.filter(|_| builder.recorder.wanted.gpu_pid),
            priority: machine.priority(pid, context, stream),
        }
    }

    /// A row of this kind at this place.
    pub(super) fn row(&self, kind: crate::schema::Symbol, cells: &Cells<'_, '_>) -> GpuOpRow {
        GpuOpRow {
            row: cells.number,
            kind,
            device: self.device,
            context: self.context,
            green_context: self.green_context,
            stream: self.stream,
            pid: self.pid,
            priority: self.priority,
            ..Default::default()
        }
    }
}

columns! { Graph {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual for [device],
    CONTEXT = "contextId" Usual for [context priority],
    GREEN_CONTEXT = "greenContextId" Usual for [green_context],
    STREAM = "streamId" Usual for [stream priority],
    CORRELATION = "correlationId" Usual for [correlation launch_row],
    GLOBAL_PID = "globalPid" Usual for [pid device launch_row],
    GRAPH = "graphId" Usual for [name graph_id],
    GRAPH_EXEC = "graphExecId" Usual for [graph_exec_id],
} }

/// Whole-graph executions: the default way of recording graphs.
pub(super) static GRAPHS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "gpu_ops", Feature::WholeGraphs, Graph::ALL, push_graph);

fn push_graph(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Graph::START, Graph::END) else { return false };
    let place = Place::of(
        builder,
        cells,
        [Graph::DEVICE, Graph::CONTEXT, Graph::GREEN_CONTEXT, Graph::STREAM, Graph::GLOBAL_PID],
    );
    let graph_id = cells.int(Graph::GRAPH);
    let row = GpuOpRow {
        name: graph_id.map(|id| builder.coded("graph", id, |id| format!("[CUDA graph {id}]"))),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Graph::CORRELATION),
        graph_id,
        graph_exec_id: cells.int(Graph::GRAPH_EXEC),
        ..place.row(builder.label("graph"), cells)
    };
    tables.gpu_ops.push(row);
    true
}
