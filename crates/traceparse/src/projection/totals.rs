//! Adds the GPU work of calls up to the ranges that enclose them.

use hashbrown::HashMap;

use super::hierarchy::Hierarchy;
use super::{Call, Enclosure, HostRange, NONE, Work};
use crate::interval::{BusySet, IntervalSet};

/// How much GPU work there is, and from when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Start of the first.
    pub start: i64,
    /// End of the last.
    pub end: i64,
    /// Calls that launched it.
    pub launches: u32,
    /// Pieces of work.
    pub ops: u32,
    /// Time in which at least one piece runs.
    pub busy: i64,
}

impl Totals {
    const NOTHING: Self = Self { start: i64::MAX, end: i64::MIN, launches: 0, ops: 0, busy: 0 };

    fn merge(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.launches = self.launches.saturating_add(other.launches);
        self.ops = self.ops.saturating_add(other.ops);
    }

    fn add_call(&mut self, work: &[(i64, i64)]) {
        let mut call = Self { launches: 1, ops: work.len() as u32, ..Self::NOTHING };
        for &(start, end) in work {
            call.start = call.start.min(start);
            call.end = call.end.max(end);
        }
        self.merge(&call);
    }
}

/// What a range comes to on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projected {
    /// Index of the range.
    pub range: u32,
    /// Work of all calls that the range encloses.
    pub all: Totals,
    /// Work of the calls of which it is the innermost range; nothing if there is none.
    pub own: Option<Totals>,
    /// Index of the shortest range around it on its thread; [`NONE`] if there is none.
    pub parent: u32,
    /// Number of ranges around it, parent by parent.
    pub depth: u32,
    /// Ranges with GPU work of which it is the parent.
    pub children: u32,
}

/// What every range with GPU work comes to on the GPU, in order of the ranges.
#[derive(Debug, Default)]
pub struct Projection {
    /// Index of each range.
    pub ranges: Vec<u32>,
    /// Work of all calls that each encloses.
    pub all: Vec<Totals>,
    /// Work of the calls of which each is the innermost range.
    pub own: Vec<Totals>,
    /// The parent of each: see [`Projected`].
    pub parents: Vec<u32>,
    /// The depth of each.
    pub depths: Vec<u32>,
    /// The number of children of each.
    pub children: Vec<u32>,
}

impl Projection {
    /// The ranges one by one.
    pub fn rows(&self) -> impl Iterator<Item = Projected> + '_ {
        let places = self.parents.iter().zip(&self.depths).zip(&self.children);
        let totals = self.ranges.iter().zip(&self.all).zip(&self.own);
        totals.zip(places).map(|(((&range, &all), &own), ((&parent, &depth), &children))| Projected {
            range,
            all,
            own: Some(own).filter(|own| own.launches > 0),
            parent,
            depth,
            children,
        })
    }
}

/// Projects `ranges` onto the GPU: what every range with GPU work under it comes to.
pub fn project(ranges: &[HostRange], calls: &[Call], work: &[Work]) -> Projection {
    let enclosure = Enclosure::find(ranges, calls);
    let work = WorkOfCalls::new(work, calls.len());
    let with_work = ranges_with_work(ranges.len(), &enclosure, &work);
    let mut all = vec![Totals::NOTHING; with_work.indices.len()];
    add_loose(&enclosure, &work, &with_work, &mut all);
    add_nested(&enclosure, &work, &with_work, &mut all);
    let own = own_totals(&enclosure, &work, &with_work);
    let Hierarchy { parents, depths, children } = Hierarchy::find(ranges, &enclosure, &with_work.indices);
    Projection { ranges: with_work.indices, all, own, parents, depths, children }
}

/// The work of each call.
struct WorkOfCalls {
    offsets: Vec<u32>,
    intervals: Vec<(i64, i64)>,
}

impl WorkOfCalls {
    fn new(work: &[Work], calls: usize) -> Self {
        let known = || work.iter().filter(|piece| (piece.call as usize) < calls);
        let mut offsets = vec![0_u32; calls + 1];
        known().for_each(|piece| offsets[piece.call as usize + 1] += 1);
        for call in 0..calls {
            offsets[call + 1] += offsets[call];
        }
        let mut next = offsets.clone();
        let mut intervals = vec![(0, 0); offsets.last().map_or(0, |&n| n as usize)];
        for piece in known() {
            let slot = &mut next[piece.call as usize];
            intervals[*slot as usize] = (piece.start, piece.end.max(piece.start));
            *slot += 1;
        }
        Self { offsets, intervals }
    }

    fn calls(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.offsets.len().saturating_sub(1) as u32).filter(|&call| !self.of(call).is_empty())
    }

    fn of(&self, call: u32) -> &[(i64, i64)] {
        let bounds = self.offsets[call as usize] as usize..self.offsets[call as usize + 1] as usize;
        &self.intervals[bounds]
    }
}

/// The ranges that have any work.
struct WithWork {
    /// In order.
    indices: Vec<u32>,
    /// Position of each range among them.
    positions: Vec<u32>,
}

