//! Numbers the combinations of values that rows have in some columns.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::frame::{Frame, Result};

mod described;
mod places;
#[cfg(test)]
mod tests;
mod words;

pub use described::{Described, Figures, describe_by_group, described};
pub use places::{find_rows, places};
pub use words::WordNumbering;

/// Numbers combinations of values in the order in which they come first.
///
/// Rows come part by part, and of each part column by column: see [`Numbering::add_column`].
#[derive(Debug, Default)]
pub struct Numbering {
    values: Vec<Coder<Option<i64>>>,
    /// What stands in column `n + 1`, with the number of the columns before.
    pairs: Vec<Coder<(u32, u32)>>,
    firsts: Vec<u32>,
    rows: u32,
}

impl Numbering {
    /// Takes a column of the part at hand, the columns in the same order each time.
    ///
    /// `numbers` is empty before the first column, and after the last one has the number of each row.
    pub fn add_column(
        &mut self,
        column: usize,
        values: impl Iterator<Item = Option<i64>>,
        numbers: &mut Vec<u32>,
    ) {
        while self.values.len() <= column {
            self.values.push(Coder::default());
            self.pairs.push(Coder::default());
        }
        let (Some(coder), Some(pairs)) = (self.values.get_mut(column), self.pairs.get_mut(column)) else {
            return;
        };
        if column == 0 {
            numbers.extend(values.map(|value| coder.code(value)));
            return;
        }
        for (number, value) in numbers.iter_mut().zip(values) {
            *number = pairs.code((*number, coder.code(value)));
        }
    }

    /// Numbers the rows of a part by its columns `by`, of whole numbers; without any, all rows are alike.
    pub fn add_part(&mut self, part: &Frame, by: &[String]) -> Result<Vec<u32>> {
        let mut numbers = Vec::with_capacity(part.height());
        for (column, name) in by.iter().enumerate() {
            self.add_column(column, part.nullable_i64(name)?.iter(), &mut numbers);
        }
        numbers.resize(part.height(), 0);
        self.end_part(&numbers);
        Ok(numbers)
    }

    /// Ends the part whose rows have these `numbers`.
    pub fn end_part(&mut self, numbers: &[u32]) {
        for (row, &number) in (self.rows..).zip(numbers) {
            // Numbers are given in order, so a new one is the next.
            if number as usize == self.firsts.len() {
                self.firsts.push(row);
            }
        }
        self.rows += numbers.len() as u32;
    }

    /// The first row of each combination, counted over all parts.
    pub fn firsts(&self) -> &[u32] {
        &self.firsts
    }
}

/// Keys that are compared one by one: quicker than a table while they are few.
const FEW: usize = 8;

/// Numbers keys in the order in which they come first.
#[derive(Debug)]
struct Coder<K> {
    /// The keys, as long as they are few.
    few: Vec<K>,
    /// The numbers of the keys, once they are more.
    more: HashMap<K, u32>,
    /// What came last: it often comes again.
    last: Option<(K, u32)>,
}

impl<K> Default for Coder<K> {
    fn default() -> Self {
        Self { few: Vec::new(), more: HashMap::new(), last: None }
    }
}

impl<K: Hash + Eq + Copy> Coder<K> {
    fn code(&mut self, key: K) -> u32 {
        if let Some((last, code)) = self.last
            && last == key
        {
            return code;
        }
        let code = if self.more.is_empty() { self.code_of_few(key) } else { self.code_of_many(key) };
        self.last = Some((key, code));
        code
    }

    fn code_of_few(&mut self, key: K) -> u32 {
        if let Some(code) = self.few.iter().position(|&known| known == key) {
            return code as u32;
        }
        if self.few.len() == FEW {
            self.more.extend(self.few.drain(..).zip(0..));
            return self.code_of_many(key);
        }
        self.few.push(key);
        self.few.len() as u32 - 1
    }

    fn code_of_many(&mut self, key: K) -> u32 {
        let next = self.more.len() as u32;
        *self.more.entry(key).or_insert(next)
    }
}
