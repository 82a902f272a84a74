//! Adds the GPU work of calls up to the ranges that enclose them.

use hashbrown::HashMap;

use super::hierarchy::Hierarchy;
use super::{Call, Enclosure, HostRange, NONE, Work};
use crate::interval::BusySet;

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
    /// Sum of their durations.
    pub work: i64,
    /// Sum of the durations of those that another thread launched than the range's.
    pub other_thread: i64,
}

impl Totals {
    const NOTHING: Self =
        Self { start: i64::MAX, end: i64::MIN, launches: 0, ops: 0, busy: 0, work: 0, other_thread: 0 };

    /// Adds work that shares no moment with what is there, but for what [`Piece::is_alone`] excepts.
    fn merge(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.launches = self.launches.saturating_add(other.launches);
        self.ops = self.ops.saturating_add(other.ops);
        self.busy = self.busy.saturating_add(other.busy);
        self.work = self.work.saturating_add(other.work);
        self.other_thread = self.other_thread.saturating_add(other.other_thread);
    }

    /// Adds the work of a call of the range's thread, or of another.
    fn add_call(&mut self, work: &[Piece], is_of_thread: bool) {
        let mut call = Self { launches: 1, ops: work.len() as u32, ..Self::NOTHING };
        for piece in work {
            call.start = call.start.min(piece.start);
            call.end = call.end.max(piece.end);
            let length = piece.end.saturating_sub(piece.start);
            call.work = call.work.saturating_add(length);
            if piece.is_alone {
                call.busy = call.busy.saturating_add(length);
            }
        }
        call.other_thread = if is_of_thread { 0 } else { call.work };
        self.merge(&call);
    }
}

/// The totals of a range on the GPU.
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

/// The totals of every range with GPU work, in order of the ranges.
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

/// Projects `ranges` onto the GPU: the totals of every range with GPU work under it.
pub fn project(ranges: &[HostRange], calls: &[Call], work: &[Work]) -> Projection {
    let enclosure = Enclosure::find(ranges, calls);
    let RangeTotals { ranges: indices, all, own } = totals_under(&enclosure, ranges, calls, work);
    let Hierarchy { parents, depths, children } = Hierarchy::find(ranges, &enclosure, &indices);
    Projection { ranges: indices, all, own, parents, depths, children }
}

/// The totals of [`project`] alone.
pub(super) struct RangeTotals {
    pub(super) ranges: Vec<u32>,
    pub(super) all: Vec<Totals>,
    pub(super) own: Vec<Totals>,
}

impl RangeTotals {
    pub(super) fn find(ranges: &[HostRange], calls: &[Call], work: &[Work]) -> Self {
        let enclosure = Enclosure::find(ranges, calls);
        totals_under(&enclosure, ranges, calls, work)
    }
}

fn totals_under(enclosure: &Enclosure, ranges: &[HostRange], calls: &[Call], work: &[Work]) -> RangeTotals {
    // A range has the work of one thread, or of one process if threads wait for others or ranges cross them.
    let crosses =
        ranges.iter().any(|range| range.crosses_threads) || calls.iter().any(|call| call.caller != NONE);
    let place = |call: &Call| if crosses { call.process } else { i64::from(call.thread) };
    let work = WorkOfCalls::new(work, calls, place);
    let with_work = ranges_with_work(ranges.len(), enclosure, &work);
    let is_of_thread = |range: u32, call: u32| ranges[range as usize].thread == calls[call as usize].thread;
    let all = enclosed_totals(enclosure, &work, &with_work, is_of_thread);
    let own = own_totals(enclosure, &work, &with_work, is_of_thread);
    RangeTotals { ranges: with_work.indices, all, own }
}

/// A piece of GPU work.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: i64,
    end: i64,
    /// Whether no other piece of its place runs meanwhile: then it adds its length to whatever it is part of.
    is_alone: bool,
}

/// The work of each call.
struct WorkOfCalls {
    offsets: Vec<u32>,
    pieces: Vec<Piece>,
}

impl WorkOfCalls {
    /// The work of `calls`; no range has work of calls of different places.
    fn new(work: &[Work], calls: &[Call], place: impl Fn(&Call) -> i64) -> Self {
        let known = || work.iter().filter(|piece| (piece.call as usize) < calls.len());
        let mut offsets = vec![0_u32; calls.len() + 1];
        known().for_each(|piece| offsets[piece.call as usize + 1] += 1);
        for call in 0..calls.len() {
            offsets[call + 1] += offsets[call];
        }
        let mut next = offsets.clone();
        let empty = Piece { start: 0, end: 0, is_alone: true };
        let mut pieces = vec![empty; offsets.last().map_or(0, |&n| n as usize)];
        for &Work { call, start, end } in known() {
            let slot = &mut next[call as usize];
            pieces[*slot as usize] = Piece { start, end: end.max(start), is_alone: true };
            *slot += 1;
        }
        let mut found = Self { offsets, pieces };
        let mut places: HashMap<i64, Vec<u32>> = HashMap::new();
        for (call, bounds) in calls.iter().zip(found.offsets.windows(2)) {
            if let &[from, until] = bounds
                && from < until
            {
                places.entry(place(call)).or_default().extend(from..until);
            }
        }
        for order in places.into_values() {
            found.find_company(order);
        }
        found
    }

