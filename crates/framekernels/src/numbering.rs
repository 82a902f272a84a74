//! Numbers rows that agree in some columns, and finds rows by their numbers.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch};
use arrow_schema::DataType;
use hashbrown::HashMap;

use crate::frame::{Frame, NONE, Result, positions, table, unfit};

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
    #[inline]
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

    /// The same for every row.
    fn number_all(&mut self, numbers: &mut [u32], values: impl IntoIterator<Item = Option<i64>>) {
        numbers.iter_mut().zip(values).for_each(|(number, value)| self.number(number, value));
    }

    fn number_words<T: ArrowPrimitiveType>(
        &mut self,
        numbers: &mut [u32],
        array: &ArrayRef,
        word: impl Fn(T::Native) -> i64,
    ) {
        self.number_all(numbers, array.as_primitive::<T>().iter().map(|value| value.map(&word)));
    }
}

impl Numbering {
    /// Numbers the rows of the next frame by the columns `by`, the same ones each time: whole numbers, fractions,
    /// truth values, or arrays of whole numbers. Fractions that are no number are alike, and so are the two
    /// zeros. Without any column all rows are alike.
    pub fn add<'a>(&mut self, frame: &Frame, by: impl IntoIterator<Item = &'a str>) -> Result<Vec<u32>> {
        let mut numbers = vec![0; frame.height()];
        let mut at = 0;
        for name in by {
            let array = frame.column(name)?;
            let arrays = array.as_fixed_size_list_opt();
            let axes = arrays.map_or(1, |arrays| arrays.value_length() as usize);
            self.columns.resize_with(self.columns.len().max(at + axes), Column::default);
            for (axis, column) in self.columns[at..at + axes].iter_mut().enumerate() {
                match array.data_type() {
                    DataType::Int64 => column.number_words::<Int64Type>(&mut numbers, array, |value| value),
                    DataType::Int32 => column.number_words::<Int32Type>(&mut numbers, array, i64::from),
                    DataType::UInt32 => column.number_words::<UInt32Type>(&mut numbers, array, i64::from),
                    DataType::UInt8 => column.number_words::<UInt8Type>(&mut numbers, array, i64::from),
                    DataType::Float64 => column.number_words::<Float64Type>(&mut numbers, array, float_word),
                    DataType::Boolean => {
                        column.number_all(&mut numbers, array.as_boolean().iter().map(|v| v.map(i64::from)));
                    }
                    _ => {
                        let arrays = arrays.ok_or_else(|| unfit(name))?;
                        let values = arrays.values().as_primitive_opt::<Int32Type>();
                        let values = values.ok_or_else(|| unfit(name))?;
                        let value = |row| values.value(arrays.value_offset_at(row) + axis);
                        let values =
                            (0..arrays.len()).map(|row| arrays.is_valid(row).then(|| value(row).into()));
                        column.number_all(&mut numbers, values);
                    }
                }
            }
            at += axes;
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

/// The same word for fractions that are alike.
fn float_word(value: f64) -> i64 {
    if value.is_nan() { -1 } else { (value + 0.0).to_bits().cast_signed() }
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

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, FixedSizeListArray, Float64Array, Int64Array, RecordBatch};
    use proptest::prelude::*;

    use super::{Numbering, Positions};
    use crate::frame::{Frame, NONE};

    type Row = (Option<i64>, Option<i64>, Option<f64>, Option<[i32; 2]>);

    fn frame(rows: &[Row]) -> Frame {
        let arrays = rows.iter().map(|row| row.3.map(|pair| pair.map(Some)));
        let columns: [(&str, ArrayRef); 4] = [
            ("a", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
            ("b", Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>())),
            ("c", Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>())),
            ("d", Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(arrays, 2))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Frame::new(&batch.schema(), vec![batch]).unwrap()
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let number = || proptest::option::of(prop_oneof![-2..3_i64, any::<i64>()]);
        let fractions = vec![f64::NAN, -f64::NAN, 0.0, -0.0, 0.5];
        let fraction = proptest::option::of(proptest::sample::select(fractions));
        let pair = proptest::option::of(proptest::array::uniform2(0..2_i32));
        proptest::collection::vec((number(), number(), fraction, pair), 0..60)
    }

    proptest! {
        #[test]
        fn rows_have_one_number_if_they_agree(rows in rows(), columns in 0_usize..5, part in 1_usize..20) {
            let by = &["a", "b", "c", "d"][..columns];
            let mut numbering = Numbering::default();
            let mut found = Vec::new();
            for part in rows.chunks(part) {
                found.extend(numbering.add(&frame(part), by.iter().copied()).unwrap());
            }
            let mut known: HashMap<[String; 4], u32> = HashMap::new();
            let mut first = Vec::new();
            for (row, &found) in (0_u32..).zip(&found) {
                let (a, b, c, d) = rows[row as usize];
                let c = c.map(|c| if c.is_nan() { f64::NAN } else { c + 0.0 });
                let mut key = [format!("{a:?}"), format!("{b:?}"), format!("{c:?}"), format!("{d:?}")];
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
