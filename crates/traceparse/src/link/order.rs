//! Rows of a table grouped by track and ordered in time.

use std::cmp::Reverse;

use super::extents::Extents;

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
        let kept = |&index: &u32| keep(index);
        let all = || (0..tracks.len() as u32).filter(kept);
        let mut offsets = vec![0_u32; track_count + 1];
        for index in all() {
            offsets[tracks[index as usize] as usize + 1] += 1;
        }
        for track in 0..track_count {
            offsets[track + 1] += offsets[track];
        }
        let mut next = offsets.clone();
        let mut indices = vec![0; offsets.last().map_or(0, |&n| n as usize)];
        for index in all() {
            let slot = &mut next[tracks[index as usize] as usize];
            indices[*slot as usize] = index;
            *slot += 1;
        }
        let mut order = Self { indices, offsets };
        order.sort_tracks(extents);
        order
    }

    fn sort_tracks(&mut self, extents: Extents<'_>) {
        let key = |&index: &u32| (extents.start(index), Reverse(extents.end(index)));
        for bounds in self.offsets.windows(2) {
            let rows = &mut self.indices[bounds[0] as usize..bounds[1] as usize];
            // Recorders write a thread's events nearly in order; a stable sort keeps equal rows
            // in the order of the source and is linear on sorted runs.
            if !rows.is_sorted_by_key(key) {
                rows.sort_by_key(key);
            }
        }
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
        let begin = self.track_begin(track) as usize;
        let end = self.offsets.get(track as usize + 1).map_or(begin, |&end| end as usize);
        &self.indices[begin..end]
    }

    /// Position of a track's first row among all rows.
    pub(super) fn track_begin(&self, track: u32) -> u32 {
        self.offsets.get(track as usize).copied().unwrap_or(self.indices.len() as u32)
    }

    /// All rows, track by track.
    pub(super) fn indices(&self) -> &[u32] {
        &self.indices
    }
}

#[cfg(test)]
mod tests {
    use super::TrackOrder;
    use crate::link::extents::Extents;
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
