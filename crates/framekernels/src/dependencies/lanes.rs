//! The nodes of the graph: starts and ends of events in order, lane by lane.

use hashbrown::HashMap;

use crate::call_tree::{Slices, by_group};
use crate::frame::NONE;

use super::Kind;

/// Nodes in lanes. Host events come first, then GPU operations; each is known by its position among them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Recorded time of each node.
    pub(super) times: Vec<i64>,
    /// The event whose start or end each node is.
    pub(super) events: Vec<u32>,
    /// The innermost event between the node before and each node; [`NONE`] where there is none.
    pub(super) owners: Vec<u32>,
    /// What the edge from the node before stands for.
    pub(super) kinds: Vec<Kind>,
    /// Length of that edge; the first node of a lane has its time, as if the node before were at 0. Empty once
    /// all edges are known.
    pub(super) lengths: Vec<i64>,
    /// The nodes whose edge is not as long as the recorded time, in order, and the length of that edge.
    short: Vec<(u32, i64)>,
    /// The class of each event of the host: its own, or that of the events around it.
    pub(super) classes: Vec<u8>,
    /// Start and end of each event.
    pub(super) starts: Vec<u32>,
    pub(super) ends: Vec<u32>,
    /// The first node of each lane, threads before streams, and the number of nodes.
    pub(super) firsts: Vec<u32>,
    /// The group of each lane: the track of a thread or the number of a stream.
    pub(super) groups: Vec<i64>,
    pub(super) threads: usize,
    /// Whether the times of each lane increase: operations of a stream may overlap.
    is_in_order: Vec<bool>,
}

impl Lanes {
    /// `classes` has a number for each event of the host, 0 for one that has the class of what is around it.
    pub(super) fn new(host: Slices<'_>, classes: Vec<u8>, gpu: Slices<'_>) -> Self {
        let (calls, events) = (host.groups.len(), host.groups.len() + gpu.groups.len());
        let (starts, ends) = (vec![NONE; events], vec![NONE; events]);
        let mut lanes = Self { starts, ends, classes, ..Self::default() };
        lanes.times.reserve_exact(2 * events);
        lanes.events.reserve_exact(2 * events);
        lanes.owners.reserve_exact(2 * events);
        lanes.kinds.reserve_exact(2 * events);
        lanes.lengths.reserve_exact(2 * events);
        for (group, members) in by_group(host.groups, |_| true) {
            lanes.groups.push(group);
            lanes.firsts.push(lanes.times.len() as u32);
            lanes.add_thread(&host, members);
        }
        lanes.threads = lanes.groups.len();
        for (group, members) in by_group(gpu.groups, |_| true) {
            lanes.groups.push(group);
            lanes.firsts.push(lanes.times.len() as u32);
            lanes.add_stream(&gpu, members, calls as u32);
        }
        lanes.firsts.push(lanes.times.len() as u32);
        lanes.is_in_order =
            (0..lanes.groups.len()).map(|at| lanes.times[lanes.lane(at)].is_sorted()).collect();
        lanes
    }

    /// The nodes of a lane.
    pub(super) fn lane(&self, lane: usize) -> std::ops::Range<usize> {
        self.firsts[lane] as usize..self.firsts[lane + 1] as usize
    }

    /// The lane of a node.
    pub(super) fn lane_of(&self, node: u32) -> usize {
        self.firsts.partition_point(|&first| first <= node) - 1
    }

    /// The events of a thread, which nest as a call stack does; those that overlap in part are side by side.
    fn add_thread(&mut self, slices: &Slices<'_>, mut members: Vec<u32>) {
        members.sort_by_key(|&at| slices.key(at));
        // What has not ended, the first end last.
        let mut open: Vec<(i64, u32)> = Vec::new();
        for at in members {
            let (start, end) = slices.time(at);
            while let Some((ended, event)) = open.pop_if(|open| open.0 <= start) {
                self.ends[event as usize] = self.add(ended, event, event, Kind::Host);
            }
            let owner = open.last().map_or(NONE, |&(_, event)| event);
            self.starts[at as usize] = self.add(start, at, owner, Kind::Host);
            if self.classes[at as usize] == 0 {
                self.classes[at as usize] = self.classes.get(owner as usize).copied().unwrap_or_default();
            }
            let place = open.partition_point(|&(other, _)| other >= end);
            open.insert(place, (end, at));
        }
        while let Some((ended, event)) = open.pop() {
            self.ends[event as usize] = self.add(ended, event, event, Kind::Host);
        }
    }

