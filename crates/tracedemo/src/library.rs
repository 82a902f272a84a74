//! Everything that a plan's instructions refer to by number: templates, names, specifications.

use std::collections::HashMap;
use std::ops::Range;

use crate::event::{Arg, Hole, Phase, Shape, Template, list, quoted};
use crate::gpu::{GPUS, Kernel};
use crate::ledger::Role;
use crate::options::Layout;

/// A host thread of the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Runs Python.
    Main,
    /// Runs the backward pass.
    Autograd,
    /// Polls the events of collectives.
    Watchdog,
    /// Pins batches in page-locked memory.
    PinMemory,
}

/// A GPU stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The default stream.
    Compute,
    /// Copies of the next batch.
    Copy,
    /// Collectives.
    Comm,
}

impl Stream {
    /// Every stream.
    pub(crate) const ALL: [Self; 3] = [Self::Compute, Self::Copy, Self::Comm];

    /// Stream id in the trace.
    pub(crate) fn id(self) -> i64 {
        match self {
            Self::Compute => 7,
            Self::Copy => 20,
            Self::Comm => 28,
        }
    }
}

/// Ids of the traced process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// OS process id.
    pub(crate) pid: i64,
    /// GPU index on the host.
    pub(crate) device: i64,
    /// Rank in the job.
    pub(crate) rank: u32,
}

impl Process {
    /// OS thread id.
    pub(crate) fn tid(self, thread: Thread) -> i64 {
        self.pid
            + match thread {
                Thread::Main => 0,
                Thread::Autograd => 617,
                Thread::Watchdog => 233,
                Thread::PinMemory => 582,
            }
    }
}

/// What a flow does at an operator; the number is the flow's place in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowEnd {
    None,
    Start(u32),
    End(u32),
}

/// An operator or annotation at one place of the program.
#[derive(Clone, Debug)]
pub(crate) struct OpSpec {
    /// Name, without a running number.
    pub(crate) name: u32,
    /// Whether it is a `user_annotation` and no `cpu_op`.
    pub(crate) is_annotation: bool,
    /// Whether it is an operator that stands for a collective.
    pub(crate) is_collective_op: bool,
    /// Role of its time in the step breakdown.
    pub(crate) role: Option<Role>,
    /// Event.
    pub(crate) template: u32,
    /// Place of its sequence number in the step.
    pub(crate) sequence: u32,
    /// Flow between forward and backward.
    pub(crate) flow: FlowEnd,
    /// Event of the flow.
    pub(crate) flow_template: u32,
    /// Collective whose sequence number is the record's third value.
    pub(crate) collective: Option<u32>,
    /// `gpu_user_annotation` per stream; for annotations.
    pub(crate) gpu_templates: [u32; 3],
}

/// What a runtime call does on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that a trace shows.
    None,
    /// Starts that many units of work.
    Launch { first: u32, count: u32 },
    /// Marks the end of the work queued so far.
    Record { event: u32, stream: Stream },
    /// Holds the stream until a mark is reached.
    StreamWait { event: u32, stream: Stream },
    /// Blocks the host until the stream is empty.
    StreamSync(Stream),
    /// Blocks the host until the device is idle.
    DeviceSync,
}

/// A runtime or driver call at one place of the program.
#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    pub(crate) name: u32,
    /// Event when an operator is active, and when none is.
    pub(crate) templates: [u32; 2],
    /// Event of the `ac2g` flow end that Kineto writes with the call.
    pub(crate) flow_template: u32,
    /// Synchronisation record of the call, if any.
    pub(crate) sync_template: Option<u32>,
    pub(crate) is_driver: bool,
    pub(crate) dur_ns: u32,
    pub(crate) effect: Effect,
}

/// Kind of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Kernel,
    Memcpy,
    Memset,
}

/// A unit of GPU work at one place of the program.
#[derive(Clone, Debug)]
pub(crate) struct WorkSpec {
    pub(crate) kind: WorkKind,
    pub(crate) name: u32,
    /// Event when an operator is active, and when none is.
    pub(crate) templates: [u32; 2],
    pub(crate) flow_template: u32,
    pub(crate) stream: Stream,
    pub(crate) dur_ns: u32,
    /// For the kernel of a collective.
    pub(crate) collective: Option<Collective>,
}

/// Which collective of a step it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    pub(crate) number: u32,
    /// Whether the ranks of a host are among themselves.
    pub(crate) is_of_host: bool,
}

/// A block of memory that is allocated and freed once a step.
#[derive(Clone, Debug)]
pub(crate) struct BlockSpec {
    pub(crate) bytes: i64,
    pub(crate) on_device: bool,
    /// Events of its allocation and of its release, on the main and on the autograd thread.
    pub(crate) templates: [[u32; 2]; 2],
}

