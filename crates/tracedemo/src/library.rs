//! Everything that a plan's instructions refer to by number: shapes, names, specifications.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use crate::event::{Arg, Hole, Phase, Shape, list, quoted};
use crate::gpu::{GPUS, Kernel};

/// A host thread of the traced process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Runs Python.
    #[default]
    Main,
    /// Runs the backward pass.
    Autograd,
    /// Polls the events of collectives.
    Watchdog,
    /// Pins batches in page-locked memory.
    PinMemory,
}

impl Thread {
    pub(crate) const ALL: [Self; 4] = [Self::Main, Self::Autograd, Self::Watchdog, Self::PinMemory];
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
    pub(crate) const ALL: [Self; 3] = [Self::Compute, Self::Copy, Self::Comm];

    pub(crate) fn id(self) -> i64 {
        [7, 20, 28][self as usize]
    }
}

/// Ids of the traced process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// OS process id.
    pub(crate) pid: i64,
    /// GPU index on the host.
    pub(crate) device: i64,
    /// Rank in the job.
    pub(crate) rank: u32,
    /// Ranks of the job.
    pub(crate) ranks: u32,
}

impl Process {
    pub(crate) fn tid(self, thread: Thread) -> i64 {
        self.pid + [0, 617, 233, 582][thread as usize]
    }
}

/// Activities of the step breakdown, in order of priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Kernel,
    Memcpy,
    Memset,
    Communication,
    Runtime,
    DataLoader,
    CpuExec,
}

impl Role {
    /// Role of an annotation, by its name; none for the steps themselves.
    pub(crate) fn of_annotation(name: &str) -> Option<Self> {
        match name {
            "ProfilerStep#" => None,
            _ if name.starts_with("enumerate(DataLoader)#") => Some(Self::DataLoader),
            _ => Some(Self::CpuExec),
        }
    }
}

/// An operator or annotation at one place of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpSpec {
    /// Name, without a running number.
    pub(crate) name: u32,
    /// Whether it is a `user_annotation` and no `cpu_op`.
    pub(crate) is_annotation: bool,
    /// Role of its time in the step breakdown.
    pub(crate) role: Option<Role>,
    /// Event.
    pub(crate) shape: u32,
    /// Node of the step's autograd graph, which gives it its sequence number and flow.
    pub(crate) node: u32,
    /// Start or end of the flow between forward and backward, and its event.
    pub(crate) flow: Option<(Phase, u32)>,
    /// Collective whose sequence number is the record's third value.
    pub(crate) collective: Option<u32>,
    /// `gpu_user_annotation` per stream; for annotations.
    pub(crate) gpu_shapes: [u32; 3],
}

/// What a runtime call does on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that a trace shows.
    None,
    /// Starts that many units of work.
    Launch { first: u32, count: u32 },
    /// Marks the end of the work queued so far.
    Record(Stream),
    /// Holds the stream until the last mark is reached.
    StreamWait(Stream),
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
    pub(crate) shapes: [u32; 2],
    /// Event of the `ac2g` flow end that Kineto writes with the call.
    pub(crate) flow_shape: u32,
    /// Synchronisation record of the call, if any.
    pub(crate) sync_shape: Option<u32>,
    pub(crate) dur_ns: u32,
    pub(crate) effect: Effect,
}

/// A unit of GPU work at one place of the program.
#[derive(Clone, Debug)]
pub(crate) struct WorkSpec {
    /// Role of its time in the step breakdown.
    pub(crate) role: Role,
    pub(crate) name: u32,
    /// Event when an operator is active, and when none is.
    pub(crate) shapes: [u32; 2],
    pub(crate) flow_shape: u32,
    pub(crate) stream: Stream,
    pub(crate) dur_ns: u32,
    /// For the kernel of a collective.
    pub(crate) collective: Option<CollectiveArgs>,
}

/// A block of memory that is allocated and freed once a step.
#[derive(Clone, Debug)]
pub(crate) struct BlockSpec {
    pub(crate) bytes: i64,
    pub(crate) on_device: bool,
    /// Events of its allocation and of its release, on the main and on the autograd thread.
    pub(crate) shapes: [[u32; 2]; 2],
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
    pub(crate) const OF_HOST: u32 = 1;

    /// The group of all ranks.
    pub(crate) fn of_all(ranks: u32) -> Self {
        Self { number: 0, first: 0, size: ranks }
    }

