//! Numbers the combinations of values in columns of frames that Python hands over.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::numbering::{NOWHERE, Numbering, places};

use crate::frame::{Frame, Outcome, refused};
use crate::table::{ArrowTable, table};
use crate::watch;

/// Where each `row` of `wanted` stands in `rows`: `at`, null for null and for one that is not there.
#[pyfunction]
pub(crate) fn find_rows(py: Python<'_>, rows: Frame, wanted: Frame) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| {
        let find = || {
            let found = places(&rows.links("row", NOWHERE)?, &wanted.links("row", NOWHERE)?);
            let is_there = found.iter().map(|&place| place != NOWHERE).collect();
            let at = UInt32Array::new(found.into(), Some(is_there));
            table(vec![("at", Arc::new(at))])
        };
        find().map_err(|error| refused(&error))
    })
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
