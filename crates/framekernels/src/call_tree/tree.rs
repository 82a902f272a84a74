//! Numbers of calls, by themselves and with what is inside.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::ScalarBuffer;

use super::{Forest, Paths, Slices, own_times};
use crate::frame::{Frame, Result, column, invalid, is_set, positions, rows_at, table};
use crate::memory::Curve;
use crate::numbering::Positions;

/// Calls and columns of whole numbers about them.
///
/// Calls can be merged into others until the first column is put; merged calls then have only what is
/// [added](Self::add) to them.
#[derive(Debug)]
pub struct CallTree {
    rows: ScalarBuffer<u32>,
    positions: Arc<Positions>,
    forest: Arc<Forest>,
    /// A value for each call; an empty column is 0 everywhere.
    columns: BTreeMap<String, ScalarBuffer<i64>>,
    /// Whether calls may still be merged.
    is_open: bool,
}

impl CallTree {
    /// Calls with `row` and `parent_row`, null for none; a parent that is not there counts as none.
    pub fn new(calls: &Frame) -> Result<Self> {
        let rows = calls.u32_array("row")?;
        let positions = Positions::new(&rows);
        let parents = calls.u32_array("parent_row")?.iter().map(|&parent| positions.of(parent)).collect();
        let forest = Forest::new(parents).map_err(|_| invalid("the rows are each other's ancestors"))?;
        let (positions, forest) = (Arc::new(positions), Arc::new(forest));
        Ok(Self { rows, positions, forest, columns: BTreeMap::new(), is_open: true })
    }

    /// Merges a call that is the only one inside a call of the same `name` into that one.
    pub fn merge_repeats(&mut self, names: &Frame) -> Result<()> {
        let names = names.u32_array("name")?;
        self.open_forest()?.merge_repeats(&names);
        Ok(())
    }

    /// Merges a call that is not `marked` into the nearest marked one around it. With `classes`, a call is
    /// marked if its `class`, a position in `marks`, is.
    pub fn keep_marked(&mut self, marks: &Frame, classes: Option<&Frame>) -> Result<()> {
        let marked = marks.flags("marked")?;
        self.check(classes.unwrap_or(marks).height())?;
        let classes = classes.map(|classes| classes.u32_array("class")).transpose()?;
        let class = |at: usize| classes.as_ref().map_or(at, |classes| classes[at] as usize);
        self.open_forest()?.keep_marked(|at| is_set(&marked, class(at)));
        Ok(())
    }

    /// Another tree of the same calls, merged as they are, without columns.
    #[must_use]
    pub fn copy_structure(&self) -> Self {
        let (positions, forest) = (Arc::clone(&self.positions), Arc::clone(&self.forest));
        Self { rows: self.rows.clone(), positions, forest, columns: BTreeMap::new(), is_open: false }
    }

    /// The row of the call into which each is merged, or its own: `kept`.
    pub fn kept(&self) -> Result<RecordBatch> {
        let kept = (0..self.forest.len() as u32).map(|at| self.forest.kept(at));
        table([("kept", rows_at(&self.rows, kept))])
    }

    /// The calls around the calls that are not merged: `parent_row`, null for none.
    pub fn parents(&self) -> Result<RecordBatch> {
        table([("parent_row", rows_at(&self.rows, self.kept_only(self.forest.parents())))])
    }

    /// Puts columns with a value for each call, in order; null is 0.
    pub fn put(&mut self, values: &Frame) -> Result<()> {
        self.check(values.height())?;
        for name in values.names() {
            self.set(name, values.i64_array(name)?);
        }
        Ok(())
    }

    /// Puts columns with a value for the `class` of each call; null is 0.
    pub fn put_by_class(&mut self, classes: &Frame, values: &Frame) -> Result<()> {
        self.check(classes.height())?;
        let classes = classes.u32_array("class")?;
        for name in values.names() {
            let of_class = values.i64_array(name)?;
            self.set(name, classes.iter().map(|&class| value(&of_class, class as usize)).collect());
        }
        Ok(())
    }

