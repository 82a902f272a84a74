//! Moments that steps begin and end with: the latest of some events, or what a thread did at a time.

use arrow_array::{Array, BooleanArray, RecordBatch};

use super::{DependencyGraph, Replay};
use crate::frame::{Frame, Result, column, invalid, table};

/// A node of a group of nodes, of which the latest counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) group: usize,
    /// None for a time at which nothing had been recorded.
    pub(super) node: Option<u32>,
    /// How long after the node.
    pub(super) since: i64,
}

impl DependencyGraph {
    /// The marks of a frame.
    ///
    /// Columns: `group`, below `groups`, and either `event` and `is_end`, or `at_ns`, a time of the recording, which
    /// stands for the last node of the host before it.
    pub(super) fn marks(&self, frame: &Frame, groups: usize) -> Result<Vec<Mark>> {
        let (group, event) = (frame.u32_array("group")?, frame.u32_array("event")?);
        let (is_end, at) = (frame.array::<BooleanArray>("is_end")?, frame.nullable_i64("at_ns")?);
        let lanes = &self.lanes;
        let threads: Vec<usize> =
            self.deciding.iter().copied().filter(|&lane| lane < lanes.threads).collect();
        let moment = |at: i64| {
            let nodes = threads.iter().filter_map(|&lane| lanes.last_until(&lanes.times, lane, at));
            let node = nodes.max_by_key(|&node| lanes.times[node as usize]);
            (node, node.map_or(at, |node| at.saturating_sub(lanes.times[node as usize])))
        };
        let mark = |row: usize| {
            let group = group[row] as usize;
            let ends = if is_end.value(row) { &lanes.ends } else { &lanes.starts };
            let found = match ends.get(event[row] as usize) {
                Some(&node) => (Some(node), 0),
                None if at.is_valid(row) => moment(at.value(row)),
                None => return None,
            };
            Some(Mark { group, node: found.0, since: found.1 })
        };
        let marks: Vec<Mark> = (0..frame.height()).filter_map(mark).collect();
        let is_right = marks.iter().all(|mark| mark.group < groups);
        is_right.then_some(marks).ok_or_else(|| invalid("a mark belongs to no group"))
    }
}

impl Replay {
    /// The latest of the marks of each group: `at_ns`, null without any. See [`DependencyGraph::marks`].
    pub fn latest_marks(&self, marks: &Frame, groups: usize) -> Result<RecordBatch> {
        let mut latest: Vec<Option<i64>> = vec![None; groups];
        for Mark { group, node, since } in self.graph.marks(marks, groups)? {
            let reached = node.map_or(0, |node| self.reached()[node as usize]);
            latest[group] = latest[group].max(Some(reached.saturating_add(since)));
        }
        table([("at_ns", column(latest))])
    }
}
