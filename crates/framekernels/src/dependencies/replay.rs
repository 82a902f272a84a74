//! Replays of the graph, with other lengths of its edges.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;

use super::edges::{Edge, first_edge};
use super::lanes::Lanes;
use super::release::Released;
use super::{DependencyGraph, Kind};
use crate::frame::{Frame, NONE, Result, column, invalid, table};

/// Shortest wait of unknown cause that is taken to end when it did, ns: shorter ones follow from what is before.
const LONG_WAIT_NS: i64 = 1_000_000;

/// The time of every node if some edges took longer or shorter.
#[derive(Debug)]
pub struct Replay {
    pub(super) graph: Arc<DependencyGraph>,
    changes: Option<Changes>,
    /// Whether waits of unknown cause end no earlier than recorded, whatever else is earlier.
    keeps_unknown: bool,
    /// Empty without changes: then they are as recorded.
    times: Vec<i64>,
}

/// Other lengths of edges.
#[derive(Debug)]
struct Changes {
    /// The lengths of the edges inside lanes.
    lengths: Vec<i64>,
    /// What each GPU operation takes to be launched, and each call waits for the GPU.
    waiting: ScalarBuffer<f64>,
    /// How long each event waits for something that was not recorded.
    unknown: Option<ScalarBuffer<f64>>,
    /// What is before each event outside of any other.
    gap: Option<ScalarBuffer<f64>>,
    released: Option<Arc<Released>>,
}

impl Replay {
    /// Replays a graph, with the lengths multiplied by `own` and `waiting` of each event.
    ///
    /// `own` is for the own time of an event of the host and the execution of a GPU operation, `waiting` for the
    /// launch of a GPU operation and for how long a call waits for one, from 0 to 1. `unknown`, if it is there,
    /// is for waits whose cause was not recorded, and `gap` for the time of a thread outside of any event or since
    /// another thread, or of a stream between operations, before an event. Nothing waits for GPU operations that are
    /// `freed`, if it is there, until the next `phase` (a number) of its stream begins. With `changes`, `skipped` has
    /// parts of the recording that threads do not need: `track`, `start_ns` and `end_ns`.
    ///
    /// # Errors
    ///
    /// There are not as many factors as events, or one is out of range.
    pub fn new(
        graph: Arc<DependencyGraph>,
        changes: Option<&Frame>,
        skipped: Option<&Frame>,
        keeps_unknown: bool,
    ) -> Result<Self> {
        let changes = changes.map(|frame| Changes::new(&graph, frame, skipped)).transpose()?;
        let mut replay = Self { graph, changes, keeps_unknown, times: Vec::new() };
        if replay.changes.is_some() {
            replay.run();
        }
        Ok(replay)
    }

    /// The time of each node.
    #[inline]
    pub(super) fn reached(&self) -> &[i64] {
        if self.changes.is_some() { &self.times } else { &self.graph.lanes.times }
    }

    fn run(&mut self) {
        let graph = Arc::clone(&self.graph);
        let released = self.released().cloned();
        let edges = released.as_ref().map_or(&graph.edges, |released| &released.edges);
        self.times = vec![0; graph.lanes.times.len()];
        for &(from, to) in &graph.runs {
            let mut edges = edges[first_edge(edges, from)..].iter().peekable();
            let mut before = self.time_before(from);
            for node in from..to {
                if let Some(&other) = released.as_ref().and_then(|released| released.before.get(&node)) {
                    before = self.times[other as usize];
                }
                let mut time = before.saturating_add(self.length(node));
                while let Some(edge) = edges.next_if(|edge| edge.target == node) {
                    time = time.max(self.arrival(edge, before));
                }
                time = time.max(self.kept_inside(node).unwrap_or(time));
                self.times[node as usize] = time;
                before = time;
            }
        }
    }

    fn released(&self) -> Option<&Arc<Released>> {
        self.changes.as_ref()?.released.as_ref()
    }

    /// The edges between lanes, in order of their targets.
    pub(super) fn edges(&self) -> &[Edge] {
        self.released().map_or(&self.graph.edges, |released| &released.edges)
    }

    /// The node before in the lane.
    pub(super) fn node_before(&self, node: u32) -> Option<u32> {
        let other = self.released().and_then(|released| released.before.get(&node)).copied();
        other.or_else(|| (!self.graph.lanes.is_first(node)).then(|| node - 1))
    }

