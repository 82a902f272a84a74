//! The derived columns of `ops` that need no GPU work.

use super::backward::{self, OrderedOps};
use super::extents::Extents;
use super::modules::enclosing_modules;
use super::op_tree::OpTree;
use super::phases::{self, Phase};
use super::{Find, NONE, rows};
use crate::schema::{Column, Symbol, Table, Tables};
use crate::trace::Trace;

/// The columns.
pub(super) struct OpColumns {
    forward_row: Column<u32>,
    phase: Column<Symbol>,
    is_annotation: Column<bool>,
    module: Column<Symbol>,
    module_row: Column<u32>,
}

impl OpColumns {
    pub(super) fn find(find: Find<'_>) -> Self {
        let Find { trace, names, vocabulary, order, tree } = find;
        let Tables { ops, python, flows, .. } = &trace.tables;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let all = OrderedOps { ops, order, extents, tracks: &trace.tracks };
        let mut modules = enclosing_modules(ops, order, python, names, trace.tracks.len());
        let forwards = backward::forward_ops(all, flows, &trace.symbols);
        let phases: Vec<Phase> = phases::phases(all, &tree.parents, &modules, names);
        let frames = Extents::new(&python.start_ns, &python.dur_ns);
        phases::inherit_modules(all, &tree.parents, &forwards, frames, &mut modules);
        let module = |&frame: &u32| python.name.get(frame as usize).map(|name| vocabulary.module(name));
        let is_annotation = (0..ops.len() as u32).map(|op| names.is_annotation(ops, op)).collect();
        Self {
            is_annotation: Column::from_values(is_annotation),
            forward_row: rows(forwards, &ops.row),
            phase: Column::from_values(phases.into_iter().map(|phase| vocabulary.phase(phase)).collect()),
            module: modules.iter().map(module).collect(),
            module_row: rows(modules, &python.row),
        }
    }

    pub(super) fn store(self, trace: &mut Trace, tree: OpTree) {
        let ops = &mut trace.tables.ops;
        debug_assert!(ops.len() < NONE as usize, "row indices fit");
        ops.parent_row = rows(tree.parents, &ops.row);
        ops.depth = Column::from_values(tree.depths);
        ops.forward_row = self.forward_row;
        ops.phase = self.phase;
        ops.is_annotation = self.is_annotation;
        ops.module = self.module;
        ops.module_row = self.module_row;
    }
}
