//! Which ops of the backward pass run a part of the forward pass again, as activation checkpointing does.
//!
//! The dispatcher numbers an operator only while gradients are recorded. The backward pass does not record them, so an
//! operator with a number inside a node is recomputed, unless the gradient operators of the node have numbers, too, as
//! with `create_graph=True`. An autograd Function always has one: it is recomputed beside such an operator, if a node
//! inside the same node is its gradient, or inside a module that is called there.

use hashbrown::{HashMap, HashSet};

use super::NONE;
use super::backward::OrderedOps;
use super::names::{Class, Names, Phase};
use super::order::Extents;
use crate::schema::Symbol;

/// The ops of the backward pass, and which of them record gradients.
struct Backward<'a> {
    all: OrderedOps<'a>,
    parents: &'a [u32],
    names: &'a Names,
    /// The node that each op belongs to; [`NONE`] outside of the backward pass.
    nodes: Vec<u32>,
    /// Ops that a node runs itself, not inside another op.
    direct: Vec<bool>,
    /// Ops that record gradients, themselves or inside.
    records: Vec<bool>,
    /// Nodes whose own operators do not record gradients.
    quiet: HashSet<u32>,
}

/// Changes the phase of recomputed ops.
///
/// `forwards` are the forward ops of nodes, `modules` the module calls that ops start in, by index into `frames`.
pub(super) fn mark(
    all: OrderedOps<'_>,
    parents: &[u32],
    forwards: &[u32],
    (modules, frames): (&[u32], Extents<'_>),
    names: &Names,
    phases: &mut [Phase],
) {
    let mut backward = Backward::new(all, parents, names, phases);
    backward.find_records(forwards, |op, node| {
        let module = modules[op as usize];
        module != NONE && frames.start(module) >= all.extents.start(node)
    });
    let parts = backward.parts();
    backward.find_quiet(&parts);
    for of_node in parts.chunk_by(|a, b| a.0 == b.0).filter(|parts| backward.quiet.contains(&parts[0].0)) {
        for run in of_node.split(|&(_, op)| backward.is_gradient(op)) {
            backward.recomputed(run).iter().for_each(|&(_, op)| phases[op as usize] = Phase::Recompute);
        }
    }
    backward.spread(phases);
}

impl<'a> Backward<'a> {
    fn new(all: OrderedOps<'a>, parents: &'a [u32], names: &'a Names, phases: &[Phase]) -> Self {
        let (nodes, direct) = (vec![NONE; parents.len()], vec![false; parents.len()]);
        let mut found =
            Self { all, parents, names, nodes, direct, records: Vec::new(), quiet: HashSet::new() };
        // Parents come before their children in the order.
        for &op in all.order.indices().iter().filter(|&&op| phases[op as usize] == Phase::Backward) {
            let (index, parent, around) = (op as usize, parents[op as usize], found.around(op));
            // A node and the event of the engine that evaluates it are one.
            let is_evaluated = around == parent && found.is(parent, Class::AUTOGRAD_NODE);
            let begins = found.is(op, Class::AUTOGRAD_NODE) || (found.is_node(op) && !is_evaluated);
            found.nodes[index] = if begins || around == NONE { op } else { around };
            found.direct[index] = around != NONE
                && (found.is_node(parent) || (found.direct[parent as usize] && found.is_annotation(parent)));
        }
        found
    }

    /// The node that runs an op or a node.
    fn around(&self, op: u32) -> u32 {
        self.nodes.get(self.parents[op as usize] as usize).copied().unwrap_or(NONE)
    }

    fn is(&self, op: u32, class: Class) -> bool {
        op != NONE && self.names.is(&self.all.ops.name, op, class)
    }

    fn is_node(&self, op: u32) -> bool {
        self.is(op, Class::AUTOGRAD_NODE.or(Class::BACKWARD_NODE)) || self.all.forward_thread(op).is_some()
    }

    fn is_annotation(&self, op: u32) -> bool {
        self.names.is_annotation(self.all.ops, op)
    }

    /// Whether an op is a node, or the operator of a gradient.
    fn is_gradient(&self, op: u32) -> bool {
        self.is_node(op) || (self.is(op, Class::GRADIENT) && !self.records[op as usize])
    }

    /// Whether an op that is not a node is an autograd Function.
    fn is_function(&self, op: u32) -> bool {
        !self.is(op, Class::DISPATCHED) && self.all.sequence(op).is_some()
    }

    fn in_order(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.all.order.indices().iter().copied().filter(|&op| self.nodes[op as usize] != NONE)
    }

    /// `is_called_again`: whether an op is in a module call inside a node.
    fn find_records(&mut self, forwards: &[u32], is_called_again: impl Fn(u32, u32) -> bool) {
        let (mut records, mut quiet) = (vec![false; self.parents.len()], HashSet::new());
        for op in self.in_order() {
            let (node, forward) = (self.nodes[op as usize], forwards[op as usize]);
            if self.is_node(op) {
                let around = self.around(node);
                if around != NONE {
                    quiet.insert(around);
                    if forward != NONE && self.nodes[forward as usize] == around {
                        records[forward as usize] = true;
                    }
                }
            } else if self.is(op, Class::COMPILED_FUNCTION) || is_called_again(op, node) {
                quiet.insert(node);
                records[op as usize] = true;
            } else if self.is(op, Class::DISPATCHED) && self.all.sequence(op).is_some() {
                records[op as usize] = true;
            }
        }
        for op in self.in_order().rev() {
            let parent = self.parents[op as usize];
            if records[op as usize] && self.around(op) != NONE && !self.is_node(parent) {
                records[parent as usize] = true;
            }
        }
        (self.records, self.quiet) = (records, quiet);
    }

    /// What each node runs itself, in the order of time, for nodes in which something records gradients.
    fn parts(&self) -> Vec<(u32, u32)> {
        let is_part = |op: u32| self.direct[op as usize] && !self.is_annotation(op);
        let records = |op: &u32| self.records[*op as usize] && is_part(*op);
        let nodes: HashSet<u32> = self.in_order().filter(records).map(|op| self.nodes[op as usize]).collect();
        let part =
            |op: u32| Some((self.around(op), op)).filter(|(node, _)| is_part(op) && nodes.contains(node));
        let mut parts: Vec<_> = self.in_order().filter_map(part).collect();
        parts.sort_by_key(|&(node, _)| node);
        parts
    }

    /// Adds nodes with an operator that does not record gradients and would otherwise have a number.
    fn find_quiet(&mut self, parts: &[(u32, u32)]) {
        if parts.is_empty() {
            return;
        }
        let name = |op: u32| self.all.ops.name.get(op as usize);
        let has_number =
            |op: &u32| self.all.sequence(*op).is_some() && self.all.forward_thread(*op).is_none();
        let numbered: HashSet<Symbol> =
            (0..self.parents.len() as u32).filter(has_number).filter_map(name).collect();
        let is_quiet = |op: u32| {
            let is_known =
                self.is(op, Class::GRADIENT) || name(op).is_some_and(|name| numbered.contains(&name));
            self.is(op, Class::DISPATCHED) && !self.is_node(op) && !self.records[op as usize] && is_known
        };
        let found: Vec<u32> = parts.iter().filter(|(_, op)| is_quiet(*op)).map(|&(node, _)| node).collect();
        self.quiet.extend(found);
    }

    /// The recomputed among consecutive parts of a node: from the first that records gradients to the last, with the
    /// Functions next to them.
    fn recomputed<'b>(&self, run: &'b [(u32, u32)]) -> &'b [(u32, u32)] {
        let records = |&(_, op): &(u32, u32)| self.records[op as usize];
        let Some((first, last)) = run.iter().position(records).zip(run.iter().rposition(records)) else {
            return &[];
        };
        let is_function = |&&(_, op): &&(u32, u32)| self.is_function(op);
        let before = run[..first].iter().rev().take_while(is_function).count();
        let after = run[last + 1..].iter().take_while(is_function).count();
        &run[first - before..=last + after]
    }

    /// Gives the phase to what recomputed ops enclose, and to annotations that enclose nothing else.
    fn spread(&self, phases: &mut [Phase]) {
        for op in self.in_order().filter(|&op| self.around(op) != NONE && !self.is_node(op)) {
            if phases[self.parents[op as usize] as usize] == Phase::Recompute {
                phases[op as usize] = Phase::Recompute;
            }
        }
        // Whether all that an op encloses is recomputed.
        let mut inside = HashMap::new();
        for op in self.in_order().rev().filter(|&op| self.direct[op as usize]) {
            let own = Some(phases[op as usize] == Phase::Recompute);
            let known = if self.is_annotation(op) { inside.get(&op).copied() } else { own };
            let Some(is_recomputed) = known else { continue };
            if is_recomputed {
                phases[op as usize] = Phase::Recompute;
            }
            *inside.entry(self.parents[op as usize]).or_insert(true) &= is_recomputed;
        }
    }
}
