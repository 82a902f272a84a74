//! The runtime calls of a timeline, and the GPU streams that they feed.

use super::{OpenOp, Timeline};
use crate::event::Record;
use crate::gpu::GPUS;
use crate::ledger::Link;
use crate::library::{CallSpec, CollectiveArgs, Effect, Group, Stream, WorkSpec};

/// Time from a launch to the earliest start of its work, ns.
const LAUNCH_LATENCY_NS: i64 = 3_100;
/// Time between two units of work on a stream, ns.
const STREAM_GAP_NS: u32 = 900;
/// Time between two nodes of a graph, ns.
const GRAPH_GAP_NS: u32 = 350;

impl Timeline<'_> {
    /// The innermost operator: its place on the stack, id and name.
    fn innermost_op(&self) -> Option<(usize, i64, u32)> {
        let op = |op: &OpenOp| &self.library.ops[op.spec as usize];
        let stack = &self.ops[self.thread as usize];
        let place = stack.iter().rposition(|open| !op(open).is_annotation)?;
        Some((place, stack[place].external_id, op(&stack[place]).name))
    }

    fn take_correlation(&mut self) -> i64 {
        // Calls that Kineto leaves out take numbers too.
        self.next_correlation += 1 + (self.rng.next() & 1) as i64;
        self.next_correlation
    }

    pub(super) fn call(&mut self, spec: &CallSpec) {
        let correlation = self.take_correlation();
        let start_ns = self.now_ns();
        let mut dur_ns = self.rng.host(spec.dur_ns);
        if matches!(spec.effect, Effect::Launch { .. }) {
            dur_ns *= self.variation.job.launch_factor();
        }
        let waits_for = match spec.effect {
            Effect::StreamSync(stream) => self.stream_free_ns[stream as usize],
            Effect::DeviceSync => self.gpu_end_ns(),
            _ => 0,
        };
        if waits_for > start_ns {
            dur_ns += waits_for - start_ns;
        }
        let end_ns = start_ns + dur_ns;
        self.now_ns[self.thread as usize] = end_ns;
        match spec.effect {
            Effect::Launch { first, count } => self.launch(first, count, correlation, end_ns),
            Effect::Record(stream) => self.mark_ns = self.stream_free_ns[stream as usize].max(end_ns),
            Effect::StreamWait(stream) => {
                let free = &mut self.stream_free_ns[stream as usize];
                *free = (*free).max(self.mark_ns);
            }
            _ => {}
        }
        let op = self.innermost_op();
        if let Some((index, _, name)) = op {
            self.ops[self.thread as usize][index].calls_ns += dur_ns;
            self.ledger.op(name, false).launches += 1;
        }
        let external_id = op.map(|(_, external_id, _)| external_id);
        self.record_call(spec, (start_ns, end_ns), correlation, external_id);
    }

    fn record_call(&mut self, spec: &CallSpec, time: (i64, i64), correlation: i64, external_id: Option<i64>) {
        let (start_ns, dur_ns) = (time.0, time.1 - time.0);
        let shape = spec.shapes[usize::from(external_id.is_none())];
        let values = [external_id.unwrap_or(0), correlation, 0];
        self.records.gpu.push(Record { shape, start_ns, dur_ns, values });
        self.push_flow(spec.flow_shape, start_ns, correlation);
        if let Some(shape) = spec.sync_shape {
            self.records.gpu.push(Record { shape, start_ns, dur_ns, values });
        }
        self.ledger.call(spec.name, time);
    }

    fn push_flow(&mut self, shape: u32, start_ns: i64, correlation: i64) {
        self.records.gpu.push(Record { shape, start_ns, dur_ns: 0, values: [correlation, 0, 0] });
    }

    /// A call on the watchdog's thread at about this time.
    pub(super) fn background(&mut self, spec: &CallSpec) {
        let correlation = self.take_correlation();
        let dur_ns = self.rng.host(spec.dur_ns);
        let start_ns = self.now_ns().max(self.watchdog_ns + 1);
        self.watchdog_ns = start_ns + dur_ns;
        self.record_call(spec, (start_ns, start_ns + dur_ns), correlation, None);
    }

    /// Queues `count` units of work; more than one is a graph.
    fn launch(&mut self, first: u32, count: u32, correlation: i64, launched_ns: i64) {
        let library = self.library;
        let gap_ns = if count > 1 { GRAPH_GAP_NS } else { STREAM_GAP_NS };
        let op = self.innermost_op();
        for spec in &library.works[first as usize..(first + count) as usize] {
            let free_ns = self.stream_free_ns[spec.stream as usize] + self.rng.gpu(gap_ns);
            let start_ns = free_ns.max(launched_ns + LAUNCH_LATENCY_NS);
            let dur_ns = self.rng.gpu(spec.dur_ns);
            let mut end_ns = start_ns + dur_ns + dur_ns * self.variation.slower / 1024;
            if let Some(collective) = spec.collective {
                end_ns = self.collective_end_ns(collective, spec.dur_ns, (start_ns, dur_ns));
                self.collective_ends_ns[collective.number as usize] = end_ns - self.job_start_ns;
                self.collective_groups[collective.number as usize] = collective.group.number;
                end_ns += self.end_jitter_ns(collective.number);
                self.ledger.collective();
            }
            let link = op.map_or(Link::NoOp, |(.., name)| Link::Op(name));
            let number =
                self.collectives + i64::from(spec.collective.map_or(0, |collective| collective.number));
            let values = [op.map_or(0, |(_, external_id, _)| external_id), correlation, number];
            self.record_work(spec, (start_ns, end_ns), values, link);
            self.step_gpu_end_ns = self.step_gpu_end_ns.max(end_ns);
            self.step_gpu_ops += 1;
            self.note_gpu_work(spec.stream, start_ns, end_ns);
        }
    }

    /// When a collective ends that starts and would last as given, on its own; `mean_ns` is what it lasts
    /// in the mean.
    fn collective_end_ns(&self, collective: CollectiveArgs, mean_ns: u32, own: (i64, i64)) -> i64 {
        let number = collective.number;
        let is_of_host = collective.group.number == Group::OF_HOST;
        let factor = if is_of_host { self.variation.link_factor } else { 1 };
        let own_end_ns = own.0 + own.1 * factor;
        if let Some(meetings) = &self.meetings {
            let host = (self.variation.rank / GPUS) as usize;
            return own_end_ns.max(self.job_start_ns + meetings[number as usize][host]);
        }
        let Some(schedule) = &self.schedule else { return own_end_ns };
        let scheduled_ns = if is_of_host {
            schedule.host_collective_end_ns(self.step, number.saturating_sub(1), i64::from(mean_ns) * factor)
        } else {
            schedule.collective_end_ns(self.step, number)
        };
        own_end_ns.max(scheduled_ns)
    }

    /// By how much later than the others this rank leaves a collective.
    fn end_jitter_ns(&self, number: u32) -> i64 {
        let is_alone = self.schedule.is_none() && self.meetings.is_none();
        if is_alone { 0 } else { self.variation.job.end_jitter_ns(self.step, number, self.variation.rank) }
    }

    /// Adds work to what its operators and its annotation know of the GPU.
    fn note_gpu_work(&mut self, stream: Stream, start_ns: i64, end_ns: i64) {
        let library = self.library;
        let stack = &mut self.ops[self.thread as usize];
        if let Some(innermost) = stack.last_mut() {
            innermost.device_ns += end_ns - start_ns;
        }
        let mut open = stack.iter_mut().rev();
        if let Some(annotation) = open.find(|op| library.ops[op.spec as usize].is_annotation) {
            let extent = &mut annotation.gpu_extent[stream as usize];
            *extent = Some(
                extent.map_or((start_ns, end_ns), |(start, end)| (start.min(start_ns), end.max(end_ns))),
            );
        }
    }

    /// Work that an earlier, unrecorded launch left on the compute stream: no launch, no operator.
    pub(crate) fn leftover(&mut self, work: u32) {
        let correlation = self.next_correlation - 40_000 + i64::from(work);
        let spec = &self.library.works[work as usize];
        let start_ns = self.stream_free_ns[spec.stream as usize] + self.rng.gpu(STREAM_GAP_NS);
        let end_ns = start_ns + self.rng.gpu(spec.dur_ns);
        self.record_work(spec, (start_ns, end_ns), [0, correlation, 0], Link::NoLaunch);
    }

    fn record_work(&mut self, spec: &WorkSpec, time: (i64, i64), values: [i64; 3], link: Link) {
        let (start_ns, dur_ns) = (time.0, time.1 - time.0);
        let shape = spec.shapes[usize::from(!matches!(link, Link::Op(_)))];
        self.stream_free_ns[spec.stream as usize] = time.1;
        self.records.gpu.push(Record { shape, start_ns, dur_ns, values });
        self.push_flow(spec.flow_shape, start_ns, values[1]);
        self.ledger.gpu(spec.role, spec.name, time, link);
    }
}
