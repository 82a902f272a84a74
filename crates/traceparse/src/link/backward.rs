//! From backward ops to the forward ops they differentiate.

use hashbrown::HashMap;

use super::NONE;
use super::ids::IdIndex;
use super::order::{Extents, TrackOrder};
use crate::schema::{Column, Flows, Ops, Symbol, SymbolTable, Table};
use crate::tracks::{Ident, TrackTable};

/// How many ops of one start a flow looks at.
const TIED_STARTS: usize = 64;

/// The ops of a trace in an order in which starts can be searched.
#[derive(Clone, Copy)]
pub(super) struct OrderedOps<'a> {
    pub(super) ops: &'a Ops,
    pub(super) order: &'a TrackOrder,
    pub(super) extents: Extents<'a>,
    pub(super) tracks: &'a TrackTable,
}

impl OrderedOps<'_> {
    fn sequence(&self, op: u32) -> Option<i64> {
        self.ops.sequence.get(op as usize)
    }

    fn track(&self, op: u32) -> u32 {
        self.ops.track.values()[op as usize]
    }

    /// The profiler's index of the thread of the forward, on a backward op.
    pub(super) fn forward_thread(&self, op: u32) -> Option<i32> {
        self.ops.forward_thread.get(op as usize).filter(|&thread| thread > 0)
    }

    /// The process and the profiler's index of a thread in it.
    fn thread(&self, backward: u32) -> Option<(Ident, i32)> {
        let process = self.tracks.key(self.track(backward)).0;
        self.forward_thread(backward).map(|thread| (process, thread))
    }

    /// The ops of a track that start exactly at `start`, outermost first.
    fn starting_at(&self, track: u32, start: i64) -> &[u32] {
        let rows = self.order.track(track);
        let first = rows.partition_point(|&op| self.extents.start(op) < start);
        let tied =
            rows[first..].iter().take(TIED_STARTS).take_while(|&&op| self.extents.start(op) == start).count();
        &rows[first..first + tied]
    }
}

/// The forward op of each backward op, by index.
pub(super) fn forward_ops(all: OrderedOps<'_>, flows: &Flows, symbols: &SymbolTable) -> Vec<u32> {
    let mut forwards = vec![NONE; all.ops.len()];
    let mut threads = Threads::default();
    for (forward, backward) in flow_pairs(all, flows, symbols) {
        forwards[backward as usize] = forward;
        if let Some(thread) = all.thread(backward) {
            threads.learn(thread, all.track(forward));
        }
    }
    let mut candidates = Candidates::new(all);
    let pending: Vec<u32> = (0..all.ops.len() as u32)
        .filter(|&op| forwards[op as usize] == NONE && all.forward_thread(op).is_some())
        .collect();
    if threads.is_empty() {
        // Without flows, numbers that only one thread has tell which thread an index means.
        for &backward in &pending {
            if let Some((thread, track)) = all.thread(backward).zip(candidates.only_track(backward)) {
                threads.learn(thread, track);
            }
        }
    }
    for &backward in &pending {
        let learned = all.thread(backward).and_then(|thread| threads.track(thread));
        if let Some(track) = learned.or_else(|| candidates.only_track(backward)) {
            forwards[backward as usize] = candidates.latest(backward, track).unwrap_or(NONE);
        }
    }
    forwards
}

/// Which track a profiler's thread index means; `NONE` where the evidence disagrees.
#[derive(Default)]
struct Threads {
    tracks: HashMap<(Ident, i32), u32>,
}

impl Threads {
    fn learn(&mut self, thread: (Ident, i32), track: u32) {
        let known = self.tracks.entry(thread).or_insert(track);
        if *known != track {
            *known = NONE;
        }
    }

    fn track(&self, thread: (Ident, i32)) -> Option<u32> {
        self.tracks.get(&thread).copied().filter(|&track| track != NONE)
    }

    fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }
}

/// Forward ops by (sequence number, position in the order), so that those of one number lie
/// together, thread by thread and in order of start.
struct Candidates<'a> {
    all: OrderedOps<'a>,
    sorted: Vec<(i64, u32)>,
    /// Where the last search ended: neighbours in time have neighbouring numbers.
    hint: usize,
}

impl<'a> Candidates<'a> {
    fn new(all: OrderedOps<'a>) -> Self {
        let positions = all.order.indices().iter().zip(0..);
        let mut sorted: Vec<(i64, u32)> = positions
            .filter(|&(&op, _)| all.forward_thread(op).is_none())
            .filter_map(|(&op, position)| all.sequence(op).map(|sequence| (sequence, position)))
            .collect();
        sorted.sort();
        Self { all, sorted, hint: 0 }
    }

    fn op(&self, candidate: (i64, u32)) -> u32 {
        self.all.order.indices()[candidate.1 as usize]
    }