    /// The time of the node before in the lane; 0 before the first.
    pub(super) fn time_before(&self, node: u32) -> i64 {
        self.node_before(node).map_or(0, |node| self.reached()[node as usize])
    }

    /// The length of the edge from the node before.
    #[inline]
    pub(super) fn length(&self, node: u32) -> i64 {
        let changed = self.changes.as_ref().map(|changes| changes.lengths[node as usize]);
        changed.unwrap_or_else(|| self.graph.lanes.length(node))
    }

    /// When an edge is satisfied, if the node before its target is at `before`.
    #[inline]
    pub(super) fn arrival(&self, edge: &Edge, before: i64) -> i64 {
        let time = self.after_source(edge, before);
        time.max(self.kept(edge.kind, edge.target, edge.length).unwrap_or(time))
    }

    /// When an edge is satisfied as far as its source and the node before its target decide.
    #[inline]
    pub(super) fn after_source(&self, edge: &Edge, before: i64) -> i64 {
        let source = self.reached()[edge.source as usize];
        let time = source.saturating_add(edge.length);
        let event = self.graph.lanes.events[edge.target as usize] as usize;
        match (&self.changes, edge.kind) {
            (Some(Changes { unknown: Some(unknown), .. }), Kind::Unknown) => {
                source.saturating_add(scaled(edge.length, unknown[event]))
            }
            (Some(Changes { gap: Some(gap), .. }), Kind::Thread) => {
                source.saturating_add(scaled(edge.length, gap[event]))
            }
            (Some(changes), Kind::Launch) => {
                source.saturating_add(scaled(edge.length, changes.waiting[event]))
            }
            (Some(changes), Kind::Synchronisation) if time > before => {
                before.saturating_add(scaled(time.saturating_sub(before), changes.waiting[event]))
            }
            _ => time,
        }
    }

    /// The recorded end of a wait, before which it does not end: its cause is unknown, and is taken not to depend on
    /// what is earlier.
    pub(super) fn kept(&self, kind: Kind, node: u32, length: i64) -> Option<i64> {
        let is_kept = self.keeps_unknown && kind == Kind::Unknown && length >= LONG_WAIT_NS;
        is_kept.then(|| self.graph.lanes.times[node as usize])
    }

    /// The same for the wait from the node before.
    pub(super) fn kept_inside(&self, node: u32) -> Option<i64> {
        let lanes = &self.graph.lanes;
        if self.keeps_unknown {
            self.kept(lanes.kinds[node as usize], node, lanes.length(node))
        } else {
            None
        }
    }

    /// Start and end of every event, of the host and then of the GPU: `start_ns`, `end_ns`.
    pub fn times(&self) -> Result<RecordBatch> {
        let at = |nodes: &[u32]| column(nodes.iter().map(|&node| self.reached()[node as usize]));
        table([("start_ns", at(&self.graph.lanes.starts)), ("end_ns", at(&self.graph.lanes.ends))])
    }

    /// By how much each event could end later without the last event until `end` ending later: `slack_ns`, null for
    /// events that end later.
    pub fn slack(&self, end: i64) -> Result<RecordBatch> {
        let graph = &self.graph;
        let last = self.last_until(&graph.deciding, end).map_or(end, |node| self.reached()[node as usize]);
        let latest = |&time: &i64| if time > end { i64::MAX } else { time.max(last) };
        let lengths = match &self.changes {
            Some(changes) => Cow::Borrowed(&changes.lengths),
            None => Cow::Owned(graph.lanes.all_lengths()),
        };
        let mut latest: Vec<i64> = self.reached().iter().map(latest).collect();
        for &(from, to) in graph.runs.iter().rev() {
            let edges = self.edges();
            let mut edges = edges[..first_edge(edges, to)].iter().rev().peekable();
            for node in (from..to).rev() {
                let own = latest[node as usize];
                let before = self.time_before(node);
                while let Some(edge) = edges.next_if(|edge| edge.target == node) {
                    let length =
                        self.arrival(edge, before).saturating_sub(self.reached()[edge.source as usize]);
                    let source = &mut latest[edge.source as usize];
                    *source = (*source).min(own.saturating_sub(length));
                }
                if let Some(source) = self.node_before(node) {
                    let source = &mut latest[source as usize];
                    *source = (*source).min(own.saturating_sub(lengths[node as usize]));
                }
            }
        }
        let slack = |&node: &u32| {
            let time = self.reached()[node as usize];
            (time <= end).then(|| latest[node as usize].saturating_sub(time))
        };
        table([("slack_ns", column(graph.lanes.ends.iter().map(slack)))])
    }

