//! A replay as a function of when other ranks let this one go on.
//!
//! A rank meets others in collectives: it arrives where one starts, and goes on where it ends, which others decide.
//! Every node is at the latest of some terms, each of which is a meeting and how long after it the node comes. Terms
//! that never decide are left out. Where too many are left, as for collectives beside computation, a join takes their
//! place: a source of its own, which comes at the latest of them. So a rank is as small as its meetings.

use arrow_array::RecordBatch;

use super::edges::first_edge;
use super::marks::Mark;
use super::{NO_EDGE, Replay};
use crate::frame::{Frame, NONE, Result, column, invalid, positions, table};

/// How many meetings are looked back for one that comes before another in any case.
const MEETINGS_BACK: usize = 8;

/// Most terms of a node.
const MOST_TERMS: usize = if cfg!(test) { 2 } else { 8 };

/// A meeting or a join, or [`NONE`] for the beginning of the recording, and how long after it.
type Term = (u32, i64);

/// A list of terms, and how long after it all of them are.
#[derive(Debug, Clone, Copy)]
struct Sum {
    list: u32,
    since: i64,
}

/// Lists of terms, each of which many nodes share.
#[derive(Debug, Default)]
struct Terms {
    items: Vec<Term>,
    /// Where the items of each list end.
    ends: Vec<u32>,
    /// When the rank arrives at each meeting, and then at each join.
    arrivals: Vec<Option<Sum>>,
    /// When each of them is over at the earliest.
    earliest: Vec<i64>,
    /// When each join was recorded.
    joined: Vec<i64>,
    /// What is being put together.
    found: Vec<Term>,
}

impl Replay {
    /// When this rank arrives at its meetings, reaches the marks of each group, and its joins: the latest of `source`
    /// (a meeting or a join; null for the beginning of the recording) plus `length_ns`, for each `target`.
    ///
    /// Columns: `meetings` has `event`, each once. Targets are meetings, then groups, then joins, as are sources;
    /// `recorded_ns` is of a target that is a join. `marks` is as for [`Replay::latest_marks`].
    pub fn terms(&self, meetings: &Frame, marks: &Frame, groups: usize) -> Result<RecordBatch> {
        let meetings = meetings.u32_array("event")?;
        let (graph, lanes) = (&self.graph, &self.graph.lanes);
        let mut meeting_of = vec![NONE; lanes.starts.len()];
        for (number, &event) in (0..).zip(meetings.iter()) {
            let of = meeting_of.get_mut(event as usize).ok_or_else(|| invalid("a meeting is no event"))?;
            *of = number;
        }
        let count = meetings.len();
        let mut terms = Terms::of(count);
        let mut sums = vec![Sum { list: 0, since: NO_EDGE }; lanes.times.len()];
        let mut ways: Vec<Sum> = Vec::new();
        for &(from, to) in &graph.runs {
            let edges = self.edges();
            let mut edges = edges[first_edge(edges, from)..].iter().peekable();
            for node in from..to {
                let event = lanes.events[node as usize] as usize;
                let (meeting, is_start) = (meeting_of[event], lanes.starts[event] == node);
                ways.clear();
                // The beginning of the recording is the first list.
                let way =
                    self.node_before(node).map_or(Sum { list: 0, since: 0 }, |node| sums[node as usize]);
                ways.push(way.after(self.length(node)));
                let recorded = |at: i64| Sum { list: 0, since: at };
                ways.extend(self.kept_inside(node).map(recorded));
                let before = self.time_before(node);
                while let Some(edge) = edges.next_if(|edge| edge.target == node) {
                    let source = edge.source as usize;
                    let length = self.after_source(edge, before).saturating_sub(self.reached()[source]);
                    ways.push(sums[source].after(length));
                    ways.extend(self.kept(edge.kind, edge.target, edge.length).map(recorded));
                }
                let at = lanes.times[node as usize];
                sums[node as usize] = match meeting {
                    NONE => terms.latest(&ways, at),
                    meeting if is_start => {
                        let sum = terms.latest(&ways, at);
                        terms.arrive(meeting, sum);
                        sum
                    }
                    meeting => terms.list(&[(meeting, 0)]),
                };
            }
        }
        let mut latest: Vec<Option<Sum>> = vec![None; groups];
        for Mark { group, node, since } in graph.marks(marks, groups)? {
            let sum = node.map_or(Sum { list: 0, since: 0 }, |node| sums[node as usize]).after(since);
            let at = node.map_or(0, |node| lanes.times[node as usize]);
            latest[group] = Some(latest[group].map_or(sum, |known| terms.latest(&[known, sum], at)));
        }
        let (mut targets, mut sources, mut lengths, mut recorded) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (arrivals, joins) = terms.arrivals.split_at(count);
        let times = std::iter::repeat_n(None, count + groups).chain(terms.joined.iter().copied().map(Some));
        for ((target, sum), at) in (0..).zip(arrivals.iter().chain(&latest).chain(joins)).zip(times) {
            for (source, length) in sum.iter().flat_map(|&sum| terms.of_sum(sum)) {
                let is_join = source != NONE && source as usize >= count;
                targets.push(target);
                sources.push(if is_join { source + groups as u32 } else { source });
                lengths.push(length);
                recorded.push(at);
            }
        }
        table([
            ("target", positions(targets)),
            ("source", positions(sources)),
            ("length_ns", column(lengths)),
            ("recorded_ns", column(recorded)),
        ])
    }
}

