//! The operators that PyTorch's `emit_nvtx` writes as NVTX ranges.
//!
//! They stay in `ranges`, as all that was pushed does, and are rows of `ops` under the same number, so that
//! every question about operators answers for databases, too.

use super::names::{Class, Names};
use crate::options::ReadOptions;
use crate::schema::{Column, Ops, Symbol, Table, Tables};
use crate::trace::Trace;

/// What a reader has to fill of `ranges` for operators to be found among them.
const NEEDED: [&str; 9] =
    ["row", "name", "domain", "kind", "track", "start_ns", "dur_ns", "sequence", "sizes"];

/// What a reader has to fill for the nodes of captured graphs to be found, by table.
const NEEDED_OF_NODES: [(&str, &[&str]); 3] = [
    ("spans", &["row", "track", "start_ns", "dur_ns", "graph_node_id", "original_graph_node_id"]),
    ("gpu_ops", &["row", "name", "launch_row", "graph_node_id"]),
    ("launches", &["row", "name", "track", "start_ns", "dur_ns"]),
];

/// What to read for what is wanted: operators may be ranges, and spans tell the nodes of captured graphs.
pub(crate) fn with_sources(options: &ReadOptions) -> ReadOptions {
    let mut widened = options.clone();
    let wants_nodes = options.wants_captures() && options.wants("launches") && options.wants("gpu_ops");
    if options.wants("ops") {
        widened.add("ranges", &NEEDED);
    }
    if wants_nodes {
        NEEDED_OF_NODES.iter().for_each(|(table, columns)| widened.add(table, columns));
    }
    widened
}

/// Adds the operators among the ranges of a trace that has no others.
pub(super) fn add_ops(trace: &mut Trace, options: &ReadOptions) {
    let Tables { ops, ranges, .. } = &trace.tables;
    if !options.wants("ops") || !ops.is_empty() || ranges.is_empty() {
        return;
    }
    // Before the names are classified: the category has its class, too.
    let annotation = trace.symbols.intern("user_annotation");
    let names = Names::new(&trace.symbols);
    let push_pop = trace.symbols.find("push_pop");
    let Tables { ops, ranges, .. } = &mut trace.tables;
    let is_operator = |&index: &usize| {
        let of_torch = || names.is(&ranges.name, index as u32, Class::OPERATOR);
        let is_numbered = ranges.op_id.get(index).is_some()
            || ranges.sequence.get(index).is_some()
            || ranges.sizes.get(index).is_some();
        let is_pushed = Some(ranges.kind.values()[index]) == push_pop && ranges.end_tid.get(index).is_none();
        is_pushed && ranges.domain.get(index).is_none() && (is_numbered || of_torch())
    };
    let found: Vec<usize> = (0..ranges.len()).filter(is_operator).collect();
    let categories = found.iter().map(|&index| category(&names, ranges, index, annotation));
    let category = categories.collect();
    *ops = Ops {
        row: of(&mut ranges.row, &found),
        name: of(&mut ranges.name, &found),
        category,
        track: of(&mut ranges.track, &found),
        start_ns: of(&mut ranges.start_ns, &found),
        dur_ns: of(&mut ranges.dur_ns, &found),
        sequence: of(&mut ranges.sequence, &found),
        input_dims: of(&mut ranges.sizes, &found),
        record_function_id: of(&mut ranges.op_id, &found),
        ..ops.chosen(&found)
    };
}

/// A column of the ranges with these indices; of all ranges it takes no memory of its own.
fn of<T: Copy + Default>(column: &mut Column<T>, indices: &[usize]) -> Column<T> {
    if indices.len() == column.len() { column.share() } else { column.chosen(indices) }
}

/// That of an annotation, for what `record_function` marked: it differs from operators by its name alone.
fn category(
    names: &Names,
    ranges: &crate::schema::Ranges,
    index: usize,
    annotation: Symbol,
) -> Option<Symbol> {
    let is_operator = ranges.sequence.get(index).is_some()
        || ranges.sizes.get(index).is_some()
        || names.is(&ranges.name, index as u32, Class::OPERATOR);
    (!is_operator).then_some(annotation)
}
