//! Forward, backward or optimizer, and the modules that backward ops belong to.

use super::NONE;
use super::backward::OrderedOps;
use super::extents::Extents;
use super::names::{Class, Names};

/// What part of training an op belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Other,
    Forward,
    Backward,
    Optimizer,
}

impl Phase {
    /// Every phase, by number.
    pub(super) const ALL: [Self; 4] = [Self::Other, Self::Forward, Self::Backward, Self::Optimizer];

    /// The name users see.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }
}

/// The phase of each op: its own, else that of the op around it.
///
/// `modules` are the module calls that ops start in, by index.
pub(super) fn phases(all: OrderedOps<'_>, parents: &[u32], modules: &[u32], names: &Names) -> Vec<Phase> {
    let mut phases = vec![Phase::Other; parents.len()];
    // Parents come before their children in the order.
    for &op in all.order.indices() {
        let parent = parents[op as usize];
        let around = if parent == NONE { Phase::Other } else { phases[parent as usize] };
        phases[op as usize] = phase(all, op, around, modules[op as usize] != NONE, names);
    }
    phases
}

fn phase(all: OrderedOps<'_>, op: u32, around: Phase, in_module: bool, names: &Names) -> Phase {
    let class = names.class(&all.ops.name, op);
    if around == Phase::Backward || class.is(Class::AUTOGRAD_NODE) || all.forward_thread(op).is_some() {
        Phase::Backward
    } else if around == Phase::Optimizer || class.is(Class::OPTIMIZER) {
        Phase::Optimizer
    } else if class.is(Class::STEP) {
        // A trainer that is a module itself would make whole steps forward.
        Phase::Other
    } else if around == Phase::Forward || in_module || all.ops.sequence.get(op as usize).is_some() {
        Phase::Forward
    } else {
        Phase::Other
    }
}

/// Gives backward ops the modules of their forward ops, and what they enclose with them.
///
/// A module that is called again inside a backward op, as activation checkpointing does, stays.
pub(super) fn inherit_modules(
    all: OrderedOps<'_>,
    parents: &[u32],
    forwards: &[u32],
    frames: Extents<'_>,
    modules: &mut [u32],
) {
    if forwards.iter().all(|&forward| forward == NONE) {
        return;
    }
    let own = modules.to_vec();
    // Start of the backward op whose forward's module an op has.
    let mut since = vec![i64::MAX; parents.len()];
    for &op in all.order.indices() {
        let (index, parent, forward) = (op as usize, parents[op as usize], forwards[op as usize]);
        let inherited = if forward != NONE && own[forward as usize] != NONE {
            Some((own[forward as usize], all.extents.start(op)))
        } else if parent != NONE && since[parent as usize] != i64::MAX {
            Some((modules[parent as usize], since[parent as usize]))
        } else {
            None
        };
        let Some((module, start)) = inherited else { continue };
        since[index] = start;
        let called_again = own[index] != NONE && frames.start(own[index]) >= start;
        if !called_again {
            modules[index] = module;
        }
    }
}
