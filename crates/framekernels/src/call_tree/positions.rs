//! Where rows stand.

use super::NONE;

/// Numbers per row up to which every number between the first and the last row gets a place.
const SPREAD: u64 = 128;
/// Numbers in a block, whose rows are counted in a byte.
const BLOCK: u32 = 128;
/// The number is no row.
const ABSENT: u8 = u8::MAX;

/// Finds where a row stands among given ones.
#[derive(Debug)]
pub struct Positions(Index);

#[derive(Debug)]
enum Index {
    /// By number, counted from the first row.
    Ranked {
        first: u32,
        /// How many rows there are before each in its block.
        ranks: Vec<u8>,
        /// How many rows there are before each block.
        before: Vec<u32>,
        /// The positions of the rows by size; none where rows ascend.
        by_size: Option<Vec<u32>>,
    },
    /// Row and position, in order.
    Sparse(Vec<(u32, u32)>),
}

impl Positions {
    /// An index of `rows`, in which none is there twice.
    #[must_use]
    pub fn new(rows: &[u32]) -> Self {
        let first = rows.iter().copied().fold(u32::MAX, u32::min);
        let last = rows.iter().copied().fold(first, u32::max);
        let span = u64::from(last - first) + 1;
        if span > SPREAD * (rows.len() as u64 + 64) {
            let mut pairs: Vec<(u32, u32)> = rows.iter().copied().zip(0_u32..).collect();
            pairs.sort_unstable();
            return Self(Index::Sparse(pairs));
        }
        let mut ranks = vec![ABSENT; span as usize];
        let mut before: Vec<u32> = Vec::with_capacity(ranks.len().div_ceil(BLOCK as usize));
        if rows.is_sorted_by(|a, b| a < b) {
            for (&row, at) in rows.iter().zip(0_u32..) {
                let offset = row - first;
                while before.len() <= (offset / BLOCK) as usize {
                    before.push(at);
                }
                if let (Some(rank), Some(before)) = (ranks.get_mut(offset as usize), before.last()) {
                    *rank = (at - before) as u8;
                }
            }
            return Self(Index::Ranked { first, ranks, before, by_size: None });
        }
        for &row in rows {
            if let Some(rank) = ranks.get_mut((row - first) as usize) {
                *rank = 0;
            }
        }
        let mut count = 0_u32;
        for block in ranks.chunks_mut(BLOCK as usize) {
            before.push(count);
            for rank in block.iter_mut().filter(|rank| **rank != ABSENT) {
                *rank = (count - before.last().copied().unwrap_or_default()) as u8;
                count += 1;
            }
        }
        let mut places = vec![NONE; count as usize];
        for (&row, at) in rows.iter().zip(0_u32..) {
            let place = rank(&ranks, &before, row - first).and_then(|rank| places.get_mut(rank as usize));
            if let Some(place) = place {
                *place = at;
            }
        }
        Self(Index::Ranked { first, ranks, before, by_size: Some(places) })
    }

    /// The position of `row`; [`NONE`] if it is not there.
    #[must_use]
    #[inline]
    pub fn of(&self, row: u32) -> u32 {
        match &self.0 {
            Index::Ranked { first, ranks, before, by_size } => {
                let rank = row.checked_sub(*first).and_then(|offset| rank(ranks, before, offset));
                match (rank, by_size) {
                    (None, _) => NONE,
                    (Some(rank), None) => rank,
                    (Some(rank), Some(places)) => places.get(rank as usize).copied().unwrap_or(NONE),
                }
            }
            Index::Sparse(pairs) => pairs
                .binary_search_by_key(&row, |&(row, _)| row)
                .ok()
                .and_then(|found| pairs.get(found))
                .map_or(NONE, |&(_, position)| position),
        }
    }
}

/// How many rows there are before the one at `offset`; none if that is no row.
#[inline]
fn rank(ranks: &[u8], before: &[u32], offset: u32) -> Option<u32> {
    let rank = ranks.get(offset as usize).copied().filter(|&rank| rank != ABSENT)?;
    before.get((offset / BLOCK) as usize).map(|before| before + u32::from(rank))
}
