//! Rows that agree in some columns.

use hashbrown::HashMap;

use super::NONE;

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

    /// The class of each row, and the first row of each class.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Vec<u32>) {
        (self.of, self.first)
    }

    /// Divides the classes by a column of codes, which are [`NONE`] for no value.
    pub fn divide_codes(&mut self, codes: &[u32]) {
        // One higher, so that no value is 0 and the others stay close together.
        let above = codes.iter().map(|code| code.wrapping_add(1));
        let (low, high) = (above.clone().fold(u32::MAX, u32::min), above.clone().fold(0, u32::max));
        if low >= high {
            return;
        }
        let span = u64::from(high - low) + 1;
        let classes = self.first.len() as u64;
        self.first.clear();
        let pairs = self.of.iter_mut().zip(above);
        let keyed = pairs.map(|(class, code)| {
            let key = u64::from(*class) * span + u64::from(code - low);
            (class, key)
        });
        number(keyed, classes * span, codes.len() as u64, &mut self.first);
    }

    /// Divides the classes by a column of any numbers, or none.
    pub fn divide(&mut self, values: impl Iterator<Item = Option<i64>> + Clone) {
        let lowest = values.clone().flatten().min().unwrap_or(0);
        let highest = values.clone().flatten().max().unwrap_or(0);
        let above = |value: i64| value.wrapping_sub(lowest) as u64;
        if above(highest) < u64::from(NONE) {
            let codes = values.map(|value| value.map_or(NONE, |value| above(value) as u32));
            return self.divide_codes(&codes.collect::<Vec<_>>());
        }
        let mut known: HashMap<i64, u32> = HashMap::new();
        let codes = values.map(|value| {
            let next = known.len() as u32;
            value.map_or(NONE, |value| *known.entry(value).or_insert(next))
        });
        let codes: Vec<u32> = codes.collect();
        self.divide_codes(&codes);
    }
}

/// Numbers keys below `span` in order of their first rows, which `first` takes.
fn number<'a>(keyed: impl Iterator<Item = (&'a mut u32, u64)>, span: u64, rows: u64, first: &mut Vec<u32>) {
    let numbered = keyed.zip(0_u32..);
    if span > PAIRS_PER_ROW * rows + FEW_PAIRS {
        let mut known: HashMap<u64, u32> = HashMap::new();
        for ((of, key), row) in numbered {
            *of = *known.entry(key).or_insert_with(|| {
                first.push(row);
                first.len() as u32 - 1
            });
        }
        return;
    }
    let mut known: Vec<u32> = vec![UNKNOWN; span as usize];
    for ((of, key), row) in numbered {
        let Some(number) = known.get_mut(key as usize) else { continue };
        if *number == UNKNOWN {
            first.push(row);
            *number = first.len() as u32 - 1;
        }
        *of = *number;
    }
}
