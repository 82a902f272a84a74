//! The critical path: from the end of a window back to its start, along the edges that were satisfied last.

use arrow_array::RecordBatch;

use super::edges::first_edge;
use super::{Kind, Replay};
use crate::frame::{NONE, Result, column, positions, table};

/// A part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    start: i64,
    end: i64,
    event: u32,
    kind: Kind,
}

impl Replay {
    /// The critical paths of windows of the replay: `window` (index), `start_ns`, `dur_ns`, `event` (position
    /// among the events of the host and then the GPU; null for none) and `edge`, in order of windows and time.
    ///
    /// The segments of a window fill it. Neighbours of one event and edge are one segment. `to` has the event of each
    /// window up to whose start its path leads; without one, it is what the window ends with.
    pub fn critical_paths(&self, windows: &[(i64, i64)], to: &[Option<u32>]) -> Result<RecordBatch> {
        let (mut numbers, mut segments) = (Vec::new(), Vec::new());
        for (number, &(start, end)) in (0_u32..).zip(windows) {
            let event = to.get(number as usize).copied().flatten();
            let node = event.and_then(|event| self.graph.lanes.starts.get(event as usize)).copied();
            let node = node.or_else(|| self.last_until(&self.graph.deciding, end));
            segments.extend(self.segments(node, start, end));
            numbers.resize(segments.len(), number);
        }
        table([
            ("window", positions(numbers)),
            ("start_ns", column(segments.iter().map(|segment| segment.start))),
            ("dur_ns", column(segments.iter().map(|segment| segment.end.saturating_sub(segment.start)))),
            ("event", positions(segments.iter().map(|segment| segment.event).collect())),
            ("edge", column(segments.iter().map(|segment| segment.kind as u8))),
        ])
    }

    fn segments(&self, mut node: Option<u32>, start: i64, end: i64) -> Vec<Segment> {
        let mut backwards = Backwards { segments: Vec::new(), start, reached: end };
        let time = |node: u32| self.reached()[node as usize];
        if let Some(node) = node {
            // Nothing was recorded up to the end.
            backwards.add(time(node), NONE, Kind::Unknown);
        }
        while let Some(at) = node.filter(|_| backwards.reached > start) {
            let (source, event, kind) = self.latest(at);
            backwards.add(source.map_or(i64::MIN, time), event, kind);
            node = source;
        }
        backwards.add(start, NONE, Kind::Unknown);
        backwards.segments.reverse();
        backwards.segments
    }

    /// The edge of a node that was satisfied last: its source, the event it belongs to and its kind.
    fn latest(&self, node: u32) -> (Option<u32>, u32, Kind) {
        let (at, lanes) = (node as usize, &self.graph.lanes);
        let before = self.time_before(node);
        if before.saturating_add(self.length(node)) == self.reached()[at] {
            let Some(source) = self.node_before(node) else { return (None, NONE, Kind::Unknown) };
            // A gap on a stream is charged to the operation after it.
            let is_call = self.graph.is_call(lanes.events[at]);
            let event = if is_call { lanes.owners[at] } else { lanes.events[at] };
            return (Some(source), event, lanes.kinds[at]);
        }
        let edges = self.edges();
        let edges = edges[first_edge(edges, node)..].iter().take_while(|edge| edge.target == node);
        let found = edges.max_by_key(|edge| self.arrival(edge, before));
        found.map_or((None, NONE, Kind::Unknown), |edge| (Some(edge.source), lanes.events[at], edge.kind))
    }
}

/// The segments of a path, the last one first.
struct Backwards {
    segments: Vec<Segment>,
    start: i64,
    reached: i64,
}

impl Backwards {
    /// Adds the time since `since`, as far as it is before what was added and in the window.
    fn add(&mut self, since: i64, event: u32, kind: Kind) {
        let start = since.max(self.start);
        if start >= self.reached {
            return;
        }
        match self.segments.last_mut().filter(|last| (last.event, last.kind) == (event, kind)) {
            Some(last) => last.start = start,
            None => self.segments.push(Segment { start, end: self.reached, event, kind }),
        }
        self.reached = start;
    }
}
