//! What nodes wait for beside the node before them: who waits, for whom, and for how long at least.

use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;

use super::lanes::Lanes;
use super::{Kind, NO_EDGE};
use crate::frame::NONE;

/// Longest time from the end of a call to its operation on an idle stream, or between operations of a stream, that is
/// taken for the overhead of a launch, ns. A longer one is a wait whose cause was not recorded.
const LONGEST_OVERHEAD_NS: i64 = 100_000;
/// Least operations in the queue of a stream that hold up a launch: queues of CUDA take about 1,000.
const FULL_QUEUE: usize = 500;
/// The class of a call that launches.
pub(super) const LAUNCH: u8 = 3;
/// Shortest call that waits for the GPU without a GPU operation to wait for that is a wait of unknown cause, ns.
pub(super) const SHORTEST_WAIT_NS: i64 = 30_000;

/// Longest time between an operation and one of another stream that waited for it, ns, if the wait was short.
pub(super) const NEAR_NS: i64 = 30_000;
/// The same of a long wait, as a part of it.
pub(super) const NEAR_PART: i64 = 64;

/// An edge between two lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) target: u32,
    pub(super) source: u32,
    pub(super) kind: Kind,
    /// At least this long.
    pub(super) length: i64,
}

/// The index of the first of `edges`, which are in order of their targets, to `node` or beyond.
pub(super) fn first_edge(edges: &[Edge], node: u32) -> usize {
    edges.partition_point(|edge| edge.target < node)
}

/// A call that waits for GPU operations, or lets a stream wait for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// The call.
    pub(super) call: u32,
    /// The process of the call.
    pub(super) process: u32,
    /// The stream that is waited for; [`NONE`] for all of the process.
    pub(super) on: u32,
    /// The call that recorded the event that is waited for, or [`NONE`] for the call itself.
    pub(super) until: u32,
    /// The stream that waits; [`NONE`] for the host.
    pub(super) stream: u32,
    /// Whether the call does nothing else, as one that allocates memory does.
    pub(super) only_waits: bool,
}

/// The operations of a stream in order of their starts.
struct Stream {
    lane: usize,
    process: u32,
    /// When each had been launched, with all before it.
    launched: Vec<i64>,
}

/// Finds the edges between lanes, and how long the edges inside lanes are at least where others are the cause.
pub(super) struct Finder<'a> {
    pub(super) lanes: &'a mut Lanes,
    pub(super) calls: usize,
    /// The call that launched each GPU operation, or [`NONE`].
    pub(super) launches: &'a [u32],
    /// Whether each GPU operation is a copy.
    pub(super) copies: &'a BooleanBuffer,
    /// Process of each GPU operation.
    pub(super) processes: &'a [u32],
    /// Whether each event of the host is an operator that computes.
    pub(super) operators: &'a BooleanBuffer,
    pub(super) edges: Vec<Edge>,
    /// Typical time from a call to its operation on an idle stream, ns.
    pub(super) delay: i64,
    /// Typical gap between operations of a busy stream, ns.
    pub(super) gap: i64,
}

