//! The critical path: from the end of a window back to its start, along the edges that were satisfied last.

use arrow_array::RecordBatch;

use super::{DependencyGraph, Kind};
use crate::frame::{NONE, Result, column, positions, table};

/// A part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    start: i64,
    end: i64,
    event: u32,
    kind: Kind,
}

impl DependencyGraph {
    /// The critical path of a window: `start_ns`, `dur_ns`, `event` (position among the events of the host and
    /// then the GPU; null for none), its `class` (0 for GPU operations) and `edge`, in order of time.
    ///
    /// The segments fill the window. Neighbours of one event and edge are one segment.
    pub fn critical_path(&self, start: i64, end: i64) -> Result<RecordBatch> {
        let segments = self.segments(start, end);
        let class = |event: u32| self.lanes.classes.get(event as usize).copied().unwrap_or_default();
        table([
            ("start_ns", column(segments.iter().map(|segment| segment.start))),
            ("dur_ns", column(segments.iter().map(|segment| segment.end.saturating_sub(segment.start)))),
            ("event", positions(segments.iter().map(|segment| segment.event).collect())),
            ("class", column(segments.iter().map(|segment| class(segment.event)))),
            ("edge", column(segments.iter().map(|segment| segment.kind as u8))),
        ])
    }

    fn segments(&self, start: i64, end: i64) -> Vec<Segment> {
        let mut backwards = Backwards { segments: Vec::new(), start, reached: end };
        let lanes = &self.lanes;
        let ends = self.deciding.iter().filter_map(|&lane| lanes.last_until(lane, end));
        let mut node = ends.max_by_key(|&node| lanes.times[node as usize]);
        if let Some(node) = node {
            // Nothing was recorded up to the end.
            backwards.add(lanes.times[node as usize], NONE, Kind::Unknown);
        }
        while let Some(at) = node.filter(|_| backwards.reached > start) {
            let (source, event, kind) = self.latest(at);
            backwards.add(source.map_or(i64::MIN, |source| lanes.times[source as usize]), event, kind);
            node = source;
        }
        backwards.add(start, NONE, Kind::Unknown);
        backwards.segments.reverse();
        backwards.segments
    }

    /// The edge of a node that was satisfied last: its source, the event it belongs to and its kind.
    fn latest(&self, node: u32) -> (Option<u32>, u32, Kind) {
        let (at, lanes) = (node as usize, &self.lanes);
        if lanes.time_before(node).saturating_add(lanes.lengths[at]) == lanes.times[at] {
            if lanes.is_first(node) {
                return (None, NONE, Kind::Unknown);
            }
            // A gap on a stream is charged to the operation after it.
            let event = if self.is_call(lanes.events[at]) { lanes.owners[at] } else { lanes.events[at] };
            return (Some(node - 1), event, lanes.kinds[at]);
        }
        let first = self.edges.partition_point(|edge| edge.target < node);
        let edges = self.edges[first..].iter().take_while(|edge| edge.target == node);
        let time = |edge: &&super::edges::Edge| lanes.times[edge.source as usize].saturating_add(edge.length);
        let found = edges.max_by_key(time);
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
