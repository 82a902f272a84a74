//! The order in which a replay visits the nodes: each after what it waits for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::NO_EDGE;
use super::edges::{Edge, first_edge};
use super::lanes::Lanes;

/// Neighbouring nodes of a lane, from the first to just after the last.
pub(super) type Run = (u32, u32);

/// Orders all nodes, and takes out edges that lead in circles; the number of those.
///
/// `edges` are in order of their targets.
///
/// Events that wait for each other come of clocks that disagree. Of the edges that hold up all lanes the one whose
/// target was recorded earliest before its source is cut.
pub(super) fn order(lanes: &Lanes, edges: &mut Vec<Edge>) -> (Vec<Run>, usize) {
    let count = lanes.groups.len();
    let mut next: Vec<u32> = lanes.firsts[..count].to_vec();
    let mut at: Vec<usize> = next.iter().map(|&node| first_edge(edges, node)).collect();
    let mut awaited: Vec<BinaryHeap<Reverse<(u32, usize)>>> = vec![BinaryHeap::new(); count];
    let mut ready: Vec<usize> = (0..count).rev().collect();
    let mut runs = Vec::new();
    let mut cut = 0;
    loop {
        let Some(lane) = ready.pop() else {
            let Some(lane) = cheapest(lanes, edges, &next, &at) else { break };
            let edge = &mut edges[at[lane]];
            awaited[lanes.lane_of(edge.source)].retain(|&Reverse(wait)| wait != (edge.source, lane));
            edge.length = NO_EDGE;
            cut += 1;
            at[lane] += 1;
            ready.push(lane);
            continue;
        };
        let (from, end) = (next[lane], lanes.firsts[lane + 1]);
        let mut blocked = None;
        while let Some(edge) = edges.get(at[lane]).filter(|edge| edge.target < end) {
            let other = lanes.lane_of(edge.source);
            let is_done = if other == lane { edge.source < edge.target } else { edge.source < next[other] };
            if !is_done {
                blocked = Some((edge.target, edge.source, other));
                break;
            }
            at[lane] += 1;
        }
        let to = blocked.map_or(end, |(target, ..)| target);
        next[lane] = to;
        if to > from {
            runs.push((from, to));
        }
        if let Some((_, source, other)) = blocked {
            awaited[other].push(Reverse((source, lane)));
        }
        while let Some(&Reverse((node, waiting))) = awaited[lane].peek() {
            if node >= to {
                break;
            }
            awaited[lane].pop();
            ready.push(waiting);
        }
    }
    edges.retain(|edge| edge.length > NO_EDGE);
    (runs, cut)
}

/// The lane whose next edge contradicts the recorded times most, of those that are not done.
fn cheapest(lanes: &Lanes, edges: &[Edge], next: &[u32], at: &[usize]) -> Option<usize> {
    let time = |node: u32| lanes.times[node as usize];
    let held = (0..next.len()).filter(|&lane| next[lane] < lanes.firsts[lane + 1]);
    held.min_by_key(|&lane| {
        let edge = &edges[at[lane]];
        time(edge.target).saturating_sub(time(edge.source))
    })
}