impl Finder<'_> {
    /// Finds all edges.
    pub(super) fn find(
        mut self,
        waits: &[Wait],
        events: &[(u32, bool)],
        handed: &[(u32, u32)],
        callers: &HashMap<u32, i64>,
    ) -> Vec<Edge> {
        let streams: Vec<Stream> =
            (self.lanes.threads..self.lanes.groups.len()).map(|lane| self.stream(lane)).collect();
        let waiting: Vec<Waiting> = streams.iter().flat_map(|stream| self.waiting(stream.lane)).collect();
        // Either the stream or the launch was later; how long the later one takes is typical for it.
        self.delay = typical(waiting.iter().filter_map(Waiting::launch_delay));
        self.gap = typical(waiting.iter().filter_map(Waiting::stream_gap));
        self.add_launches(&waiting);
        self.add_copies();
        self.add_full_queues(&streams);
        self.add_waits(&streams, waits);
        self.add_events(events);
        self.add_unrecorded(&streams, &waiting);
        self.add_threads(callers);
        self.add_handed(handed);
        self.edges
    }

    pub(super) fn time(&self, node: u32) -> i64 {
        self.lanes.times[node as usize]
    }

    /// Adds an edge of at most `least` ns, and of at most the recorded time.
    pub(super) fn add(&mut self, source: u32, target: u32, kind: Kind, least: i64) {
        let recorded = self.time(target).saturating_sub(self.time(source));
        self.edges.push(Edge { target, source, kind, length: recorded.min(least) });
    }

    /// The call of the operation at a node.
    fn launch_of(&self, node: u32) -> u32 {
        self.launches[self.lanes.events[node as usize] as usize - self.calls]
    }

    fn stream(&self, lane: usize) -> Stream {
        let nodes = self.lanes.lane(lane);
        let first = self.lanes.events.get(nodes.start).map_or(0, |&event| event as usize - self.calls);
        let mut last = i64::MIN;
        let launched = nodes.step_by(2).map(|node| {
            let launch = self.launch_of(node as u32);
            let start = self.lanes.times[node];
            // Without a recorded launch, it was launched no earlier than the one before.
            let call = self.lanes.starts.get(launch as usize).map(|&call| self.time(call).min(start));
            last = last.max(call.unwrap_or(last));
            last
        });
        Stream { lane, process: self.processes[first], launched: launched.collect() }
    }

    /// What each operation waits for on its stream and for its launch.
    fn add_launches(&mut self, waiting: &[Waiting]) {
        let (delay, gap) = (self.delay, self.gap);
        for &Waiting { node, before, call, start, ready, .. } in waiting {
            let length = &mut self.lanes.lengths[node as usize];
            // The first of a stream has none, nor has what runs inside another operation.
            *length = if before == Some(node.wrapping_sub(1)) { (*length).min(gap) } else { NO_EDGE };
            if let Some(before) = before.filter(|&before| before != node - 1) {
                self.add(before, node, Kind::Stream, gap);
            }
            if ready.is_some_and(|ready| ready > start) {
                // It began before the end of the one before, but not before its start.
                self.add(node - 2, node, Kind::Stream, 0);
            }
            if let Some(call) = call {
                self.add(call, node, Kind::Launch, delay);
            }
        }
    }

    /// Operations that wait for another stream without a record of it, as most profilers do not record events.
    ///
    /// An operation that starts long after its launch and the one before it, just after an operation of another
    /// stream that was launched before, waited for that one.
    fn add_unrecorded(&mut self, streams: &[Stream], waiting: &[Waiting]) {
        let mut awaited: HashMap<u32, i64> = HashMap::new();
        for edge in self.edges.iter().filter(|edge| edge.kind == Kind::Event) {
            let ready = awaited.entry(edge.target).or_insert(i64::MIN);
            *ready = (*ready).max(self.time(edge.source));
        }
        let ready = |of: &Waiting| {
            let event = awaited.get(&of.node).copied();
            let times = [of.ready, event, of.launched.map(|launched| launched.saturating_add(self.delay))];
            times.into_iter().flatten().max().unwrap_or(of.start)
        };
        let held = waiting.iter().map(|of| (of, of.start.saturating_sub(ready(of))));
        let held: Vec<(&Waiting, i64)> = held.filter(|&(_, wait)| wait > NEAR_NS).collect();
        if held.is_empty() || streams.len() < 2 {
            return;
        }
        // End, process, launch and node of all operations.
        let ended = streams.iter().flat_map(|stream| {
            let nodes = self.lanes.lane(stream.lane).skip(1).step_by(2);
            nodes
                .zip(&stream.launched)
                .map(|(node, &at)| (self.lanes.times[node], stream.process, at, node as u32))
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        for (of, wait) in held {
            let most = NEAR_NS.max(wait / NEAR_PART);
            let lane = self.lanes.lane_of(of.node);
            let process = self.process_of(of.node);
            let before = ended.partition_point(|&(end, ..)| end <= of.start);
            let near =
                ended[..before].iter().rev().take_while(|&&(end, ..)| of.start.saturating_sub(end) <= most);
            let found = near.take(MOST_LATE).find(|&&(_, owner, launched, node)| {
                let is_earlier = of.launched.is_none_or(|call| launched < call);
                owner == process && is_earlier && self.lanes.lane_of(node) != lane
            });
            if let Some(&(.., node)) = found {
                self.add(node, of.node, Kind::Event, self.gap);
            }
        }
    }

    /// The process of the operation at a node.
    pub(super) fn process_of(&self, node: u32) -> u32 {
        self.processes[self.lanes.events[node as usize] as usize - self.calls]
    }

    /// The operations of a stream with the nodes that they wait for.
    fn waiting(&self, lane: usize) -> Vec<Waiting> {
        let nodes = self.lanes.lane(lane);
        let mut found = Vec::with_capacity(nodes.len() / 2);
        // The operation that ends last.
        let mut latest: Option<u32> = None;
        for node in nodes.step_by(2).map(|node| node as u32) {
            let (start, end) = (self.time(node), self.time(node + 1));
            let before = latest.map(|ended| {
                // What runs inside another operation does not wait for its end, but started after it.
                if self.time(ended) >= end && self.time(ended) > start { ended - 1 } else { ended }
            });
            let call = self.lanes.starts.get(self.launch_of(node) as usize).copied();
            let at = |node: u32| self.time(node);
            found.push(Waiting { node, start, before, call, ready: before.map(at), launched: call.map(at) });
            if latest.is_none_or(|latest| self.time(latest) <= end) {
                latest = Some(node + 1);
            }
        }
        found
    }

    /// Calls that return when their copy has ended.
    fn add_copies(&mut self) {
        for at in self.copies.set_indices() {
            let event = self.calls + at;
            if let Some(&returned) = self.lanes.ends.get(self.launches[at] as usize) {
                let call = self.lanes.starts[self.launches[at] as usize];
                let ended = self.lanes.ends[event];
                if self.time(ended) <= self.time(returned) && self.time(ended) > self.time(call) {
                    self.add_return(ended, returned, Kind::Synchronisation);
                }
            }
        }
    }

    /// Launches that return when an operation has left the queue of their stream, which was full.
    ///
    /// Operations of the last launches are missing if they ran after the recording. They are in the queue, too.
    fn add_full_queues(&mut self, streams: &[Stream]) {
        let mut of_call = vec![NONE; self.calls];
        // The last launch of each thread with an operation, and the stream of that.
        let mut last_known = vec![(0, NONE); self.lanes.threads];
        for (at, stream) in (0..).zip(streams) {
            for node in self.lanes.lane(stream.lane).step_by(2) {
                let call = self.launch_of(node as u32);
                let Some(&called) = self.lanes.starts.get(call as usize) else { continue };
                of_call[call as usize] = at;
                let last = &mut last_known[self.lanes.lane_of(called)];
                *last = (*last).max((called, at));
            }
        }
        for (lane, &(last_launch, last_stream)) in last_known.iter().enumerate() {
            let mut missing = 0;
            for node in self.lanes.lane(lane) {
                let call = self.lanes.events[node] as usize;
                if self.lanes.classes[call] != LAUNCH || self.lanes.starts[call] as usize != node {
                    continue;
                }
                let is_missing = of_call[call] == NONE && node > last_launch as usize;
                let of = if is_missing { last_stream } else { of_call[call] };
                if let Some(stream) = streams.get(of as usize) {
                    self.add_full_queue(stream, call, missing);
                }
                missing += usize::from(is_missing);
            }
        }
    }

    /// Lets a launch wait for an operation of its stream, if the queue was full, with those that are `missing`.
    fn add_full_queue(&mut self, stream: &Stream, call: usize, missing: usize) {
        let returned = self.lanes.ends[call];
        let called = self.time(self.lanes.starts[call]);
        let took = self.time(returned).saturating_sub(called);
        if took < SHORTEST_WAIT_NS {
            return;
        }
        let first = self.lanes.lane(stream.lane).start;
        let end = |at: usize| (first + 2 * at + 1) as u32;
        let launched = stream.launched.partition_point(|&at| at < called);
        // Operations of a stream end in the order of their starts, as a rule.
        let ended = first_without(launched, |at| self.time(end(at)) <= self.time(returned));
        let Some(last) = ended.checked_sub(1).map(end) else { return };
        let late = self.time(returned).saturating_sub(self.time(last));
        let is_full = launched - ended + missing >= FULL_QUEUE && self.time(last) > called;
        if is_full && late <= NEAR_NS.max(took / NEAR_PART) {
            self.add_return(last, returned, Kind::Queue);
        }
    }

    /// Lets a call return after an operation has ended.
    pub(super) fn add_return(&mut self, ended: u32, returned: u32, kind: Kind) {
        let late = self.time(returned).saturating_sub(self.time(ended));
        self.add(ended, returned, kind, late);
        // Without the wait, the call takes as long as it did after the wait.
        self.shorten(returned, late.max(0));
    }

    /// Lets the edge from the node before take at most so long.
    pub(super) fn shorten(&mut self, node: u32, most: i64) {
        let length = &mut self.lanes.lengths[node as usize];
        *length = (*length).min(most);
    }

    /// Calls that wait for streams, and streams that wait for events.
    fn add_waits(&mut self, streams: &[Stream], waits: &[Wait]) {
        let lanes: HashMap<u32, usize> =
            (0..).zip(streams).map(|(at, stream)| (self.lanes.groups[stream.lane] as u32, at)).collect();
        for wait in waits {
            let [called, returned] = [&self.lanes.starts, &self.lanes.ends].map(|of| of[wait.call as usize]);
            let until =
                self.lanes.starts.get(wait.until as usize).map_or(self.time(called), |&at| self.time(at));
            let waiting = lanes.get(&wait.stream).and_then(|&at| {
                let stream = &streams[at];
                let before = stream.launched.partition_point(|&at| at <= self.time(called));
                let first = self.lanes.lane(stream.lane).start;
                (before < stream.launched.len()).then(|| (first + 2 * before) as u32)
            });
            if wait.stream != NONE && waiting.is_none() {
                continue;
            }
            let awaited = match lanes.get(&wait.on) {
                Some(&at) => &streams[at..=at],
                None if wait.on == NONE => streams,
                None => continue,
            };
            let target = waiting.unwrap_or(returned);
            let awaited = awaited.iter().filter(|of| wait.on != NONE || of.process == wait.process);
            let ended: Vec<u32> =
                awaited.filter_map(|stream| self.last_launched(stream, until, self.time(target))).collect();
            if waiting.is_some() {
                for &ended in &ended {
                    self.add(ended, target, Kind::Event, self.gap);
                }
                continue;
            }
            let latest = ended.iter().map(|&node| self.time(node)).max().unwrap_or(i64::MIN);
            let late = self.time(returned).saturating_sub(latest);
            let waited = latest.saturating_sub(self.time(called));
            // A call that goes on for longer than it waited does something else.
            let returns = waited > 0 && late <= waited.max(SHORTEST_WAIT_NS);
            for &ended in &ended {
                // Whichever stream is the last, the call then takes as long as it did after the wait.
                self.add(ended, returned, Kind::Synchronisation, if returns { late } else { 0 });
            }
            if returns {
                self.shorten(returned, late);
            }
            let length = self.time(returned).saturating_sub(self.time(called));
            if wait.only_waits && waited <= 0 && length >= SHORTEST_WAIT_NS {
                self.lanes.kinds[returned as usize] = Kind::Unknown;
            }
        }
    }

    /// The end of the last operation of a stream that was launched before `until` and ended before `by`.
    fn last_launched(&self, stream: &Stream, until: i64, by: i64) -> Option<u32> {
        let first = self.lanes.lane(stream.lane).start;
        let launched = stream.launched.partition_point(|&at| at < until);
        // Operations of a stream end in the order of their launches, as a rule.
        let ended = (0..launched).rev().map(|at| (first + 2 * at + 1) as u32).take(MOST_LATE);
        ended.into_iter().find(|&node| self.time(node) <= by)
    }

    /// Threads of autograd and the threads that wait for them.
    ///
    /// A thread that another one works for is idle between them: from its node before the work to the node after.
    fn add_threads(&mut self, callers: &HashMap<u32, i64>) {
        let lanes = self.lanes.by_track();
        for lane in 0..self.lanes.threads {
            let nodes = self.lanes.lane(lane);
            let mut at = nodes.start;
            while at < nodes.end {
                let node = at as u32;
                let caller = callers.get(&self.lanes.events[at]).and_then(|track| lanes.get(track)).copied();
                let is_outermost = self.lanes.owners[at] == NONE;
                let Some(caller) = caller.filter(|&caller| is_outermost && caller != lane) else {
                    at += 1;
                    continue;
                };
                let idle_since = if at == nodes.start { i64::MIN } else { self.lanes.times[at - 1] };
                let called = self.lanes.last_until(&self.lanes.times, caller, self.lanes.times[at]);
                let Some(called) = called.filter(|&called| self.time(called) >= idle_since) else {
                    at += 1;
                    continue;
                };
                self.add(called, node, Kind::Thread, i64::MAX);
                self.lanes.lengths[at] = if at == nodes.start { NO_EDGE } else { 0 };
                // The next node of the caller waits for the last node here before it.
                let resumed = called + 1;
                at += 1;
                if (resumed as usize) < self.lanes.lane(caller).end {
                    let until = self.time(resumed);
                    while at < nodes.end && self.lanes.times[at] <= until {
                        at += 1;
                    }
                    let last = (at - 1) as u32;
                    let before = self.time(node).saturating_sub(self.time(called));
                    let after = until.saturating_sub(self.time(last));
                    self.add(last, resumed, Kind::Thread, i64::MAX);
                    self.shorten(resumed, before.saturating_add(after));
                }
            }
        }
    }
}

/// Maximum number of operations of a stream that are looked at for one that ended in time.
const MOST_LATE: usize = 64;

/// An operation of a stream and what it waits for.
struct Waiting {
    node: u32,
    start: i64,
    /// The node of its stream before it, and its time.
    before: Option<u32>,
    ready: Option<i64>,
    /// The start of its call, and its time.
    call: Option<u32>,
    launched: Option<i64>,
}

impl Waiting {
    /// How long the launch took, if the stream was idle.
    fn launch_delay(&self) -> Option<i64> {
        let launched = self.launched?;
        (self.ready.is_none_or(|ready| ready <= launched)).then(|| self.start.saturating_sub(launched))
    }

    /// How long after the one before it began, if it was launched long before that ended.
    fn stream_gap(&self) -> Option<i64> {
        let (ready, launched) = self.ready.zip(self.launched)?;
        (launched.saturating_add(LONGEST_OVERHEAD_NS) <= ready).then(|| self.start.saturating_sub(ready))
    }
}

/// The lower quartile, which those that also wait for something else do not reach; 0 of nothing, and never below.
pub(super) fn typical(values: impl Iterator<Item = i64>) -> i64 {
    let mut values: Vec<i64> = values.collect();
    let quarter = values.len() / 4;
    if values.is_empty() { 0 } else { (*values.select_nth_unstable(quarter).1).max(0) }
}

/// The first of some numbers for which something no longer holds, if it holds for all before that.
fn first_without(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Gives what is left of the time of each node to the edge that was satisfied last.
///
/// `edges` are in order of their targets.
pub(super) fn settle(lanes: &mut Lanes, edges: &mut [Edge]) {
    let mut targets = edges.iter().map(|edge| edge.target).peekable();
    for node in 0..lanes.times.len() as u32 {
        if targets.peek() == Some(&node) {
            while targets.next_if_eq(&node).is_some() {}
        } else {
            // It waits for the node before alone.
            lanes.lengths[node as usize] =
                lanes.times[node as usize].saturating_sub(lanes.time_before(&lanes.times, node));
        }
    }
    for edges in edges.chunk_by_mut(|a, b| a.target == b.target) {
        let before = lanes.time_before(&lanes.times, edges[0].target);
        let node = edges[0].target as usize;
        let time = lanes.times[node];
        let arrival = |edge: &Edge| lanes.times[edge.source as usize].saturating_add(edge.length);
        let latest = edges.iter().enumerate().max_by_key(|(_, edge)| arrival(edge));
        let Some((latest, found)) = latest.map(|(at, edge)| (at, arrival(edge))) else { continue };
        if before.saturating_add(lanes.lengths[node]) > found {
            lanes.lengths[node] = time.saturating_sub(before);
        } else {
            edges[latest].length = time.saturating_sub(lanes.times[edges[latest].source as usize]);
        }
    }
    // What waits long for its stream or its launch waits for something else.
    for (kind, &length) in lanes.kinds.iter_mut().zip(&lanes.lengths) {
        if *kind == Kind::Stream && length > LONGEST_OVERHEAD_NS {
            *kind = Kind::Unknown;
        }
    }
    for edge in edges.iter_mut() {
        let is_overhead = matches!(edge.kind, Kind::Stream | Kind::Launch);
        // A call that takes long launches late.
        let call = if edge.kind == Kind::Launch { lanes.event_length(edge.source) } else { 0 };
        if is_overhead && edge.length.saturating_sub(call) > LONGEST_OVERHEAD_NS {
            edge.kind = Kind::Unknown;
        }
    }
}
