//! Other dependencies: GPU operations that nothing waits for until the next phase begins.

use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;

use super::edges::Edge;
use super::lanes::Lanes;
use super::{DependencyGraph, Kind};
use crate::frame::{Frame, Result, invalid};

/// The edges of a graph without those that were released.
#[derive(Debug)]
pub(super) struct Released {
    /// In order of their targets.
    pub(super) edges: Vec<Edge>,
    /// The node that comes before some nodes, in place of the one before in the lane.
    pub(super) before: HashMap<u32, u32>,
}

impl Released {
    /// Lets operations that wait for one that is `freed` wait when the next phase of their stream begins.
    ///
    /// One that begins a phase still waits, and those that are freed wait for each other as recorded.
    ///
    /// Columns: `factors` has `freed` and `phase` (a number) of each event.
    pub(super) fn new(graph: &DependencyGraph, factors: &Frame) -> Result<Self> {
        let (freed, phases) = (factors.flags("freed")?, factors.u32_array("phase")?);
        let lanes = &graph.lanes;
        if freed.len() != lanes.starts.len() || phases.len() != freed.len() {
            return Err(invalid("there is not one phase for each event"));
        }
        let mut released = Self { edges: Vec::with_capacity(graph.edges.len()), before: HashMap::new() };
        let first = lanes.firsts[lanes.threads];
        let places = places(lanes, &freed, &phases);
        let place = |node: u32| places[((node - first) / 2) as usize];
        for &edge in &graph.edges {
            let is_between = matches!(edge.kind, Kind::Event | Kind::Stream);
            let event = lanes.events[edge.source as usize] as usize;
            let is_waiting = is_between && freed.value(event) && edge.target >= first;
            match is_waiting.then(|| place(edge.target)).flatten() {
                Some((_, next)) => released.until(lanes, edge.source, next),
                None => released.edges.push(edge),
            }
        }
        for lane in lanes.threads..lanes.groups.len() {
            let nodes = lanes.lane(lane);
            let is_freed = |node: usize| freed.value(lanes.events[node] as usize);
            let mut last_freed = None;
            for node in nodes.clone().step_by(2).skip(1) {
                if is_freed(node - 1) {
                    last_freed = Some(node as u32 - 1);
                }
                let Some(ended) = last_freed else { continue };
                if is_freed(node) && !is_freed(node - 1) {
                    released.until(lanes, ended, Some(node as u32));
                }
                if let Some((before, next)) = is_freed(node - 1).then(|| place(node as u32)).flatten() {
                    released.before.insert(node as u32, before);
                    released.until(lanes, ended, next);
                }
            }
        }
        released.edges.sort_by_key(|edge| edge.target);
        Ok(released)
    }

    /// Lets `next` wait for the end of an operation.
    fn until(&mut self, lanes: &Lanes, ended: u32, next: Option<u32>) {
        self.edges.extend(next.map(|target| {
            // Operations of a stream may overlap.
            let recorded = lanes.times[target as usize].saturating_sub(lanes.times[ended as usize]);
            Edge { target, source: ended, kind: Kind::Event, length: recorded.min(0) }
        }));
    }
}

/// Of each GPU operation, the end of the last one before it on its stream, if that is of the same phase, and the start
/// of the next one of another phase. None for operations that begin a phase; all but those that are freed count.
fn places(lanes: &Lanes, freed: &BooleanBuffer, phases: &[u32]) -> Vec<Option<(u32, Option<u32>)>> {
    let first = lanes.firsts[lanes.threads];
    let event = |node: u32| lanes.events[node as usize] as usize;
    let mut places = vec![None; (lanes.times.len() - first as usize) / 2];
    for lane in lanes.threads..lanes.groups.len() {
        let starts = lanes.lane(lane).step_by(2).map(|node| node as u32);
        let kept: Vec<u32> = starts.filter(|&node| !freed.value(event(node))).collect();
        let mut next = None;
        for pair in kept.windows(2).rev() {
            if phases[event(pair[0])] == phases[event(pair[1])] {
                places[((pair[1] - first) / 2) as usize] = Some((pair[0] + 1, next));
            } else {
                next = Some(pair[1]);
            }
        }
    }
    places
}
