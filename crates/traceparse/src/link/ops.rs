//! How ops nest, and their columns that need no GPU work: forward ops, phases and modules.

use super::backward::{self, OrderedOps};
use super::names::{Class, Names, Phase};
use super::order::{Extents, TrackOrder, innermost_containers};
use super::{Find, NONE, callers, recomputation, rows};
use crate::schema::{Column, Ops, PythonFrames, Symbol, Table, Tables};
use crate::stats::{Code, Stats};

/// Parents and depths of the ops, by index.
pub(super) struct OpTree {
    pub(super) parents: Vec<u32>,
    pub(super) depths: Vec<u32>,
}

impl OpTree {
    /// Nests the ops of each track by the rule of the profiler's own tables: an op lies in the
    /// innermost open op that it does not outlast, and an op that is outlasted is closed.
    pub(super) fn new(order: &TrackOrder, extents: Extents<'_>, stats: &mut Stats) -> Self {
        let mut tree = Self { parents: vec![NONE; extents.len()], depths: vec![0; extents.len()] };
        let mut partial_overlaps = 0;
        let mut open: Vec<(i64, u32)> = Vec::new();
        for (_, rows) in order.tracks() {
            open.clear();
            for &index in rows {
                let (start, end) = (extents.start(index), extents.end(index));
                while let Some(&(open_end, _)) = open.last() {
                    if start < open_end && end <= open_end {
                        break;
                    }
                    partial_overlaps += u64::from(start < open_end);
                    open.pop();
                }
                if let Some(&(_, parent)) = open.last() {
                    tree.parents[index as usize] = parent;
                }
                tree.depths[index as usize] = open.len() as u32;
                open.push((end, index));
            }
        }
        stats.note_many(Code::PartialOverlap, partial_overlaps, None);
        tree
    }

    pub(super) fn store(self, ops: &mut Ops) {
        assert!(ops.len() < NONE as usize, "row indices fit");
        ops.parent_row = rows(self.parents, &ops.row);
        ops.depth = Column::from_values(self.depths);
    }
}

/// Finds the columns of ops that need no GPU work; returns what stores them.
pub(super) fn find(find: Find<'_>) -> impl FnOnce(&mut Tables) + Send + use<> {
    let Find { trace, names, vocabulary, order, tree } = find;
    let Tables { ops, python, flows, .. } = &trace.tables;
    let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
    let all = OrderedOps { ops, order, extents, tracks: &trace.tracks };
    let mut modules = enclosing_modules(ops, order, python, names, trace.tracks.len());
    let forwards = backward::forward_ops(all, flows, &trace.symbols);
    let mut phases = phases(all, &tree.parents, &modules, names);
    let frames = Extents::new(&python.start_ns, &python.dur_ns);
    let callers = callers::of_ops(all, &tree.parents, &phases, &forwards, python, names);
    recomputation::mark(all, &tree.parents, &forwards, (&modules, frames), names, &mut phases);
    inherit_modules(all, &tree.parents, &forwards, frames, &mut modules);
    add_modules_of_callers(all, &callers, python, names, &mut modules);
    let module = |&frame: &u32| python.name.get(frame as usize).map(|name| vocabulary.module(name));
    let module: Column<Symbol> = modules.iter().map(module).collect();
    let module_row = rows(modules, &python.row);
    let forward_row = rows(forwards, &ops.row);
    let phase = phases.into_iter().map(|phase| vocabulary.phase(phase)).collect();
    let is_annotation = (0..ops.len() as u32).map(|op| names.is_annotation(ops, op)).collect();
    move |Tables { ops, .. }| {
        ops.forward_row = forward_row;
        ops.caller_track = Column::from_sentinel(callers, NONE);
        ops.phase = Column::from_values(phase);
        ops.is_annotation = Column::from_values(is_annotation);
        ops.module = module;
        ops.module_row = module_row;
    }
}

/// Index of the innermost module call on the thread in which each op starts; `NONE` for none.
///
/// Frames and ops overlap in part by design, so the start of the op decides.
pub(super) fn enclosing_modules(
    ops: &Ops,
    op_order: &TrackOrder,
    python: &PythonFrames,
    names: &Names,
    track_count: usize,
) -> Vec<u32> {
    let op_extents = Extents::new(&ops.start_ns, &ops.dur_ns);
    let frames = Extents::new(&python.start_ns, &python.dur_ns);
    let is_module = |frame: u32| {
        python.module_id.get(frame as usize).is_some() || names.is(&python.name, frame, Class::MODULE)
    };
    let order = TrackOrder::new(python.track.values(), track_count, frames, is_module);
    let at_start = |op| (op_extents.start(op), op_extents.start(op).saturating_add(1));
    innermost_containers(&order, frames, |_| true, op_order, at_start, ops.len())
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
    let is_node = class.is(Class::AUTOGRAD_NODE) || class.is(Class::BACKWARD_NODE);
    if around == Phase::Backward || is_node || all.forward_thread(op).is_some() {
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

/// Gives ops without a module the innermost module that their caller is in.
fn add_modules_of_callers(
    all: OrderedOps<'_>,
    callers: &[u32],
    python: &PythonFrames,
    names: &Names,
    modules: &mut [u32],
) {
    let is_open = |op: u32| callers[op as usize] != NONE && modules[op as usize] == NONE;
    if python.is_empty() || !(0..modules.len() as u32).any(is_open) {
        return;
    }
    let order = TrackOrder::new(callers, all.tracks.len(), all.extents, is_open);
    let found = enclosing_modules(all.ops, &order, python, names, all.tracks.len());
    for &op in order.indices() {
        modules[op as usize] = found[op as usize];
    }
}
