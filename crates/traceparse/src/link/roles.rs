//! Which activity each row counts as in the breakdown of steps.

use super::extents::Extents;
use super::gpu::CopyKinds;
use super::names::Activity;
use super::op_tree::OpTree;
use super::steps::StepSpan;
use super::{NONE, side_by_side};
use crate::breakdown::{ACTIVITIES, Parts, Union, step_parts};
use crate::schema::{Table, Tables};

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

/// What decides the activity of a row.
pub(super) struct Activities<'a> {
    pub(super) tables: &'a Tables,
    /// What each op does, by index.
    pub(super) ops: &'a [Option<Activity>],
    /// What each range does, by index.
    pub(super) ranges: &'a [Option<Activity>],
    pub(super) tree: &'a OpTree,
    /// Enclosing range of each range, by index.
    pub(super) range_parents: &'a [u32],
    pub(super) is_communication: &'a [bool],
    pub(super) kinds: CopyKinds,
}

impl Activities<'_> {
    /// The breakdown of each step.
    pub(super) fn breakdown(&self, spans: &[StepSpan], is_parallel: bool) -> Vec<Parts> {
        let bounds: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
        let (of_gpu, of_host) = side_by_side(is_parallel, || self.gpu_work(), || self.host_work());
        let mut of_host = of_host.into_iter();
        let both = of_gpu.map(|of_gpu| Union::of_both(of_gpu, of_host.next().unwrap_or_default()));
        step_parts(&bounds, &both)
    }

    /// When GPU work of each activity ran.
    fn gpu_work(&self) -> [Vec<(i64, i64)>; ACTIVITIES] {
        let mut unions: [Union; ACTIVITIES] = Default::default();
        self.add_gpu_ops(&mut unions);
        unions.map(Union::finish)
    }

    /// When the host was at each activity.
    fn host_work(&self) -> [Vec<(i64, i64)>; ACTIVITIES] {
        let mut unions: [Union; ACTIVITIES] = Default::default();
        self.add_ops(&mut unions);
        self.add_ranges(&mut unions);
        let launches = &self.tables.launches;
        let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
        let calls = &mut unions[Part::Runtime as usize];
        (0..launches.len() as u32).for_each(|call| calls.add(extents.of(call)));
        unions.map(Union::finish)
    }

    fn add_gpu_ops(&self, intervals: &mut [Union; ACTIVITIES]) {
        let gpu_ops = &self.tables.gpu_ops;
        let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
        for (index, &communicates) in (0..gpu_ops.len() as u32).zip(self.is_communication) {
            let part = match gpu_ops.kind.get(index as usize) {
                kind if kind.is_some() && kind == self.kinds.memcpy => Part::Memcpy,
                kind if kind.is_some() && kind == self.kinds.memset => Part::Memset,
                _ if communicates => Part::Communication,
                _ => Part::Kernel,
            };
            intervals[part as usize].add(extents.of(index));
        }
    }

    /// Adds ops and annotations, without those that lie in one of the same or of a higher priority.
    fn add_ops(&self, intervals: &mut [Union; ACTIVITIES]) {
        let ops = &self.tables.ops;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        for (op, &parent) in (0..ops.len() as u32).zip(&self.tree.parents) {
            let Some(part) = host_part(self.ops[op as usize]) else { continue };
            let around = if parent == NONE { None } else { host_part(self.ops[parent as usize]) };
            if around.is_none_or(|around| (part as usize) < around as usize) {
                intervals[part as usize].add(extents.of(op));
            }
        }
    }

    /// Adds NVTX ranges by the same rule. A mark takes no time and adds none.
    fn add_ranges(&self, intervals: &mut [Union; ACTIVITIES]) {
        let ranges = &self.tables.ranges;
        let extents = Extents::new(&ranges.start_ns, &ranges.dur_ns);
        for (range, &parent) in (0..ranges.len() as u32).zip(self.range_parents) {
            let Some(part) = host_part(self.ranges[range as usize]) else { continue };
            let around = if parent == NONE { None } else { host_part(self.ranges[parent as usize]) };
            if around.is_none_or(|around| (part as usize) < around as usize) {
                intervals[part as usize].add(extents.of(range));
            }
        }
    }
}

/// The part of a step that an op, annotation or range counts as; none if it marks a step.
fn host_part(activity: Option<Activity>) -> Option<Part> {
    match activity {
        Some(Activity::Step) => None,
        Some(Activity::DataLoading) => Some(Part::DataLoader),
        Some(Activity::Communication) => Some(Part::Communication),
        _ => Some(Part::CpuExec),
    }
}
