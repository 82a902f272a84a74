//! From GPU work to its op by an arrow, where a recorder writes no ids: PyTorch before Kineto, torch_npu.

use hashbrown::HashMap;

use super::ids::IdIndex;
use super::{Find, NONE};
use crate::schema::{Column, Symbol, Table, Tables};

/// The categories of such arrows.
const CATEGORIES: [&str; 2] = ["cpu_to_cuda", "async_npu"];

/// The op from which an arrow leads to a piece of GPU work, by their indices.
pub(super) fn ops_of_work(find: Find<'_>) -> HashMap<u32, u32> {
    let Find { trace, order, tree, .. } = find;
    let Tables { ops, gpu_ops, flows, .. } = &trace.tables;
    let categories: Vec<Symbol> = CATEGORIES.iter().filter_map(|text| trace.symbols.find(text)).collect();
    if categories.is_empty() || flows.is_empty() {
        return HashMap::new();
    }
    let of_kind = |kind: &str| {
        let kind = trace.symbols.find(kind);
        let is_arrow =
            |flow: usize| flows.category.get(flow).is_some_and(|found| categories.contains(&found));
        (0..flows.len()).filter(move |&flow| kind.is_some() && flows.kind.get(flow) == kind && is_arrow(flow))
    };
    let at = |flow: usize| (flows.track.values()[flow], flows.start_ns.values()[flow]);
    let begins: Vec<usize> = of_kind("s").collect();
    let ids: Column<i64> = begins.iter().map(|&flow| flows.id.get(flow)).collect();
    let starts: Vec<i64> = begins.iter().map(|&flow| at(flow).1).collect();
    let index = IdIndex::new(&ids, &starts);
    // Where arrows end: a stream, or a GPU where there are none, and a moment.
    let place = |work: usize| gpu_ops.stream.get(work).or(gpu_ops.device.get(work).map(i64::from));
    let works: HashMap<(Option<i64>, i64), u32> = (0..gpu_ops.len())
        .filter(|&work| gpu_ops.correlation.get(work).is_none())
        .map(|work| ((place(work), gpu_ops.start_ns.values()[work]), work as u32))
        .collect();
    let op_at = |(track, moment): (u32, i64)| {
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
    let pair = |end: usize| {
        let (track, moment) = at(end);
        let work = *works.get(&(trace.tracks.key(track).1.int(), moment))?;
        let begin = begins[index.find(flows.id.get(end)?, moment)? as usize];
        Some((work, op_at(at(begin))?))
    };
    of_kind("f").filter_map(pair).collect()
}
