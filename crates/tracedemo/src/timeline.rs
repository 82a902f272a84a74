//! Plays a plan: host clocks, operator stacks, Python frames, memory, and the records that come of it.

mod device;

use std::sync::Arc;

use crate::event::{Phase, Record};
use crate::job::{Job, Meetings, Rng, Schedule};
use crate::ledger::Ledger;
use crate::library::{Library, Thread};
use crate::model::BuiltModel;
use crate::plan::{Instr, Plan};

/// Python id of the frame that everything is called from; those up to the first of a step are of frames
/// that last as long as the trace.
pub(crate) const PYTHON_ROOT: i64 = 2;
const FIRST_PYTHON_ID: i64 = 6;
/// Sequence number and flow of the first node of the autograd graph.
const FIRST_SEQUENCE: i64 = 7_340;
const FIRST_FLOW: i64 = 1;
/// Shape number of a record that moved to the next step.
pub(crate) const MOVED: u32 = u32::MAX;

/// The records of a step, in the order in which the profiler keeps them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) ops: Vec<Record>,
    pub(crate) memory: Vec<Record>,
    pub(crate) python: Vec<Record>,
    pub(crate) gpu: Vec<Record>,
    pub(crate) annotations: Vec<Record>,
}

impl Records {
    /// All records, in Kineto's order of groups.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Record> {
        [&self.ops, &self.memory, &self.python, &self.gpu, &self.annotations].into_iter().flatten()
    }
}

/// An operator or annotation that has begun.
#[derive(Clone, Debug)]
struct OpenOp {
    spec: u32,
    record: usize,
    start_ns: i64,
    external_id: i64,
    children_ns: i64,
    calls_ns: i64,
    device_ns: i64,
    /// Extent of the GPU work launched under an annotation, per stream.
    gpu_extent: [Option<(i64, i64)>; 3],
}

#[derive(Clone, Debug)]
struct OpenFrame {
    record: usize,
    id: i64,
}

/// What varies between ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variation {
    pub(crate) job: Job,
    pub(crate) rank: u32,
    /// How much slower than the others this GPU is, in units of 1/1024.
    pub(crate) slower: i64,
    pub(crate) is_late: bool,
    /// How many times as long the collective of the rank's host takes.
    pub(crate) link_factor: i64,
}

/// State of the traced process.
#[derive(Clone)]
pub(crate) struct Timeline<'a> {
    pub(crate) model: &'a BuiltModel,
    library: &'a Library,
    variation: Variation,
    schedule: Option<Schedule>,
    job_start_ns: i64,
    meetings: Option<Arc<Meetings>>,
    rng: Rng,
    /// Takes turns with it, so that what a cause adds leaves the rest as it is.
    rng_aside: Rng,
    thread: Thread,
    now_ns: [i64; 2],
    watchdog_ns: i64,
    ops: [Vec<OpenOp>; 2],
    frames: Vec<OpenFrame>,
    stream_free_ns: [i64; 3],
    /// End of the work that was queued at the last mark.
    mark_ns: i64,
    step: u64,
    step_host_start_ns: i64,
    step_gpu_end_ns: i64,
    step_gpu_ops: u64,
    next_external_id: i64,
    next_correlation: i64,
    next_python_id: i64,
    /// Nodes of the autograd graph in the steps before.
    nodes: i64,
    collectives: i64,
    allocated: [i64; 2],
    reserved: i64,
    /// Ends of the collectives of the step, after the job's start, and their groups.
    pub(crate) collective_ends_ns: Vec<i64>,
    pub(crate) collective_groups: Vec<u32>,
    records: Records,
    pub(crate) ledger: Ledger,
}