impl Sum {
    fn after(self, length: i64) -> Self {
        Self { list: self.list, since: self.since.saturating_add(length) }
    }
}

impl Terms {
    fn of(meetings: usize) -> Self {
        let mut terms =
            Self { arrivals: vec![None; meetings], earliest: vec![i64::MIN; meetings], ..Self::default() };
        terms.list(&[(NONE, 0)]);
        terms
    }

    /// Adds a list.
    fn list(&mut self, items: &[Term]) -> Sum {
        self.items.extend_from_slice(items);
        self.ends.push(self.items.len() as u32);
        Sum { list: self.ends.len() as u32 - 1, since: 0 }
    }

    fn items(&self, list: u32) -> &[Term] {
        let start = list.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.items[start as usize..self.ends[list as usize] as usize]
    }

    fn of_sum(&self, sum: Sum) -> impl Iterator<Item = Term> {
        self.items(sum.list).iter().map(move |&(source, length)| (source, length.saturating_add(sum.since)))
    }

    /// Notes when the rank arrives at a meeting, which is over no earlier.
    fn arrive(&mut self, meeting: u32, sum: Sum) {
        let at = |(source, length): Term| self.begin(source).saturating_add(length);
        self.earliest[meeting as usize] = self.of_sum(sum).map(at).max().unwrap_or(i64::MIN);
        self.arrivals[meeting as usize] = Some(sum);
    }

    /// A source at the latest of all `found`, which was recorded at a time.
    fn join(&mut self, found: &[Term], at: i64) -> Sum {
        let (sum, join) = (self.list(found), self.arrivals.len() as u32);
        self.arrivals.push(None);
        self.earliest.push(i64::MIN);
        self.joined.push(at);
        self.arrive(join, sum);
        self.list(&[(join, 0)])
    }

    /// When a source is reached at the earliest.
    fn begin(&self, source: u32) -> i64 {
        if source == NONE { 0 } else { self.earliest[source as usize] }
    }

    /// The latest of several sums, at a node that was recorded at a time.
    fn latest(&mut self, ways: &[Sum], at: i64) -> Sum {
        let first = ways[0];
        if ways.iter().all(|way| way.list == first.list) {
            let since = ways.iter().map(|way| way.since).max().unwrap_or(first.since);
            return Sum { list: first.list, since };
        }
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for &way in ways {
            for (source, length) in self.of_sum(way) {
                match found.iter_mut().find(|term| term.0 == source) {
                    Some(term) => term.1 = length.max(term.1),
                    None => found.push((source, length)),
                }
            }
        }
        let mut place = 0;
        while place < found.len() {
            let (source, length) = found[place];
            let decides =
                |&(other, since): &Term| other != source && self.comes_after(source, length, other, since);
            if found.iter().any(decides) {
                found.swap_remove(place);
            } else {
                place += 1;
            }
        }
        let same = ways.iter().find(|way| {
            let items = self.items(way.list);
            let is_known =
                |&(source, length): &Term| found.contains(&(source, length.saturating_add(way.since)));
            items.len() == found.len() && items.iter().all(is_known)
        });
        let sum = match same {
            Some(&sum) => sum,
            None if found.len() > MOST_TERMS => self.join(&found, at),
            None => self.list(&found),
        };
        self.found = found;
        sum
    }

    /// Whether `since` after a meeting is in any case no earlier than `length` after a source.
    fn comes_after(&self, source: u32, length: i64, meeting: u32, since: i64) -> bool {
        if meeting == NONE {
            return false;
        }
        if source == NONE {
            return self.earliest[meeting as usize].saturating_add(since) >= length;
        }
        // From the meeting back to one that it comes after.
        let (mut meeting, mut since) = (meeting, since);
        for _ in 0..MEETINGS_BACK {
            let Some(arrival) = self.arrivals[meeting as usize] else { return false };
            let mut last = None;
            for (before, after) in self.of_sum(arrival).filter(|&(before, _)| before != NONE) {
                let total = since.saturating_add(after);
                if before == source {
                    return total >= length;
                }
                last = last.max(Some((self.earliest[before as usize], before, total)));
            }
            let Some((_, before, total)) = last else { return false };
            (meeting, since) = (before, total);
        }
        false
    }
}
