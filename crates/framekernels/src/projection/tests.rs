//! The projection against a search of all pairs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Call, Enclosure, HostRange, NONE, Projected, Totals, Work, nesting_key, project};
use crate::interval::BusySet;

/// End of the session, where ranges without an end end.
const SESSION_END: i64 = 40;

fn encloses(range: &HostRange, call: &Call) -> bool {
    let is_near = match range.crosses_threads {
        true => range.process == call.process,
        false => range.thread == call.thread || range.thread == call.caller,
    };
    is_near && range.start <= call.start && range.end >= call.end
}

/// Threads 0 and 1 are of process 0, threads 2 and 3 of process 1.
fn process_of(thread: u32) -> i64 {
    i64::from(thread / 2)
}

fn ranges() -> impl Strategy<Value = Vec<HostRange>> {
    let range = (0u32..4, 0i64..30, prop_oneof![4 => (0i64..12).prop_map(Some), 1 => Just(None)], 0u32..8);
    let build = |(thread, start, length, crossing): (u32, i64, Option<i64>, u32)| HostRange {
        start,
        end: length.map_or(SESSION_END, |length| start + length),
        thread,
        process: process_of(thread),
        crosses_threads: crossing == 0,
    };
    proptest::collection::vec(range.prop_map(build), 0..24)
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0u32..4, 0i64..36, 0i64..5, 0u32..4);
    let build = |(thread, start, length, waiting): (u32, i64, i64, u32)| Call {
        start,
        end: start + length,
        thread,
        process: process_of(thread),
        // The other thread of the process for one of four, for one the thread itself.
        caller: [NONE, NONE, thread ^ 1, thread][waiting as usize],
    };
    proptest::collection::vec(call.prop_map(build), 0..16)
}

fn work() -> impl Strategy<Value = Vec<Work>> {
    let piece = (0u32..18, 0i64..60, 0i64..9);
    let build = |(call, start, length): (u32, i64, i64)| Work { call, start, end: start + length };
    proptest::collection::vec(piece.prop_map(build), 0..30)
}

/// The totals of `calls`, the indices of some of `all`, for a range of a thread.
fn totals(calls: &[u32], work: &[Work], thread: u32, all: &[Call]) -> Option<Totals> {
    let pieces: Vec<&Work> = work.iter().filter(|piece| calls.contains(&piece.call)).collect();
    let of_others = pieces.iter().filter(|piece| all[piece.call as usize].thread != thread);
    let mut busy = BusySet::default();
    pieces.iter().for_each(|piece| busy.insert(piece.start, piece.end));
    let launches: BTreeSet<u32> = pieces.iter().map(|piece| piece.call).collect();
    Some(Totals {
        start: pieces.iter().map(|piece| piece.start).min()?,
        end: pieces.iter().map(|piece| piece.end).max()?,
        launches: launches.len() as u32,
        ops: pieces.len() as u32,
        busy: busy.length(),
        work: pieces.iter().map(|piece| piece.end - piece.start).sum(),
        other_thread: of_others.map(|piece| piece.end - piece.start).sum(),
    })
}

/// The innermost range of a call: of its thread if there is any, else of the thread that waits, else of the process.
fn innermost(ranges: &[HostRange], call: &Call) -> u32 {
    let of = |is_near: &dyn Fn(&HostRange) -> bool| {
        let enclosing = (0..ranges.len() as u32).filter(|&r| encloses(&ranges[r as usize], call));
        let near = enclosing.filter(|&r| is_near(&ranges[r as usize]));
        near.max_by_key(|&range| nesting_key(ranges, range))
    };
    of(&|range| !range.crosses_threads && range.thread == call.thread)
        .or_else(|| of(&|range| !range.crosses_threads))
        .or_else(|| of(&|_| true))
        .unwrap_or(NONE)
}

