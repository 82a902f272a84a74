//! Trees of calls, for frames that Python hands over as Arrow IPC streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, UInt32Array};
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::call_tree::{Classes, Forest, NONE, Positions, Slices, nest};
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::frame::Frame;
use crate::projection::{Outcome, refused, table};
use crate::table::ArrowTable;

/// The interval around each: `row` of it, null for none; see `traceparse::call_tree::nest`.
///
/// Columns: `group`, `start_ns`, `dur_ns` (null counts as 0) and `row`.
#[pyfunction]
pub(crate) fn nest_slices(py: Python<'_>, slices: &[u8]) -> PyResult<ArrowTable> {
    answer(py, || {
        let frame = Frame::read(slices)?;
        let (groups, starts) = (frame.numbers("group")?, frame.numbers("start_ns")?);
        let mut ends = frame.numbers("dur_ns")?;
        ends.iter_mut().zip(&starts).for_each(|(end, start)| *end = end.saturating_add(*start));
        let rows = frame.links("row", NONE)?;
        let parents = nest(Slices { groups: &groups, starts: &starts, ends: &ends, rows: &rows });
        table(vec![("parent_row", rows_at(&rows, &parents))])
    })
}

/// Calls, and what each comes to by itself and with what is inside it: see `traceparse::call_tree`.
///
/// Columns of whole numbers are put to the calls, which keeps them here until they are summed up.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct CallTree {
    rows: Vec<u32>,
    positions: Positions,
    forest: Forest,
    columns: BTreeMap<String, Vec<i64>>,
    classes: Classes,
}

#[pymethods]
impl CallTree {
    /// Calls with `row` and `parent_row`, null for none; a parent that is not there counts as none.
    #[new]
    fn new(py: Python<'_>, calls: &[u8]) -> PyResult<Self> {
        answer(py, || {
            let frame = Frame::read(calls)?;
            let rows = frame.links("row", NONE)?;
            let positions = Positions::new(&rows);
            let mut parents = frame.links("parent_row", NONE)?;
            parents.iter_mut().for_each(|parent| *parent = positions.of(*parent));
            let forest = Forest::new(parents);
            let forest = forest.map_err(|_| {
                ArrowError::InvalidArgumentError("the rows are each other's ancestors".into())
            })?;
            let classes = Classes::new(rows.len() as u32);
            Ok(Self { rows, positions, forest, columns: BTreeMap::new(), classes })
        })
    }

    /// Counts a call that is the only one inside a call of the same `name` as that one.
    fn merge_repeats(&mut self, py: Python<'_>, names: &[u8]) -> PyResult<()> {
        answer(py, || {
            self.forest.merge_repeats(&Frame::read(names)?.links("name", NONE)?);
            Ok(())
        })
    }