impl<'a> Timeline<'a> {
    /// A process that begins some time after its job; `schedule` holds its collectives to the times of the job.
    pub(crate) fn new(
        model: &'a BuiltModel,
        variation: Variation,
        schedule: Option<Schedule>,
        (job_start_ns, delay_ns): (i64, i64),
    ) -> Self {
        let now_ns = job_start_ns + delay_ns;
        let salt = u64::from(variation.rank) << 1 | u64::from(variation.is_late);
        Self {
            model,
            library: &model.library,
            variation,
            schedule,
            job_start_ns,
            meetings: None,
            rng: Rng::new(variation.job.seed, salt),
            rng_aside: Rng::new(variation.job.seed, salt ^ 0xca5e << 32),
            thread: Thread::Main,
            now_ns: [now_ns; 2],
            watchdog_ns: now_ns,
            ops: [Vec::new(), Vec::new()],
            frames: vec![OpenFrame { record: usize::MAX, id: PYTHON_ROOT }],
            stream_free_ns: [now_ns; 3],
            mark_ns: 0,
            step: 0,
            step_host_start_ns: now_ns,
            step_gpu_end_ns: 0,
            step_gpu_ops: 0,
            next_external_id: 1025,
            next_correlation: 61_803,
            next_python_id: FIRST_PYTHON_ID,
            nodes: 0,
            collectives: 211,
            allocated: [0, model.allocated_bytes],
            reserved: model.reserved_bytes,
            collective_ends_ns: Vec::new(),
            collective_groups: Vec::new(),
            records: Records::default(),
            ledger: Ledger::default(),
        }
    }

    /// Time on the current thread.
    pub(crate) fn now_ns(&self) -> i64 {
        self.now_ns[self.thread as usize]
    }

    /// End of the last GPU work.
    pub(crate) fn gpu_end_ns(&self) -> i64 {
        self.stream_free_ns.into_iter().max().unwrap_or(0)
    }

    fn advance(&mut self, mean_ns: u32) {
        self.now_ns[self.thread as usize] += self.rng.host(mean_ns);
    }

    /// Holds the collectives of the next step to those times.
    pub(crate) fn meet(&mut self, meetings: Arc<Meetings>) {
        self.meetings = Some(meetings);
    }

    /// Plays a step whose annotation is `ProfilerStep#step`.
    pub(crate) fn play(&mut self, plan: &Plan, step: u64) {
        self.step = step;
        self.step_gpu_end_ns = 0;
        self.step_gpu_ops = 0;
        self.collective_ends_ns.clear();
        self.collective_ends_ns.resize(plan.collectives as usize, 0);
        self.collective_groups.resize(plan.collectives as usize, 0);
        for &instr in &plan.instrs {
            self.play_one(instr);
        }
        self.nodes += i64::from(plan.nodes);
        self.collectives += i64::from(plan.collectives);
        if plan.collectives > 0
            && let Some(schedule) = &mut self.schedule
        {
            schedule.next(step);
        }
    }

    fn play_one(&mut self, instr: Instr) {
        match instr {
            // One thread waits for the other, which takes some microseconds to notice.
            Instr::Switch(thread) => {
                self.now_ns[thread as usize] = self.now_ns() + self.rng.host(13_000);
                self.thread = thread;
            }
            Instr::Wait(mean_ns) => self.advance(mean_ns),
            Instr::Late if self.variation.is_late => {
                let late_ns = self.variation.job.late_ns(self.step, self.variation.rank);
                self.now_ns[self.thread as usize] += late_ns;
            }
            Instr::Late => {}
            Instr::Aside => std::mem::swap(&mut self.rng, &mut self.rng_aside),
            Instr::Op(spec) => self.begin_op(spec),
            Instr::EndOp => self.end_op(),
            Instr::Frame(shape) => self.begin_frame(shape),
            Instr::EndFrame => self.end_frame(),
            Instr::Call(spec) => self.call(&self.library.calls[spec as usize]),
            Instr::Background(spec) => self.background(&self.library.calls[spec as usize]),
            Instr::Alloc(block) => self.memory(block, false),
            Instr::Free(block) => self.memory(block, true),
            Instr::Overhead { shape, dur } => {
                let (start_ns, dur_ns) = (self.now_ns(), self.rng.host(dur));
                self.records.gpu.push(Record { shape, start_ns, dur_ns, values: [0; 3] });
            }
        }
    }

