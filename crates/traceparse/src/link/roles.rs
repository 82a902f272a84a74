//! Which activity each row counts as in the breakdown of steps.

use super::NONE;
use super::extents::Extents;
use super::gpu::CopyKinds;
use super::names::{Class, Names};
use super::op_tree::OpTree;
use super::steps::{StepSpan, Steps};
use crate::breakdown::{Parts, step_parts};
use crate::interval::IntervalSet;
use crate::schema::{Ops, Table, Tables};

/// What an op or annotation does for the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostRole {
    Step,
    Communication,
    DataLoader,
    CpuExec,
}

/// Everything that decides the activity of a row.
pub(super) struct Activities<'a> {
    pub(super) tables: &'a Tables,
    pub(super) names: &'a Names,
    pub(super) steps: &'a Steps,
    pub(super) tree: &'a OpTree,
    pub(super) is_communication: &'a [bool],
    pub(super) kinds: CopyKinds,
}

impl Activities<'_> {
    /// The breakdown of each step.
    pub(super) fn breakdown(&self, spans: &[StepSpan]) -> Vec<Parts> {
        let bounds: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
        step_parts(&bounds, |priority| match priority {
            0 => self.gpu(|kind, communicates| kind == Kind::Kernel && !communicates),
            1 => self.gpu(|kind, _| kind == Kind::Memcpy),
            2 => self.gpu(|kind, _| kind == Kind::Memset),
            3 => self.communication(),
            4 => self.runtime(),
            5 => IntervalSet::union_of(self.host(HostRole::DataLoader)),
            _ => IntervalSet::union_of(self.host(HostRole::CpuExec)),
        })
    }

    fn gpu(&self, keep: impl Fn(Kind, bool) -> bool) -> IntervalSet {
        IntervalSet::union_of(self.gpu_intervals(keep))
    }

    fn gpu_intervals(&self, keep: impl Fn(Kind, bool) -> bool) -> impl Iterator<Item = (i64, i64)> {
        let gpu_ops = &self.tables.gpu_ops;
        let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
        let kept = move |&i: &u32| keep(self.kind(i), self.is_communication[i as usize]);
        (0..gpu_ops.len() as u32).filter(kept).map(move |i| (extents.start(i), extents.end(i)))
    }

    fn kind(&self, index: u32) -> Kind {
        match self.tables.gpu_ops.kind.get(index as usize) {
            kind if kind.is_some() && kind == self.kinds.memcpy => Kind::Memcpy,
            kind if kind.is_some() && kind == self.kinds.memset => Kind::Memset,
            _ => Kind::Kernel,
        }
    }

    fn communication(&self) -> IntervalSet {
        let kernels = self.gpu_intervals(|kind, communicates| kind == Kind::Kernel && communicates);
        IntervalSet::union_of(kernels.chain(self.host(HostRole::Communication)))
    }

    fn runtime(&self) -> IntervalSet {
        let launches = &self.tables.launches;
        let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
        IntervalSet::union_of((0..launches.len() as u32).map(|i| (extents.start(i), extents.end(i))))
    }

    /// The intervals of a role, without those that lie in one of the same or of a higher role.
    fn host(&self, role: HostRole) -> impl Iterator<Item = (i64, i64)> {
        let ops = &self.tables.ops;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let adds = move |&op: &u32| self.role(ops, op) == role && !self.is_covered(ops, op, role);
        (0..ops.len() as u32).filter(adds).map(move |op| (extents.start(op), extents.end(op)))
    }

    fn is_covered(&self, ops: &Ops, op: u32, role: HostRole) -> bool {
        let parent = self.tree.parents[op as usize];
        if parent == NONE {
            return false;
        }
        match self.role(ops, parent) {
            HostRole::Step => false,
            HostRole::Communication => true,
            // Data loading outranks execution, but not communication.
            HostRole::DataLoader => role != HostRole::Communication,
            HostRole::CpuExec => role == HostRole::CpuExec,
        }
    }

    fn role(&self, ops: &Ops, op: u32) -> HostRole {
        let class = self.names.class(&ops.name, op);
        if class.is(Class::STEP) || self.steps.is_mark(ops, op) {
            HostRole::Step
        } else if class.is(Class::DATALOADER) {
            HostRole::DataLoader
        } else if class.is(Class::COMMUNICATION_OP) {
            HostRole::Communication
        } else {
            HostRole::CpuExec
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kernel,
    Memcpy,
    Memset,
}
