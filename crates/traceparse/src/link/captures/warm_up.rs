//! What the kernels of a capture may be that does not say it, as CUDA's do not: engines run a step once before they
//! capture it, so that the same operators with the same inputs launched kernels with names and grids.

use hashbrown::{HashMap, HashSet};

use super::graphs::{Graph, Kernel, index};
use crate::link::names::{Class, Names};
use crate::schema::{Symbol, SymbolTable, Table, Tables};

/// Name, shapes and types of an operator.
type Kind = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

/// How the names of kernels begin that have an operator of their name, as compiled models launch them.
const COMPILED: &str = "triton_";

/// Fills the kernels that the nameless nodes of `graphs` may be.
pub(super) fn expect_kernels(graphs: &mut [Graph], tables: &Tables, symbols: &SymbolTable) {
    let Some(kernel) = symbols.find("kernel") else { return };
    let nameless = graphs.iter().flat_map(|graph| {
        let nodes = graph.nodes.iter().filter(|node| node.name.is_none() && node.kind == Some(kernel));
        nodes.filter_map(|node| {
            graph.ops.get(node.captured_op_row? as usize).map(|op| (op.name, op.input_dims, op.input_types))
        })
    });
    let asked: HashSet<Kind> = nameless.collect();
    if asked.is_empty() {
        return;
    }
    let launched = eager_kernels(tables, &Names::new(symbols), &asked, kernel);
    for graph in graphs {
        let mut of_ops: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            if let Some(op) = node.captured_op_row.filter(|_| node.kind == Some(kernel)) {
                of_ops.entry(op).or_default().push(at);
            }
        }
        for (op, nodes) in of_ops {
            let Some(op) = graph.ops.get(op as usize) else { continue };
            let compiled = op.name.filter(|&name| symbols.text(name).starts_with(COMPILED));
            if let (Some(name), &[at]) = (compiled, &nodes[..]) {
                graph.expected[at].push((name, None));
                continue;
            }
            for kernels in launched.get(&(op.name, op.input_dims, op.input_types)).into_iter().flatten() {
                // A call that launches another number of kernels took another way.
                if kernels.len() == nodes.len() {
                    for (&at, launched) in nodes.iter().zip(kernels) {
                        if !graph.expected[at].contains(launched) {
                            graph.expected[at].push(*launched);
                        }
                    }
                }
            }
        }
    }
}

/// The distinct sequences of kernels that operators of these kinds launched themselves, outside graphs.
fn eager_kernels(
    tables: &Tables,
    names: &Names,
    asked: &HashSet<Kind>,
    kernel: Symbol,
) -> HashMap<Kind, Vec<Vec<Kernel>>> {
    let Tables { ops, launches, gpu_ops, .. } = tables;
    let mut of_ops: HashMap<u32, Vec<(i64, i64, Kernel)>> = HashMap::new();
    for at in 0..gpu_ops.len() {
        let (Some(op), Some(launch)) = (gpu_ops.op_row.get(at), gpu_ops.launch_row.get(at)) else { continue };
        let (Some(op), Some(launch)) = (index(&ops.row, op), index(&launches.row, launch)) else { continue };
        let (Some(name), kind) = (gpu_ops.name.get(at), gpu_ops.kind.get(at)) else { continue };
        if kind == Some(kernel)
            && asked.contains(&kind_of(tables, op))
            && !names.is(&launches.name, launch, Class::GRAPH_LAUNCH)
        {
            let called = launches.start_ns.values()[launch as usize];
            of_ops.entry(op).or_default().push((
                called,
                gpu_ops.start_ns.values()[at],
                (name, gpu_ops.grid.get(at)),
            ));
        }
    }
    let mut found: HashMap<Kind, Vec<Vec<Kernel>>> = HashMap::new();
    for (op, mut kernels) in of_ops {
        kernels.sort_unstable();
        let kernels: Vec<Kernel> = kernels.into_iter().map(|(.., kernel)| kernel).collect();
        let known = found.entry(kind_of(tables, op)).or_default();
        if !known.contains(&kernels) {
            known.push(kernels);
        }
    }
    found
}

fn kind_of(tables: &Tables, op: u32) -> Kind {
    let (ops, at) = (&tables.ops, op as usize);
    (ops.name.get(at), ops.input_dims.get(at), ops.input_types.get(at))
}
