//! Numbers rows that agree in some columns, and finds rows by their numbers.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;
use hashbrown::HashMap;

use crate::frame::{Frame, NONE, Result, positions, table};

/// Numbers combinations of values in the order in which they come first, over one frame or several.
#[derive(Debug, Default)]
pub struct Numbering {
    columns: Vec<Column>,
    first: Vec<u32>,
    rows: u32,
}

/// The combinations up to a column: by the number of the columns before, and the value of this one.
#[derive(Debug, Default)]
struct Column {
    count: u32,
    /// The first value with each number of the columns before. Most have no other.
    first: Vec<Option<(Option<i64>, u32)>>,
    others: HashMap<(u32, Option<i64>), u32>,
}

impl Column {
    /// Replaces the number of the columns before by that of these with this one.
    fn number(&mut self, number: &mut u32, value: Option<i64>) {
        let before = *number as usize;
        if self.first.len() <= before {
            self.first.resize(before + 1, None);
        }
        *number = match self.first[before] {
            Some((first, known)) if first == value => known,
            None => {
                self.first[before] = Some((value, self.count));
                self.count += 1;
                self.count - 1
            }
            Some(_) => *self.others.entry((*number, value)).or_insert_with(|| {
                self.count += 1;
                self.count - 1
            }),
        };
    }
}

impl Numbering {
    /// Numbers the rows of the next frame by the columns `by`, the same ones each time: whole numbers, fractions
    /// or truth values. Fractions that are no number are alike, and so are the two zeros. Without any column all
    /// rows are alike.
    pub fn add<'a>(&mut self, frame: &Frame, by: impl IntoIterator<Item = &'a str>) -> Result<Vec<u32>> {
        let mut numbers = vec![0; frame.height()];
        for (at, name) in by.into_iter().enumerate() {
            if at == self.columns.len() {
                self.columns.push(Column::default());
            }
            let column = &mut self.columns[at];
            if *frame.column(name)?.data_type() == DataType::Float64 {
                let word =
                    |value: f64| if value.is_nan() { -1 } else { (value + 0.0).to_bits().cast_signed() };
                let values = frame.column(name)?.as_primitive::<Float64Type>();
                numbers
                    .iter_mut()
                    .zip(values)
                    .for_each(|(number, value)| column.number(number, value.map(word)));
            } else {
                let values = frame.nullable_i64(name)?;
                numbers.iter_mut().zip(&values).for_each(|(number, value)| column.number(number, value));
            }
        }
        for (row, &number) in (self.rows..).zip(&numbers) {
            // Numbers are given in order, so a new one is the next.
            if number as usize == self.first.len() {
                self.first.push(row);
            }
        }
        self.rows += numbers.len() as u32;
        Ok(numbers)
    }

    /// The first row of each combination, counted over all frames.
    #[must_use]
    pub fn first(&self) -> &[u32] {
        &self.first
    }
}

/// The class of each row, `class`, and the first row of each class, `first`: rows of a class agree in all
/// columns.
pub fn divide_rows(frame: &Frame) -> Result<(RecordBatch, RecordBatch)> {
    let mut numbering = Numbering::default();
    let of = numbering.add(frame, frame.names())?;
    Ok((table([("class", positions(of))])?, table([("first", positions(numbering.first))])?))
}

