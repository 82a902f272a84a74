//! Rows in time: where they start and end, their order on each track, and which contains which.

use std::cmp::Reverse;

use framekernels::interval::OpenIntervals;

use super::NONE;
use crate::schema::Column;

/// Starts and ends of the rows of one table; a row without a duration ends where it starts.
#[derive(Clone, Copy)]
pub(super) struct Extents<'a> {
    starts: &'a [i64],
    /// Empty where no row has a duration; a null holds 0.
    durations: &'a [i64],
}

impl<'a> Extents<'a> {
    pub(super) fn new(start_ns: &'a Column<i64>, dur_ns: &'a Column<i64>) -> Self {
        Self { starts: start_ns.values(), durations: dur_ns.values() }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn starts(&self) -> &'a [i64] {
        self.starts
    }

    #[inline]
    pub(super) fn start(&self, index: u32) -> i64 {
        self.starts[index as usize]
    }

    #[inline]
    pub(super) fn end(&self, index: u32) -> i64 {
        let duration = self.durations.get(index as usize).copied().unwrap_or(0);
        self.starts[index as usize].saturating_add(duration.max(0))
    }

    /// Start and end.
    #[inline]
    pub(super) fn of(&self, index: u32) -> (i64, i64) {
        (self.start(index), self.end(index))
    }
}

/// Row indices by track and, within a track, by (start, longer first, order of the source).
pub(super) struct TrackOrder {
    indices: Vec<u32>,
    /// Where each track's indices begin, and the end of the last.
    offsets: Vec<u32>,
}

impl TrackOrder {
    /// The order of the rows that `keep` selects.
    pub(super) fn new(
        tracks: &[u32],
        track_count: usize,
        extents: Extents<'_>,
        keep: impl Fn(u32) -> bool,
    ) -> Self {
        let kept = (0..tracks.len() as u32).filter(|&index| keep(index));
        let (offsets, indices) =
            group(kept.map(|index| (tracks[index as usize] as usize, index)), track_count);
        let mut order = Self { indices, offsets };
        let key = |&index: &u32| (extents.start(index), Reverse(extents.end(index)));
        for bounds in order.offsets.windows(2) {
            let rows = &mut order.indices[bounds[0] as usize..bounds[1] as usize];
            // Recorders write a thread's events nearly in order; a stable sort keeps equal rows
            // in the order of the source and is linear on sorted runs.
            if !rows.is_sorted_by_key(key) {
                rows.sort_by_key(key);
            }
        }
        order
    }

    /// The rows of every track that has any.
    pub(super) fn tracks(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let bounds = self.offsets.windows(2).enumerate();
        bounds
            .filter(|(_, b)| b[0] < b[1])
            .map(|(track, b)| (track as u32, &self.indices[b[0] as usize..b[1] as usize]))
    }

    /// The rows of one track.
    pub(super) fn track(&self, track: u32) -> &[u32] {
        let Some(&[begin, end]) = self.offsets.get(track as usize..).and_then(<[u32]>::first_chunk) else {
            return &[];
        };
        &self.indices[begin as usize..end as usize]
    }

    /// All rows, track by track.
    pub(super) fn indices(&self) -> &[u32] {
        &self.indices
    }
}

/// Where the items of each group begin, with the end of the last, and the items: those of one group
/// behind one another, in the order in which they are given.
pub(super) fn group<T: Clone + Default>(
    items: impl DoubleEndedIterator<Item = (usize, T)> + Clone,
    groups: usize,
) -> (Vec<u32>, Vec<T>) {
    let mut begins = vec![0_u32; groups + 1];
    for (group, _) in items.clone() {
        begins[group] += 1;
    }
    let mut end = 0;
    for size in &mut begins {
        end += *size;
        *size = end;
    }
    let mut grouped = vec![T::default(); end as usize];
    // From the back: each group's end moves to its begin.
    for (group, item) in items.rev() {
        begins[group] -= 1;
        grouped[begins[group] as usize] = item;
    }
    (begins, grouped)
}

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

#[cfg(test)]
mod tests {
    use super::{Extents, TrackOrder};
    use crate::schema::Column;

    #[test]
    fn longer_first_then_order_of_the_source() {
        let start = Column::from_values(vec![5, 0, 0, 0, 9, 1]);
        let dur = Column::from_values(vec![1, 2, 7, 7, 1, 1]);
        let order = TrackOrder::new(&[1, 1, 1, 1, 0, 1], 3, Extents::new(&start, &dur), |i| i != 5);
        assert_eq!(order.track(1), [2, 3, 1, 0]);
        assert_eq!(order.track(0), [4]);
        assert!(order.track(2).is_empty() && order.track(9).is_empty());
        assert_eq!(
            order.tracks().map(|(track, rows)| (track, rows.len())).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
    }
}
