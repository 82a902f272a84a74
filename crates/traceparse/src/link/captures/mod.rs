//! Finds for replayed GPU work the node of the captured graph that it is, and so its operator.
//!
//! A launch of a graph has work without operators: those were on the host when the graph was captured, in the same
//! trace or in another one. Both have the same nodes in the same order, which is all that is needed where the
//! recorder names no nodes. What is not sure stays null.

mod choosing;
mod fitting;
mod graphs;
mod makers;
mod node_ids;
mod replays;
mod stacks;
mod warm_up;

#[cfg(test)]
mod tests;

use hashbrown::HashMap;

use self::choosing::Choice;
use self::fitting::Pattern;
use self::graphs::{Graph, Kernel};
use self::node_ids::NodeIds;
use self::replays::Tokens;
use super::NONE;
use super::names::{Class, Names, Replay, Vocabulary};
use crate::schema::{CapturedNodeRow, Column, Symbol, Table, Tables};
use crate::stats::Code;
use crate::trace::Trace;

/// Whether a linked trace has launches of graphs that did work.
pub(crate) fn has_replays(trace: &Trace) -> bool {
    let names = Names::new(&trace.symbols);
    let launches = &trace.tables.launches;
    (0..launches.len() as u32).any(|launch| names.is(&launches.name, launch, Class::GRAPH_LAUNCH))
        && !trace.tables.gpu_ops.launch_row.is_all_null()
}

/// Links replayed work to what `captures`, linked traces with their paths, and the trace itself captured.
pub(crate) fn link_replays(trace: &mut Trace, captures: Vec<(String, Trace)>) {
    let mut graphs = captured(trace);
    let node_ids = NodeIds::new(&graphs, &trace.tables, &trace.tracks);
    for (path, mut capture) in captures {
        let mut found = captured(&mut capture);
        let source = trace.symbols.intern(&path);
        let mut known: HashMap<Symbol, Symbol> = HashMap::new();
        for graph in &mut found {
            graph.row.source = Some(source);
            graph.carry(|symbol| {
                *known.entry(symbol).or_insert_with(|| trace.symbols.intern(capture.symbols.text(symbol)))
            });
        }
        graphs.append(&mut found);
    }
    let names = Names::new(&trace.symbols);
    let tokens = Tokens::new(&mut trace.symbols);
    let mut replays = replays::find(&trace.tables, &names, &trace.symbols, &trace.tracks, &tokens);
    let by_id = replays.take_by_id(&node_ids, &trace.tables, &trace.tracks);
    let patterns: Vec<Pattern> = graphs.iter().map(|graph| pattern(graph, &tokens)).collect();
    let choices = choosing::choose(&replays, &graphs, &patterns);
    number_rows(&mut graphs, trace.tables.next_row());
    let count = trace.tables.gpu_ops.len();
    let mut found = Found { nodes: vec![NONE; count], ops: vec![NONE; count], how: vec![None; count] };
    let (mut unmatched, mut ambiguous) = (0, 0);
    for (at, node) in by_id {
        match node {
            Some((graph, node)) => {
                let graph = &mut graphs[graph as usize];
                found.store_node(at, &graph.nodes[node as usize], Replay::Exact);
                graph.row.replayed += 1;
            }
            None => unmatched += 1,
        }
    }
    for (replay, choice) in replays.replays.iter().zip(&choices) {
        match choice {
            Choice::One(fit) => {
                let graph = &mut graphs[fit.graph as usize];
                let open = found.store(&replay.work, &fit.nodes, fit.how, graph);
                graph.row.replayed += (replay.work.len() - open) as u32;
                ambiguous += open as u64;
            }
            Choice::Several => ambiguous += replay.work.len() as u64,
            Choice::None => unmatched += replay.work.len() as u64,
        }
    }
    let matched = found.nodes.iter().filter(|&&node| node != NONE).count() as u64;
    trace.stats.note_many(Code::ReplayMatched, matched, None);
    trace.stats.note_many(Code::ReplayAmbiguous, ambiguous, None);
    trace.stats.note_many(Code::ReplayUnknown, unmatched, None);
    let cut = graphs.iter().filter(|graph| graph.row.dur_ns.is_none()).count() as u64;
    trace.stats.note_many(Code::CaptureCutOff, cut, None);
    let vocabulary = Vocabulary::new(&mut trace.symbols);
    let how = found.how.into_iter().map(|how| how.map(|how| vocabulary.replay(how)));
    let gpu_ops = &mut trace.tables.gpu_ops;
    gpu_ops.r#match = how.collect();
    gpu_ops.captured_node_row = Column::from_sentinel(found.nodes, NONE);
    gpu_ops.captured_op_row = Column::from_sentinel(found.ops, NONE);
    store_graphs(graphs, &mut trace.tables);
}

