//! What a step is, and which rows belong to which.

use framekernels::interval::IntervalTree;
use hashbrown::{HashMap, HashSet};

use super::NONE;
use super::host_steps::{self, HostStep, HostSteps};
use super::names::Names;
use super::order::Extents;
use crate::options::ReadOptions;
use crate::schema::{Column, Launches, Symbol};
use crate::stats::{Code, Stats};
use crate::trace::Trace;
use crate::tracks::Ident;

/// A step with the GPU work it launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepSpan {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) is_partial: bool,
}

/// The steps of a trace, in order of start.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) hosts: Vec<HostStep>,
    /// How sure steps are that were found and not marked.
    pub(super) confidence: Option<f64>,
    index: IntervalTree,
    /// Per process, the parts of the steps that it marked itself; empty unless several processes did.
    by_process: HashMap<Ident, IntervalTree>,
    /// Process of each track, where `by_process` is used.
    processes: Vec<Ident>,
    /// Names of the annotations that mark steps, other than `ProfilerStep#N`.
    marks: HashSet<Symbol>,
}

impl Steps {
    /// The steps that annotations or NVTX ranges mark; without any, the whole trace as one step. `launch_of` has
    /// the launch of each piece of GPU work.
    pub(super) fn find(trace: &Trace, names: &Names, launch_of: &[u32], options: &ReadOptions) -> Self {
        let HostSteps { hosts, marks, confidence, by_process } =
            host_steps::find(trace, names, launch_of, options);
        let processes = if by_process.is_empty() { 0 } else { trace.tracks.len() as u32 };
        let processes = (0..processes).map(|track| trace.tracks.key(track).0).collect();
        let index = IntervalTree::new(hosts.iter().enumerate().map(|(i, s)| (s.start, s.end, i as u32)));
        Self { hosts, confidence, index, by_process, processes, marks }
    }

    /// The index of the steps as seen from a track.
    #[inline]
    fn index(&self, track: u32) -> &IntervalTree {
        if self.by_process.is_empty() {
            return &self.index;
        }
        let process = self.processes.get(track as usize);
        process.and_then(|process| self.by_process.get(process)).unwrap_or(&self.index)
    }

    /// The step that is marked for a track at an instant of the host; of several, the last to begin.
    #[inline]
    pub(super) fn at(&self, track: u32, instant: i64) -> u32 {
        self.index(track).innermost_at(instant).unwrap_or(NONE)
    }

    /// The step in which each call lies; [`NONE`] for calls that lie in none.
    pub(super) fn of_calls(&self, launches: &Launches) -> Vec<u32> {
        let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
        let calls = launches.track.values().iter().zip(0..);
        let step = |(&track, i): (&u32, u32)| {
            self.index(track).innermost(extents.start(i), extents.end(i)).unwrap_or(NONE)
        };
        calls.map(step).collect()
    }

    /// Whether ops and ranges of a name mark steps.
    pub(super) fn is_mark(&self, name: Option<Symbol>) -> bool {
        !self.marks.is_empty() && name.is_some_and(|name| self.marks.contains(&name))
    }

    /// The numbers of steps, as a column.
    pub(super) fn numbers(&self, steps: impl Iterator<Item = u32>) -> Column<i32> {
        steps.map(|step| self.hosts.get(step as usize).and_then(|s| s.number)).collect()
    }

    /// Extends each step by the GPU work that was launched in it.
    ///
    /// A step lasts until its work is done, and the next one begins no earlier. `work` yields start,
    /// end and step ([`NONE`] for none) of each piece of GPU work.
    pub(super) fn delimit(
        &self,
        work: impl Iterator<Item = (i64, i64, u32)> + Clone,
        stats: &mut Stats,
    ) -> Vec<StepSpan> {
        let overlaps = self.hosts.windows(2).filter(|pair| pair[1].start < pair[0].end).count();
        stats.note_many(Code::OverlappingSteps, overlaps as u64, None);
        let mut gpu = vec![GpuExtent { start: i64::MAX, end: i64::MIN, count: 0 }; self.hosts.len()];
        for (start, end, step) in work.clone() {
            if let Some(extent) = gpu.get_mut(step as usize) {
                (extent.start, extent.end) = (extent.start.min(start), extent.end.max(end));
                extent.count += 1;
            }
        }
        let mut previous_end = i64::MIN;
        // Nothing goes before a step that stands for the whole trace.
        let is_step = self.hosts.first().is_some_and(|step| step.number.is_some());
        if let Some(first) = gpu.first().filter(|extent| is_step && extent.count > 0) {
            let earlier = work.filter(|&(_, end, step)| step == NONE && end < first.start);
            previous_end = earlier.map(|(_, end, _)| end).max().unwrap_or(i64::MIN);
        }
        let mut spans = Vec::with_capacity(self.hosts.len());
        for (host, extent) in self.hosts.iter().zip(&gpu) {
            let start = host.start.max(previous_end);
            let end = host.end.max(extent.end).max(start);
            previous_end = end;
            spans.push(StepSpan { start, end, is_partial: false });
        }
        mark_partial(&mut spans, &gpu);
        spans
    }
}

/// Extent of the GPU work of one step.
#[derive(Clone)]
struct GpuExtent {
    start: i64,
    end: i64,
    count: u64,
}

/// A trace that ends early lacks GPU work of its last steps: those with none are partial, and so is
/// the last one with some if it has less than 80 % of the pieces that the step before it has.
fn mark_partial(spans: &mut [StepSpan], gpu: &[GpuExtent]) {
    let Some(last) = gpu.iter().rposition(|extent| extent.count > 0) else { return };
    for span in &mut spans[last + 1..] {
        span.is_partial = true;
    }
    if last > 0 && 10 * gpu[last].count < 8 * gpu[last - 1].count {
        spans[last].is_partial = true;
    }
}

/// The step of work that no call in the trace launched: the one that it begins in.
pub(super) fn step_on_gpu(spans: &[StepSpan], start: i64) -> u32 {
    // Spans follow one another: of those that began, only the last can still run.
    let last = spans.partition_point(|span| span.start <= start).checked_sub(1);
    last.filter(|&step| spans[step].end > start).map_or(NONE, |step| step as u32)
}
