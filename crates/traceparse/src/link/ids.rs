//! From recorded ids to rows.

use hashbrown::HashMap;

use super::NONE;
use super::order::group;
use crate::schema::Column;

/// Finds rows by a recorded id, which should be unique but need not be.
///
/// Recorders count ids up, with gaps where files were cut or joined, so the usual case is a table of
/// pages; ids with wide but even gaps, of which rows that are close have close ones, are kept in their
/// order; ids that are spread out otherwise go through a hash table. Rows of a repeated id are kept in
/// order of start.
pub(super) struct IdIndex {
    rows: Rows,
    repeats: u64,
}

enum Rows {
    Slots {
        slots: Slots,
        /// Only if ids repeat.
        grouped: Option<Grouped>,
    },
    Ordered(Ordered),
}

/// Every row that has an id, the rows of one id behind one another.
struct Grouped {
    rows: Vec<u32>,
    /// Where the rows of an id begin, at the index of the first row that has it; they end where
    /// those of the next index begin.
    begins: Vec<u32>,
}

enum Slots {
    /// `directory` has the number of each page of [`PAGE`] ids from `base` on; [`NONE`]: no id is there.
    Paged {
        base: i64,
        directory: Vec<u32>,
        rows: Vec<u32>,
    },
    Sparse(HashMap<i64, u32>),
}

/// Ids in a page, a power of two.
const PAGE: usize = 512;

impl IdIndex {
    /// The index of `ids`; `starts` are the starts of the same rows.
    pub(super) fn new(ids: &Column<i64>, starts: &[i64]) -> Self {
        let present = || (0..ids.len()).filter_map(|i| ids.get(i).map(|id| (id, i as u32)));
        let extent = Extent::of(present().map(|(id, _)| id));
        let mut slots = match Slots::paged(present().map(|(id, _)| id), extent) {
            Some(slots) => slots,
            None => match Ordered::new(present(), extent, starts) {
                Some((ordered, repeats)) => return Self { rows: Rows::Ordered(ordered), repeats },
                None => Slots::Sparse(HashMap::with_capacity(extent.count)),
            },
        };
        let repeats = present().filter(|&(id, row)| slots.insert(id, row).is_some()).count() as u64;
        let grouped = (repeats > 0).then(|| Grouped::new(present(), &slots, starts));
        Self { rows: Rows::Slots { slots, grouped }, repeats }
    }

    /// The row of `id`; of several, the last that starts by `at`, or the first if none does.
    #[inline]
    pub(super) fn find(&self, id: i64, at: i64, starts: &[i64]) -> Option<u32> {
        let (slots, grouped) = match &self.rows {
            Rows::Slots { slots, grouped } => (slots, grouped),
            Rows::Ordered(ordered) => return ordered.find(id, at, starts),
        };
        let first = slots.get(id)?;
        let Some(grouped) = grouped else { return Some(first) };
        let rows = grouped.rows_of(first as usize);
        let before = rows.partition_point(|&row| starts[row as usize] <= at);
        rows.get(before.saturating_sub(1)).copied()
    }

    /// How many rows have an id that another row had before.
    pub(super) fn repeats(&self) -> u64 {
        self.repeats
    }
}

impl Grouped {
    /// Groups `rows`, given with their ids, whose first rows are in `slots`.
    fn new(rows: impl DoubleEndedIterator<Item = (i64, u32)> + Clone, slots: &Slots, starts: &[i64]) -> Self {
        let firsts = rows.filter_map(|(id, row)| Some((slots.get(id)? as usize, row)));
        let (begins, rows) = group(firsts, starts.len());
        let mut grouped = Self { rows, begins };
        grouped.sort(starts);
        grouped
    }

    /// Puts the rows of every id in order of start.
    fn sort(&mut self, starts: &[i64]) {
        for group in self.begins.windows(2) {
            let rows = &mut self.rows[group[0] as usize..group[1] as usize];
            if !rows.is_sorted_by_key(|&row| starts[row as usize]) {
                rows.sort_by_key(|&row| starts[row as usize]);
            }
        }
    }

    /// The rows that have the id which row `first` is the first to have.
    #[inline]
    fn rows_of(&self, first: usize) -> &[u32] {
        &self.rows[self.begins[first] as usize..self.begins[first + 1] as usize]
    }
}