/// The graphs that a trace captured.
fn captured(trace: &mut Trace) -> Vec<Graph> {
    let mut graphs = graphs::find(&trace.tables, &mut trace.symbols, &trace.tracks);
    warm_up::expect_kernels(&mut graphs, &trace.tables, &trace.symbols);
    graphs
}

/// What was found of each piece of GPU work, as rows.
struct Found {
    nodes: Vec<u32>,
    ops: Vec<u32>,
    how: Vec<Option<Replay>>,
}

impl Found {
    /// Stores what a launch replayed, and counts the work whose node is not sure.
    fn store(&mut self, work: &[u32], nodes: &[u32], how: Replay, graph: &Graph) -> usize {
        let mut open = 0;
        for (&at, &node) in work.iter().zip(nodes) {
            let Some(node) = graph.nodes.get(node as usize) else {
                open += 1;
                continue;
            };
            self.store_node(at, node, how);
        }
        open
    }

    fn store_node(&mut self, at: u32, node: &CapturedNodeRow, how: Replay) {
        let at = at as usize;
        self.nodes[at] = node.row;
        self.ops[at] = node.captured_op_row.unwrap_or(NONE);
        self.how[at] = Some(how);
    }
}

fn pattern(graph: &Graph, tokens: &Tokens) -> Pattern {
    let expected = |&(name, grid): &Kernel| (tokens.of(None, Some(name)), grid);
    Pattern {
        tokens: graph.nodes.iter().map(|node| tokens.of(node.kind, node.name)).collect(),
        expected: graph.expected.iter().map(|kernels| kernels.iter().map(expected).collect()).collect(),
        grids: graph.nodes.iter().map(|node| node.grid).collect(),
        is_complete: graph.row.dur_ns.is_some(),
    }
}

/// Numbers the rows of graphs, ops and nodes from `next`, in place of positions.
fn number_rows(graphs: &mut [Graph], mut next: u32) {
    let mut take = |count: usize| {
        let first = next;
        next = next.saturating_add(count as u32);
        first
    };
    for graph in graphs.iter_mut() {
        graph.row.row = take(1);
    }
    for graph in graphs.iter_mut() {
        let first = take(graph.ops.len());
        for op in &mut graph.ops {
            (op.row, op.graph_row) = (op.row + first, graph.row.row);
            op.parent_row = op.parent_row.map(|parent| parent + first);
        }
        graph
            .nodes
            .iter_mut()
            .for_each(|node| node.captured_op_row = node.captured_op_row.map(|op| op + first));
    }
    for graph in graphs.iter_mut() {
        let first = take(graph.nodes.len());
        for (node, row) in graph.nodes.iter_mut().zip(first..) {
            (node.row, node.graph_row) = (row, graph.row.row);
        }
    }
}

fn store_graphs(graphs: Vec<Graph>, tables: &mut Tables) {
    for graph in graphs {
        tables.captured_graphs.push(graph.row);
        graph.ops.into_iter().for_each(|op| tables.captured_ops.push(op));
        graph.nodes.into_iter().for_each(|node| tables.captured_nodes.push(node));
    }
}