fn parent(ranges: &[HostRange], with_work: &[u32], range: u32) -> u32 {
    let inner = &ranges[range as usize];
    let is_around = |&other: &u32| {
        let outer = &ranges[other as usize];
        let is_equal = (outer.start, outer.end) == (inner.start, inner.end);
        other != range
            && !outer.crosses_threads
            && !inner.crosses_threads
            && outer.thread == inner.thread
            && outer.start <= inner.start
            && outer.end >= inner.end
            && (!is_equal || other < range)
    };
    let key = |&other: &u32| {
        let outer = &ranges[other as usize];
        let began_before = inner.start == inner.end && outer.start < inner.start;
        (began_before, outer.end - outer.start, outer.start, Reverse(other))
    };
    with_work.iter().copied().filter(is_around).min_by_key(key).unwrap_or(NONE)
}

fn by_search(ranges: &[HostRange], calls: &[Call], work: &[Work]) -> Vec<Projected> {
    let all_calls = || 0..calls.len() as u32;
    let enclosed = |range: u32| {
        all_calls()
            .filter(|&call| encloses(&ranges[range as usize], &calls[call as usize]))
            .collect::<Vec<_>>()
    };
    let own = |range: u32| {
        all_calls().filter(|&call| innermost(ranges, &calls[call as usize]) == range).collect::<Vec<_>>()
    };
    let with_work: Vec<u32> = (0..ranges.len() as u32)
        .filter(|&range| totals(&enclosed(range), work, 0, calls).is_some())
        .collect();
    let parents: Vec<u32> = with_work.iter().map(|&range| parent(ranges, &with_work, range)).collect();
    let parent_of = |range: u32| with_work.binary_search(&range).map_or(NONE, |at| parents[at]);
    let projected = with_work.iter().zip(&parents).filter_map(|(&range, &parent)| {
        Some(Projected {
            range,
            all: totals(&enclosed(range), work, ranges[range as usize].thread, calls)?,
            own: totals(&own(range), work, ranges[range as usize].thread, calls),
            parent,
            depth: std::iter::successors(Some(parent), |&up| Some(parent_of(up)))
                .take_while(|&up| up != NONE)
                .count() as u32,
            children: parents.iter().filter(|&&up| up == range).count() as u32,
        })
    });
    projected.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn equals_a_search_of_all_pairs(ranges in ranges(), calls in calls(), work in work()) {
        let known: Vec<Work> = work.iter().copied().filter(|piece| (piece.call as usize) < calls.len()).collect();
        let found: Vec<Projected> = project(&ranges, &calls, &work).rows().collect();
        prop_assert_eq!(found, by_search(&ranges, &calls, &known));
    }

    #[test]
    fn chains_and_loose_pairs_are_all_pairs_once(ranges in ranges(), calls in calls()) {
        let enclosure = Enclosure::find(&ranges, &calls);
        let mut found: Vec<(u32, u32)> = enclosure.loose().to_vec();
        for call in 0..calls.len() as u32 {
            enclosure.for_each_nested(call, |range| found.push((range, call)));
        }
        let mut expected = Vec::new();
        for (r, range) in (0_u32..).zip(&ranges) {
            let enclosed = (0_u32..).zip(&calls).filter(|(_, call)| encloses(range, call));
            expected.extend(enclosed.map(|(c, _)| (r, c)));
        }
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}

fn stack_of(depth: i64) -> (Vec<HostRange>, Vec<Call>, Vec<Work>) {
    let range = |level: i64| HostRange {
        start: 2 * level,
        end: 10 * depth,
        thread: 0,
        process: 0,
        crosses_threads: false,
    };
    let call =
        |level: i64| Call { start: 2 * level, end: 2 * level + 1, thread: 0, process: 0, caller: NONE };
    let work = |level: i64| Work { call: level as u32, start: 10 * level, end: 10 * level + 5 };
    ((0..depth).map(range).collect(), (0..depth).map(call).collect(), (0..depth).map(work).collect())
}

/// A program that never pops makes a stack as deep as it is long.
#[test]
fn a_deep_stack_is_not_quadratic() {
    let depth = 200_000;
    let (ranges, calls, work) = stack_of(depth);
    let projected = project(&ranges, &calls, &work);
    assert_eq!(projected.ranges.len(), depth as usize);
    for (level, range) in (0..depth).zip(projected.rows()) {
        assert_eq!(range.all.busy, 5 * (depth - level));
        assert_eq!((range.own.map(|own| own.busy), i64::from(range.depth)), (Some(5), level));
    }
}
