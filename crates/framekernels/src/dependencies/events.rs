//! Streams that wait for events which a profiler recorded only as calls.

use super::Kind;
use super::edges::Finder;
use crate::frame::NONE;

/// A call of which [`Finder::add_events`] keeps track, with the start of an operation.
enum Moment {
    /// Records an event after the operation.
    Record(u32),
    /// Launches the operation, after a number of waits for events.
    Launch(u32, usize),
}

impl Moment {
    fn waits(&self) -> bool {
        !matches!(self, Self::Launch(_, 0))
    }
}

impl Finder<'_> {
    /// Streams that wait for events which a profiler recorded only as calls, each with whether it waits.
    ///
    /// The first operation that a thread launches after such a wait is on the stream that waits. The event is the
    /// latest on another stream: one is recorded on the stream of the last operation that its thread launched.
    pub(super) fn add_events(&mut self, events: &[(u32, bool)]) {
        if events.is_empty() {
            return;
        }
        // Of each call, the first and the last operation that it launched.
        let mut launched = vec![(NONE, NONE); self.calls];
        for (at, &call) in (self.calls..).zip(self.launches).filter(|&(_, &call)| call != NONE) {
            let (node, known) = (self.lanes.starts[at], &mut launched[call as usize]);
            *known = if known.0 == NONE { (node, node) } else { (known.0.min(node), known.1.max(node)) };
        }
        let mut is_wait = vec![None; self.calls];
        events.iter().for_each(|&(call, waits)| is_wait[call as usize] = Some(waits));
        // In order of time: what was launched before a record, or the number of waits before a launch.
        let mut moments: Vec<(i64, u32, Moment)> = Vec::new();
        for lane in 0..self.lanes.threads {
            let (mut last, mut waits) = (None, 0);
            for node in self.lanes.lane(lane).map(|node| node as u32) {
                let call = self.lanes.events[node as usize] as usize;
                let (first, latest) = launched[call];
                if (first == NONE && is_wait[call].is_none()) || self.lanes.starts[call] != node {
                    continue;
                }
                let moment = match (first, is_wait[call]) {
                    (NONE, Some(true)) => {
                        waits += 1;
                        None
                    }
                    (NONE, _) => last.map(Moment::Record),
                    _ => {
                        last = Some(latest);
                        Some(Moment::Launch(first, std::mem::take(&mut waits))).filter(Moment::waits)
                    }
                };
                moments.extend(moment.map(|moment| (self.time(node), node, moment)));
            }
        }
        moments.sort_unstable_by_key(|&(time, node, _)| (time, node));
        // The last operation before each event, the latest event of a stream last.
        let mut recorded: Vec<u32> = Vec::new();
        for (.., moment) in moments {
            match moment {
                Moment::Record(node) => {
                    let lane = self.lanes.lane_of(node);
                    recorded.retain(|&other| self.lanes.lane_of(other) != lane);
                    recorded.push(node);
                }
                Moment::Launch(first, waits) => {
                    let (lane, process) = (self.lanes.lane_of(first), self.process_of(first));
                    let is_other =
                        |&&node: &&u32| self.lanes.lane_of(node) != lane && self.process_of(node) == process;
                    let awaited: Vec<u32> =
                        recorded.iter().rev().filter(is_other).take(waits).map(|&node| node + 1).collect();
                    for ended in awaited {
                        if self.time(ended) <= self.time(first) {
                            self.add(ended, first, Kind::Event, self.gap);
                        }
                    }
                }
            }
        }
    }
}
