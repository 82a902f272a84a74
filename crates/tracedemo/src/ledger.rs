//! Keeps the truth while events are made, in memory that does not grow with their number.

use crate::library::Role;
use crate::truth::{GpuTotals, OpTotals, StepTruth, Truth};
use std::collections::{BTreeMap, HashMap, VecDeque};

const ROLES: usize = 7;

/// The running totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// What needs no name.
    pub(crate) truth: Truth,
    ops: ByName<OpTotals>,
    annotations: ByName<OpTotals>,
    kernels: ByName<GpuTotals>,
    memcpys: ByName<GpuTotals>,
    memsets: ByName<GpuTotals>,
    launches: ByName<GpuTotals>,
    intervals: [Vec<Interval>; ROLES],
    all_kernels: Vec<Interval>,
    /// Steps whose end is known but not yet all that runs until then.
    pending: VecDeque<StepTruth>,
    step_end_ns: Option<i64>,
    finished_ns: Option<i64>,
}

/// Totals by number of the name.
type ByName<T> = HashMap<u32, T>;

fn by_name<T>(totals: ByName<T>, names: &[&String]) -> BTreeMap<String, T> {
    totals.into_iter().map(|(name, totals)| (names[name as usize].clone(), totals)).collect()
}

/// How a unit of GPU work is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Op(u32),
    NoOp,
    NoLaunch,
}

impl Ledger {
    pub(crate) fn collective(&mut self) {
        *self.truth.tables.entry("collectives").or_default() += 1;
    }

    /// Notes that an activity covers an interval.
    pub(crate) fn cover(&mut self, role: Role, interval: Interval) {
        self.intervals[role as usize].push(interval);
    }

    /// Totals of an operator's or annotation's name.
    pub(crate) fn op(&mut self, name: u32, is_annotation: bool) -> &mut OpTotals {
        let totals = if is_annotation { &mut self.annotations } else { &mut self.ops };
        totals.entry(name).or_default()
    }

    /// Books a runtime call.
    pub(crate) fn call(&mut self, name: u32, interval: Interval) {
        self.launches.entry(name).or_default().add(interval.1 - interval.0);
        self.cover(Role::Runtime, interval);
    }

    /// Books a unit of GPU work.
    pub(crate) fn gpu(&mut self, role: Role, name: u32, interval: Interval, link: Link) {
        let totals = match role {
            Role::Memcpy => &mut self.memcpys,
            Role::Memset => &mut self.memsets,
            _ => {
                self.all_kernels.push(interval);
                &mut self.kernels
            }
        };
        let dur_ns = interval.1 - interval.0;
        totals.entry(name).or_default().add(dur_ns);
        self.cover(role, interval);
        match link {
            Link::Op(op) => {
                self.truth.gpu_ops_with_op += 1;
                let op = self.op(op, false);
                op.gpu_ops += 1;
                op.device_self_ns += dur_ns;
            }
            Link::NoOp => self.truth.gpu_ops_without_op += 1,
            Link::NoLaunch => self.truth.gpu_ops_without_launch += 1,
        }
    }

    /// Books a step: its annotation, and the end of the GPU work that it launched.
    pub(crate) fn step(&mut self, step: u64, host: Interval, gpu_end_ns: i64, gpu_ops: u64) {
        let start_ns = self.step_end_ns.map_or(host.0, |end| end.max(host.0));
        let end_ns = gpu_end_ns.max(host.1).max(start_ns);
        self.step_end_ns = Some(end_ns);
        self.pending.push_back(StepTruth {
            step,
            host_start_ns: host.0,
            host_dur_ns: host.1 - host.0,
            start_ns,
            total_ns: end_ns - start_ns,
            gpu_ops,
            ..StepTruth::default()
        });
    }

    /// Breaks down the steps that end by `now_ns`: all that starts before is booked.
    pub(crate) fn settle(&mut self, now_ns: i64) {
        while self.pending.front().is_some_and(|step| step.start_ns + step.total_ns <= now_ns)
            && let Some(mut step) = self.pending.pop_front()
        {
            let window = (step.start_ns, step.start_ns + step.total_ns);
            // Kernels run from the end of the step before.
            let busy = (self.finished_ns.unwrap_or(window.0), window.1);
            self.truth.kernel_busy_ns += length(&union_within(&self.all_kernels, busy));
            self.finished_ns = Some(window.1);
            step.parts = self.break_down(window);
            self.truth.steps.push(step);
            for intervals in self.intervals.iter_mut().chain([&mut self.all_kernels]) {
                intervals.retain(|interval| interval.1 > window.1);
            }
        }
    }

    /// What each role covers of the window and none before it does, and what is left.
    fn break_down(&self, window: Interval) -> [i64; ROLES + 1] {
        let mut parts = [0; ROLES + 1];
        let (mut covered, mut covered_ns) = (Vec::new(), 0);
        for (role, intervals) in self.intervals.iter().enumerate() {
            covered.extend_from_slice(intervals);
            covered = union_within(&covered, window);
            parts[role] = length(&covered) - covered_ns;
            covered_ns += parts[role];
        }
        parts[ROLES] = window.1 - window.0 - covered_ns;
        parts
    }

    /// The truth of the whole trace, by name.
    pub(crate) fn into_truth(mut self, names: &[&String]) -> Truth {
        self.settle(i64::MAX);
        let mut truth = self.truth;
        truth.tables.entry("collectives").or_default();
        truth.tables.insert("steps", truth.steps.len() as u64);
        Truth {
            kernels: by_name(self.kernels, names),
            memcpys: by_name(self.memcpys, names),
            memsets: by_name(self.memsets, names),
            launches: by_name(self.launches, names),
            ops: by_name(self.ops, names),
            annotations: by_name(self.annotations, names),
            ..truth
        }
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

pub(crate) fn length(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Link, Role, length, union_within};

    #[test]
    fn parts_follow_priority_and_sum_to_the_step() {
        let mut ledger = Ledger::default();
        let kernel = |ledger: &mut Ledger, interval, role| ledger.gpu(role, 0, interval, Link::NoOp);
        ledger.cover(Role::CpuExec, (100, 190));
        ledger.cover(Role::Runtime, (120, 130));
        kernel(&mut ledger, (125, 150), Role::Kernel);
        kernel(&mut ledger, (140, 160), Role::Communication);
        kernel(&mut ledger, (195, 230), Role::Kernel);
        ledger.step(4, (90, 200), 230, 3);
        ledger.cover(Role::CpuExec, (205, 240));
        ledger.step(5, (201, 250), 0, 0);
        let truth = ledger.into_truth(&[&"kernel".to_owned()]);
        let parts: Vec<_> = truth.steps.iter().map(|step| step.parts).collect();
        assert_eq!(parts[0], [60, 0, 0, 10, 5, 0, 50, 15]);
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
}
