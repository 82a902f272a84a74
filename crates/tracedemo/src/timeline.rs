//! Plays a plan: host clocks, operator stacks, Python frames, memory, and the records that come of it.

mod device;

use crate::event::Record;
use crate::job::{Faults, Rng, Schedule, late_ns};
use crate::ledger::{EventKind, Ledger};
use crate::library::{FlowEnd, Library, OpSpec, Thread};
use crate::plan::{Instr, Plan};

/// Template number of a record that moved to the next step.
pub(crate) const MOVED: u32 = u32::MAX;

/// The records of a step, in the order in which the profiler keeps them.
#[derive(Debug, Default)]
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
#[derive(Debug)]
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

#[derive(Debug)]
struct OpenFrame {
    record: usize,
    id: i64,
}

/// What varies between ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variation {
    pub(crate) seed: u64,
    pub(crate) rank: u32,
    /// How much slower than the others this GPU is, in units of 1/1024.
    pub(crate) slower: i64,
    pub(crate) is_late: bool,
    /// How many times as long the collective of the rank's host takes.
    pub(crate) link_factor: i64,
    pub(crate) faults: Option<Faults>,
}

/// State of the traced process.
pub(crate) struct Timeline<'a> {
    library: &'a Library,
    variation: Variation,
    schedule: Option<Schedule>,
    rng: Rng,
    thread: Thread,
    now_ns: [i64; 2],
    watchdog_ns: i64,
    ops: [Vec<OpenOp>; 2],
    frames: Vec<OpenFrame>,
    stream_free_ns: [i64; 3],
    marks: Vec<i64>,
    step: u64,
    step_host_start_ns: i64,
    step_gpu_end_ns: Option<i64>,
    step_gpu_ops: u64,
    next_external_id: i64,
    next_correlation: i64,
    next_python_id: i64,
    sequences: i64,
    flows: i64,
    collectives: i64,
    allocated: [i64; 2],
    reserved: i64,
    collective_ends_ns: Vec<i64>,
    pub(crate) records: Records,
    pub(crate) ledger: Ledger,
}

/// Where a [`Timeline`] begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) now_ns: i64,
    /// Bytes allocated on the host and on the device before the trace.
    pub(crate) allocated: [i64; 2],
    /// Bytes that the caching allocator holds.
    pub(crate) reserved: i64,
    /// First Python id that is free.
    pub(crate) python_id: i64,
    /// Python id of the frame that everything is called from.
    pub(crate) python_root: i64,
}

