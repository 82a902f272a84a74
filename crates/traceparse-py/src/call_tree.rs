//! Trees of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt8Type};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, LargeStringArray, UInt32Array};
use arrow_schema::ArrowError;
use framekernels::call_tree::{
    self, Classes, Column, Forest, NONE, Paths, Positions, Slices, Told, Values, Working, nest,
};
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::memory;
use crate::table::{ArrowTable, links, rows_at, table};

/// Calls, and what each comes to by itself and with what is inside it: see `framekernels::call_tree`.
///
/// Columns of whole numbers are put to the calls, and worked out one by one when they are asked for.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct CallTree {
    rows: UInt32Array,
    positions: Arc<Positions>,
    forest: Arc<Forest>,
    columns: BTreeMap<String, Arc<Column>>,
    /// Whether calls may still be merged.
    is_open: bool,
}

#[pymethods]
impl CallTree {
    /// Calls with `row` and `parent_row`, null for none; a parent that is not there counts as none.
    #[new]
    fn new(py: Python<'_>, calls: Frame) -> PyResult<Self> {
        answer(py, || {
            let rows = calls.kept_links("row", NONE)?;
            let positions = Positions::new(rows.values());
            let mut parents = calls.links("parent_row", NONE)?.into_owned();
            parents.iter_mut().for_each(|parent| *parent = positions.of(*parent));
            let forest = Forest::new(parents);
            let forest = forest.map_err(|_| invalid("the rows are each other's ancestors"))?;
            let (positions, forest) = (Arc::new(positions), Arc::new(forest));
            Ok(Self { rows, positions, forest, columns: BTreeMap::new(), is_open: true })
        })
    }

    /// Counts a call that is the only one inside a call of the same `name` as that one.
    fn merge_repeats(&mut self, py: Python<'_>, names: Frame) -> PyResult<()> {
        answer(py, || {
            let names = names.links("name", NONE)?;
            self.merging()?.merge_repeats(&names);
            Ok(())
        })
    }

    /// Counts a call that is not `marked` as the nearest marked one around it.
    fn retain(&mut self, py: Python<'_>, marks: Frame) -> PyResult<()> {
        answer(py, || {
            let marked = marks.flags("marked")?;
            self.check(marked.len())?;
            self.merging()?.retain(|at| marked.get(at).copied().unwrap_or(false));
            Ok(())
        })
    }

    /// The same for calls whose `class` is not `marked`.
    fn retain_classes(&mut self, py: Python<'_>, classes: Frame, marks: Frame) -> PyResult<()> {
        answer(py, || {
            let (classes, marked) = (classes.links("class", NONE)?, marks.flags("marked")?);
            self.check(classes.len())?;
            let is_marked = |&class: &u32| marked.get(class as usize).copied().unwrap_or(false);
            self.merging()?.retain(|at| classes.get(at).is_some_and(is_marked));
            Ok(())
        })
    }

    /// Another tree of the same calls, merged as they are by now, without columns.
    fn apart(&self) -> Self {
        let (rows, columns) = (self.rows.clone(), BTreeMap::new());
        let (positions, forest) = (Arc::clone(&self.positions), Arc::clone(&self.forest));
        Self { rows, positions, forest, columns, is_open: false }
    }

