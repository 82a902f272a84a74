//! Where the time of a step went.
//!
//! At each instant of a step the first of seven activities that runs counts, on any GPU and on each by
//! itself; what is left is `other`. Each part is what its activity covers of the time that the ones before
//! left over, so the parts are disjoint and sum to the step.

use super::gpu::CopyKinds;
use super::gpus::Gpus;
use super::names::Activity;
use super::order::Extents;
use super::steps::StepSpan;
use super::{NONE, side_by_side};
use crate::schema::{Table, Tables};
use crate::tracks::TrackTable;

/// Number of activities of GPUs: kernel, memcpy, memset, communication.
const OF_GPU: usize = 4;

/// Number of activities of the host: runtime, dataloader, cpu exec.
const OF_HOST: usize = 3;

const ACTIVITIES: usize = OF_GPU + OF_HOST;

/// Time of each activity in order of priority, then the rest, ns.
pub(super) type Parts = [i64; ACTIVITIES + 1];

/// Parts of a step in order of priority.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Kernel,
    Memcpy,
    Memset,
    Communication,
    Runtime,
    DataLoader,
    CpuExec,
}

/// What decides the part of a step that a row counts as.
pub(super) struct Activities<'a> {
    pub(super) tables: &'a Tables,
    /// What each op does and the op around it, by index.
    pub(super) ops: Nested<'a>,
    /// The same of each range.
    pub(super) ranges: Nested<'a>,
    pub(super) is_communication: &'a [bool],
    pub(super) kinds: CopyKinds,
}

/// What rows do, and the indices of the rows around them.
type Nested<'a> = (&'a [Option<Activity>], &'a [u32]);

/// The parts of each step: of all GPUs as one, and of each GPU.
pub(super) struct Breakdown {
    pub(super) anywhere: Vec<Parts>,
    /// In the order of the GPUs; empty if there is none.
    pub(super) on_gpus: Vec<Vec<Parts>>,
}

impl Activities<'_> {
    /// The breakdown of each step.
    pub(super) fn breakdown(
        &self,
        spans: &[StepSpan],
        gpus: &Gpus,
        tracks: &TrackTable,
        is_parallel: bool,
    ) -> Breakdown {
        let bounds: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
        let (of_gpus, of_host) =
            side_by_side(is_parallel, || self.gpu_work(|_| true), || self.host_work(|_| true));
        let anywhere = step_parts(&bounds, &both(&of_gpus, &of_host));
        let count = gpus.gpus.len();
        if count < 2 {
            return Breakdown { on_gpus: vec![anywhere.clone(); count], anywhere };
        }
        // Processes that share GPUs, and those that have none, are the host of several.
        let mut hosts = vec![(vec![true; tracks.len()], of_host)];
        let of_gpu = |gpu| {
            let own = gpus.host_tracks(gpu, tracks);
            let known = hosts.iter().position(|(tracks, _)| *tracks == own).unwrap_or_else(|| {
                let host = self.host_work(|track| own[track as usize]);
                hosts.push((own, host));
                hosts.len() - 1
            });
            step_parts(&bounds, &both(&self.gpu_work(|work| gpus.runs_on(gpu, work)), &hosts[known].1))
        };
        Breakdown { on_gpus: (0..count).map(of_gpu).collect(), anywhere }
    }

    /// When GPU work of each activity ran, of the work that `is_own` takes by its index.
    fn gpu_work(&self, is_own: impl Fn(u32) -> bool) -> [Intervals; OF_GPU] {
        let mut unions: [Intervals; OF_GPU] = Default::default();
        let gpu_ops = &self.tables.gpu_ops;
        let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
        for (index, &communicates) in (0..gpu_ops.len() as u32).zip(self.is_communication) {
            if !is_own(index) {
                continue;
            }
            let part = match gpu_ops.kind.get(index as usize) {
                kind if kind.is_some() && kind == self.kinds.memcpy => Part::Memcpy,
                kind if kind.is_some() && kind == self.kinds.memset => Part::Memset,
                _ if communicates => Part::Communication,
                _ => Part::Kernel,
            };
            add(&mut unions[part as usize], extents.of(index));
        }
        unions.map(finish)
    }

    /// When the host was at each activity, on the tracks that `is_own` takes. A mark takes no time and adds
    /// none.
    fn host_work(&self, is_own: impl Fn(u32) -> bool) -> [Intervals; OF_HOST] {
        let mut unions: [Intervals; OF_HOST] = Default::default();
        let Tables { ops, ranges, launches, .. } = self.tables;
        add_nested(Extents::new(&ops.start_ns, &ops.dur_ns), self.ops, &mut unions, |op| {
            is_own(ops.track.values()[op])
        });
        add_nested(Extents::new(&ranges.start_ns, &ranges.dur_ns), self.ranges, &mut unions, |range| {
            is_own(ranges.track.values()[range])
        });
        let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
        let calls = &mut unions[Part::Runtime as usize - OF_GPU];
        for (call, &track) in (0..launches.len() as u32).zip(launches.track.values()) {
            if is_own(track) {
                add(calls, extents.of(call));
            }
        }
        unions.map(finish)
    }
}