    /// Which call each is counted as: `kept`, its row.
    fn kept(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || table(vec![("kept", rows_at(&self.rows, self.forest.kept()))]))
    }

    /// The calls around the calls that are not merged: `parent_row`, null for none.
    fn parents(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let parents: Vec<u32> = self.kept_only(self.forest.parents()).collect();
            table(vec![("parent_row", rows_at(&self.rows, &parents))])
        })
    }

    /// The nearest call on the way up from each, itself included, that is `marked`: `row`, null for none.
    fn nearest(&self, py: Python<'_>, marks: &[u8]) -> PyResult<ArrowTable> {
        answer(py, || {
            let marked = Frame::read(marks)?.numbers("marked")?;
            let found = self.forest.nearest(|at| marked.get(at).is_some_and(|&mark| mark != 0));
            table(vec![("row", rows_at(&self.rows, &found))])
        })
    }

    /// Gives each call its value of each column, in order; null is 0. Merged calls are passed over.
    fn put(&mut self, py: Python<'_>, values: &[u8]) -> PyResult<()> {
        answer(py, || {
            let frame = Frame::read(values)?;
            for name in frame.names() {
                let mut column = frame.numbers(name)?;
                self.check(column.len())?;
                let calls = column.iter_mut().enumerate();
                calls.filter(|&(at, _)| self.forest.is_merged(at)).for_each(|(_, value)| *value = 0);
                self.columns.insert(name.clone(), column);
            }
            Ok(())
        })
    }

    /// Adds to the calls with row `call` what the other columns hold; null is no call, and 0.
    fn add(&mut self, py: Python<'_>, values: &[u8]) -> PyResult<()> {
        answer(py, || {
            let frame = Frame::read(values)?;
            let mut calls = frame.links("call", NONE)?;
            let kept = self.forest.kept();
            calls.iter_mut().for_each(|call| {
                *call = kept.get(self.positions.of(*call) as usize).copied().unwrap_or(NONE);
            });
            for name in frame.names().iter().filter(|name| *name != "call") {
                let size = self.rows.len();
                let column = self.columns.entry(name.clone()).or_insert_with(|| vec![0; size]);
                for (&call, value) in calls.iter().zip(frame.numbers(name)?) {
                    if let Some(sum) = column.get_mut(call as usize) {
                        *sum = sum.wrapping_add(value);
                    }
                }
            }
            Ok(())
        })
    }

    /// Puts to `into` what `column` is less that of the calls directly inside.
    fn less_children(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let values = self.column(column)?;
            let mut own = self.forest.of_children(values);
            own.iter_mut().zip(values).for_each(|(inner, &value)| *inner = value.wrapping_sub(*inner));
            self.columns.insert(into.to_owned(), own);
            Ok(())
        })
    }

    /// Puts to `into` what `column` is with that of all calls inside.
    fn with_inner(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let sums = self.forest.with_inner(self.column(column)?.to_vec());
            self.columns.insert(into.to_owned(), sums);
            Ok(())
        })
    }

    /// The columns of these names, for the calls that are not merged, in order.
    #[allow(clippy::needless_pass_by_value, reason = "a list from Python comes by value")]
    fn columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || {
            let mut columns = Vec::new();
            for name in &names {
                let kept = self.kept_only(self.column(name)?);
                columns.push((name.as_str(), Arc::new(kept.collect::<Int64Array>()) as ArrayRef));
            }
            table(columns)
        })
    }

    /// Divides the calls into classes that agree in all columns; gives `first`, a position of each.
    fn divide(&mut self, py: Python<'_>, columns: &[u8]) -> PyResult<ArrowTable> {
        answer(py, || {
            let frame = Frame::read(columns)?;
            self.classes = Classes::new(self.rows.len() as u32);
            for name in frame.names() {
                let values = frame.options(name)?;
                self.check(values.len())?;
                self.classes.divide(values.iter().copied());
            }
            table(vec![("first", Arc::new(UInt32Array::from(self.classes.first().to_vec())))])
        })
    }

    /// Sums columns over each class: `calls`, which counts those that are not merged, and the columns.
    #[allow(clippy::needless_pass_by_value, reason = "a list from Python comes by value")]
    fn class_sums(&self, py: Python<'_>, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || {
            let sum = |values: &mut dyn Iterator<Item = (usize, i64)>| -> ArrayRef {
                let mut sums = vec![0_i64; self.classes.first().len()];
                for (at, value) in values {
                    let class = self.classes.of().get(at).copied().unwrap_or(NONE);
                    if let Some(sum) = sums.get_mut(class as usize) {
                        *sum = sum.wrapping_add(value);
                    }
                }
                Arc::new(Int64Array::from(sums))
            };
            let calls = (0..self.rows.len()).map(|at| (at, i64::from(!self.forest.is_merged(at))));
            let mut columns = vec![("calls", sum(&mut { calls }))];
            for name in &names {
                let values = self.column(name)?.iter().copied().enumerate();
                columns.push((name.as_str(), sum(&mut { values })));
            }
            table(columns)
        })
    }
}

impl CallTree {
    fn column(&self, name: &str) -> Outcome<&[i64]> {
        let unknown = || ArrowError::InvalidArgumentError(format!("there is no column {name}"));
        self.columns.get(name).map(Vec::as_slice).ok_or_else(unknown)
    }

    fn check(&self, size: usize) -> Outcome<()> {
        let calls = self.rows.len();
        let wrong = || ArrowError::InvalidArgumentError(format!("{size} values for {calls} calls"));
        (size == calls).then_some(()).ok_or_else(wrong)
    }

    fn kept_only<'a, V: Copy>(&'a self, values: &'a [V]) -> impl Iterator<Item = V> + 'a {
        values.iter().enumerate().filter(|&(at, _)| !self.forest.is_merged(at)).map(|(_, &value)| value)
    }
}

/// The rows at positions; null for none.
fn rows_at(rows: &[u32], positions: &[u32]) -> ArrayRef {
    let of = |&at: &u32| rows.get(at as usize).copied();
    Arc::new(positions.iter().map(of).collect::<UInt32Array>())
}

/// What `work` comes to, done with the interpreter released; its error as Python's.
fn answer<T: Send>(py: Python<'_>, work: impl FnOnce() -> Outcome<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| match error {
        ArrowError::InvalidArgumentError(message) => {
            errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message))
        }
        other => errors::to_python(py, &refused(&other)),
    })
}