    /// Which call each is counted as: `kept`, its row.
    fn kept(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let kept = (0..self.forest.len() as u32).map(|at| self.forest.kept(at));
            table(vec![("kept", rows_at(self.rows.values(), kept))])
        })
    }

    /// The calls around the calls that are not merged: `parent_row`, null for none.
    fn parents(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let parents = self.kept_only(self.forest.parents());
            table(vec![("parent_row", rows_at(self.rows.values(), parents))])
        })
    }

    /// Gives each call its value of each column, in order; null is 0. Merged calls are passed over.
    fn put(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || {
            for name in values.names() {
                let column = values.kept_numbers(name)?;
                self.check(column.len())?;
                self.set(name, Column::given(column.values().clone()));
            }
            Ok(())
        })
    }

    /// Gives each call the value of its `class` of each column; null is 0. Merged calls are passed over.
    fn put_by_class(&mut self, py: Python<'_>, classes: Frame, values: Frame) -> PyResult<()> {
        answer(py, || {
            let classes = classes.kept_links("class", NONE)?;
            self.check(classes.len())?;
            for name in values.names() {
                let column = Column::of_class(classes.values().clone(), values.numbers(name)?.into_owned());
                self.set(name, column);
            }
            Ok(())
        })
    }

    /// Puts to `into` what the records of memory of the `device_types` come to during each call, which has
    /// `start_ns` and `dur_ns` (0 if null). Merged calls are passed over.
    ///
    /// Columns: of `records`, needs `start_ns`, `bytes` and `device_type`.
    fn put_records(
        &mut self,
        py: Python<'_>,
        calls: Frame,
        records: Frame,
        device_types: Vec<i64>,
        into: &str,
    ) -> PyResult<()> {
        answer(py, || {
            let (starts, lengths) = (calls.kept_numbers("start_ns")?, calls.kept_numbers("dur_ns")?);
            self.check(starts.len())?;
            let curve = memory::curve(&records, &device_types)?;
            let column = if curve.is_flat() {
                Column::default()
            } else {
                Column::within(Arc::new(curve), starts.values().clone(), lengths.values().clone())
            };
            self.set(into, column);
            Ok(())
        })
    }

    /// Adds to the calls with row `call` what the other columns hold; null is no call, and 0.
    fn add(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || {
            let calls = self.calls(values.links("call", NONE)?.iter().copied());
            for name in values.names().iter().filter(|name| *name != "call") {
                let numbers = values.kept_numbers(name)?;
                self.add_to(name, &calls, Values::Given(numbers.values().clone()));
            }
            Ok(())
        })
    }

    /// Adds to the calls with row `call` what the `class` of each row has in the columns `counts` of `keys`,
    /// and the `value` of the row where its class is marked in the columns `sums`; null is no call, and 0.
    fn add_by_class(
        &mut self,
        py: Python<'_>,
        values: Frame,
        classes: Frame,
        keys: Frame,
        counts: Vec<String>,
        sums: Vec<String>,
    ) -> PyResult<()> {
        answer(py, || {
            let calls = self.calls(values.links("call", NONE)?.iter().copied());
            let classes = classes.kept_links("class", NONE)?;
            for name in &counts {
                let of = keys.numbers(name)?.into_owned();
                self.add_to(name, &calls, Values::OfClass(classes.values().clone(), of));
            }
            let numbers = values.kept_numbers("value")?;
            for name in &sums {
                let marked =
                    Values::Marked(numbers.values().clone(), classes.values().clone(), keys.flags(name)?);
                self.add_to(name, &calls, marked);
            }
            Ok(())
        })
    }

    /// Takes from the column `into` of the calls with row `call` how long the slices last that lie in no
    /// other slice. Slices without a call or a length are passed over.
    ///
    /// Columns: of `slices`, `row`, `call`, `track`, `start_ns` and `dur_ns`.
    fn less_outermost(&mut self, py: Python<'_>, slices: Frame, into: &str) -> PyResult<()> {
        answer(py, || {
            let (named, tracks) = (slices.links("call", NONE)?, slices.links("track", NONE)?);
            let (starts, lengths) = (slices.numbers("start_ns")?, slices.kept_numbers("dur_ns")?);
            let rows = slices.links("row", NONE)?;
            let is_timed = slices.known("dur_ns")?;
            let counts = |at: u32| {
                named.get(at as usize).is_some_and(|&call| call != NONE)
                    && is_timed.as_ref().is_none_or(|known| known.get(at as usize) == Some(&true))
            };
            let around = nest(
                Slices { groups: &tracks, starts: &starts, lengths: lengths.values(), rows: &rows },
                counts,
            );
            let outermost =
                named.iter().zip(&around).map(|(&call, &around)| if around == NONE { call } else { NONE });
            let calls = self.calls(outermost);
            self.add_to(into, &calls, Values::Less(lengths.values().clone()));
            Ok(())
        })
    }

    /// Puts to `into` what `column` is less that of the calls directly inside.
    fn less_children(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let column = Column::less_children(Arc::clone(self.column(column)?));
            self.set(into, column);
            Ok(())
        })
    }

    /// Puts to `into` what `column` is with that of all calls inside.
    fn with_inner(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let column = Column::with_inner(Arc::clone(self.column(column)?));
            self.set(into, column);
            Ok(())
        })
    }

    /// Puts to `into` 1 where `column` is not what it is of the call around, or there is none, and else 0.
    fn mark_changes(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || {
            let column = Column::changes(Arc::clone(self.column(column)?));
            self.set(into, column);
            Ok(())
        })
    }

    /// The columns of these names, for the calls that are not merged, in order.
    fn columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || {
            let mut working = Working::new(&self.forest);
            let mut columns = Vec::new();
            for name in &names {
                let kept: Vec<i64> = self.kept_only(working.values(self.column(name)?)).collect();
                columns.push((name.as_str(), Arc::new(Int64Array::from(kept)) as ArrayRef));
            }
            table(columns)
        })
    }

    /// The calls that are not merged and where a column is not 0: their position `at`, and the columns of
    /// these names.
    fn columns_where(&self, py: Python<'_>, column: &str, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || {
            let mut working = Working::new(&self.forest);
            let places = working.places_where(self.column(column)?);
            let mut columns = Vec::new();
            for name in &names {
                let found = working.values_at(self.column(name)?, &places);
                columns.push((name.as_str(), Arc::new(Int64Array::from(found)) as ArrayRef));
            }
            columns.push(("at", links(places)));
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
            let mut calls = vec![0_i64; count];
            for class in self.kept_only(&classes) {
                if let Some(sum) = calls.get_mut(class as usize) {
                    *sum += 1;
                }
            }
            let mut working = Working::new(&self.forest);
            let mut columns = vec![("calls", Arc::new(Int64Array::from(calls)) as ArrayRef)];
            for name in &names {
                let sums = working.class_sums(self.column(name)?, &classes, count);
                columns.push((name.as_str(), Arc::new(Int64Array::from(sums))));
            }
            table(columns)
        })
    }

    /// The ways of names that lead to the calls, at most so many names deep: the `path` of each call, and
    /// of each path the one around it, `parent`, and its last `name`. See `framekernels::call_tree::Paths`.
    fn paths(&self, py: Python<'_>, names: Frame, most_levels: u32) -> PyResult<(ArrowTable, ArrowTable)> {
        answer(py, || {
            let names = names.links("name", NONE)?;
            let Paths { of, parents, names } = Paths::new(&self.forest, &names, most_levels);
            Ok((
                table(vec![("path", links(of))])?,
                table(vec![("parent", links(parents)), ("name", links(names))])?,
            ))
        })
    }
}

