//! Trees of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeStringArray, UInt32Array};
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::call_tree::{self, Classes, Forest, NONE, Paths, Positions, Slices, nest};
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::frame::{Frame, Outcome, refused};
use crate::table::{ArrowTable, table};

/// The interval around each: `row` of it, null for none; see `traceparse::call_tree::nest`.
///
/// Columns: `group`, `start_ns`, `dur_ns` (null counts as 0) and `row`.
#[pyfunction]
pub(crate) fn nest_slices(py: Python<'_>, slices: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (groups, starts) = (slices.numbers("group")?, slices.numbers("start_ns")?);
        let ends = ends_of(&starts, slices.numbers("dur_ns")?.into_owned());
        let rows = slices.links("row", NONE)?;
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
}

#[pymethods]
impl CallTree {
    /// Calls with `row` and `parent_row`, null for none; a parent that is not there counts as none.
    #[new]
    fn new(py: Python<'_>, calls: Frame) -> PyResult<Self> {
        answer(py, || {
            let rows = calls.links("row", NONE)?;
            let positions = Positions::new(&rows);
            let mut parents = calls.links("parent_row", NONE)?.into_owned();
            parents.iter_mut().for_each(|parent| *parent = positions.of(*parent));
            let forest = Forest::new(parents);
            let forest = forest.map_err(|_| {
                ArrowError::InvalidArgumentError("the rows are each other's ancestors".into())
            })?;
            Ok(Self { rows: rows.into_owned(), positions, forest, columns: BTreeMap::new() })
        })
    }

    /// Counts a call that is the only one inside a call of the same `name` as that one.
    fn merge_repeats(&mut self, py: Python<'_>, names: Frame) -> PyResult<()> {
        answer(py, || {
            self.forest.merge_repeats(&names.links("name", NONE)?);
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

    /// Counts a call that is not `marked` as the nearest marked one around it.
    fn retain(&mut self, py: Python<'_>, marks: Frame) -> PyResult<()> {
        answer(py, || {
            let marked = marks.numbers("marked")?;
            self.check(marked.len())?;
            self.forest.retain(|at| marked.get(at).is_some_and(|&mark| mark != 0));
            Ok(())
        })
    }

    /// Gives each call its value of each column, in order; null is 0. Merged calls are passed over.
    fn put(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || {
            for name in values.names() {
                let mut column = values.numbers(name)?.into_owned();
                self.check(column.len())?;
                self.clear_merged(&mut column);
                self.columns.insert(name.clone(), column);
            }
            Ok(())
        })
    }

    /// Adds to the calls with row `call` what the other columns hold; null is no call, and 0.
    fn add(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || {
            let mut calls = values.links("call", NONE)?.into_owned();
            let kept = self.forest.kept();
            calls.iter_mut().for_each(|call| {
                *call = kept.get(self.positions.of(*call) as usize).copied().unwrap_or(NONE);
            });
            for name in values.names().iter().filter(|name| *name != "call") {
                let size = self.rows.len();
                let column = self.columns.entry(name.clone()).or_insert_with(|| vec![0; size]);
                for (&call, &value) in calls.iter().zip(values.numbers(name)?.iter()) {
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

    /// Puts to `into` 1 where `column` is not what it is of the call around, or there is none, and else 0.
    fn mark_changes(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let marks = self.forest.changes(self.column(column)?);
            self.columns.insert(into.to_owned(), marks.into_iter().map(i64::from).collect());
            Ok(())
        })
    }

    /// The columns of these names, for the calls that are not merged, in order.
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

    /// Sums columns over the calls of each `class`, which are numbers below `count`: `calls`, which counts
    /// those that are not merged, and the columns.
    fn class_sums(
        &self,
        py: Python<'_>,
        classes: Frame,
        count: usize,
        names: Vec<String>,
    ) -> PyResult<ArrowTable> {
        answer(py, || {
            let classes = classes.links("class", NONE)?;
            self.check(classes.len())?;
            let sum = |value: &dyn Fn(usize) -> i64| -> ArrayRef {
                let mut sums = vec![0_i64; count];
                for (at, &class) in classes.iter().enumerate() {
                    if let Some(sum) = sums.get_mut(class as usize) {
                        *sum = sum.wrapping_add(value(at));
                    }
                }
                Arc::new(Int64Array::from(sums))
            };
            let mut columns = vec![("calls", sum(&|at| i64::from(!self.forest.is_merged(at))))];
            for name in &names {
                let values = self.column(name)?;
                columns.push((name.as_str(), sum(&|at| values.get(at).copied().unwrap_or(0))));
            }
            table(columns)
        })
    }

    /// The ways of names that lead to the calls, at most so many names deep: the `path` of each call, and
    /// of each path the one around it, `parent`, and its last `name`. See `traceparse::call_tree::Paths`.
    fn paths(&self, py: Python<'_>, names: Frame, most_levels: u32) -> PyResult<(ArrowTable, ArrowTable)> {
        answer(py, || {
            let names = names.links("name", NONE)?;
            let Paths { of, parents, names } = Paths::new(&self.forest, &names, most_levels);
            Ok((
                table(vec![("path", numbers(&of))])?,
                table(vec![("parent", numbers(&parents)), ("name", numbers(&names))])?,
            ))
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

    fn clear_merged(&self, values: &mut [i64]) {
        let merged = values.iter_mut().enumerate().filter(|&(at, _)| self.forest.is_merged(at));
        merged.for_each(|(_, value)| *value = 0);
    }

    fn kept_only<'a, V: Copy>(&'a self, values: &'a [V]) -> impl Iterator<Item = V> + 'a {
        values.iter().enumerate().filter(|&(at, _)| !self.forest.is_merged(at)).map(|(_, &value)| value)
    }
}

/// The class of each row, `class`, and the first row of each class, `first`: rows of a class agree in all
/// columns.
#[pyfunction]
pub(crate) fn divide_rows(py: Python<'_>, columns: Frame) -> PyResult<(ArrowTable, ArrowTable)> {
    answer(py, || {
        let mut classes = Classes::new(u32::try_from(columns.height()).unwrap_or(NONE));
        for name in columns.names() {
            if let Ok(codes) = columns.links(name, NONE) {
                classes.divide(codes.iter().map(|&code| Some(i64::from(code)).filter(|_| code != NONE)));
            } else {
                classes.divide(columns.options(name)?.iter().copied());
            }
        }
        Ok((
            table(vec![("class", numbers(classes.of()))])?,
            table(vec![("first", numbers(classes.first()))])?,
        ))
    })
}

/// The texts of the `wanted` paths, `text`, whose names are indices of `texts`.
#[pyfunction]
pub(crate) fn path_texts(
    py: Python<'_>,
    paths: Frame,
    texts: Vec<String>,
    wanted: Frame,
    root_first: bool,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let (parents, names) = (paths.links("parent", NONE)?, paths.links("name", NONE)?);
        let wanted = wanted.links("path", NONE)?;
        let found = call_tree::path_texts(&parents, &names, &texts, &wanted, root_first);
        table(vec![("text", Arc::new(LargeStringArray::from(found)))])
    })
}

fn ends_of(starts: &[i64], mut lengths: Vec<i64>) -> Vec<i64> {
    lengths.iter_mut().zip(starts).for_each(|(end, start)| *end = end.saturating_add(*start));
    lengths
}

/// Numbers of calls, paths or classes; null for none.
fn numbers(values: &[u32]) -> ArrayRef {
    Arc::new(values.iter().map(|&value| Some(value).filter(|&value| value != NONE)).collect::<UInt32Array>())
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
