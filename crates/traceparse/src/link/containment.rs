//! Which row of one table contains which row of another.

use framekernels::interval::OpenIntervals;

use super::NONE;
use super::extents::Extents;
use super::order::TrackOrder;

/// For each row of `inner`, the innermost row of `outer` on the same track that is a `candidate`
/// and contains what `reach` gives as start and end of the row; [`NONE`] if there is none.
///
/// Both tables are swept once, track by track; overlaps in part do not mislead the sweep.
pub(super) fn innermost_containers(
    outer: &TrackOrder,
    extents: Extents<'_>,
    candidate: impl Fn(u32) -> bool,
    inner: &TrackOrder,
    reach: impl Fn(u32) -> (i64, i64),
    inner_rows: usize,
) -> Vec<u32> {
    let mut containers = vec![NONE; inner_rows];
    let mut open = OpenIntervals::default();
    for (track, rows) in inner.tracks() {
        open.clear();
        let mut waiting = outer.track(track);
        for &row in rows {
            let (start, end) = reach(row);
            while let Some((&next, rest)) = waiting.split_first() {
                if extents.start(next) > start {
                    break;
                }
                if candidate(next) {
                    open.push(extents.end(next), next);
                }
                waiting = rest;
            }
            containers[row as usize] = open.innermost(end).unwrap_or(NONE);
        }
    }
    containers
}

/// For each row, the innermost earlier row of its track that it lies in; [`NONE`] if there is none.
pub(super) fn innermost_enclosing(order: &TrackOrder, extents: Extents<'_>) -> Vec<u32> {
    let mut containers = vec![NONE; extents.len()];
    let mut open = OpenIntervals::default();
    for (_, rows) in order.tracks() {
        open.clear();
        for &row in rows {
            let (start, end) = (extents.start(row), extents.end(row));
            // A row that only touches the end of another does not lie in it.
            containers[row as usize] = open.innermost(end.max(start.saturating_add(1))).unwrap_or(NONE);
            open.push(end, row);
        }
    }
    containers
}