impl CallTree {
    fn column(&self, name: &str) -> Outcome<&Arc<Column>> {
        self.columns.get(name).ok_or_else(|| invalid(&format!("there is no column {name}")))
    }

    /// What the calls of these rows are counted as.
    fn calls(&self, rows: impl Iterator<Item = u32>) -> Arc<[u32]> {
        rows.map(|row| self.forest.kept(self.positions.of(row))).collect()
    }

    fn add_to(&mut self, name: &str, calls: &Arc<[u32]>, values: Values) {
        let column = self.columns.entry(name.to_owned()).or_default();
        Arc::make_mut(column).add(Arc::clone(calls), values);
    }

    fn set(&mut self, name: &str, column: Column) {
        self.is_open = false;
        self.columns.insert(name.to_owned(), Arc::new(column));
    }

    /// The forest, to merge calls, which must be done by the time they get values.
    fn merging(&mut self) -> Outcome<&mut Forest> {
        let forest = Arc::get_mut(&mut self.forest).filter(|_| self.is_open);
        forest.ok_or_else(|| invalid("calls cannot be merged any more once they have values"))
    }

    fn check(&self, size: usize) -> Outcome<()> {
        let calls = self.rows.len();
        let wrong = || invalid(&format!("{size} values for {calls} calls"));
        (size == calls).then_some(()).ok_or_else(wrong)
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
            divide(&mut classes, &columns, name)?;
        }
        let (of, first) = classes.into_parts();
        Ok((table(vec![("class", links(of))])?, table(vec![("first", links(first))])?))
    })
}