impl Slots {
    /// Pages for `ids`, unless they would be nearly empty.
    fn paged(ids: impl Iterator<Item = i64>, extent: Extent) -> Option<Self> {
        let Extent { count, low, .. } = extent;
        let range = usize::try_from(extent.range()?).ok()?;
        let pages = Some(range / PAGE + 1).filter(|&pages| pages <= 4 * count + 1024)?;
        let mut directory = vec![NONE; pages];
        let mut used = 0;
        for id in ids {
            let page = &mut directory[id.wrapping_sub(low) as usize / PAGE];
            if *page == NONE {
                *page = used;
                used += 1;
            }
        }
        let slots = used as usize * PAGE;
        (slots <= 8 * count + 2 * PAGE).then(|| Self::Paged { base: low, directory, rows: vec![NONE; slots] })
    }

    /// Stores `row` unless there is one already, which is returned.
    #[inline]
    fn insert(&mut self, id: i64, row: u32) -> Option<u32> {
        let slot = match self {
            Self::Paged { base, directory, rows } => rows.get_mut(slot(*base, directory, id)?)?,
            Self::Sparse(rows) => rows.entry(id).or_insert(NONE),
        };
        if *slot == NONE {
            *slot = row;
            return None;
        }
        Some(*slot)
    }

    #[inline]
    fn get(&self, id: i64) -> Option<u32> {
        let row = match self {
            Self::Paged { base, directory, rows } => rows.get(slot(*base, directory, id)?).copied(),
            Self::Sparse(rows) => rows.get(&id).copied(),
        };
        row.filter(|&row| row != NONE)
    }
}

/// How many ids there are, and the lowest and the highest.
#[derive(Clone, Copy)]
struct Extent {
    count: usize,
    low: i64,
    high: i64,
}

impl Extent {
    fn of(ids: impl Iterator<Item = i64>) -> Self {
        let none = Self { count: 0, low: i64::MAX, high: i64::MIN };
        ids.fold(none, |all, id| Self { count: all.count + 1, low: all.low.min(id), high: all.high.max(id) })
    }

    /// From the lowest to the highest.
    fn range(&self) -> Option<i64> {
        self.high.checked_sub(self.low).filter(|&range| range >= 0)
    }
}

/// Rows by id and start, and where to look for an id among them.
struct Ordered {
    /// The lower bits of the distance of each id from the lowest, above the number of its row.
    entries: Vec<u64>,
    low: i64,
    /// The ids of one bucket agree in what is above so many bits of that distance.
    shift: u32,
    /// Where each bucket begins, and the end of the last.
    begins: Vec<u32>,
}

/// Ids in a bucket at most, so that neither looking through one nor sorting it takes long.
const FULL: u32 = 512;

impl Ordered {
    /// The index and how many rows repeat an id; nothing if ids crowd in some places or are too far apart.
    fn new(
        rows: impl DoubleEndedIterator<Item = (i64, u32)> + Clone,
        extent: Extent,
        starts: &[i64],
    ) -> Option<(Self, u64)> {
        let Extent { count, low, .. } = extent;
        let range = extent.range()? as u64;
        let shift = u64::BITS - (range / count as u64).leading_zeros();
        if shift > u32::BITS {
            return None;
        }
        let distance = |id: i64| id.wrapping_sub(low) as u64;
        let entries = rows.map(|(id, row)| {
            let distance = distance(id);
            ((distance >> shift) as usize, (distance & ((1 << shift) - 1)) << 32 | u64::from(row))
        });
        let (begins, entries) = group(entries, (range >> shift) as usize + 1);
        if begins.windows(2).any(|bounds| bounds[1] - bounds[0] > FULL) {
            return None;
        }
        let mut ordered = Self { entries, low, shift, begins };
        let repeats = ordered.sort(starts);
        Some((ordered, repeats))
    }

    /// Puts the entries of every bucket in order; tells how many repeat an id.
    fn sort(&mut self, starts: &[i64]) -> u64 {
        let key = |&entry: &u64| (id_bits(entry), starts[row(entry) as usize]);
        let mut repeats = 0;
        for bounds in self.begins.windows(2) {
            let bucket = &mut self.entries[bounds[0] as usize..bounds[1] as usize];
            if !bucket.is_sorted_by(|a, b| id_bits(*a) < id_bits(*b) || key(a) <= key(b)) {
                bucket.sort_by_key(key);
            }
            repeats += bucket.windows(2).filter(|pair| id_bits(pair[0]) == id_bits(pair[1])).count() as u64;
        }
        repeats
    }