impl<'a> Timeline<'a> {
    /// A process at `start`; `schedule` holds its collectives to the times of the job.
    pub(crate) fn new(
        library: &'a Library,
        variation: Variation,
        schedule: Option<Schedule>,
        start: Start,
    ) -> Self {
        Self {
            library,
            variation,
            schedule,
            rng: Rng::new(variation.seed, u64::from(variation.rank) << 1 | u64::from(variation.is_late)),
            thread: Thread::Main,
            now_ns: [start.now_ns; 2],
            watchdog_ns: start.now_ns,
            ops: [Vec::new(), Vec::new()],
            frames: vec![OpenFrame { record: usize::MAX, id: start.python_root }],
            stream_free_ns: [start.now_ns; 3],
            marks: Vec::new(),
            step: 0,
            step_host_start_ns: start.now_ns,
            step_gpu_end_ns: None,
            step_gpu_ops: 0,
            next_external_id: 1025,
            next_correlation: 61_803,
            next_python_id: start.python_id,
            sequences: 7_340,
            flows: 1,
            collectives: 211,
            allocated: start.allocated,
            reserved: start.reserved,
            collective_ends_ns: Vec::new(),
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

    /// Ends of the collectives of the step just played.
    pub(crate) fn collective_ends_ns(&self) -> &[i64] {
        &self.collective_ends_ns
    }

    fn advance(&mut self, mean_ns: u32) {
        self.now_ns[self.thread as usize] += self.rng.host(mean_ns);
    }

    /// Plays a step whose annotation is `ProfilerStep#step`.
    pub(crate) fn play(&mut self, plan: &Plan, step: u64) {
        self.step = step;
        self.step_gpu_end_ns = None;
        self.step_gpu_ops = 0;
        self.marks.clear();
        self.marks.resize(plan.marks as usize, 0);
        self.collective_ends_ns.clear();
        self.collective_ends_ns.resize(plan.collectives as usize, 0);
        for &instr in &plan.instrs {
            self.play_one(instr);
        }
        self.sequences += i64::from(plan.sequences);
        self.flows += i64::from(plan.flows);
        self.collectives += i64::from(plan.collectives);
        if plan.collectives > 0
            && let Some(schedule) = &mut self.schedule
        {
            schedule.next(step);
        }
    }

    fn play_one(&mut self, instr: Instr) {
        match instr {
            Instr::Switch(thread) => self.switch(thread),
            Instr::Wait(mean_ns) => self.advance(mean_ns),
            Instr::Late => {
                if self.variation.is_late {
                    let Variation { seed, rank, faults, .. } = self.variation;
                    let late = match faults {
                        Some(faults) => faults.late_ns(self.step, rank),
                        None => late_ns(seed, self.step, rank),
                    };
                    self.now_ns[self.thread as usize] += late;
                }
            }
            Instr::Op { spec, lead } => {
                self.advance(lead);
                self.begin_op(spec);
            }
            Instr::EndOp { tail } => {
                self.advance(tail);
                self.end_op();
            }
            Instr::Frame { template, lead } => {
                self.advance(lead);
                self.begin_frame(template);
            }
            Instr::EndFrame { tail } => {
                self.advance(tail);
                self.end_frame();
            }
            Instr::Call { spec, lead } => {
                self.advance(lead);
                self.call(&self.library.calls[spec as usize]);
            }
            Instr::Background { spec } => self.background(&self.library.calls[spec as usize]),
            Instr::Alloc(block) => self.memory(block, false),
            Instr::Free(block) => self.memory(block, true),
            Instr::Overhead { template, dur } => {
                let dur_ns = self.rng.host(dur);
                let start_ns = self.now_ns();
                self.records.gpu.push(Record { template, start_ns, dur_ns, values: [0; 3] });
                self.ledger.count(EventKind::Overhead, 1);
            }
        }
    }

    /// One thread waits for the other, which takes some microseconds to notice.
    fn switch(&mut self, thread: Thread) {
        let wake_ns = self.rng.host(13_000);
        let from = self.now_ns();
        self.thread = thread;
        self.now_ns[thread as usize] = from + wake_ns;
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
        let values = [external_id, self.sequences + i64::from(spec.sequence), number];
        let record = self.records.ops.len();
        self.records.ops.push(Record { template: spec.template, start_ns, dur_ns: 0, values });
        self.begin_flow(spec, start_ns);
        if spec.collective.is_some() {
            self.ledger.collective();
        }
        if spec.is_annotation && spec.role.is_none() {
            self.step_host_start_ns = start_ns;
        }
        let kind = if spec.is_annotation { EventKind::UserAnnotation } else { EventKind::CpuOp };
        self.ledger.count(kind, 1);
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

    fn begin_flow(&mut self, spec: &OpSpec, start_ns: i64) {
        let (number, kind) = match spec.flow {
            FlowEnd::None => return,
            FlowEnd::Start(number) => (number, EventKind::BackwardFlowStart),
            FlowEnd::End(number) => (number, EventKind::BackwardFlowEnd),
        };
        let values = [self.flows + i64::from(number), 0, 0];
        self.records.ops.push(Record { template: spec.flow_template, start_ns, dur_ns: 0, values });
        self.ledger.count(kind, 1);
        if kind == EventKind::BackwardFlowEnd {
            self.ledger.pair();
        }
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
        if spec.is_collective_op {
            self.ledger.cover_collective_op((op.start_ns, end_ns));
        }
        for (template, extent) in spec.gpu_templates.into_iter().zip(op.gpu_extent) {
            if let Some((start, end)) = extent {
                // Kineto widens the span by 1 ns on either side so that viewers nest it.
                let values = [op.external_id, 0, self.step as i64];
                let (start_ns, dur_ns) = (start - 1, end - start + 2);
                self.records.annotations.push(Record { template, start_ns, dur_ns, values });
                self.ledger.count(EventKind::GpuUserAnnotation, 1);
            }
        }
    }

    fn begin_frame(&mut self, template: u32) {
        let start_ns = self.now_ns();
        let parent = self.frames.last().map_or(0, |frame| frame.id);
        let id = self.next_python_id;
        self.next_python_id += 1;
        let record = self.records.python.len();
        self.records.python.push(Record { template, start_ns, dur_ns: 0, values: [id, parent, 0] });
        self.ledger.count(EventKind::Python, 1);
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
            self.ledger.device_bytes(*total);
        }
        let template = spec.templates[self.thread as usize][usize::from(is_free)];
        let start_ns = self.now_ns();
        self.records.memory.push(Record { template, start_ns, dur_ns: 0, values });
        self.ledger.count(EventKind::Memory, 1);
    }

    /// Hands out the records so far; frames that are still open move on to the next ones.
    pub(crate) fn take_records(&mut self) -> Records {
        let mut records = std::mem::take(&mut self.records);
        for frame in self.frames.iter_mut().skip(1) {
            let moved = &mut records.python[frame.record];
            frame.record = self.records.python.len();
            self.records.python.push(*moved);
            moved.template = MOVED;
        }
        records
    }
}
