use proptest::prelude::*;

use super::{Course, Curve, MemoryRecord, Records, partners};
use crate::frame::NONE;

/// The same by looking through all later records of each.
fn searched(records: &[Option<MemoryRecord>]) -> Vec<u32> {
    let mut found = vec![NONE; records.len()];
    let known = |at: usize| records[at].filter(|record| record.bytes != 0);
    for at in 0..records.len() {
        let Some(record) = known(at).filter(|record| record.bytes > 0) else { continue };
        let is_same = |other: &MemoryRecord| (other.device, other.address) == (record.device, record.address);
        let next = (at + 1..records.len()).find(|&later| known(later).is_some_and(|other| is_same(&other)));
        if let Some(free) = next.filter(|&later| known(later).is_some_and(|other| other.bytes < 0)) {
            found[at] = free as u32;
            found[free] = at as u32;
        }
    }
    found
}

fn records() -> impl Strategy<Value = Vec<Option<MemoryRecord>>> {
    let record = (0u32..2, 0u64..3, -1i64..2);
    let build = |(device, address, bytes)| MemoryRecord { device, address, bytes };
    proptest::collection::vec(proptest::option::weighted(0.9, record.prop_map(build)), 0..40)
}

/// A record, whose address and totals may be unknown.
#[derive(Debug, Clone)]
struct Recorded {
    device: u32,
    after: i64,
    address: Option<u64>,
    bytes: i64,
    allocated: Option<i64>,
    reserved: Option<i64>,
}

fn recorded() -> impl Strategy<Value = Vec<Recorded>> {
    let known = proptest::option::weighted(0.95, 0i64..60);
    let reserved = proptest::option::weighted(0.9, 50i64..54);
    let place = (0u32..2, 0i64..3, proptest::option::weighted(0.9, 0u64..3));
    let record = (place, -3i64..4, known, reserved).prop_map(
        |((device, after, address), bytes, allocated, reserved)| Recorded {
            device,
            after,
            address,
            bytes,
            allocated,
            reserved,
        },
    );
    proptest::collection::vec(record, 0..40)
}

fn records_of(recorded: &[Recorded]) -> Records {
    let mut time = 0;
    let times = recorded.iter().map(|record| {
        time += record.after;
        time
    });
    Records {
        times: times.collect::<Vec<i64>>().into(),
        devices: recorded.iter().map(|record| record.device).collect::<Vec<u32>>().into(),
        addresses: recorded.iter().map(|record| record.address).collect(),
        bytes: recorded.iter().map(|record| record.bytes).collect::<Vec<i64>>().into(),
        allocated: recorded.iter().map(|record| record.allocated).collect(),
        reserved: recorded.iter().map(|record| record.reserved).collect(),
    }
}

/// Place and time of each record of a device, and what was allocated after it.
fn levels(records: &Records, recorded: &[Recorded], device: u32) -> Vec<(u32, i64, i64)> {
    let of: Vec<usize> = (0..recorded.len()).filter(|&at| recorded[at].device == device).collect();
    let has_totals = of.iter().all(|&at| recorded[at].allocated.is_some());
    let sum = |until: usize| of.iter().filter(|&&at| at <= until).map(|&at| recorded[at].bytes).sum::<i64>();
    let level = |at: usize| recorded[at].allocated.filter(|_| has_totals).unwrap_or_else(|| sum(at));
    of.iter().map(|&at| (at as u32, records.times[at], level(at))).collect()
}

fn first_most(levels: impl Iterator<Item = (u32, i64)>) -> Option<(i64, u32)> {
    levels.map(|(at, level)| (level, at)).max_by_key(|&(level, at)| (level, std::cmp::Reverse(at)))
}

fn check(course: &Course, recorded: &[Recorded], levels: &[(u32, i64, i64)], partners: &[u32]) {
    let own: Vec<&Recorded> = levels.iter().map(|&(at, _, _)| &recorded[at as usize]).collect();
    assert_eq!(course.records, own.len() as i64);
    assert_eq!(course.allocations, own.iter().filter(|record| record.bytes > 0).count() as i64);
    assert_eq!(course.frees, own.iter().filter(|record| record.bytes < 0).count() as i64);
    assert_eq!(course.allocated, own.iter().map(|record| record.bytes.max(0)).sum::<i64>());
    assert_eq!(course.has_totals, own.iter().all(|record| record.allocated.is_some()));
    let peak = first_most(levels.iter().map(|&(at, _, level)| (at, level)));
    assert_eq!((!own.is_empty()).then_some((course.peak, course.peak_at)), peak);
    let known = levels.iter().filter_map(|&(at, _, _)| Some((at, recorded[at as usize].allocated?)));
    assert_eq!(course.recorded_peak, first_most(known));
    let most = own.iter().filter_map(|record| record.reserved).max();
    let idle = |most: i64| {
        let full = levels.iter().filter(|&&(at, _, _)| recorded[at as usize].reserved == Some(most));
        full.map(|&(_, _, level)| most - level).max()
    };
    assert_eq!(course.reserved, most.and_then(|most| Some((most, idle(most)?))));
    if let (Some(first), Some(last)) = (levels.first(), levels.last()) {
        assert_eq!((course.first, course.last), (first.0, last.0));
        assert_eq!((course.start, course.end), (first.2 - own[0].bytes, last.2));
    }
    let placed = || levels.iter().filter(|&&(at, _, _)| recorded[at as usize].address.is_some());
    assert_eq!(course.has_addresses, placed().any(|&(at, _, _)| recorded[at as usize].bytes != 0));
    let open =
        placed().filter(|&&(at, _, _)| recorded[at as usize].bytes > 0 && partners[at as usize] == NONE);
    let open: Vec<i64> = open.map(|&(at, _, _)| recorded[at as usize].bytes).collect();
    assert_eq!((course.open, course.open_allocations), (open.iter().sum(), open.len() as i64));
}