    #[inline]
    fn find(&self, id: i64, at: i64, starts: &[i64]) -> Option<u32> {
        let distance = u64::try_from(id.checked_sub(self.low)?).ok()?;
        let bucket = usize::try_from(distance >> self.shift).ok()?;
        let bounds = *self.begins.get(bucket)?..*self.begins.get(bucket + 1)?;
        let bucket = &self.entries[bounds.start as usize..bounds.end as usize];
        let bits = distance & ((1 << self.shift) - 1);
        let first = bucket.partition_point(|&entry| id_bits(entry) < bits);
        if id_bits(*bucket.get(first)?) != bits {
            return None;
        }
        let later = bucket[first + 1..].iter();
        let in_time = later.take_while(|&&entry| id_bits(entry) == bits && starts[row(entry) as usize] <= at);
        Some(row(*in_time.last().unwrap_or(&bucket[first])))
    }
}

/// What an entry of [`Ordered`] has of its id.
#[inline]
fn id_bits(entry: u64) -> u64 {
    entry >> 32
}

#[inline]
fn row(entry: u64) -> u32 {
    entry as u32
}

#[inline]
fn slot(base: i64, directory: &[u32], id: i64) -> Option<usize> {
    let offset = usize::try_from(id.checked_sub(base)?).ok()?;
    let page = *directory.get(offset / PAGE)?;
    (page != NONE).then(|| page as usize * PAGE + offset % PAGE)
}

#[cfg(test)]
mod tests {
    use super::IdIndex;
    use crate::schema::Column;

    #[test]
    fn dense_paged_sparse_and_extreme_ids() {
        for spread in [1, 700, 1 << 40, 1 << 61] {
            let ids: Column<i64> =
                [Some(7), None, Some(7 + spread), Some(7 + 2 * spread)].into_iter().collect();
            let starts = [0, 10, 20, 30];
            let index = IdIndex::new(&ids, &starts);
            assert_eq!(index.find(7 + spread, 0, &starts), Some(2));
            assert_eq!(index.find(8 + 2 * spread, 0, &starts), None);
            assert_eq!(index.find(6, 0, &starts), None);
            assert_eq!(index.find(i64::MIN, 0, &starts), None);
            assert_eq!(index.find(i64::MAX, 0, &starts), None);
        }
        let extreme: Column<i64> = [Some(i64::MIN), Some(i64::MAX)].into_iter().collect();
        assert_eq!(IdIndex::new(&extreme, &[0, 0]).find(i64::MAX, 0, &[0, 0]), Some(1));
    }

    #[test]
    fn of_repeated_ids_the_last_that_starts_before_counts() {
        let ids: Column<i64> = [Some(3), Some(3), Some(4), Some(3)].into_iter().collect();
        let starts = [50, 10, 0, 90];
        let index = IdIndex::new(&ids, &starts);
        assert_eq!(index.repeats(), 2);
        assert_eq!(index.find(3, 60, &starts), Some(0));
        assert_eq!(index.find(3, 95, &starts), Some(3));
        assert_eq!(index.find(3, 5, &starts), Some(1));
        assert_eq!(index.find(4, 5, &starts), Some(2));
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
            let index = IdIndex::new(&Column::from_values(ids.clone()), &starts);
            for (row, &id) in ids.iter().enumerate() {
                assert_eq!(index.find(id, row as i64, &starts), Some(row as u32), "{id}");
                assert_eq!(index.find(id + 1, row as i64, &starts), None);
                let first = ids.iter().position(|&other| other == id).unwrap();
                assert_eq!(index.find(id, -1, &starts), Some(first as u32));
            }
            assert_eq!(index.repeats(), if ids.len() == 1000 { 500 } else { 0 });
            assert_eq!(index.find(i64::MIN, 0, &starts).or(index.find(i64::MAX, 0, &starts)), None);
        }
    }

    #[test]
    fn one_id_on_every_row_is_not_quadratic() {
        let rows = 200_000;
        let ids = Column::from_values(vec![1; rows]);
        let starts: Vec<i64> = (0..rows as i64).collect();
        let index = IdIndex::new(&ids, &starts);
        let found = (0..rows as i64).filter(|&at| index.find(1, at, &starts) == Some(at as u32)).count();
        assert_eq!(found, rows);
    }
}