/// Numbers a key that was met before as then, and another one as the next.
pub fn number_of<K: std::hash::Hash + Eq>(known: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

/// Finds where a row stands among given ones.
#[derive(Debug)]
pub struct Positions {
    /// The rows, in order.
    rows: Vec<u32>,
    /// Where each of `rows` was given; empty if they came in order.
    given: Vec<u32>,
    /// The numbers from the first row on in blocks of `width`: how many rows come before each block.
    before: Vec<u32>,
    width: u32,
}

impl Positions {
    /// An index of `rows`, in which none is there twice.
    #[must_use]
    pub fn new(rows: &[u32]) -> Self {
        let (mut sorted, mut given) = (rows.to_vec(), Vec::new());
        if !rows.is_sorted() {
            given = (0..rows.len() as u32).collect();
            given.sort_by_key(|&at| rows[at as usize]);
            sorted = given.iter().map(|&at| rows[at as usize]).collect();
        }
        let span = sorted.last().zip(sorted.first()).map_or(0, |(last, first)| last - first);
        // As many blocks as rows, so that most blocks have a row or two.
        let width = span / sorted.len().max(1) as u32 + 1;
        let mut before = Vec::with_capacity(sorted.len() + 2);
        for (&row, at) in sorted.iter().zip(0_u32..) {
            before.resize(((row - sorted[0]) / width) as usize + 1, at);
        }
        before.push(sorted.len() as u32);
        Self { rows: sorted, given, before, width }
    }

    /// The position of `row`; [`NONE`] if it is not there.
    #[must_use]
    #[inline]
    pub fn of(&self, row: u32) -> u32 {
        self.find(row).map_or(NONE, |at| self.given.get(at).copied().unwrap_or(at as u32))
    }

    #[inline]
    fn find(&self, row: u32) -> Option<usize> {
        let block = (row.checked_sub(*self.rows.first()?)? / self.width) as usize;
        let (from, to) = (*self.before.get(block)? as usize, *self.before.get(block + 1)? as usize);
        self.rows.get(from..to)?.binary_search(&row).ok().map(|at| from + at)
    }
}

/// Where each `row` of `wanted` stands in `rows`: `at`, null for null and for one that is not there.
pub fn find_rows(rows: &Frame, wanted: &Frame) -> Result<RecordBatch> {
    let places = Positions::new(&rows.u32_array("row")?);
    let found =
        wanted.u32_array("row")?.iter().map(|&row| if row == NONE { NONE } else { places.of(row) }).collect();
    table([("at", positions(found))])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use proptest::prelude::*;

    use super::{Numbering, Positions};
    use crate::frame::{Frame, NONE};

    type Row = (Option<i64>, Option<i64>, Option<f64>);

    fn frame(rows: &[Row]) -> Frame {
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
            ("b", Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>())),
            ("c", Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>())),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Frame::new(&batch.schema(), vec![batch]).unwrap()
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let number = || proptest::option::of(prop_oneof![-2..3_i64, any::<i64>()]);
        let fractions = vec![f64::NAN, -f64::NAN, 0.0, -0.0, 0.5];
        let fraction = proptest::option::of(proptest::sample::select(fractions));
        proptest::collection::vec((number(), number(), fraction), 0..60)
    }

    proptest! {
        #[test]
        fn rows_have_one_number_if_they_agree(rows in rows(), columns in 0_usize..4, part in 1_usize..20) {
            let by = &["a", "b", "c"][..columns];
            let mut numbering = Numbering::default();
            let mut found = Vec::new();
            for part in rows.chunks(part) {
                found.extend(numbering.add(&frame(part), by.iter().copied()).unwrap());
            }
            let mut known: HashMap<[String; 3], u32> = HashMap::new();
            let mut first = Vec::new();
            for (row, &found) in (0_u32..).zip(&found) {
                let (a, b, c) = rows[row as usize];
                let c = c.map(|c| if c.is_nan() { f64::NAN } else { c + 0.0 });
                let mut key = [format!("{a:?}"), format!("{b:?}"), format!("{c:?}")];
                key[columns..].iter_mut().for_each(String::clear);
                let next = known.len() as u32;
                let number = *known.entry(key).or_insert_with(|| { first.push(row); next });
                prop_assert_eq!(found, number);
            }
            prop_assert_eq!(numbering.first(), first);
        }

        #[test]
        fn rows_are_found(rows in prop_oneof![
            proptest::collection::hash_set(0..60_u32, 0..30),
            proptest::collection::hash_set(any::<u32>(), 0..30),
            proptest::collection::hash_set(prop_oneof![0..30_u32, Just(NONE - 1)], 0..30),
        ], others in proptest::collection::vec(0..80_u32, 0..20), is_sorted: bool) {
            let mut rows: Vec<u32> = rows.into_iter().collect();
            if is_sorted {
                rows.sort_unstable();
            }
            let positions = Positions::new(&rows);
            for row in rows.iter().chain(&others).copied() {
                let expected = rows.iter().position(|&r| r == row).map_or(NONE, |at| at as u32);
                prop_assert_eq!(positions.of(row), expected);
            }
        }
    }
}