/// A process group: consecutive ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) number: u32,
    pub(crate) first: u32,
    pub(crate) size: u32,
}

impl Group {
    /// Number of the group of a host.
    const OF_HOST: u32 = 1;

    /// The group of all ranks.
    pub(crate) fn of_all(ranks: u32) -> Self {
        Self { number: 0, first: 0, size: ranks }
    }

    /// The group of the ranks on the same host as `rank`.
    pub(crate) fn of_host(rank: u32, ranks: u32) -> Self {
        let first = rank.min(ranks - 1) / GPUS * GPUS;
        Self { number: Self::OF_HOST, first, size: GPUS.min(ranks - first) }
    }

    /// What the group is for.
    pub(crate) fn description(self) -> &'static str {
        if self.number == Self::OF_HOST { "mesh_host" } else { "default_pg" }
    }

    /// The ranks.
    pub(crate) fn ranks(self) -> Range<u32> {
        self.first..self.first + self.size
    }
}

/// Arguments of a collective, as recorded with its operator and its kernel.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveArgs {
    pub(crate) name: &'static str,
    pub(crate) in_elements: i64,
    pub(crate) out_elements: i64,
    pub(crate) dtype: &'static str,
    pub(crate) group: Group,
}

impl CollectiveArgs {
    /// The arguments in order; the sequence number is the record's third value.
    pub(crate) fn args(&self) -> Vec<(&'static str, Arg)> {
        /// The recorder writes out at most this many ranks.
        const LONGEST: u32 = 30;
        /// Above 2^63, as hashes are: it must be read as unsigned.
        const COMMS_ID: u64 = 13_787_848_793_156_543_935;
        let group = self.group;
        let ranks = if group.size <= LONGEST {
            list(group.ranks())
        } else {
            let head: Vec<String> = group.ranks().take(LONGEST as usize - 1).map(|r| r.to_string()).collect();
            format!("[{}, ..., {}]", head.join(", "), group.first + group.size - 1)
        };
        let comms_id = COMMS_ID - u64::from(group.number) * (1 + u64::from(group.first));
        let json = |key, value: String| (key, Arg::Json(value));
        vec![
            json("Collective name", quoted(self.name)),
            json("In msg nelems", self.in_elements.to_string()),
            json("Out msg nelems", self.out_elements.to_string()),
            json("Group size", group.size.to_string()),
            json("dtype", quoted(self.dtype)),
            json("In split size", quoted("[]")),
            json("Out split size", quoted("[]")),
            json("Process Group Name", quoted(&group.number.to_string())),
            json("Process Group Description", quoted(group.description())),
            json("Process Group Ranks", quoted(&ranks)),
            ("Seq", Arg::Hole(Hole::Value(2))),
            json("Comms Id", comms_id.to_string()),
        ]
    }
}

/// Numbers of a CUDA graph's node; zeros for work outside graphs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphNode {
    pub(crate) graph: u64,
    pub(crate) node: u64,
}

/// The specifications of all plans of a trace.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) layout: Layout,
    pub(crate) process: Process,
    pub(crate) templates: Vec<Template>,
    /// What the templates were made of, for those who write no JSON; null where nobody asked for it.
    pub(crate) shapes: Option<Vec<Shape>>,
    pub(crate) names: Vec<String>,
    pub(crate) ops: Vec<OpSpec>,
    pub(crate) calls: Vec<CallSpec>,
    pub(crate) works: Vec<WorkSpec>,
    pub(crate) blocks: Vec<BlockSpec>,
    template_ids: HashMap<Template, u32>,
    name_ids: HashMap<String, u32>,
    block_ids: HashMap<String, u32>,
    next_address: [u64; 2],
}

impl Library {
    /// An empty library.
    pub(crate) fn new(layout: Layout, process: Process) -> Self {
        Self {
            layout,
            process,
            templates: Vec::new(),
            shapes: None,
            names: Vec::new(),
            ops: Vec::new(),
            calls: Vec::new(),
            works: Vec::new(),
            blocks: Vec::new(),
            template_ids: HashMap::new(),
            name_ids: HashMap::new(),
            block_ids: HashMap::new(),
            next_address: [0x5581_4c00_0000, 0x7f3a_0600_0000],
        }
    }

    /// The same library, that keeps what its templates are made of.
    pub(crate) fn with_shapes(self) -> Self {
        Self { shapes: Some(Vec::new()), ..self }
    }

    /// Number of the template of an event; equal events share one.
    pub(crate) fn template(&mut self, shape: &Shape) -> u32 {
        let template = self.layout.template(shape);
        if let Some(&id) = self.template_ids.get(&template) {
            return id;
        }
        let id = self.templates.len() as u32;
        self.templates.push(template.clone());
        if let Some(shapes) = &mut self.shapes {
            shapes.push(shape.clone());
        }
        self.template_ids.insert(template, id);
        id
    }

