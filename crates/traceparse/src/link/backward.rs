//! From backward ops to the forward ops they differentiate.

use hashbrown::HashMap;
use std::hash::Hash;

use super::ids::IdIndex;
use super::order::{Extents, TrackOrder};
use super::{NONE, arrows};
use crate::schema::{Flows, Ops, SymbolTable, Table};
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
    pub(super) fn sequence(&self, op: u32) -> Option<i64> {
        self.ops.sequence.get(op as usize)
    }

    /// The number of an op that is not backward itself.
    fn forward_sequence(&self, op: u32) -> Option<i64> {
        self.sequence(op).filter(|_| self.forward_thread(op).is_none())
    }

    pub(super) fn track(&self, op: u32) -> u32 {
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
    let mut threads = HashMap::new();
    for (forward, backward) in flow_pairs(all, flows, symbols) {
        forwards[backward as usize] = forward;
        if let Some(thread) = all.thread(backward) {
            learn(&mut threads, thread, all.track(forward));
        }
    }
    let is_pending = |&op: &u32| forwards[op as usize] == NONE && all.forward_thread(op).is_some();
    let pending: Vec<u32> = (0..all.ops.len() as u32).filter(is_pending).collect();
    if pending.is_empty() {
        return forwards;
    }
    // In the order of tracks and starts: of several that start at once, the innermost is the last.
    let ordered = all.order.indices().iter();
    let candidates: Vec<(u32, i64)> =
        ordered.filter_map(|&op| Some((op, all.forward_sequence(op)?))).collect();
    // Their tracks by sequence number, where nothing else says which thread an index means.
    let mut numbers = HashMap::new();
    if pending.iter().any(|&op| all.thread(op).and_then(|thread| learned(&threads, thread)).is_none()) {
        candidates.iter().for_each(|&(op, sequence)| learn(&mut numbers, sequence, all.track(op)));
    }
    let only_track = |op| learned(&numbers, all.sequence(op)?);
    if threads.is_empty() {
        for &backward in &pending {
            if let Some((thread, track)) = all.thread(backward).zip(only_track(backward)) {
                learn(&mut threads, thread, track);
            }
        }
    }
    let key = |sequence: i64, track: u32| {
        sequence.checked_mul(all.tracks.len() as i64).and_then(|first| first.checked_add(track.into()))
    };
    let keys = candidates.iter().map(|&(op, sequence)| key(sequence, all.track(op))).collect();
    let starts: Vec<i64> = candidates.iter().map(|&(op, _)| all.extents.start(op)).collect();
    let index = IdIndex::new(&keys, &starts);
    let latest = |backward, track| {
        let start = all.extents.start(backward);
        let found = index.find(key(all.sequence(backward)?, track)?, start)? as usize;
        (starts[found] <= start).then(|| candidates[found].0)
    };
    for &backward in &pending {
        let taught = all.thread(backward).and_then(|thread| learned(&threads, thread));
        let track = taught.or_else(|| only_track(backward));
        forwards[backward as usize] = track.and_then(|track| latest(backward, track)).unwrap_or(NONE);
    }
    forwards
}

/// Takes note of the track that a key means: [`NONE`] where the evidence disagrees.
pub(super) fn learn<K: Eq + Hash>(tracks: &mut HashMap<K, u32>, key: K, track: u32) {
    let known = tracks.entry(key).or_insert(track);
    if *known != track {
        *known = NONE;
    }
}

pub(super) fn learned<K: Copy + Eq + Hash>(tracks: &HashMap<K, u32>, key: K) -> Option<u32> {
    tracks.get(&key).copied().filter(|&track| track != NONE)
}

/// Pairs of forward and backward ops that arrows connect.
fn flow_pairs(all: OrderedOps<'_>, flows: &Flows, symbols: &SymbolTable) -> Vec<(u32, u32)> {
    let place = |flow: u32| (flows.track.values()[flow as usize], flows.start_ns.values()[flow as usize]);
    let pairs = arrows::pairs(flows, symbols, ["fwdbwd", "forward_backward"]).into_iter();
    pairs.filter_map(|[begin, end]| bind(all, place(begin), place(end))).collect()
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
