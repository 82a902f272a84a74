//! From recorded ids to rows.

use super::order::group;
use crate::schema::Column;

/// Finds rows by a recorded id, which should be unique but need not be.
///
/// Recorders count ids up, if with gaps: rows lie in about as many buckets as there are rows, by the
/// upper bits of their ids, and those of a bucket in order of (id, start). Where ids crowd in some
/// places a bucket is large, and one whose ids ascend costs no sorting.
pub(super) struct IdIndex<'a> {
    ids: &'a [i64],
    starts: &'a [i64],
    /// Every row that has an id, bucket by bucket.
    rows: Vec<u32>,
    /// Where each bucket begins, and the end of the last.
    begins: Vec<u32>,
    low: i64,
    /// The ids of one bucket agree in what is above so many bits of their distance from the lowest.
    shift: u32,
}

impl<'a> IdIndex<'a> {
    /// The index of `ids`; `starts` are the starts of the same rows.
    pub(super) fn new(ids: &'a Column<i64>, starts: &'a [i64]) -> Self {
        let present = (0..ids.len()).filter_map(|row| Some((ids.get(row)?, row as u32)));
        let none = (0_u64, i64::MAX, i64::MIN);
        let (count, low, high) =
            present.clone().fold(none, |(n, low, high), (id, _)| (n + 1, low.min(id), high.max(id)));
        let distance = |id: i64| id.wrapping_sub(low) as u64;
        let shift = u64::BITS - (distance(high) / count.max(1)).leading_zeros();
        let bucket = |id: i64| (distance(id) >> shift) as usize;
        let (begins, rows) = group(present.map(|(id, row)| (bucket(id), row)), bucket(high) + 1);
        let mut index = Self { ids: ids.values(), starts, rows, begins, low, shift };
        index.sort_buckets();
        index
    }

    fn sort_buckets(&mut self) {
        let key = |&row: &u32| (self.ids[row as usize], self.starts[row as usize]);
        for bounds in self.begins.windows(2) {
            let bucket = &mut self.rows[bounds[0] as usize..bounds[1] as usize];
            if !bucket.is_sorted_by_key(key) {
                bucket.sort_by_key(key);
            }
        }
    }

    /// The row of `id`; of several, the last that starts by `at`, or the first if none does.
    #[inline]
    pub(super) fn find(&self, id: i64, at: i64) -> Option<u32> {
        let bucket = (id.wrapping_sub(self.low) as u64 >> self.shift) as usize;
        let bounds = *self.begins.get(bucket)?..*self.begins.get(bucket + 1)?;
        let rows = &self.rows[bounds.start as usize..bounds.end as usize];
        let key = |row: u32| (self.ids[row as usize], self.starts[row as usize]);
        let later = rows.partition_point(|&row| key(row) <= (id, at));
        let mut nearest = [later.wrapping_sub(1), later].into_iter().filter_map(|at| rows.get(at).copied());
        nearest.find(|&row| self.ids[row as usize] == id)
    }

    /// How many rows have an id that another row had before.
    pub(super) fn repeats(&self) -> u64 {
        let id = |row: u32| self.ids[row as usize];
        self.rows.windows(2).filter(|pair| id(pair[0]) == id(pair[1])).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::IdIndex;
    use crate::schema::Column;

    #[test]
    fn dense_sparse_and_extreme_ids() {
        for spread in [1, 700, 1 << 40, 1 << 61] {
            let ids: Column<i64> =
                [Some(7), None, Some(7 + spread), Some(7 + 2 * spread)].into_iter().collect();
            let starts = [0, 10, 20, 30];
            let index = IdIndex::new(&ids, &starts);
            assert_eq!(index.find(7 + spread, 0), Some(2));
            assert_eq!(index.find(8 + 2 * spread, 0), None);
            assert_eq!(index.find(6, 0), None);
            assert_eq!(index.find(i64::MIN, 0), None);
            assert_eq!(index.find(i64::MAX, 0), None);
        }
        let extreme: Column<i64> = [Some(i64::MIN), Some(i64::MAX)].into_iter().collect();
        assert_eq!(IdIndex::new(&extreme, &[0, 0]).find(i64::MAX, 0), Some(1));
    }

    #[test]
    fn of_repeated_ids_the_last_that_starts_before_counts() {
        let ids: Column<i64> = [Some(3), Some(3), Some(4), Some(3)].into_iter().collect();
        let starts = [50, 10, 0, 90];
        let index = IdIndex::new(&ids, &starts);
        assert_eq!(index.repeats(), 2);
        assert_eq!(index.find(3, 60), Some(0));
        assert_eq!(index.find(3, 95), Some(3));
        assert_eq!(index.find(3, 5), Some(1));
        assert_eq!(index.find(4, 5), Some(2));
    }

    #[test]
    fn ids_far_apart_are_found_however_they_are_kept() {
        // Evenly, in either order, with each repeated; crowded, with one far from all others.
        let even: Vec<i64> = (0..500).map(|i| 1_000_000 * i - 7).collect();
        let reversed: Vec<i64> = even.iter().rev().copied().collect();
        let repeated: Vec<i64> = even.iter().chain(&reversed).copied().collect();
        let crowded: Vec<i64> = (0..500).map(|i| 3 * i).chain([i64::MAX / 2]).collect();
        for ids in [even, reversed, repeated, crowded] {
            let starts: Vec<i64> = (0..ids.len() as i64).collect();
            let column = Column::from_values(ids.clone());
            let index = IdIndex::new(&column, &starts);
            for (row, &id) in ids.iter().enumerate() {
                assert_eq!(index.find(id, row as i64), Some(row as u32), "{id}");
                assert_eq!(index.find(id + 1, row as i64), None);
                let first = ids.iter().position(|&other| other == id).unwrap();
                assert_eq!(index.find(id, -1), Some(first as u32));
            }
            assert_eq!(index.repeats(), if ids.len() == 1000 { 500 } else { 0 });
            assert_eq!(index.find(i64::MIN, 0).or(index.find(i64::MAX, 0)), None);
        }
    }

    #[test]
    fn one_id_on_every_row_is_not_quadratic() {
        let rows = 200_000;
        let ids = Column::from_values(vec![1; rows]);
        let starts: Vec<i64> = (0..rows as i64).collect();
        let index = IdIndex::new(&ids, &starts);
        let found = (0..rows as i64).filter(|&at| index.find(1, at) == Some(at as u32)).count();
        assert_eq!(found, rows);
    }
}
