//! Keeps the truth while events are made, in memory that does not grow with their number.

use crate::truth::{GpuTotals, OpTotals, StepTruth, Truth};
use std::collections::{BTreeMap, VecDeque};

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
            _ if name.starts_with("nccl:") => Some(Self::Communication),
            _ if name.starts_with("enumerate(DataLoader)#") => Some(Self::DataLoader),
            _ => Some(Self::CpuExec),
        }
    }
}

const ROLES: usize = 7;

/// Kinds of events, as `ph` and `cat` tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    CpuOp,
    UserAnnotation,
    GpuUserAnnotation,
    Kernel,
    Memcpy,
    Memset,
    Runtime,
    Driver,
    Sync,
    Python,
    Memory,
    LaunchFlowStart,
    LaunchFlowEnd,
    BackwardFlowStart,
    BackwardFlowEnd,
    Overhead,
    Span,
    Instant,
    Metadata,
}

/// Name and table of each kind, in the order of [`EventKind`].
const KINDS: [(&str, &str); 19] = [
    ("X cpu_op", "ops"),
    ("X user_annotation", "ops"),
    ("X gpu_user_annotation", "gpu_annotations"),
    ("X kernel", "gpu_ops"),
    ("X gpu_memcpy", "gpu_ops"),
    ("X gpu_memset", "gpu_ops"),
    ("X cuda_runtime", "launches"),
    ("X cuda_driver", "launches"),
    ("X cuda_sync", "syncs"),
    ("X python_function", "python"),
    ("i cpu_instant_event", "memory"),
    ("s ac2g", "flows"),
    ("f ac2g", "flows"),
    ("s fwdbwd", "flows"),
    ("f fwdbwd", "flows"),
    ("X overhead", "spans"),
    ("X Trace", "spans"),
    ("i", "instants"),
    ("M", "metadata"),
];

/// A step whose end is known but not yet all that runs until then.
#[derive(Clone, Debug)]
struct Pending {
    truth: StepTruth,
    end_ns: i64,
}

/// The running totals.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    counts: [u64; KINDS.len()],
    collective_rows: u64,
    ops: Vec<OpTotals>,
    annotations: Vec<OpTotals>,
    kernels: Vec<GpuTotals>,
    memcpys: Vec<GpuTotals>,
    memsets: Vec<GpuTotals>,
    launches: Vec<GpuTotals>,
    gpu_ops: [u64; 3],
    pairs: u64,
    intervals: [Vec<Interval>; ROLES],
    all_kernels: Vec<Interval>,
    collective_ops: Vec<Interval>,
    pending: VecDeque<Pending>,
    done: Vec<StepTruth>,
    step_end_ns: Option<i64>,
    finished_ns: Option<i64>,
    kernel_busy_ns: i64,
    peak_device_bytes: i64,
}

/// Entry of a name in a table that grows with the names in use.
fn entry<T: Clone + Default>(totals: &mut Vec<T>, name: u32) -> &mut T {
    let index = name as usize;
    if totals.len() <= index {
        totals.resize(index + 1, T::default());
    }
    &mut totals[index]
}

/// The totals of the names in use.
fn by_name<T: Copy + Default + PartialEq>(totals: &[T], names: &[String]) -> BTreeMap<String, T> {
    let used = names.iter().zip(totals).filter(|(_, totals)| **totals != T::default());
    used.map(|(name, totals)| (name.clone(), *totals)).collect()
}

/// What each union covers of the window and none before it does, and what is left.
fn subtract_in_turn(window: Interval, unions: &[Vec<Interval>; ROLES]) -> [i64; ROLES + 1] {
    let mut free = vec![window];
    free.retain(|(start, end)| start < end);
    let mut parts = [0; ROLES + 1];
    for (part, union) in parts.iter_mut().zip(unions) {
        let rest = subtract(&free, union);
        *part = length(&free) - length(&rest);
        free = rest;
    }
    parts[ROLES] = length(&free);
    parts
}

/// How a unit of GPU work is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Op(u32),
    NoOp,
    NoLaunch,
}

impl Ledger {
    /// Counts events of a kind.
    pub(crate) fn count(&mut self, kind: EventKind, number: u64) {
        self.counts[kind as usize] += number;
    }