    /// Marks the pieces of `order`, those of a place, during which others of it run.
    fn find_company(&mut self, mut order: Vec<u32>) {
        let pieces = &mut self.pieces;
        order.retain(|&at| pieces[at as usize].end > pieces[at as usize].start);
        // Calls come in order, and so does most of their work, which a stable sort makes use of.
        order.sort_by_key(|&at| pieces[at as usize].start);
        let mut reached = i64::MIN;
        let mut before = 0;
        for at in order {
            if pieces[at as usize].start < reached {
                // Of the pieces that reach this far either the last is the only one, or all are marked.
                pieces[before as usize].is_alone = false;
                pieces[at as usize].is_alone = false;
            }
            reached = reached.max(pieces[at as usize].end);
            before = at;
        }
    }

    fn calls(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.offsets.len().saturating_sub(1) as u32).filter(|&call| !self.of(call).is_empty())
    }

    fn of(&self, call: u32) -> &[Piece] {
        let bounds = self.offsets[call as usize] as usize..self.offsets[call as usize + 1] as usize;
        &self.pieces[bounds]
    }

    /// What of the work of a call runs beside other work.
    fn shared(&self, call: u32) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.of(call).iter().filter(|piece| !piece.is_alone).map(|piece| (piece.start, piece.end))
    }
}

/// The ranges that have any work.
struct WithWork {
    /// In order.
    indices: Vec<u32>,
    /// Position of each range among them.
    positions: Vec<u32>,
}

impl WithWork {
    /// The position of a range; `None` for [`NONE`] and for one without work.
    fn position(&self, range: u32) -> Option<u32> {
        self.positions.get(range as usize).copied().filter(|&position| position != NONE)
    }
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

/// The work of all calls that each range encloses.
///
/// Totals are passed on from the leaves to the roots of the chains. What stands pair by pair is not passed
/// on. Only of work that runs beside other work it matters which moments it takes.
fn enclosed_totals(
    enclosure: &Enclosure,
    work: &WorkOfCalls,
    with_work: &WithWork,
    is_of_thread: impl Fn(u32, u32) -> bool,
) -> Vec<Totals> {
    let mut all = vec![Totals::NOTHING; with_work.indices.len()];
    // The moments of ranges whose parent is still to come.
    let mut shared = BusyTimes::new();
    for call in work.calls() {
        let innermost = enclosure.chains[call as usize];
        let Some(position) = with_work.position(innermost) else { continue };
        all[position as usize].add_call(work.of(call), is_of_thread(innermost, call));
        for (start, end) in work.shared(call) {
            shared.entry(position).or_default().insert(start, end);
        }
    }
    let mut loose = shared_of_loose(enclosure, work, with_work);
    for &range in enclosure.nested.iter().rev() {
        let Some(position) = with_work.position(range) else { continue };
        let totals = all[position as usize];
        let busy = shared.remove(&position);
        let length = match loose.remove(&position) {
            None => busy.as_ref().map_or(0, BusySet::length),
            Some(mut wider) => {
                wider.merge(busy.clone().unwrap_or_default());
                wider.length()
            }
        };
        all[position as usize].busy = totals.busy.saturating_add(length);
        if let Some(parent) = with_work.position(enclosure.parents[range as usize]) {
            all[parent as usize].merge(&totals);
            if let Some(busy) = busy {
                shared.entry(parent).or_default().merge(busy);
            }
        }
    }
    add_unions(&mut all, loose);
    for &(range, call) in enclosure.loose.iter().filter(|&&(_, call)| !work.of(call).is_empty()) {
        if let Some(position) = with_work.position(range) {
            all[position as usize].add_call(work.of(call), is_of_thread(range, call));
        }
    }
    all
}

/// Busy time by the position of the range that it belongs to.
type BusyTimes = HashMap<u32, BusySet>;

fn shared_of_loose(enclosure: &Enclosure, work: &WorkOfCalls, with_work: &WithWork) -> BusyTimes {
    let mut found = BusyTimes::new();
    for &(range, call) in &enclosure.loose {
        let Some(position) = with_work.position(range) else { continue };
        for (start, end) in work.shared(call) {
            found.entry(position).or_default().insert(start, end);
        }
    }
    found
}

fn add_unions(totals: &mut [Totals], unions: BusyTimes) {
    for (position, union) in unions {
        let busy = &mut totals[position as usize].busy;
        *busy = busy.saturating_add(union.length());
    }
}

/// The work of calls by their innermost range.
fn own_totals(
    enclosure: &Enclosure,
    work: &WorkOfCalls,
    with_work: &WithWork,
    is_of_thread: impl Fn(u32, u32) -> bool,
) -> Vec<Totals> {
    let mut own = vec![Totals::NOTHING; with_work.indices.len()];
    let mut shared = BusyTimes::new();
    for call in work.calls() {
        let innermost = enclosure.innermost(call);
        let Some(position) = with_work.position(innermost) else { continue };
        own[position as usize].add_call(work.of(call), is_of_thread(innermost, call));
        for (start, end) in work.shared(call) {
            shared.entry(position).or_default().insert(start, end);
        }
    }
    add_unions(&mut own, shared);
    own
}
