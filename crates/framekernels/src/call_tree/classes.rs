//! Rows that agree in some columns.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;
use hashbrown::HashMap;

use super::NONE;
use crate::frame::{Frame, Result, positions, table};

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
    #[inline]
    pub fn of(&self) -> &[u32] {
        &self.of
    }

    /// The first row of each class.
    #[must_use]
    #[inline]
    pub fn first(&self) -> &[u32] {
        &self.first
    }

    /// The class of each row, and the first row of each class.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Vec<u32>) {
        (self.of, self.first)
    }

    /// Divides the classes by a column of whole numbers, fractions or truth values. Fractions that are no
    /// number are alike, and so are the two zeros.
    pub fn divide_column(&mut self, frame: &Frame, name: &str) -> Result<()> {
        let column = frame.column(name)?;
        match column.data_type() {
            DataType::UInt32 => self.divide_codes(&frame.u32_array(name)?),
            DataType::Float64 => {
                let bits = |value: f64| if value.is_nan() { u64::MAX } else { (value + 0.0).to_bits() };
                self.divide_words(column.as_primitive::<Float64Type>().iter().map(|value| value.map(bits)));
            }
            _ => self.divide(frame.nullable_i64(name)?.iter()),
        }
        Ok(())
    }

    /// Divides the classes by the columns `0`, `1` ... of a frame.
    pub fn divide_numbered(&mut self, frame: &Frame) -> Result<()> {
        let names = (0..).map(|number: usize| number.to_string());
        names.take_while(|name| frame.has(name)).try_for_each(|name| self.divide_column(frame, &name))
    }

    /// Divides the classes by a column of codes, which are [`NONE`] for no value.
    pub fn divide_codes(&mut self, codes: &[u32]) {
        // One higher, so that no value is 0 and the others stay close together.
        let above = codes.iter().map(|code| code.wrapping_add(1));
        let (low, high) = (above.clone().fold(u32::MAX, u32::min), above.clone().fold(0, u32::max));
        if low >= high {
            return;
        }
        self.divide_below(u64::from(high - low) + 1, above.map(|code| u64::from(code - low)));
    }

    /// Divides the classes by a column of any numbers, or none.
    pub fn divide(&mut self, values: impl Iterator<Item = Option<i64>> + Clone) {
        if self.agree_in(values.clone()) {
            return;
        }
        let known = values.clone().flatten();
        let (low, high) = known.fold((i64::MAX, i64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let above = |value: i64| value.wrapping_sub(low) as u64;
        if low <= high && above(high) >= u64::from(NONE) {
            return self.divide_words(values.map(|value| value.map(i64::cast_unsigned)));
        }
        // No value is 0.
        let code = |value: Option<i64>| value.map_or(0, |value| above(value) + 1);
        let span = if low > high { 1 } else { above(high) + 2 };
        self.divide_below(span, values.map(code));
    }

    /// Whether the rows of every class have one value.
    fn agree_in(&self, values: impl Iterator<Item = Option<i64>>) -> bool {
        // Classes are numbered as their first rows come.
        let mut met: Vec<Option<i64>> = Vec::with_capacity(self.first.len());
        self.of.iter().zip(values).all(|(&class, value)| {
            if class as usize == met.len() {
                met.push(value);
            }
            met.get(class as usize) == Some(&value)
        })
    }

    /// Divides the classes by codes below `span`.
    fn divide_below(&mut self, span: u64, codes: impl Iterator<Item = u64>) {
        let (classes, rows) = (self.first.len() as u64, self.of.len() as u64);
        self.first.clear();
        let keyed = self.of.iter_mut().zip(codes).map(|(class, code)| {
            let key = u64::from(*class) * span + code;
            (class, key)
        });
        number(keyed, classes * span, rows, &mut self.first);
    }

    /// Divides the classes by a column of any words, or none: quickest where most rows of a class have the
    /// word of its first one.
    pub fn divide_words(&mut self, words: impl Iterator<Item = Option<u64>>) {
        let mut met: Vec<Option<(Option<u64>, u32)>> = vec![None; self.first.len()];
        let mut others: HashMap<(u32, Option<u64>), u32> = HashMap::new();
        self.first.clear();
        for ((of, word), row) in self.of.iter_mut().zip(words).zip(0_u32..) {
            let mut next = || {
                self.first.push(row);
                self.first.len() as u32 - 1
            };
            let Some(met) = met.get_mut(*of as usize) else { continue };
            *of = match *met {
                None => met.insert((word, next())).1,
                Some((known, number)) if known == word => number,
                Some(_) => *others.entry((*of, word)).or_insert_with(next),
            };
        }
    }
}

/// Makes classes of their own of some rows, those of a class with equal marks together, and numbers them behind
/// the `count` others; gives the class that each is a part of, and the mark. Of a row that comes several times
/// the last mark counts.
pub fn set_apart(of: &mut [u32], count: u32, rows: impl Iterator<Item = (u32, u32)>) -> Vec<(u32, u32)> {
    let mut apart: Vec<(u32, u32)> = Vec::new();
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    for (row, mark) in rows {
        let Some(of) = of.get_mut(row as usize) else { continue };
        let part_of = of.checked_sub(count).and_then(|at| apart.get(at as usize));
        let key = (part_of.map_or(*of, |&(class, _)| class), mark);
        *of = *known.entry(key).or_insert_with(|| {
            apart.push(key);
            count + apart.len() as u32 - 1
        });
    }
    apart
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

/// The class of each row, `class`, and the first row of each class, `first`: rows of a class agree in all
/// columns.
pub fn divide_rows(columns: &Frame) -> Result<(RecordBatch, RecordBatch)> {
    let mut classes = Classes::new(u32::try_from(columns.height()).unwrap_or(NONE));
    columns.names().try_for_each(|name| classes.divide_column(columns, name))?;
    let (of, first) = classes.into_parts();
    Ok((table([("class", positions(of))])?, table([("first", positions(first))])?))
}