    /// Puts as `into` by how much the memory of devices of `device_types` changes during each call, which
    /// has `start_ns` and `dur_ns` (null is 0).
    ///
    /// Columns: of `records`, needs `start_ns`, `bytes` and `device_type`.
    pub fn put_records(
        &mut self,
        calls: &Frame,
        records: &Frame,
        device_types: &[i64],
        into: &str,
    ) -> Result<()> {
        self.check(calls.height())?;
        let (starts, lengths) = (calls.i64_array("start_ns")?, calls.i64_array("dur_ns")?);
        let (times, bytes) = (records.i64_array("start_ns")?, records.i64_array("bytes")?);
        let types = records.array::<PrimitiveArray<Int32Type>>("device_type")?;
        let is_wanted = |of: Option<i32>| of.is_some_and(|of| device_types.contains(&of.into()));
        let records = times.iter().copied().zip(bytes.iter().copied()).zip(types);
        let curve = Curve::new(records.filter(|&(_, of)| is_wanted(of)).map(|(record, _)| record));
        let ends = starts.iter().zip(lengths.iter());
        let calls = ends.map(|(&start, &length)| (start, start.saturating_add(length)));
        self.set(
            into,
            if curve.is_flat() { ScalarBuffer::default() } else { curve.changes(calls).collect() },
        );
        Ok(())
    }

    /// Adds to the calls with row `call` what the other columns hold; null is no call, and 0.
    pub fn add(&mut self, values: &Frame) -> Result<()> {
        let calls = self.calls(values.u32_array("call")?.iter().copied());
        for name in values.names().filter(|name| *name != "call") {
            self.add_to(name, &calls, values.i64_array(name)?.iter().copied());
        }
        Ok(())
    }

    /// Adds to the calls with row `call` what the `class` of each row has in the columns `counts` of `keys`,
    /// and the `value` of the row where its class is marked in the columns `sums`; null is no call, and 0.
    pub fn add_by_class(
        &mut self,
        values: &Frame,
        classes: &Frame,
        keys: &Frame,
        counts: &[String],
        sums: &[String],
    ) -> Result<()> {
        let calls = self.calls(values.u32_array("call")?.iter().copied());
        let (classes, numbers) = (classes.u32_array("class")?, values.i64_array("value")?);
        for name in counts {
            let counts = keys.i64_array(name)?;
            self.add_to(name, &calls, classes.iter().map(|&class| value(&counts, class as usize)));
        }
        for name in sums {
            let marked = keys.flags(name)?;
            let counted = |(&class, &number): (&u32, &i64)| {
                if is_set(&marked, class as usize) { number } else { 0 }
            };
            self.add_to(name, &calls, classes.iter().zip(numbers.iter()).map(counted));
        }
        Ok(())
    }

