//! Where rows stand.

use super::NONE;

/// Numbers per row up to which every number between the first and the last row gets a place.
const SPREAD: u64 = 16;

/// Finds where a row stands among given ones.
#[derive(Debug)]
pub struct Positions(Index);

#[derive(Debug)]
enum Index {
    /// By row, counted from the first.
    Dense { first: u32, at: Vec<u32> },
    /// Row and position, in order.
    Sparse(Vec<(u32, u32)>),
}

impl Positions {
    /// An index of `rows`, in which none is there twice.
    #[must_use]
    pub fn new(rows: &[u32]) -> Self {
        let first = rows.iter().copied().min().unwrap_or(0);
        let span = u64::from(rows.iter().copied().max().unwrap_or(0) - first) + 1;
        let numbered = rows.iter().copied().zip(0_u32..);
        if span > SPREAD * (rows.len() as u64 + 64) {
            let mut pairs: Vec<(u32, u32)> = numbered.collect();
            pairs.sort_unstable();
            return Self(Index::Sparse(pairs));
        }
        let mut at = vec![NONE; span as usize];
        for (row, position) in numbered {
            if let Some(place) = at.get_mut((row - first) as usize) {
                *place = position;
            }
        }
        Self(Index::Dense { first, at })
    }

    /// The position of `row`; [`NONE`] if it is not there.
    #[must_use]
    pub fn of(&self, row: u32) -> u32 {
        match &self.0 {
            Index::Dense { first, at } => {
                row.checked_sub(*first).and_then(|offset| at.get(offset as usize)).copied().unwrap_or(NONE)
            }
            Index::Sparse(pairs) => pairs
                .binary_search_by_key(&row, |&(row, _)| row)
                .ok()
                .and_then(|found| pairs.get(found))
                .map_or(NONE, |&(_, position)| position),
        }
    }
}
