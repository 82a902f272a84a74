//! Numbers the combinations of values in columns of frames that Python hands over.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, PrimitiveArray, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use framekernels::numbering::{
    Described, Figures, NOWHERE, Numbering, described, distinct, heaviest, places, totals, weighted_means,
};
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, table};

/// Where each `row` of `wanted` stands in `rows`: `at`, null for null and for one that is not there.
#[pyfunction]
pub(crate) fn find_rows(py: Python<'_>, rows: Frame, wanted: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let found = places(&rows.links("row", NOWHERE)?, &wanted.links("row", NOWHERE)?);
        let is_there = |&place: &u32| place != NOWHERE;
        let nulls = (!found.iter().all(is_there)).then(|| found.iter().map(is_there).collect());
        let at = UInt32Array::new(found.into(), nulls);
        table(vec![("at", Arc::new(at))])
    })
}

/// The first row of each value of `code`, a small number, but null: `at`.
#[pyfunction]
pub(crate) fn distinct_rows(py: Python<'_>, codes: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let codes = codes.links("code", NOWHERE)?;
        let found = distinct(codes.iter().map(|&code| (code != NOWHERE).then_some(code)));
        table(vec![("at", Arc::new(UInt32Array::from(found)))])
    })
}

/// The `count` rows whose `weight` is largest, null as 0, and of those that weigh the same the least: `row`.
#[pyfunction]
pub(crate) fn heaviest_rows(py: Python<'_>, rows: Frame, count: usize) -> PyResult<ArrowTable> {
    answer(py, || {
        let (numbers, weights) = (rows.links("row", NOWHERE)?, rows.numbers("weight")?);
        let found = heaviest(numbers.iter().copied().zip(weights.iter().copied()), count);
        table(vec![("row", Arc::new(UInt32Array::from(found)))])
    })
}

/// What the numbers of each group come to: `rows`, `sum`, `mean`, `min`, `max`, `std` and `q0` ..., the
/// quantiles.
///
/// The frame has the columns `group`, null for rows that do not count, and `value`.
#[pyfunction]
pub(crate) fn describe_groups(
    py: Python<'_>,
    frame: Frame,
    count: u32,
    quantiles: Vec<f64>,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let groups = frame.links("group", NOWHERE)?;
        let found = if let Ok(values) = frame.values::<Int64Type>("value") {
            described(&groups, values.iter().map(|&value| Some(value)), count, &quantiles)
        } else {
            described(&groups, frame.options("value")?.iter().copied(), count, &quantiles)
        };
        described_table(&found, quantiles.len())
    })
}

/// Of each group the `rows`, and the `sum` of its numbers, from a frame like that of `describe_groups`.
#[pyfunction]
pub(crate) fn sum_groups(py: Python<'_>, frame: Frame, count: u32) -> PyResult<ArrowTable> {
    answer(py, || {
        let (groups, numbers) = (frame.links("group", NOWHERE)?, frame.numbers("value")?);
        let found = totals(&groups, &numbers, count);
        let column = |of: fn(&(i64, i64)) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(found.iter().map(of)))
        };
        table(vec![("rows", column(|group| group.0)), ("sum", column(|group| group.1))])
    })
}

fn described_table(found: &[Described<Figures>], quantiles: usize) -> Outcome<ArrowTable> {
    let counts = |of: fn(&Described<Figures>) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(found.iter().map(of)))
    };
    let figures = || found.iter().map(|group| group.figures.as_ref());
    let whole = |of: fn(&Figures) -> i64| -> ArrayRef {
        Arc::new(figures().map(|known| known.map(of)).collect::<Int64Array>())
    };
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("rows".to_owned(), counts(|group| group.rows)),
        ("sum".to_owned(), counts(|group| group.sum)),
        ("mean".to_owned(), fractions(figures().map(|known| known.map(|known| known.mean)))),
        ("min".to_owned(), whole(|known| known.min)),
        ("max".to_owned(), whole(|known| known.max)),
        ("std".to_owned(), fractions(figures().map(|known| known.and_then(|known| known.std)))),
    ];
    for at in 0..quantiles {
        let quantile = |known: &Figures| known.quantiles.get(at).copied();
        columns.push((format!("q{at}"), fractions(figures().map(|known| known.and_then(quantile)))));
    }
    table(columns.iter().map(|(name, array)| (name.as_str(), Arc::clone(array))).collect())
}

/// The mean of the values of each group, weighted where the weights sum to something: `mean`.
///
/// The frame has the columns `group`, null for rows that do not count, `weight` and `value`.
#[pyfunction]
pub(crate) fn weigh_groups(py: Python<'_>, frame: Frame, count: u32) -> PyResult<ArrowTable> {
    answer(py, || {
        let (groups, values) = (frame.links("group", NOWHERE)?, frame.fractions("value")?);
        let values = values.iter().copied();
        let found = if let Ok(weights) = frame.values::<Int64Type>("weight") {
            weighted_means(&groups, weights.iter().map(|&weight| Some(weight)), values, count)
        } else {
            weighted_means(&groups, frame.options("weight")?.iter().copied(), values, count)
        };
        table(vec![("mean", fractions(found.iter().map(|&mean| Some(mean).filter(|mean| !mean.is_nan()))))])
    })
}

fn fractions(values: impl Iterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(values.collect::<Float64Array>())
}

/// Numbers the rows of a batch by the columns `by`, of 32 or 64-bit integers; without any, all alike.
pub(crate) fn add_part(batch: &RecordBatch, by: &[String], numbering: &mut Numbering) -> Outcome<Vec<u32>> {
    let mut numbers = Vec::with_capacity(batch.num_rows());
    for (at, name) in by.iter().enumerate() {
        let array = batch.column_by_name(name);
        let missing = || ArrowError::SchemaError(format!("{name} is missing or holds no integers"));
        let array = array.ok_or_else(missing)?;
        let is_known = add_column::<UInt32Type>(array, at, numbering, &mut numbers)
            || add_column::<Int64Type>(array, at, numbering, &mut numbers)
            || add_column::<Int32Type>(array, at, numbering, &mut numbers);
        if !is_known {
            return Err(missing());
        }
    }
    numbers.resize(batch.num_rows(), 0);
    numbering.end_part(&numbers);
    Ok(numbers)
}

/// The first row of each combination.
pub(crate) fn first_rows(numbering: &Numbering) -> ArrayRef {
    Arc::new(UInt32Array::from(numbering.firsts().to_vec()))
}

fn add_column<T: ArrowPrimitiveType<Native: Into<i64>>>(
    array: &dyn Array,
    at: usize,
    numbering: &mut Numbering,
    numbers: &mut Vec<u32>,
) -> bool {
    let Some(array) = array.as_any().downcast_ref::<PrimitiveArray<T>>() else { return false };
    if array.null_count() == 0 {
        numbering.add_column(at, array.values().iter().map(|&value| Some(value.into())), numbers);
    } else {
        numbering.add_column(at, array.iter().map(|value| value.map(Into::into)), numbers);
    }
    true
}