    /// The last node of some lanes that is no later than `time`.
    pub(super) fn last_until(&self, lanes: &[usize], time: i64) -> Option<u32> {
        let last = |&lane: &usize| self.graph.lanes.last_until(self.reached(), lane, time);
        lanes.iter().filter_map(last).max_by_key(|&node| self.reached()[node as usize])
    }
}

impl Changes {
    fn new(graph: &DependencyGraph, factors: &Frame, skipped: Option<&Frame>) -> Result<Self> {
        let lanes = &graph.lanes;
        let [own, waiting] = ["own", "waiting"].map(|name| factors.f64_array(name));
        let (own, waiting) = (own?, waiting?);
        let [unknown, gap] =
            ["unknown", "gap"].map(|name| factors.has(name).then(|| factors.f64_array(name)).transpose());
        let (unknown, gap) = (unknown?, gap?);
        if own.len() != lanes.starts.len() {
            return Err(invalid("there is not one factor for each event"));
        }
        let is_shorter = |of: &ScalarBuffer<f64>| of.iter().all(|by| (0.0..=1.0).contains(by));
        let waits = is_shorter(&waiting) && [&unknown, &gap].into_iter().flatten().all(is_shorter);
        if !own.iter().all(|&by| by >= 0.0) || !waits {
            return Err(invalid("a factor is less than 0, or more than 1 for a wait"));
        }
        let mut lengths = lanes.all_lengths();
        if let Some(skipped) = skipped {
            skip(lanes, &mut lengths, skipped)?;
        }
        for (node, length) in lengths.iter_mut().enumerate() {
            let (event, owner) = (lanes.events[node] as usize, lanes.owners[node]);
            let by = match (&unknown, lanes.kinds[node], &gap) {
                (Some(unknown), Kind::Unknown, _) => unknown.get(event),
                // The first node of a lane follows nothing.
                (_, _, Some(gap)) if owner == NONE && !lanes.is_first(node as u32) => gap.get(event),
                // Nobody owns the gap before a GPU operation, nor what a thread does outside of any event.
                _ => own.get(owner as usize),
            };
            *length = by.map_or(*length, |&by| scaled(*length, by));
        }
        let released =
            factors.has("freed").then(|| Released::new(graph, factors).map(Arc::new)).transpose()?;
        Ok(Self { lengths, waiting, unknown, gap, released })
    }
}

/// Takes from the `lengths` of threads what of them is `skipped`.
fn skip(lanes: &Lanes, lengths: &mut [i64], skipped: &Frame) -> Result<()> {
    let [tracks, starts, ends] = ["track", "start_ns", "end_ns"].map(|name| skipped.i64_array(name));
    let threads = lanes.by_track();
    let times = starts?.iter().copied().zip(ends?.iter().copied()).collect::<Vec<_>>();
    let lane = |(track, times): (&i64, (i64, i64))| Some((*threads.get(track)?, times));
    let mut parts: Vec<(usize, (i64, i64))> = tracks?.iter().zip(times).filter_map(lane).collect();
    parts.sort_unstable();
    let mut last = (lanes.threads, i64::MIN);
    for (lane, (start, end)) in parts {
        let start = if lane == last.0 { start.max(last.1) } else { start };
        if start >= end {
            continue;
        }
        last = (lane, end);
        let nodes = lanes.lane(lane);
        let first = lanes.times[nodes.clone()].partition_point(|&at| at <= start).max(1);
        for node in nodes.skip(first) {
            let (since, until) = (lanes.times[node - 1].max(start), lanes.times[node].min(end));
            lengths[node] -= until.saturating_sub(since).clamp(0, lengths[node].max(0));
            if lanes.times[node] >= end {
                break;
            }
        }
    }
    Ok(())
}

/// A length times a factor, in whole ns; what is not positive stays.
#[inline]
fn scaled(length: i64, by: f64) -> i64 {
    // A float holds lengths of up to 104 days exactly.
    if by == 1.0 || length <= 0 { length } else { (length as f64 * by).round() as i64 }
}