    /// Number of events so far.
    pub(crate) fn events(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts a row of the collectives.
    pub(crate) fn collective(&mut self) {
        self.collective_rows += 1;
    }

    /// Counts a pair of forward and backward operators.
    pub(crate) fn pair(&mut self) {
        self.pairs += 1;
    }

    /// Notes that an activity covers an interval.
    pub(crate) fn cover(&mut self, role: Role, interval: Interval) {
        self.intervals[role as usize].push(interval);
    }

    /// Notes that the host is inside an operator that stands for a collective.
    pub(crate) fn cover_collective_op(&mut self, interval: Interval) {
        self.collective_ops.push(interval);
    }

    /// Totals of an operator's or annotation's name.
    pub(crate) fn op(&mut self, name: u32, is_annotation: bool) -> &mut OpTotals {
        entry(if is_annotation { &mut self.annotations } else { &mut self.ops }, name)
    }

    /// Books a runtime call.
    pub(crate) fn call(&mut self, name: u32, interval: Interval) {
        entry(&mut self.launches, name).add(interval.1 - interval.0);
        self.cover(Role::Runtime, interval);
    }

    /// Books a unit of GPU work.
    pub(crate) fn gpu(
        &mut self,
        kind: EventKind,
        name: u32,
        interval: Interval,
        collective: bool,
        link: Link,
    ) {
        let (totals, role) = match kind {
            EventKind::Memcpy => (&mut self.memcpys, Role::Memcpy),
            EventKind::Memset => (&mut self.memsets, Role::Memset),
            _ if collective => (&mut self.kernels, Role::Communication),
            _ => (&mut self.kernels, Role::Kernel),
        };
        let dur_ns = interval.1 - interval.0;
        entry(totals, name).add(dur_ns);
        self.cover(role, interval);
        self.count(kind, 1);
        if kind == EventKind::Kernel {
            self.all_kernels.push(interval);
        }
        match link {
            Link::Op(op) => {
                self.gpu_ops[0] += 1;
                let op = self.op(op, false);
                op.gpu_ops += 1;
                op.device_self_ns += dur_ns;
            }
            Link::NoOp => self.gpu_ops[1] += 1,
            Link::NoLaunch => self.gpu_ops[2] += 1,
        }
    }

    /// Notes how much device memory is in use.
    pub(crate) fn device_bytes(&mut self, bytes: i64) {
        self.peak_device_bytes = self.peak_device_bytes.max(bytes);
    }

    /// Books a step: its annotation, and the end of the last GPU work that it launched.
    pub(crate) fn step(&mut self, step: u64, host: Interval, gpu_end_ns: Option<i64>, gpu_ops: u64) {
        let start_ns = self.step_end_ns.map_or(host.0, |end| end.max(host.0));
        let end_ns = gpu_end_ns.map_or(host.1, |end| end.max(host.1)).max(start_ns);
        self.step_end_ns = Some(end_ns);
        let truth = StepTruth {
            step,
            host_start_ns: host.0,
            host_dur_ns: host.1 - host.0,
            start_ns,
            total_ns: end_ns - start_ns,
            gpu_ops,
            ..StepTruth::default()
        };
        self.pending.push_back(Pending { truth, end_ns });
    }

    /// Breaks down the steps that end by `now_ns`: all that starts before is booked.
    pub(crate) fn settle(&mut self, now_ns: i64) {
        while self.pending.front().is_some_and(|step| step.end_ns <= now_ns) {
            if let Some(step) = self.pending.pop_front() {
                let end_ns = step.end_ns;
                let truth = self.break_down(&step);
                self.done.push(truth);
                for intervals in &mut self.intervals {
                    intervals.retain(|interval| interval.1 > end_ns);
                }
                self.collective_ops.retain(|interval| interval.1 > end_ns);
            }
        }
    }

    fn break_down(&mut self, step: &Pending) -> StepTruth {
        let window = (step.truth.start_ns, step.end_ns);
        self.count_busy((self.finished_ns.unwrap_or(window.0), window.1));
        let unions = self.intervals.each_ref().map(|intervals| union_within(intervals, window));
        let mut truth = StepTruth { parts: subtract_in_turn(window, &unions), ..step.truth.clone() };
        let mut widened = unions;
        let communication = &mut widened[Role::Communication as usize];
        communication.extend_from_slice(&self.collective_ops);
        *communication = union_within(communication, window);
        truth.parts_with_collective_ops = subtract_in_turn(window, &widened);
        truth
    }

    /// Adds the time during which kernels run, from the end of the step before.
    fn count_busy(&mut self, window: Interval) {
        self.kernel_busy_ns += length(&union_within(&self.all_kernels, window));
        self.all_kernels.retain(|interval| interval.1 > window.1);
        self.finished_ns = Some(window.1);
    }

    /// The truth of the whole trace, by name.
    pub(crate) fn into_truth(mut self, names: &[String]) -> Truth {
        self.settle(i64::MAX);
        let mut truth = Truth {
            events: self.events(),
            kernel_busy_ns: self.kernel_busy_ns,
            kernels: by_name(&self.kernels, names),
            memcpys: by_name(&self.memcpys, names),
            memsets: by_name(&self.memsets, names),
            launches: by_name(&self.launches, names),
            ops: by_name(&self.ops, names),
            annotations: by_name(&self.annotations, names),
            gpu_ops_with_op: self.gpu_ops[0],
            gpu_ops_without_op: self.gpu_ops[1],
            gpu_ops_without_launch: self.gpu_ops[2],
            forward_backward_pairs: self.pairs,
            peak_device_bytes: self.peak_device_bytes,
            ..Truth::default()
        };
        for ((kind, table), count) in KINDS.into_iter().zip(self.counts) {
            truth.events_by_kind.insert(kind, count);
            *truth.tables.entry(table).or_default() += count;
        }
        truth.tables.insert("collectives", self.collective_rows);
        truth.tables.insert("steps", self.done.len() as u64);
        truth.steps = self.done;
        truth
    }
}

/// From the first bound up to, not including, the second.
pub(crate) type Interval = (i64, i64);

/// Parts of `intervals` inside `window`, merged where they touch or overlap.
pub(crate) fn union_within(intervals: &[Interval], window: Interval) -> Vec<Interval> {
    let clipped = intervals.iter().map(|&(start, end)| (start.max(window.0), end.min(window.1)));
    let mut clipped: Vec<Interval> = clipped.filter(|(start, end)| start < end).collect();
    clipped.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(clipped.len());
    for (start, end) in clipped {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Time in `free` that no interval of `taken` covers; both sorted and disjoint.
pub(crate) fn subtract(free: &[Interval], taken: &[Interval]) -> Vec<Interval> {
    let mut rest = Vec::with_capacity(free.len() + taken.len());
    let mut next = 0;
    for &(mut start, end) in free {
        while next < taken.len() && taken[next].1 <= start {
            next += 1;
        }
        let mut index = next;
        while index < taken.len() && taken[index].0 < end {
            if start < taken[index].0 {
                rest.push((start, taken[index].0));
            }
            start = taken[index].1;
            index += 1;
        }
        if start < end {
            rest.push((start, end));
        }
    }
    rest
}

/// Sum of the lengths.
pub(crate) fn length(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

#[cfg(test)]
mod tests {
    use super::{EventKind, Ledger, Link, Role, length, subtract, union_within};

    #[test]
    fn parts_follow_priority_and_sum_to_the_step() {
        let mut ledger = Ledger::default();
        let kernel = |ledger: &mut Ledger, interval, collective| {
            ledger.gpu(EventKind::Kernel, 0, interval, collective, Link::NoOp);
        };
        ledger.cover(Role::CpuExec, (100, 190));
        ledger.cover(Role::Runtime, (120, 130));
        kernel(&mut ledger, (125, 150), false);
        kernel(&mut ledger, (140, 160), true);
        kernel(&mut ledger, (195, 230), false);
        ledger.cover_collective_op((115, 128));
        ledger.step(4, (90, 200), Some(230), 3);
        ledger.cover(Role::CpuExec, (205, 240));
        ledger.step(5, (201, 250), None, 0);
        let truth = ledger.into_truth(&["kernel".to_owned()]);
        let parts: Vec<_> = truth.steps.iter().map(|step| step.parts).collect();
        assert_eq!(parts[0], [60, 0, 0, 10, 5, 0, 50, 15]);
        assert_eq!(truth.steps[0].parts_with_collective_ops, [60, 0, 0, 20, 0, 0, 45, 15]);
        assert_eq!(parts[1], [0, 0, 0, 0, 0, 0, 10, 10], "starts where the first step's kernel ends");
        assert_eq!((truth.steps[1].start_ns, truth.steps[1].total_ns), (230, 20));
        assert_eq!(truth.kernel_busy_ns, 25 + 35 + 10);
    }

    #[test]
    fn a_union_merges_and_clips() {
        let merged = union_within(&[(5, 9), (0, 3), (3, 4), (8, 20), (30, 40)], (1, 12));
        assert_eq!(merged, [(1, 4), (5, 12)]);
        assert_eq!(length(&merged), 10);
    }

    #[test]
    fn what_is_subtracted_leaves_the_rest() {
        let free = [(0, 10), (20, 30), (40, 50)];
        assert_eq!(subtract(&free, &[(2, 4), (8, 25), (45, 60)]), [(0, 2), (4, 8), (25, 30), (40, 45)]);
        assert_eq!(subtract(&free, &[]), free);
        assert_eq!(subtract(&free, &[(0, 50)]), []);
    }
}
