//! What the arrows of a trace connect: ops with their gradients, and with GPU work where a recorder writes no ids.

use hashbrown::HashMap;

use super::ids::IdIndex;
use super::{Find, NONE};
use crate::schema::{Column, Flows, SymbolTable};

/// Where arrows of some `categories` begin and end, by their indices.
pub(super) fn pairs(flows: &Flows, symbols: &SymbolTable, categories: [&str; 2]) -> Vec<[u32; 2]> {
    let begins: Vec<usize> = flows.ends(symbols, categories, "s").collect();
    let ids: Column<i64> = begins.iter().map(|&flow| flows.id.get(flow)).collect();
    let starts: Vec<i64> = begins.iter().map(|&flow| flows.start_ns.values()[flow]).collect();
    let index = IdIndex::new(&ids, &starts);
    let pair = |end: usize| {
        let begin = index.find(flows.id.get(end)?, flows.start_ns.values()[end])?;
        Some([begins[begin as usize] as u32, end as u32])
    };
    flows.ends(symbols, categories, "f").filter_map(pair).collect()
}

/// The ops from which arrows lead to GPU work, by the `row` of the arrow's end.
pub(super) fn ops_of_work(find: Find<'_>) -> HashMap<u32, u32> {
    let Find { trace, order, tree, .. } = find;
    let (ops, flows) = (&trace.tables.ops, &trace.tables.flows);
    let op_at = |flow: u32| {
        let (track, moment) = (flows.track.values()[flow as usize], flows.start_ns.values()[flow as usize]);
        let rows = order.track(track);
        let begun = rows.partition_point(|&op| ops.start_ns.values()[op as usize] <= moment);
        let mut op = *rows.get(begun.checked_sub(1)?)?;
        let ends_by = |op: u32| {
            let start = ops.start_ns.values()[op as usize];
            start != moment && start.saturating_add(ops.dur_ns.get(op as usize).unwrap_or(0)) < moment
        };
        while op != NONE && ends_by(op) {
            op = tree.parents[op as usize];
        }
        (op != NONE).then_some(op)
    };
    let found = pairs(flows, &trace.symbols, Flows::TO_WORK).into_iter();
    found.filter_map(|[begin, end]| Some((flows.row.values()[end as usize], op_at(begin)?))).collect()
}