    fn begin_op(&mut self, spec_id: u32) {
        let library = self.library;
        let spec = &library.ops[spec_id as usize];
        let start_ns = self.now_ns();
        let external_id = self.next_external_id;
        self.next_external_id += 1;
        let number = match spec.collective {
            Some(number) => self.collectives + i64::from(number),
            None => self.step as i64,
        };
        let node = self.nodes + i64::from(spec.node);
        let values = [external_id, FIRST_SEQUENCE + node, number];
        let record = self.records.ops.len();
        self.records.ops.push(Record { shape: spec.shape, start_ns, dur_ns: 0, values });
        if let Some((phase, shape)) = spec.flow {
            let values = [FIRST_FLOW + node, 0, 0];
            self.records.ops.push(Record { shape, start_ns, dur_ns: 0, values });
            self.ledger.truth.forward_backward_pairs += u64::from(phase == Phase::FlowEnd);
        }
        if spec.collective.is_some() {
            self.ledger.collective();
        }
        if spec.is_annotation && spec.role.is_none() {
            self.step_host_start_ns = start_ns;
        }
        self.ops[self.thread as usize].push(OpenOp {
            spec: spec_id,
            record,
            start_ns,
            external_id,
            children_ns: 0,
            calls_ns: 0,
            device_ns: 0,
            gpu_extent: [None; 3],
        });
    }

    fn end_op(&mut self) {
        let library = self.library;
        let end_ns = self.now_ns();
        let stack = &mut self.ops[self.thread as usize];
        let Some(op) = stack.pop() else { return };
        let spec = &library.ops[op.spec as usize];
        let dur_ns = end_ns - op.start_ns;
        self.records.ops[op.record].dur_ns = dur_ns;
        let mut parent_role = None;
        if let Some(parent) = stack.last_mut() {
            parent.children_ns += dur_ns;
            parent.device_ns += op.device_ns;
            parent_role = library.ops[parent.spec as usize].role;
        }
        let totals = self.ledger.op(spec.name, spec.is_annotation);
        totals.calls += 1;
        totals.host_total_ns += dur_ns;
        totals.host_self_ns += dur_ns - op.children_ns - op.calls_ns;
        totals.device_total_ns += op.device_ns;
        match spec.role {
            // Inside its own role an interval adds nothing to the union.
            Some(role) if parent_role != Some(role) => self.ledger.cover(role, (op.start_ns, end_ns)),
            Some(_) => {}
            None => {
                let host = (self.step_host_start_ns, end_ns);
                self.ledger.step(self.step, host, self.step_gpu_end_ns, self.step_gpu_ops);
            }
        }
        for (shape, extent) in spec.gpu_shapes.into_iter().zip(op.gpu_extent) {
            if let Some((start, end)) = extent {
                // Kineto widens the span by 1 ns on either side so that viewers nest it.
                let values = [op.external_id, 0, self.step as i64];
                let (start_ns, dur_ns) = (start - 1, end - start + 2);
                self.records.annotations.push(Record { shape, start_ns, dur_ns, values });
            }
        }
    }

    fn begin_frame(&mut self, shape: u32) {
        let start_ns = self.now_ns();
        let parent = self.frames.last().map_or(0, |frame| frame.id);
        let id = self.next_python_id;
        self.next_python_id += 1;
        let record = self.records.python.len();
        self.records.python.push(Record { shape, start_ns, dur_ns: 0, values: [id, parent, 0] });
        self.frames.push(OpenFrame { record, id });
    }

    fn end_frame(&mut self) {
        let end_ns = self.now_ns();
        if self.frames.len() > 1
            && let Some(frame) = self.frames.pop()
        {
            let record = &mut self.records.python[frame.record];
            record.dur_ns = end_ns - record.start_ns;
        }
    }

    fn memory(&mut self, block: u32, is_free: bool) {
        self.advance(170);
        let spec = &self.library.blocks[block as usize];
        let total = &mut self.allocated[usize::from(spec.on_device)];
        *total += if is_free { -spec.bytes } else { spec.bytes };
        let reserved = if spec.on_device { self.reserved } else { 0 };
        let values = [*total, reserved, 0];
        if spec.on_device {
            let peak = &mut self.ledger.truth.peak_device_bytes;
            *peak = (*peak).max(*total);
        }
        let shape = spec.shapes[self.thread as usize][usize::from(is_free)];
        let start_ns = self.now_ns();
        self.records.memory.push(Record { shape, start_ns, dur_ns: 0, values });
    }

    /// Hands out the records so far; frames that are still open move on to the next ones.
    pub(crate) fn take_records(&mut self) -> Records {
        let mut records = std::mem::take(&mut self.records);
        for frame in self.frames.iter_mut().skip(1) {
            let moved = &mut records.python[frame.record];
            frame.record = self.records.python.len();
            self.records.python.push(*moved);
            moved.shape = MOVED;
        }
        records
    }
}
