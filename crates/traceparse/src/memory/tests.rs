use proptest::prelude::*;

use super::{Curve, MemoryRecord, partners};

/// The same by looking through all later records of each.
fn searched(records: &[Option<MemoryRecord>]) -> Vec<Option<u32>> {
    let mut found = vec![None; records.len()];
    let known = |at: usize| records[at].filter(|record| record.bytes != 0);
    for at in 0..records.len() {
        let Some(record) = known(at).filter(|record| record.bytes > 0) else { continue };
        let is_same = |other: &MemoryRecord| (other.device, other.address) == (record.device, record.address);
        let next = (at + 1..records.len()).find(|&later| known(later).is_some_and(|other| is_same(&other)));
        if let Some(free) = next.filter(|&later| known(later).is_some_and(|other| other.bytes < 0)) {
            found[at] = Some(free as u32);
            found[free] = Some(at as u32);
        }
    }
    found
}

fn records() -> impl Strategy<Value = Vec<Option<MemoryRecord>>> {
    let record = (0u32..2, 0u64..3, -1i64..2);
    let build = |(device, address, bytes)| MemoryRecord { device, address, bytes };
    proptest::collection::vec(proptest::option::weighted(0.9, record.prop_map(build)), 0..40)
}

proptest! {
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
        let found: Vec<i64> = Curve::new(records.clone()).changes(intervals.into_iter()).collect();
        prop_assert_eq!(found, expected);
    }
}
