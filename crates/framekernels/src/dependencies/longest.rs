//! Nodes that are each at the latest of their edges, in any order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::RecordBatch;

use crate::frame::{Frame, NONE, Result, column, invalid, positions, table};

/// When each node is reached: `at_ns`, and the `edge` (a row) that decides; null without any, for a time as recorded.
///
/// An edge says that its target comes no earlier than its length after its source, or than its length without one.
/// Edges in circles, which come of clocks that disagree, are left out: of the nodes that wait for each other, the one
/// that was recorded first goes on.
///
/// Columns: `nodes` has `recorded_ns`; `edges` has `target`, `source` (null for none) and `length_ns`.
pub fn longest_paths(nodes: &Frame, edges: &Frame) -> Result<RecordBatch> {
    let recorded = nodes.i64_array("recorded_ns")?;
    let (targets, sources) = (edges.u32_array("target")?, edges.u32_array("source")?);
    let lengths = edges.i64_array("length_ns")?;
    let count = recorded.len();
    let is_right = |&node: &u32| (node as usize) < count;
    if !targets.iter().all(is_right) || !sources.iter().all(|node| *node == NONE || is_right(node)) {
        return Err(invalid("an edge has no node"));
    }
    let mut left = vec![0_u32; count];
    let mut from: Vec<u32> =
        (0..targets.len() as u32).filter(|&edge| sources[edge as usize] != NONE).collect();
    from.sort_by_key(|&edge| sources[edge as usize]);
    let mut at: Vec<Option<i64>> = vec![None; count];
    let mut deciding = vec![NONE; count];
    for (edge, &target) in targets.iter().enumerate() {
        let target = target as usize;
        if sources[edge] != NONE {
            left[target] += 1;
        } else if at[target] < Some(lengths[edge]) {
            (at[target], deciding[target]) = (Some(lengths[edge]), edge as u32);
        }
    }
    let mut is_done = vec![false; count];
    // In order of the recorded times, for nodes that wait in circles.
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|&node| recorded[node as usize]);
    let mut order = order.into_iter();
    let mut ready: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
    ready.extend(
        (0..count).filter(|&node| left[node] == 0).map(|node| Reverse((recorded[node], node as u32))),
    );
    loop {
        let node = match ready.pop() {
            Some(Reverse((_, node))) => node,
            None => match order.find(|&node| !is_done[node as usize]) {
                Some(node) => node,
                None => break,
            },
        };
        if std::mem::replace(&mut is_done[node as usize], true) {
            continue;
        }
        let reached = *at[node as usize].get_or_insert(recorded[node as usize]);
        let first = from.partition_point(|&edge| sources[edge as usize] < node);
        for &edge in from[first..].iter().take_while(|&&edge| sources[edge as usize] == node) {
            let target = targets[edge as usize] as usize;
            if is_done[target] {
                continue;
            }
            let time = reached.saturating_add(lengths[edge as usize]);
            if at[target] < Some(time) {
                (at[target], deciding[target]) = (Some(time), edge);
            }
            left[target] -= 1;
            if left[target] == 0 {
                ready.push(Reverse((recorded[target], target as u32)));
            }
        }
    }
    table([("at_ns", column(at)), ("edge", positions(deciding))])
}