/// The activities of GPUs and host in order of priority.
fn both<'a>(
    of_gpus: &'a [Intervals; OF_GPU],
    of_host: &'a [Intervals; OF_HOST],
) -> [&'a [(i64, i64)]; ACTIVITIES] {
    let [kernel, memcpy, memset, communication] = of_gpus.each_ref().map(Vec::as_slice);
    let [runtime, dataloader, cpu_exec] = of_host.each_ref().map(Vec::as_slice);
    [kernel, memcpy, memset, communication, runtime, dataloader, cpu_exec]
}

/// Adds the ops or ranges that are taken, without those that lie in one of the same or of a higher priority.
fn add_nested(
    extents: Extents<'_>,
    (activities, parents): Nested<'_>,
    unions: &mut [Intervals; OF_HOST],
    is_own: impl Fn(usize) -> bool,
) {
    for (row, (&activity, &parent)) in (0..).zip(activities.iter().zip(parents)) {
        let Some(part) = host_part(activity).filter(|_| is_own(row as usize)) else { continue };
        let around = if parent == NONE { None } else { host_part(activities[parent as usize]) };
        if around.is_none_or(|around| (part as usize) < around as usize) {
            add(&mut unions[part as usize - OF_GPU], extents.of(row));
        }
    }
}

/// The part of a step that an op, annotation or range counts as; none if it marks a step.
///
/// Ops of collectives start communication, or wait for it: the host executes them as others.
fn host_part(activity: Option<Activity>) -> Option<Part> {
    match activity {
        Some(Activity::Step) => None,
        Some(Activity::DataLoading) => Some(Part::DataLoader),
        _ => Some(Part::CpuExec),
    }
}

/// Intervals on their way to a union of them: sorted, disjoint and not empty once they are finished.
type Intervals = Vec<(i64, i64)>;

/// Adds an interval; an empty one adds nothing.
#[inline]
fn add(intervals: &mut Intervals, (start, end): (i64, i64)) {
    match intervals.last_mut() {
        _ if end <= start => {}
        // Most sources are nearly in order: merging here keeps the list short.
        Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
        _ => intervals.push((start, end)),
    }
}

/// The intervals in order, those that overlap or touch as one.
fn finish(mut intervals: Intervals) -> Intervals {
    // What was added in order is disjoint already.
    if !intervals.is_sorted() {
        intervals.sort_unstable();
        intervals.dedup_by(|next, last| {
            let is_one = next.0 <= last.1;
            if is_one {
                last.1 = last.1.max(next.1);
            }
            is_one
        });
    }
    intervals
}

/// The parts of each of `steps`, which are `(start, end)` in order and do not overlap.
///
/// `activities` are the instants at which each activity runs, on any thread, stream or device, as
/// finished unions.
fn step_parts(steps: &[(i64, i64)], activities: &[&[(i64, i64)]; ACTIVITIES]) -> Vec<Parts> {
    // What lies before a step is passed over once; one step after the other, what is left of it stays
    // in the caches.
    let mut waiting = *activities;
    let (mut left, mut rest) = (Vec::new(), Vec::new());
    let of_step = |&(start, end): &(i64, i64)| {
        let mut parts = Parts::default();
        left.clear();
        if start < end {
            left.push((start, end));
        }
        for (running, part) in waiting.iter_mut().zip(&mut parts) {
            let before = running.partition_point(|interval| interval.1 <= start);
            *running = &running[before..];
            if running.first().is_some_and(|interval| interval.0 < end) {
                rest.clear();
                *part = take(&left, running, &mut rest);
                std::mem::swap(&mut left, &mut rest);
            }
        }
        parts[ACTIVITIES] =
            left.iter().fold(0, |sum: i64, part| sum.saturating_add(part.1.saturating_sub(part.0)));
        parts
    };
    steps.iter().map(of_step).collect()
}

