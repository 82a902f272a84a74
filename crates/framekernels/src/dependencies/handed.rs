//! Work that calls hand to other threads.

use super::edges::{Finder, NEAR_NS, NEAR_PART, SHORTEST_WAIT_NS, typical};
use super::{Kind, NO_EDGE};

/// An event of another thread, and the call that handed it over.
struct Handed {
    event: u32,
    /// The nodes with which they start.
    start: u32,
    call: u32,
}

impl Finder<'_> {
    /// Work that calls hand to other threads: pairs of the event there and the call.
    ///
    /// It starts after the call and what its thread did before, and the calling thread waits for its end: where that
    /// did nothing else then.
    pub(super) fn add_handed(&mut self, handed: &[(u32, u32)]) {
        let handed = handed.iter().map(|&(event, call)| Handed {
            event,
            start: self.lanes.starts[event as usize],
            call: self.lanes.starts[call as usize],
        });
        let handed: Vec<Handed> =
            handed.filter(|of| self.lanes.lane_of(of.start) != self.lanes.lane_of(of.call)).collect();
        let delay = typical(handed.iter().filter_map(|of| self.handing_delay(of)));
        for of in &handed {
            self.add(of.call, of.start, Kind::Thread, delay);
            if self.lanes.is_first(of.start) {
                self.lanes.lengths[of.start as usize] = NO_EDGE;
            } else {
                self.shorten(of.start, delay);
            }
        }
        for of in &handed {
            let ended = self.lanes.ends[of.event as usize];
            if let Some(resumed) = self.resumed(self.lanes.lane_of(of.call), of.event, ended) {
                self.add_return(ended, resumed, Kind::Thread);
            }
        }
    }

    /// How long after the call the work started, if its thread was free.
    fn handing_delay(&self, of: &Handed) -> Option<i64> {
        let called = self.time(of.call);
        let is_free = self.lanes.is_first(of.start) || self.time(of.start - 1) <= called;
        is_free.then(|| self.time(of.start).saturating_sub(called))
    }

    /// The node with which a thread continued after an event of another, for which it waited longest.
    ///
    /// It continues when the work is done, which may be before the end of the event.
    fn resumed(&self, thread: usize, event: u32, ended: u32) -> Option<u32> {
        let end = self.time(ended);
        let took = end.saturating_sub(self.time(self.lanes.starts[event as usize]));
        let since = end.saturating_sub(NEAR_NS.max(took / NEAR_PART));
        let last = self.lanes.last_until(&self.lanes.times, thread, end)? + 1;
        let nodes = self.lanes.lane(thread);
        let before = (nodes.start as u32 + 1..=last).rev();
        let near = before.take_while(|&node| node == last || self.time(node) >= since);
        let idle = near.filter(|&node| (node as usize) < nodes.end && !self.is_computing(node - 1, node));
        let waited = |node: u32| self.time(node).min(end).saturating_sub(self.time(node - 1));
        let longest = idle.max_by_key(|&node| waited(node))?;
        (waited(longest) >= SHORTEST_WAIT_NS).then_some(longest)
    }

    /// Whether an operator ran, without a record of what it did, from one node of a thread to the next.
    fn is_computing(&self, from: u32, to: u32) -> bool {
        let owner = self.lanes.owners[to as usize] as usize;
        let is_leaf = self.lanes.starts.get(owner) == Some(&from) && self.lanes.ends[owner] == to;
        is_leaf && self.operators.value(owner)
    }
}