    /// The candidates with the number of `backward`.
    fn of_number(&mut self, backward: u32) -> &[(i64, u32)] {
        let Some(sequence) = self.all.sequence(backward) else { return &[] };
        let first = search_near(&self.sorted, self.hint, |c| c.0 < sequence);
        let end = search_near(&self.sorted, first, |c| c.0 <= sequence);
        self.hint = first;
        &self.sorted[first..end]
    }

    /// The track of all forward ops with the number of `backward`, if it is one.
    fn only_track(&mut self, backward: u32) -> Option<u32> {
        let candidates = self.of_number(backward);
        let (first, last) = (*candidates.first()?, *candidates.last()?);
        let track = self.all.track(self.op(first));
        (track == self.all.track(self.op(last))).then_some(track)
    }

    /// The forward op of `backward` on a track: the last of its number that starts by then.
    fn latest(&mut self, backward: u32, track: u32) -> Option<u32> {
        let all = self.all;
        let (begin, start) = (all.order.track_begin(track), all.extents.start(backward));
        let starts_by_then = |&(_, position): &(i64, u32)| {
            let op = all.order.indices()[position as usize];
            all.track(op) < track || (all.track(op) == track && all.extents.start(op) <= start)
        };
        let candidates = self.of_number(backward);
        let started = candidates.partition_point(starts_by_then);
        let &found = candidates[..started].last()?;
        (found.1 >= begin).then(|| self.op(found))
    }
}

/// `partition_point` of `before`, which looks around `hint` first.
fn search_near<T>(sorted: &[T], hint: usize, before: impl Fn(&T) -> bool) -> usize {
    let hint = hint.min(sorted.len());
    let (mut low, mut high, mut step) = (hint, hint, 1);
    while high < sorted.len() && before(&sorted[high]) {
        low = high + 1;
        high = (high + step).min(sorted.len());
        step *= 2;
    }
    while low > 0 && !before(&sorted[low - 1]) {
        high = low - 1;
        low = low.saturating_sub(step);
        step *= 2;
    }
    low + sorted[low..high].partition_point(before)
}

/// Pairs of forward and backward ops that arrows connect.
fn flow_pairs(all: OrderedOps<'_>, flows: &Flows, symbols: &SymbolTable) -> Vec<(u32, u32)> {
    let categories = ["fwdbwd", "forward_backward"].map(|text| symbols.find(text));
    let is_pair =
        |flow: usize| categories.contains(&flows.category.get(flow)) && flows.category.get(flow).is_some();
    let (start_kind, end_kind) = (symbols.find("s"), symbols.find("f"));
    let of_kind = |kind: Option<Symbol>| {
        let flows_of_kind =
            (0..flows.len()).filter(move |&flow| kind.is_some() && flows.kind.get(flow) == kind);
        flows_of_kind.filter(|&flow| is_pair(flow))
    };
    let begins: Vec<usize> = of_kind(start_kind).collect();
    let ids: Column<i64> = begins.iter().map(|&flow| flows.id.get(flow)).collect();
    let starts: Vec<i64> = begins.iter().map(|&flow| flows.start_ns.values()[flow]).collect();
    let index = IdIndex::new(&ids, &starts);
    let ends = |flow: usize| (flows.track.values()[flow], flows.start_ns.values()[flow]);
    let pair = |end: usize| {
        let begin = begins[index.find(flows.id.get(end)?, ends(end).1)? as usize];
        bind(all, ends(begin), ends(end))
    };
    of_kind(end_kind).filter_map(pair).collect()
}

/// The ops that the ends of an arrow lie on; where several start there, those whose numbers fit.
fn bind(all: OrderedOps<'_>, begin: (u32, i64), end: (u32, i64)) -> Option<(u32, u32)> {
    let forwards = all.starting_at(begin.0, begin.1);
    let backwards = all.starting_at(end.0, end.1);
    let backward = *backwards.iter().find(|&&op| all.forward_thread(op).is_some()).or(backwards.first())?;
    let sequence = all.sequence(backward);
    let fits = |op: &&u32| {
        all.forward_thread(**op).is_none() && sequence.is_some() && all.sequence(**op) == sequence
    };
    let forward = *forwards.iter().rev().find(fits).or(forwards.first())?;
    (forward != backward).then_some((forward, backward))
}

#[cfg(test)]
mod tests {
    use super::search_near;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hint_does_not_change_what_is_found(
            mut values in proptest::collection::vec(0u8..20, 0..40),
            hint in 0usize..50,
            limit in 0u8..22,
        ) {
            values.sort_unstable();
            prop_assert_eq!(search_near(&values, hint, |&v| v < limit), values.partition_point(|&v| v < limit));
        }
    }
}