fn ranges_with_work(ranges: usize, enclosure: &Enclosure, work: &WorkOfCalls) -> WithWork {
    let mut positions = vec![NONE; ranges];
    for call in work.calls() {
        let mut range = enclosure.chains[call as usize];
        while range != NONE && positions[range as usize] == NONE {
            positions[range as usize] = 0;
            range = enclosure.parents[range as usize];
        }
    }
    for &(range, call) in &enclosure.loose {
        if !work.of(call).is_empty() {
            positions[range as usize] = 0;
        }
    }
    let indices: Vec<u32> = (0..ranges as u32).filter(|&range| positions[range as usize] != NONE).collect();
    for (position, &range) in (0_u32..).zip(&indices) {
        positions[range as usize] = position;
    }
    WithWork { indices, positions }
}

/// Adds what stands pair by pair; for nested ranges this is not passed on to the ranges around them.
fn add_loose(enclosure: &Enclosure, work: &WorkOfCalls, with_work: &WithWork, all: &mut [Totals]) {
    let mut pairs = enclosure.loose.clone();
    pairs.sort_unstable();
    for pairs in pairs.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(range, _)) = pairs.first() else { continue };
        let Some(totals) = all.get_mut(with_work.positions[range as usize] as usize) else { continue };
        for &(_, call) in pairs.iter().filter(|(_, call)| !work.of(*call).is_empty()) {
            totals.add_call(work.of(call));
        }
        let intervals = pairs.iter().flat_map(|&(_, call)| work.of(call)).copied();
        totals.busy = IntervalSet::union_of(intervals).length();
    }
}

/// Adds the work of chains, from the leaves to the roots.
fn add_nested(enclosure: &Enclosure, work: &WorkOfCalls, with_work: &WithWork, all: &mut [Totals]) {
    let calls = CallsOfRanges::new(enclosure, work, with_work);
    let mut loose: HashMap<u32, Vec<u32>> = HashMap::new();
    for &(range, call) in &enclosure.loose {
        loose.entry(range).or_default().push(call);
    }
    // What the ranges inside came to: of those only whose parent is still to come.
    let mut pending: HashMap<u32, (Totals, BusySet)> = HashMap::new();
    for &range in enclosure.nested.iter().rev() {
        let position = with_work.positions[range as usize];
        if position == NONE {
            continue;
        }
        let inside = pending.remove(&range);
        let (mut totals, mut busy) = inside.unwrap_or_else(|| (Totals::NOTHING, BusySet::default()));
        for &call in calls.of(position) {
            totals.add_call(work.of(call));
            work.of(call).iter().for_each(|&(start, end)| busy.insert(start, end));
        }
        if let Some(slot) = all.get_mut(position as usize) {
            slot.merge(&totals);
            slot.busy = match loose.get(&range) {
                None => busy.length(),
                Some(calls) => {
                    let mut wider = busy.clone();
                    let intervals = calls.iter().flat_map(|&call| work.of(call));
                    intervals.for_each(|&(start, end)| wider.insert(start, end));
                    wider.length()
                }
            };
        }
        let parent = enclosure.parents[range as usize];
        if parent != NONE {
            let around = pending.entry(parent).or_insert_with(|| (Totals::NOTHING, BusySet::default()));
            around.0.merge(&totals);
            around.1.merge(busy);
        }
    }
}

/// The calls with work whose innermost nested range each range is.
struct CallsOfRanges {
    offsets: Vec<u32>,
    calls: Vec<u32>,
}

impl CallsOfRanges {
    fn new(enclosure: &Enclosure, work: &WorkOfCalls, with_work: &WithWork) -> Self {
        let position = |call: u32| with_work.positions.get(enclosure.chains[call as usize] as usize).copied();
        let placed = || work.calls().filter_map(|call| Some((position(call)?, call)));
        let mut offsets = vec![0_u32; with_work.indices.len() + 1];
        placed().for_each(|(position, _)| offsets[position as usize + 1] += 1);
        for range in 1..offsets.len() {
            offsets[range] += offsets[range - 1];
        }
        let mut next = offsets.clone();
        let mut calls = vec![0; offsets.last().map_or(0, |&n| n as usize)];
        for (position, call) in placed() {
            let slot = &mut next[position as usize];
            calls[*slot as usize] = call;
            *slot += 1;
        }
        Self { offsets, calls }
    }

    fn of(&self, position: u32) -> &[u32] {
        let bounds = self.offsets[position as usize] as usize..self.offsets[position as usize + 1] as usize;
        &self.calls[bounds]
    }
}

/// The work of calls by their innermost range.
fn own_totals(enclosure: &Enclosure, work: &WorkOfCalls, with_work: &WithWork) -> Vec<Totals> {
    let position = |call: u32| with_work.positions.get(enclosure.innermost(call) as usize).copied();
    let mut calls: Vec<(u32, u32)> =
        work.calls().filter_map(|call| Some((position(call)?, call))).filter(|&(p, _)| p != NONE).collect();
    calls.sort_unstable();
    let mut own = vec![Totals::NOTHING; with_work.indices.len()];
    for calls in calls.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(position, _)) = calls.first() else { continue };
        let totals = &mut own[position as usize];
        calls.iter().for_each(|&(_, call)| totals.add_call(work.of(call)));
        let intervals = calls.iter().flat_map(|&(_, call)| work.of(call)).copied();
        totals.busy = IntervalSet::union_of(intervals).length();
    }
    own
}