/// What `running` covers of `left`, in all; the others of `left` go to `rest`.
fn take(left: &[(i64, i64)], running: &[(i64, i64)], rest: &mut Vec<(i64, i64)>) -> i64 {
    let mut taken: i64 = 0;
    let mut at = 0;
    for &(start, end) in left {
        let mut from = start;
        while let Some(&(begin, stop)) = running.get(at)
            && begin < end
        {
            if stop > from {
                if begin > from {
                    rest.push((from, begin));
                }
                taken = taken.saturating_add(stop.min(end).saturating_sub(begin.max(from)));
                from = stop;
            }
            // One that goes on may cover of the next part, too.
            if stop > end {
                break;
            }
            at += 1;
        }
        if from < end {
            rest.push((from, end));
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::{ACTIVITIES, Intervals, Parts, add, finish, step_parts};
    use proptest::prelude::*;

    fn union(intervals: Intervals) -> Intervals {
        let mut union = Intervals::default();
        intervals.into_iter().for_each(|interval| add(&mut union, interval));
        finish(union)
    }

    #[test]
    fn intervals_that_touch_are_one_in_any_order() {
        assert_eq!(union(vec![(5, 9), (1, 3), (3, 4), (7, 7), (6, 12)]), [(1, 4), (5, 12)]);
        assert_eq!(union(vec![(1, 3), (2, 9), (4, 5), (9, 10)]), [(1, 10)]);
        assert!(union(vec![(3, 3), (9, 2)]).is_empty());
    }

    #[test]
    fn a_step_that_kernels_cover_leaves_nothing_to_the_rest() {
        let activities =
            [vec![(0, 100)], vec![(10, 20)], vec![], vec![], vec![(5, 10)], vec![], vec![(0, 35)]];
        let parts = step_parts(&[(0, 100)], &activities.map(union).each_ref().map(Vec::as_slice));
        assert_eq!(parts, [[100, 0, 0, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn one_interval_counts_in_every_step_it_touches() {
        let mut activities: [Intervals; ACTIVITIES] = Default::default();
        activities[0] = union(vec![(5, 25)]);
        let parts =
            step_parts(&[(0, 10), (10, 10), (10, 20), (22, 30)], &activities.each_ref().map(Vec::as_slice));
        assert_eq!(parts.iter().map(|p| p[0]).collect::<Vec<_>>(), [5, 0, 10, 3]);
        assert_eq!(parts.iter().map(|p| p[ACTIVITIES]).collect::<Vec<_>>(), [5, 0, 0, 5]);
    }

    proptest! {
        #[test]
        fn equals_counting_instants(
            lengths in proptest::collection::vec((0i64..4, 0i64..12), 1..5),
            activities in proptest::collection::vec(
                proptest::collection::vec((0i64..60, 0i64..20).prop_map(|(s, l)| (s, s + l)), 0..5),
                ACTIVITIES,
            ),
        ) {
            let mut at = 0;
            let steps: Vec<(i64, i64)> = lengths.iter().map(|&(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, at)
            }).collect();
            let unions: [Intervals; ACTIVITIES] = std::array::from_fn(|i| union(activities[i].clone()));
            let parts = step_parts(&steps, &unions.each_ref().map(Vec::as_slice));
            for (step, parts) in steps.iter().zip(&parts) {
                let mut expected = Parts::default();
                for t in step.0..step.1 {
                    let first = activities.iter().position(|a| a.iter().any(|i| i.0 <= t && t < i.1));
                    expected[first.unwrap_or(ACTIVITIES)] += 1;
                }
                prop_assert_eq!(parts, &expected);
                prop_assert_eq!(parts.iter().sum::<i64>(), step.1 - step.0);
            }
        }
    }
}