proptest! {
    #[test]
    fn courses_are_those_of_the_curves(recorded in recorded()) {
        let records = records_of(&recorded);
        let partners = records.partners(false);
        let courses = records.courses(2, &partners);
        for (course, device) in courses.iter().zip(0..) {
            check(course, &recorded, &levels(&records, &recorded, device), &partners);
        }
        let is_alive = |&at: &u32| {
            let Recorded { device, address, bytes, .. } = recorded[at as usize];
            let peak = courses[device as usize].recorded_peak;
            let is_held = |(_, peak)| at <= peak && partners[at as usize] > peak;
            address.is_some() && bytes > 0 && peak.is_some_and(is_held)
        };
        let alive: Vec<u32> = (0..recorded.len() as u32).filter(is_alive).collect();
        prop_assert_eq!(records.alive(&courses, &partners), alive);
    }

    #[test]
    fn curves_keep_what_is_seen(recorded in recorded(), most in 4usize..20) {
        let records = records_of(&recorded);
        let courses = records.courses(2, &records.partners(false));
        for (course, device) in courses.iter().zip(0..) {
            let levels = levels(&records, &recorded, device);
            let all: (Vec<u32>, Vec<i64>) = levels.iter().map(|&(at, _, level)| (at, level)).unzip();
            prop_assert_eq!(records.curve(device, course, None), all.clone());
            let (Some(&(_, start, _)), Some(&(_, end, _))) = (levels.first(), levels.last()) else { continue };
            let part = |time: i64| (time - start) * (most as i64 / 4) / (end - start + 1);
            let mut kept: Vec<(u32, i64)> = Vec::new();
            for alike in levels.chunk_by(|a, b| part(a.1) == part(b.1)) {
                let least = alike.iter().min_by_key(|&&(at, _, level)| (level, at));
                let highest = alike.iter().min_by_key(|&&(at, _, level)| (-level, at));
                let rows = [alike.first(), alike.last(), least, highest];
                kept.extend(rows.into_iter().flatten().map(|&(at, _, level)| (at, level)));
            }
            kept.sort_unstable();
            kept.dedup();
            let expected = if levels.len() > most { kept.into_iter().unzip() } else { all };
            prop_assert_eq!(records.curve(device, course, Some(most)), expected);
        }
    }

    #[test]
    fn what_is_held_is_that_of_the_last_record(
        recorded in recorded(),
        mut times in proptest::collection::vec(0i64..60, 0..9),
    ) {
        times.sort_unstable();
        let records = records_of(&recorded);
        let courses = records.courses(2, &records.partners(false));
        for (course, device) in courses.iter().zip(0..) {
            let levels = levels(&records, &recorded, device);
            let by = |&time: &i64| levels.iter().rfind(|level| level.1 <= time).map(|level| (level.0, level.2));
            let expected: Option<(Vec<u32>, Vec<i64>)> = times.iter().map(by).collect();
            prop_assert_eq!(records.held(device, course, &times), expected);
        }
    }

    #[test]
    fn equals_the_search(records in records()) {
        prop_assert_eq!(partners(records.iter().copied()), searched(&records));
    }

    #[test]
    fn sums_are_those_of_the_records_inside(
        records in proptest::collection::vec((0i64..20, -5i64..9), 0..30),
        intervals in proptest::collection::vec((-2i64..22, 0i64..9), 0..20),
    ) {
        let intervals: Vec<_> = intervals.into_iter().map(|(start, length)| (start, start + length)).collect();
        let inside = |&(start, end): &(i64, i64)| -> i64 {
            records.iter().filter(|(time, _)| (start..=end).contains(time)).map(|(_, bytes)| bytes).sum()
        };
        let expected: Vec<i64> = intervals.iter().map(inside).collect();
        let found: Vec<i64> = Curve::new(records.iter().copied()).changes(intervals.into_iter()).collect();
        prop_assert_eq!(found, expected);
    }
}
