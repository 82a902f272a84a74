//! Rows that agree in some columns.

use hashbrown::HashMap;

/// Entries per row up to which a table of all pairs is made.
const PAIRS_PER_ROW: u64 = 4;
/// Entries that such a table may have however few rows there are.
const FEW_PAIRS: u64 = 4096;
/// A key that was not met yet.
const UNKNOWN: u32 = u32::MAX;

/// Divides rows into classes, which are numbered in order of their first rows.
#[derive(Debug)]
pub struct Classes {
    of: Vec<u32>,
    first: Vec<u32>,
}

impl Classes {
    /// One class of `rows` rows.
    #[must_use]
    pub fn new(rows: u32) -> Self {
        Self { of: vec![0; rows as usize], first: (0..rows.min(1)).collect() }
    }

    /// The class of each row.
    #[must_use]
    pub fn of(&self) -> &[u32] {
        &self.of
    }

    /// The first row of each class.
    #[must_use]
    pub fn first(&self) -> &[u32] {
        &self.first
    }

    /// Divides the classes by a column, which has a value or none for each row.
    pub fn divide(&mut self, values: impl Iterator<Item = Option<i64>> + Clone) {
        let rows = self.of.len() as u64;
        let mut first = Vec::new();
        let codes = dense(values, rows, |row| first.push(row));
        if self.first.len() <= 1 {
            (self.of, self.first) = (codes, first);
            return;
        }
        let (before, count) = (self.first.len() as u64, first.len() as u64);
        self.first.clear();
        let pair = |(&class, code): (&u32, u32)| Some(u64::from(class) * count + u64::from(code));
        let pairs = self.of.iter().zip(codes).map(pair);
        self.of = number(pairs, before * count, rows, |row| self.first.push(row));
    }
}

/// The values as numbers in order of their first rows, which are told to `meet`.
fn dense(values: impl Iterator<Item = Option<i64>> + Clone, rows: u64, meet: impl FnMut(u32)) -> Vec<u32> {
    let lowest = values.clone().flatten().min().unwrap_or(0);
    let highest = values.clone().flatten().max().unwrap_or(0);
    let above = |value: i64| value.wrapping_sub(lowest) as u64;
    let keys = values.map(|value| value.map(above));
    number(keys, above(highest).saturating_add(1), rows, meet)
}

/// Numbers keys below `span`, and none, in order of their first rows, which are told to `meet`.
fn number(
    keys: impl Iterator<Item = Option<u64>>,
    span: u64,
    rows: u64,
    mut meet: impl FnMut(u32),
) -> Vec<u32> {
    let mut count = 0_u32;
    let mut meet_at = |row: u32| {
        meet(row);
        count += 1;
        count - 1
    };
    let mut of_none: Option<u32> = None;
    let numbered = keys.zip(0_u32..);
    if span > PAIRS_PER_ROW * rows + FEW_PAIRS {
        let mut known: HashMap<u64, u32> = HashMap::new();
        let number = |(key, row): (Option<u64>, u32)| match key {
            Some(key) => *known.entry(key).or_insert_with(|| meet_at(row)),
            None => *of_none.get_or_insert_with(|| meet_at(row)),
        };
        return numbered.map(number).collect();
    }
    let mut known: Vec<u32> = vec![UNKNOWN; span as usize];
    let number = |(key, row): (Option<u64>, u32)| {
        let Some(number) = key.and_then(|key| known.get_mut(key as usize)) else {
            return *of_none.get_or_insert_with(|| meet_at(row));
        };
        if *number == UNKNOWN {
            *number = meet_at(row);
        }
        *number
    };
    numbered.map(number).collect()
}