    /// The group of the ranks on the same host as `rank`.
    pub(crate) fn of_host(rank: u32, ranks: u32) -> Self {
        let first = rank / GPUS * GPUS;
        Self { number: Self::OF_HOST, first, size: GPUS.min(ranks - first) }
    }

    /// What the group is for.
    pub(crate) fn description(self) -> &'static str {
        if self.number == Self::OF_HOST { "mesh_host" } else { "default_pg" }
    }

    pub(crate) fn ranks(self) -> Range<u32> {
        self.first..self.first + self.size
    }
}

/// Arguments of a collective, as recorded with its operator and its kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveArgs {
    /// Which collective of the step it is.
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) in_elements: i64,
    pub(crate) out_elements: i64,
    pub(crate) group: Group,
}

impl CollectiveArgs {
    /// Adds the arguments to an event; the sequence number is the record's third value.
    pub(crate) fn add_to(&self, shape: Shape) -> Shape {
        /// The recorder writes out at most this many ranks.
        const LONGEST: u32 = 30;
        /// Above 2^63, as hashes are: it must be read as unsigned.
        const COMMS_ID: u64 = 13_787_848_793_156_543_935;
        let group = self.group;
        let ranks = if group.size <= LONGEST {
            list(group.ranks())
        } else {
            let head = list(group.ranks().take(LONGEST as usize - 1));
            format!("{}, ..., {}]", head.trim_end_matches(']'), group.first + group.size - 1)
        };
        shape
            .json("Collective name", quoted(self.name))
            .json("In msg nelems", self.in_elements)
            .json("Out msg nelems", self.out_elements)
            .json("Group size", group.size)
            .json("dtype", quoted("BFloat16"))
            .json("In split size", quoted("[]"))
            .json("Out split size", quoted("[]"))
            .json("Process Group Name", quoted(&group.number.to_string()))
            .json("Process Group Description", quoted(group.description()))
            .json("Process Group Ranks", quoted(&ranks))
            .hole("Seq", Hole::Value(2))
            .json("Comms Id", COMMS_ID - u64::from(group.number) * (1 + u64::from(group.first)))
    }
}

/// Numbers of a CUDA graph and of its node; zeros for work outside graphs.
pub(crate) type GraphNode = (u64, u64);

/// The specifications of all plans of a trace.
#[derive(Debug, Default)]
pub(crate) struct Library {
    pub(crate) process: Process,
    pub(crate) ops: Vec<OpSpec>,
    pub(crate) calls: Vec<CallSpec>,
    pub(crate) works: Vec<WorkSpec>,
    pub(crate) blocks: Vec<BlockSpec>,
    shapes: HashMap<Shape, u32>,
    names: HashMap<String, u32>,
    block_keys: HashMap<String, u32>,
    /// Bytes of the blocks on the host and on the device.
    taken: [u64; 2],
}

/// The number of an item; equal items share one.
fn number<T: Eq + Hash>(known: &mut HashMap<T, u32>, item: T) -> u32 {
    let next = known.len() as u32;
    *known.entry(item).or_insert(next)
}

/// The items in the order of their numbers.
fn in_order<T>(known: &HashMap<T, u32>) -> Vec<&T> {
    let mut items: Vec<_> = known.iter().collect();
    items.sort_unstable_by_key(|(_, number)| **number);
    items.into_iter().map(|(item, _)| item).collect()
}

/// Adds a specification and gives its number.
pub(crate) fn add<T>(specs: &mut Vec<T>, spec: T) -> u32 {
    specs.push(spec);
    specs.len() as u32 - 1
}

impl Library {
    pub(crate) fn shape(&mut self, shape: Shape) -> u32 {
        number(&mut self.shapes, shape)
    }

    /// The events in order.
    pub(crate) fn shapes(&self) -> Vec<&Shape> {
        in_order(&self.shapes)
    }

    pub(crate) fn name(&mut self, name: &str) -> u32 {
        number(&mut self.names, name.to_owned())
    }

    /// The names in order.
    pub(crate) fn names(&self) -> Vec<&String> {
        in_order(&self.names)
    }

    /// Numbers of an event whose first argument is the id of the active operator: with it, and without.
    pub(crate) fn with_and_without_op(&mut self, shape: Shape) -> [u32; 2] {
        let mut without = shape.clone();
        without.args.remove(0);
        [shape, without].map(|shape| self.shape(shape))
    }