    /// Puts as `into` how long each call itself runs, and not a call or one of the `others` inside: see
    /// [`own_times`]. What belongs to a merged call goes to the one into which it is merged.
    ///
    /// Columns: of both, `row`, `track`, `start_ns` and `dur_ns` (null is 0).
    pub fn put_own_time(&mut self, calls: &Frame, others: &Frame, into: &str) -> Result<()> {
        self.check(calls.height())?;
        self.is_open = false;
        let ([groups, starts, lengths], rows) = (times(calls)?, calls.u32_array("row")?);
        let calls = Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows };
        let ([groups, starts, lengths], rows) = (times(others)?, others.u32_array("row")?);
        let others = Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows };
        let kept: Vec<u32> = (0..self.forest.len() as u32).map(|at| self.forest.kept(at)).collect();
        self.add_to(into, &kept, own_times(calls, others).into_iter());
        Ok(())
    }

    /// Puts as `into` what `column` is less that of the calls directly inside.
    pub fn subtract_children(&mut self, column: &str, into: &str) -> Result<()> {
        self.derive(column, into, Forest::subtract_children)
    }

    /// Puts as `into` what `column` is with that of all calls inside.
    pub fn with_inner(&mut self, column: &str, into: &str) -> Result<()> {
        self.derive(column, into, Forest::with_inner)
    }

    /// Puts as `into` 1 where `column` is not what it is of the call around, or there is none, and else 0.
    pub fn mark_changes(&mut self, column: &str, into: &str) -> Result<()> {
        let mut values = self.column(column)?.to_vec();
        values.resize(self.forest.len(), 0);
        self.forest.changes(&mut values);
        self.columns.insert(into.to_owned(), values.into());
        Ok(())
    }

    /// The columns of these names, for the calls that are not merged, in order.
    pub fn columns(&self, names: &[String]) -> Result<RecordBatch> {
        let places = self.forest.places(|_| true);
        table(names.iter().map(|name| self.gathered(name, &places)).collect::<Result<Vec<_>>>()?)
    }

    /// The calls that are not merged and where a column is not 0: their position `at`, and the columns of
    /// these names.
    pub fn columns_where(&self, wanted: &str, names: &[String]) -> Result<RecordBatch> {
        let wanted = self.column(wanted)?;
        let places = self.forest.places(|at| value(wanted, at) != 0);
        let columns = names.iter().map(|name| self.gathered(name, &places));
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        columns.push(("at", positions(places)));
        table(columns)
    }

    /// Sums columns over the calls of each `class`, which are numbers below `count`: `calls`, which counts
    /// those that are not merged, and the columns.
    pub fn class_sums(&self, classes: &Frame, count: usize, names: &[String]) -> Result<RecordBatch> {
        let classes = classes.u32_array("class")?;
        self.check(classes.len())?;
        let mut calls = vec![0_i64; count];
        for class in self.kept_only(&classes) {
            if let Some(sum) = calls.get_mut(class as usize) {
                *sum += 1;
            }
        }
        let mut columns = vec![("calls", column(calls))];
        for name in names {
            let mut sums = vec![0_i64; count];
            for (&class, &value) in classes.iter().zip(self.column(name)?.iter()) {
                if let Some(sum) = sums.get_mut(class as usize) {
                    *sum = sum.wrapping_add(value);
                }
            }
            columns.push((name, column(sums)));
        }
        table(columns)
    }

    /// The paths of names that lead to the calls, at most so many names deep: the `path` of each call; and
    /// of each path the one around it, `parent`, and its last `name`. See [`Paths`].
    pub fn paths(&self, names: &Frame, most_levels: u32) -> Result<(RecordBatch, RecordBatch)> {
        let Paths { of, parents, names } = Paths::new(&self.forest, &names.u32_array("name")?, most_levels);
        let paths = table([("parent", positions(parents)), ("name", positions(names))])?;
        Ok((table([("path", positions(of))])?, paths))
    }

    fn column(&self, name: &str) -> Result<&ScalarBuffer<i64>> {
        self.columns.get(name).ok_or_else(|| invalid(format!("there is no column {name}")))
    }

    /// The column of a name, for the calls at `places`.
    fn gathered<'a>(&self, name: &'a str, places: &[u32]) -> Result<(&'a str, ArrayRef)> {
        let values = self.column(name)?;
        Ok((name, column(places.iter().map(|&place| value(values, place as usize)))))
    }

    fn derive(&mut self, column: &str, into: &str, change: fn(&Forest, &mut [i64])) -> Result<()> {
        let mut values = self.column(column)?.to_vec();
        change(&self.forest, &mut values);
        self.columns.insert(into.to_owned(), values.into());
        Ok(())
    }

    /// The calls of these rows, or those into which they are merged.
    fn calls(&self, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        rows.map(|row| self.forest.kept(self.positions.of(row))).collect()
    }

    /// Adds each of `values` to the call at that place in `calls`, which is [`NONE`] for none.
    fn add_to(&mut self, name: &str, calls: &[u32], values: impl Iterator<Item = i64>) {
        let column = self.columns.entry(name.to_owned()).or_default();
        let mut sums: Vec<i64> = std::mem::take(column).into();
        sums.resize(self.forest.len(), 0);
        for (&call, value) in calls.iter().zip(values) {
            if let Some(sum) = sums.get_mut(call as usize) {
                *sum = sum.wrapping_add(value);
            }
        }
        *column = sums.into();
    }

    /// Puts a column, of which merged calls have nothing.
    fn set(&mut self, name: &str, values: ScalarBuffer<i64>) {
        self.is_open = false;
        let kept = |(at, &value): (usize, &i64)| if self.forest.is_merged(at) { 0 } else { value };
        let has_merged = self.forest.has_merged();
        let values = if has_merged { values.iter().enumerate().map(kept).collect() } else { values };
        self.columns.insert(name.to_owned(), values);
    }

    /// The forest, to merge calls.
    fn open_forest(&mut self) -> Result<&mut Forest> {
        let forest = Arc::get_mut(&mut self.forest).filter(|_| self.is_open);
        forest.ok_or_else(|| invalid("calls cannot be merged any more once they have values"))
    }

    fn check(&self, size: usize) -> Result<()> {
        let calls = self.rows.len();
        let wrong = || invalid(format!("{size} values for {calls} calls"));
        (size == calls).then_some(()).ok_or_else(wrong)
    }

    fn kept_only<V: Copy>(&self, values: &[V]) -> impl Iterator<Item = V> {
        values.iter().enumerate().filter(|&(at, _)| !self.forest.is_merged(at)).map(|(_, &value)| value)
    }
}

/// Threads, starts and lengths of slices.
fn times(slices: &Frame) -> Result<[ScalarBuffer<i64>; 3]> {
    Ok([slices.i64_array("track")?, slices.i64_array("start_ns")?, slices.i64_array("dur_ns")?])
}

/// The value at a place; 0 where there is none.
#[inline]
fn value(values: &[i64], at: usize) -> i64 {
    values.get(at).copied().unwrap_or_default()
}
