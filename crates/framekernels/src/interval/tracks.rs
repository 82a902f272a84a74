//! How intervals that overlap without nesting are drawn on several tracks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::RecordBatch;

use crate::frame::{Frame, Result, positions, table};

/// Tracks of a group on which intervals may nest; each one beyond has one interval at a time.
const NESTING: usize = 16;

/// The track of its group that each interval is drawn on, so that those of one track nest or lie apart: `track`,
/// from 0, which has all that the others need not have.
///
/// Intervals have `group`, `start_ns` and `dur_ns`; those without a length are empty.
pub fn nest_tracks(intervals: &Frame) -> Result<RecordBatch> {
    let (groups, starts) = (intervals.u32_array("group")?, intervals.i64_array("start_ns")?);
    let lengths = intervals.i64_array("dur_ns")?;
    let extent = |at: u32| {
        let start = starts[at as usize];
        (start, start.saturating_add(lengths[at as usize].max(0)))
    };
    let mut order: Vec<u32> = (0..intervals.height() as u32).collect();
    order.sort_by_key(|&at| (groups[at as usize], extent(at).0, Reverse(extent(at).1)));
    let mut tracks = vec![0; order.len()];
    for of_group in order.chunk_by(|&a, &b| groups[a as usize] == groups[b as usize]) {
        let mut group = Tracks::default();
        for &at in of_group {
            let (start, end) = extent(at);
            tracks[at as usize] = group.place(start, end);
        }
    }
    table([("track", positions(tracks))])
}

/// The tracks of a group, as far as a sweep over starts has come.
#[derive(Default)]
struct Tracks {
    /// The ends of the intervals that are open on each, which fall from the outermost to the innermost.
    nesting: Vec<Vec<i64>>,
    /// When each of the others is free.
    others: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Tracks {
    fn place(&mut self, start: i64, end: i64) -> u32 {
        for (track, open) in (0..).zip(&mut self.nesting) {
            while open.pop_if(|open_end| *open_end <= start).is_some() {}
            if open.last().is_none_or(|&open_end| open_end >= end) {
                open.push(end);
                return track;
            }
        }
        if self.nesting.len() < NESTING {
            self.nesting.push(vec![end]);
            return self.nesting.len() as u32 - 1;
        }
        let free = self.others.peek().filter(|Reverse((until, _))| *until <= start).map(|found| found.0.1);
        if free.is_some() {
            self.others.pop();
        }
        let track = free.unwrap_or((NESTING + self.others.len()) as u32);
        self.others.push(Reverse((end, track)));
        track
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use arrow_array::{Int64Array, UInt32Array};
    use proptest::prelude::*;

    use super::nest_tracks;
    use crate::frame::{Frame, table};

    /// Group, start and length.
    type Row = (u32, i64, Option<i64>);

    fn tracks(rows: &[Row]) -> Vec<u32> {
        let batch = table([
            ("group", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.0))) as _),
            ("start_ns", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))) as _),
            ("dur_ns", Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>()) as _),
        ])
        .unwrap();
        let frame = Frame::new(&batch.schema(), vec![batch]).unwrap();
        let found = nest_tracks(&frame).unwrap();
        found.column(0).as_primitive::<UInt32Type>().values().to_vec()
    }

    #[test]
    fn what_overlaps_in_part_goes_to_another_track() {
        let rows = [(0, 0, Some(10)), (0, 2, Some(3)), (0, 5, Some(10)), (0, 10, Some(2)), (1, 5, Some(10))];
        assert_eq!(tracks(&rows), [0, 0, 1, 0, 0]);
        // More than can nest.
        let stairs: Vec<Row> = (0..40).map(|step| (0, step, Some(20))).collect();
        let expected: Vec<u32> = (0..40).map(|step| step % 20).collect();
        assert_eq!(tracks(&stairs), expected);
    }

    proptest! {
        #[test]
        fn no_two_of_a_track_overlap_without_nesting(
            rows in prop::collection::vec((0_u32..3, 0_i64..60, prop::option::of(0_i64..50)), 0..60)
        ) {
            let found = tracks(&rows);
            let end = |row: &Row| row.1 + row.2.unwrap_or(0);
            let crosses = |a: &Row, b: &Row| a.1 < b.1 && b.1 < end(a) && end(a) < end(b);
            for (a, on_a) in rows.iter().zip(&found) {
                for (b, on_b) in rows.iter().zip(&found).filter(|(b, on_b)| (b.0, *on_b) == (a.0, on_a)) {
                    prop_assert!(!crosses(a, b), "{a:?} on {on_a} and {b:?} on {on_b}");
                }
            }
            // Nobody leaves the first track without need.
            let is_plain = rows.iter().all(|a| !rows.iter().any(|b| a.0 == b.0 && crosses(a, b)));
            prop_assert!(!is_plain || found.iter().all(|&track| track == 0));
        }
    }
}