    /// The operations of a stream, in order of their starts.
    fn add_stream(&mut self, slices: &Slices<'_>, mut members: Vec<u32>, calls: u32) {
        // An operation that takes no time comes before one that starts with it.
        let key = |&at: &u32| (slices.time(at), slices.rows.get(at as usize).copied());
        members.sort_by_key(key);
        for at in members {
            let ((start, end), event) = (slices.time(at), calls + at);
            self.starts[event as usize] = self.add(start, event, NONE, Kind::Stream);
            self.ends[event as usize] = self.add(end, event, event, Kind::Execution);
        }
    }

    fn add(&mut self, time: i64, event: u32, owner: u32, kind: Kind) -> u32 {
        let node = self.times.len() as u32;
        let before = self.time_before(&self.times, node);
        self.times.push(time);
        self.events.push(event);
        self.owners.push(owner);
        self.kinds.push(kind);
        self.lengths.push(time.saturating_sub(before));
        node
    }

    /// Keeps only lengths that are not the recorded time: those of few nodes.
    pub(super) fn shrink(&mut self) {
        let lengths = (0..).zip(std::mem::take(&mut self.lengths));
        let differs = |((node, length), recorded)| (length != recorded).then_some((node, length));
        self.short = lengths.zip(self.recorded()).filter_map(differs).collect();
    }

    /// The recorded time from the node before to each node.
    fn recorded(&self) -> Vec<i64> {
        let mut recorded = Vec::with_capacity(self.times.len());
        for lane in 0..self.groups.len() {
            let mut before = 0;
            for &time in &self.times[self.lane(lane)] {
                recorded.push(time.saturating_sub(before));
                before = time;
            }
        }
        recorded
    }

    /// The lengths of the edges to all nodes from the node before.
    pub(super) fn all_lengths(&self) -> Vec<i64> {
        let mut lengths = self.recorded();
        for &(node, length) in &self.short {
            lengths[node as usize] = length;
        }
        lengths
    }

    /// The length of one of these edges.
    pub(super) fn length(&self, node: u32) -> i64 {
        let recorded = || self.times[node as usize].saturating_sub(self.time_before(&self.times, node));
        let found = self.short.binary_search_by_key(&node, |short| short.0);
        found.map_or_else(|_| recorded(), |at| self.short[at].1)
    }

    /// The lanes of threads by their tracks.
    pub(super) fn by_track(&self) -> HashMap<i64, usize> {
        self.groups.iter().copied().zip(0..self.threads).collect()
    }

    /// The recorded duration of the event of a node.
    pub(super) fn event_length(&self, node: u32) -> i64 {
        let event = self.events[node as usize] as usize;
        let [start, end] = [self.starts[event], self.ends[event]].map(|node| self.times[node as usize]);
        end.saturating_sub(start)
    }

    pub(super) fn is_first(&self, node: u32) -> bool {
        self.firsts.binary_search(&node).is_ok()
    }

    /// The time of the node before in the lane, if the nodes are at `times`; 0 before the first.
    pub(super) fn time_before(&self, times: &[i64], node: u32) -> i64 {
        if self.is_first(node) { 0 } else { times[node as usize - 1] }
    }

    /// The last node of a lane that is no later than `time`, if the nodes are at `times`.
    pub(super) fn last_until(&self, times: &[i64], lane: usize, time: i64) -> Option<u32> {
        let nodes = self.lane(lane);
        let times = &times[nodes.clone()];
        let at = if self.is_in_order[lane] {
            times.partition_point(|&at| at <= time).checked_sub(1)
        } else {
            let before = times.iter().enumerate().filter(|&(_, &at)| at <= time);
            before.max_by_key(|&(_, &at)| at).map(|(at, _)| at)
        };
        at.map(|at| (nodes.start + at) as u32)
    }
}