    /// Number of the block of memory called `key`; it keeps its address from step to step.
    pub(crate) fn block(&mut self, key: &str, bytes: i64, on_device: bool) -> u32 {
        if let Some(&id) = self.block_keys.get(key) {
            assert!((0..512).contains(&(self.blocks[id as usize].bytes - bytes)), "{key}");
            return id;
        }
        // The caching allocator hands out multiples of 512 bytes, the CPU allocator of 64.
        let bytes = (bytes as u64).next_multiple_of(if on_device { 512 } else { 64 }) as i64;
        let (kind, index, base) =
            if on_device { (1, self.process.device, 0x7f3a_0600_0000) } else { (0, -1, 0x5581_4c00_0000) };
        let address = base + self.taken[kind];
        self.taken[kind] += bytes as u64;
        let shapes = [Thread::Main, Thread::Autograd].map(|thread| {
            [bytes, -bytes].map(|signed| {
                let tid = self.process.tid(thread);
                let shape = Shape::slice("cpu_instant_event", "[memory]", self.process.pid, tid)
                    .hole("Total Reserved", Hole::Value(1))
                    .hole("Total Allocated", Hole::Value(0))
                    .json("Bytes", signed)
                    .json("Addr", address)
                    .json("Device Id", index)
                    .json("Device Type", kind)
                    .hole("Ev Idx", Hole::EventIndex);
                self.shape(Shape { phase: Phase::Instant, ..shape })
            })
        });
        self.block_keys.insert(key.to_owned(), self.blocks.len() as u32);
        add(&mut self.blocks, BlockSpec { bytes, on_device, shapes })
    }

    pub(crate) fn kernel(
        &mut self,
        kernel: &Kernel,
        stream: Stream,
        (graph, node): GraphNode,
        collective: Option<CollectiveArgs>,
    ) -> u32 {
        let mut shape = self.gpu_shape("kernel", &kernel.name, stream);
        shape.args.insert(1, ("queued", Arg::Json("0".to_owned())));
        shape = shape
            .json("registers per thread", kernel.registers)
            .json("shared memory", kernel.shared_memory)
            .json("blocks per SM", format!("{:.6}", kernel.blocks_per_sm()))
            .json("warps per SM", format!("{:.6}", kernel.warps_per_sm()))
            .json("grid", list(kernel.grid))
            .json("block", list(kernel.block))
            .json("est. achieved occupancy %", kernel.occupancy_pct())
            .json("graph id", graph)
            .json("graph node id", node);
        if let Some(args) = collective {
            shape = args.add_to(shape);
        }
        let role = if collective.is_some() { Role::Communication } else { Role::Kernel };
        self.work(role, shape, stream, kernel.dur_ns, collective)
    }

    /// Adds a copy or a memset.
    pub(crate) fn transfer(
        &mut self,
        role: Role,
        name: &str,
        stream: Stream,
        bytes: i64,
        dur_ns: u32,
    ) -> u32 {
        let category = if role == Role::Memcpy { "gpu_memcpy" } else { "gpu_memset" };
        let bandwidth = Hole::Bandwidth(bytes as u64);
        let shape = self.gpu_shape(category, name, stream).json("bytes", bytes);
        self.work(role, shape.hole("memory bandwidth (GB/s)", bandwidth), stream, dur_ns, None)
    }

    fn gpu_shape(&self, category: &'static str, name: &str, stream: Stream) -> Shape {
        Shape::slice(category, name, self.process.device, stream.id())
            .hole("External id", Hole::Value(0))
            .json("device", self.process.device)
            .json("context", 1)
            .json("stream", stream.id())
            .hole("correlation", Hole::Value(1))
    }

    fn work(
        &mut self,
        role: Role,
        shape: Shape,
        stream: Stream,
        dur_ns: u32,
        collective: Option<CollectiveArgs>,
    ) -> u32 {
        let name = self.name(&shape.name);
        let shapes = self.with_and_without_op(shape);
        let flow_shape = self.shape(Shape::flow(Phase::FlowEnd, "ac2g", self.process.device, stream.id()));
        add(&mut self.works, WorkSpec { role, name, shapes, flow_shape, stream, dur_ns, collective })
    }
}