/// Divides classes by a column of whole numbers, fractions or truth values. Fractions that are no number are
/// alike, and so are the two zeros.
pub(crate) fn divide(classes: &mut Classes, frame: &Frame, name: &str) -> Outcome<()> {
    if let Ok(codes) = frame.links(name, NONE) {
        classes.divide_codes(&codes);
    } else if let Ok(parts) = frame.arrays_of::<Float64Type>(name) {
        let bits = |value: f64| if value.is_nan() { u64::MAX } else { (value + 0.0).to_bits() };
        match parts.as_slice() {
            [whole] => classes.divide_words(whole.iter().map(|value| value.map(bits))),
            _ => classes.divide_words(parts.iter().flat_map(|part| part.iter()).map(|value| value.map(bits))),
        }
    } else if let Ok(parts) = frame.arrays_as::<BooleanArray>(name) {
        divide_numbers(classes, &parts);
    } else if let Ok(parts) = frame.arrays_of::<UInt8Type>(name) {
        divide_numbers(classes, &parts);
    } else if let Ok(parts) = frame.arrays_of::<Int32Type>(name) {
        divide_numbers(classes, &parts);
    } else {
        divide_numbers(classes, &frame.arrays_of::<Int64Type>(name)?);
    }
    Ok(())
}

/// Divides classes by a column of whole numbers or truth values. One that is in one piece, as most are, is gone
/// through in half the time.
fn divide_numbers<'a, A, N: Into<i64>>(classes: &mut Classes, parts: &[&'a A])
where
    &'a A: IntoIterator<Item = Option<N>, IntoIter: Clone>,
{
    match parts {
        [whole] => classes.divide(whole.into_iter().map(|value| value.map(Into::into))),
        _ => classes.divide(parts.iter().copied().flatten().map(|value| value.map(Into::into))),
    }
}

/// The paths that `texts` tell, which have `;` between names, with what belongs to them: of each the path
/// around it, -1 for none, its last name, and the sum of the `values` of it and of all inside.
#[pyfunction]
pub(crate) fn told_paths(
    py: Python<'_>,
    texts: Vec<String>,
    values: Vec<i64>,
    most_levels: usize,
) -> PyResult<(Vec<i64>, Vec<String>, Vec<i64>)> {
    answer(py, || {
        let told = Told::new(texts.iter().map(String::as_str).zip(values), most_levels);
        let parents = told.parents.iter().map(|&at| if at == NONE { -1 } else { i64::from(at) });
        let names = told.names.iter().map(ToString::to_string);
        Ok((parents.collect(), names.collect(), told.totals))
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

/// What calls come to by the texts of their paths: `stack`, which the first `most` have, `value_ns` and
/// `events`. See `framekernels::call_tree::folded`.
///
/// Columns: of `calls`, `path` and `value_ns` (null is 0).
#[pyfunction]
pub(crate) fn fold_paths(
    py: Python<'_>,
    paths: Frame,
    texts: Vec<String>,
    calls: Frame,
    most: usize,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let (parents, names) = (paths.links("parent", NONE)?, paths.links("name", NONE)?);
        let (of, values) = (calls.links("path", NONE)?, calls.numbers("value_ns")?);
        let folds = call_tree::folded(&parents, &names, &texts, &of, &values, most);
        let (sums, counts): (Vec<i64>, Vec<i64>) = folds.iter().map(|fold| (fold.sum, fold.calls)).unzip();
        let stacks: LargeStringArray = folds.into_iter().map(|fold| fold.text).collect();
        table(vec![
            ("stack", Arc::new(stacks)),
            ("value_ns", Arc::new(Int64Array::from(sums))),
            ("events", Arc::new(Int64Array::from(counts))),
        ])
    })
}

fn invalid(message: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(message.to_owned())
}