    /// Number of a name.
    pub(crate) fn name(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.name_ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    /// Number of the block of memory called `key`; it keeps its address from step to step.
    pub(crate) fn block(&mut self, key: &str, bytes: i64, on_device: bool) -> u32 {
        if let Some(&id) = self.block_ids.get(key) {
            debug_assert!((0..512).contains(&(self.blocks[id as usize].bytes - bytes)), "{key}");
            return id;
        }
        // The caching allocator hands out multiples of 512 bytes, the CPU allocator of 64.
        let bytes = (bytes as u64).next_multiple_of(if on_device { 512 } else { 64 }) as i64;
        let address = self.next_address[usize::from(on_device)];
        self.next_address[usize::from(on_device)] += bytes as u64;
        let templates = [Thread::Main, Thread::Autograd].map(|thread| {
            [bytes, -bytes].map(|signed| {
                let (kind, index) = if on_device { (1, self.process.device) } else { (0, -1) };
                let tid = self.process.tid(thread);
                let shape = Shape::slice("cpu_instant_event", "[memory]", self.process.pid, tid)
                    .hole("Total Reserved", Hole::Value(1))
                    .hole("Total Allocated", Hole::Value(0))
                    .json("Bytes", signed)
                    .json("Addr", address)
                    .json("Device Id", index)
                    .json("Device Type", kind)
                    .hole("Ev Idx", Hole::EventIndex);
                self.template(&Shape { phase: Phase::Instant("t"), ..shape })
            })
        });
        let id = self.blocks.len() as u32;
        self.blocks.push(BlockSpec { bytes, on_device, templates });
        self.block_ids.insert(key.to_owned(), id);
        id
    }

    /// Adds a kernel.
    pub(crate) fn kernel(
        &mut self,
        kernel: &Kernel,
        stream: Stream,
        graph: GraphNode,
        collective: Option<(u32, &CollectiveArgs)>,
    ) -> u32 {
        let templates = [true, false].map(|linked| {
            let mut shape = self.gpu_shape("kernel", &kernel.name, stream, linked);
            let place = shape.args.iter().position(|(key, _)| *key == "device").unwrap_or(0);
            shape.args.insert(place, ("queued", Arg::Json("0".to_owned())));
            shape = shape
                .json("registers per thread", kernel.registers)
                .json("shared memory", kernel.shared_memory)
                .json("blocks per SM", format!("{:.6}", kernel.blocks_per_sm()))
                .json("warps per SM", format!("{:.6}", kernel.warps_per_sm()))
                .json("grid", list(kernel.grid))
                .json("block", list(kernel.block))
                .json("est. achieved occupancy %", kernel.occupancy_pct())
                .json("graph id", graph.graph)
                .json("graph node id", graph.node);
            shape.args.extend(collective.iter().flat_map(|(_, args)| args.args()));
            self.template(&shape)
        });
        let collective = collective
            .map(|(number, args)| Collective { number, is_of_host: args.group.number == Group::OF_HOST });
        self.work(WorkKind::Kernel, &kernel.name, templates, stream, kernel.dur_ns, collective)
    }

    /// Adds a copy or a memset.
    pub(crate) fn transfer(
        &mut self,
        kind: WorkKind,
        name: &str,
        stream: Stream,
        bytes: i64,
        dur_ns: u32,
    ) -> u32 {
        let category = if kind == WorkKind::Memcpy { "gpu_memcpy" } else { "gpu_memset" };
        let templates = [true, false].map(|linked| {
            let shape = self.gpu_shape(category, name, stream, linked);
            let bandwidth = Hole::Bandwidth(bytes as u64);
            let shape = shape.json("bytes", bytes).hole("memory bandwidth (GB/s)", bandwidth);
            self.template(&shape)
        });
        self.work(kind, name, templates, stream, dur_ns, None)
    }

    fn gpu_shape(&self, category: &'static str, name: &str, stream: Stream, linked: bool) -> Shape {
        let mut shape = Shape::slice(category, name, self.process.device, stream.id());
        if linked {
            shape = shape.hole("External id", Hole::Value(0));
        }
        shape
            .json("device", self.process.device)
            .json("context", 1)
            .json("stream", stream.id())
            .hole("correlation", Hole::Value(1))
    }

    fn work(
        &mut self,
        kind: WorkKind,
        name: &str,
        templates: [u32; 2],
        stream: Stream,
        dur_ns: u32,
        collective: Option<Collective>,
    ) -> u32 {
        let flow = Shape::flow(Phase::FlowEnd, "ac2g", self.process.device, stream.id());
        let flow_template = self.template(&flow);
        let name = self.name(name);
        let id = self.works.len() as u32;
        self.works.push(WorkSpec { kind, name, templates, flow_template, stream, dur_ns, collective });
        id
    }
}
