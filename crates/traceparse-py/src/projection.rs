//! Projects host ranges onto the GPU, for frames that Python hands over as Arrow IPC streams.
//!
//! A stream of bytes costs one copy of a few integer columns, and no unsafe code.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::projection::{Call, Enclosure, HostRange, NONE, Projected, Totals, Work, project};
use traceparse::{Error, ErrorKind};

use crate::table::ArrowTable;
use crate::watch;

/// What the ranges come to on the GPU, one row for each that has GPU work.
///
/// `ranges` has the columns `start_ns`, `end_ns`, `thread`, `process` and `crosses_threads`; `calls` has
/// `start_ns`, `end_ns`, `thread` and `process`; `work` has `call`, an index into `calls`, `start_ns` and
/// `end_ns`. No value is null.
#[pyfunction]
pub(crate) fn project_ranges(
    py: Python<'_>,
    ranges: &[u8],
    calls: &[u8],
    work: &[u8],
) -> PyResult<ArrowTable> {
    let parsed = read_ranges(ranges).and_then(|ranges| Ok((ranges, read_calls(calls)?, read_work(work)?)));
    watch::run(py, None, move |_| {
        let (ranges, calls, work) = parsed.map_err(|error| refused(&error))?;
        let projected = project(&ranges, &calls, &work);
        projected_table(&projected).map_err(|error| refused(&error))
    })
}

/// Every pair of a range and a call that it encloses, as indices, and whether the range is the innermost.
#[pyfunction]
pub(crate) fn enclosing_ranges(py: Python<'_>, ranges: &[u8], calls: &[u8]) -> PyResult<ArrowTable> {
    let parsed = read_ranges(ranges).and_then(|ranges| Ok((ranges, read_calls(calls)?)));
    watch::run(py, None, move |_| {
        let (ranges, calls) = parsed.map_err(|error| refused(&error))?;
        let enclosure = Enclosure::find(&ranges, &calls);
        pair_table(&enclosure, calls.len() as u32).map_err(|error| refused(&error))
    })
}

fn refused(error: &ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the frames are not what is needed: {error}"))
}

type Outcome<T> = std::result::Result<T, ArrowError>;

fn read_ranges(stream: &[u8]) -> Outcome<Vec<HostRange>> {
    let mut ranges = Vec::new();
    for batch in StreamReader::try_new(stream, None)? {
        let batch = batch?;
        let (start, end) = (column::<Int64Type>(&batch, "start_ns")?, column::<Int64Type>(&batch, "end_ns")?);
        let (thread, process) = place(&batch)?;
        let crosses: &BooleanArray = downcast(&batch, "crosses_threads")?;
        ranges.extend((0..batch.num_rows()).map(|row| HostRange {
            start: start.value(row),
            end: end.value(row).max(start.value(row)),
            thread: thread.value(row),
            process: process.value(row),
            crosses_threads: crosses.value(row),
        }));
    }
    Ok(ranges)
}

fn read_calls(stream: &[u8]) -> Outcome<Vec<Call>> {
    let mut calls = Vec::new();
    for batch in StreamReader::try_new(stream, None)? {
        let batch = batch?;
        let (start, end) = (column::<Int64Type>(&batch, "start_ns")?, column::<Int64Type>(&batch, "end_ns")?);
        let (thread, process) = place(&batch)?;
        calls.extend((0..batch.num_rows()).map(|row| Call {
            start: start.value(row),
            end: end.value(row).max(start.value(row)),
            thread: thread.value(row),
            process: process.value(row),
        }));
    }
    Ok(calls)
}

fn read_work(stream: &[u8]) -> Outcome<Vec<Work>> {
    let mut work = Vec::new();
    for batch in StreamReader::try_new(stream, None)? {
        let batch = batch?;
        let (start, end) = (column::<Int64Type>(&batch, "start_ns")?, column::<Int64Type>(&batch, "end_ns")?);
        let call = column::<UInt32Type>(&batch, "call")?;
        work.extend((0..batch.num_rows()).map(|row| Work {
            call: call.value(row),
            start: start.value(row),
            end: end.value(row),
        }));
    }
    Ok(work)
}

fn place(batch: &RecordBatch) -> Outcome<(&UInt32Array, &Int64Array)> {
    Ok((column::<UInt32Type>(batch, "thread")?, column::<Int64Type>(batch, "process")?))
}

fn column<'a, T: ArrowPrimitiveType>(batch: &'a RecordBatch, name: &str) -> Outcome<&'a PrimitiveArray<T>> {
    downcast(batch, name)
}

fn downcast<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Outcome<&'a A> {
    let column = batch.column_by_name(name).and_then(|array| array.as_any().downcast_ref::<A>());
    let column = column.filter(|array| array.null_count() == 0);
    column.ok_or_else(|| ArrowError::SchemaError(format!("{name} is missing, null or of another type")))
}

fn pair_table(enclosure: &Enclosure, calls: u32) -> Outcome<ArrowTable> {
    let (mut ranges, mut of_calls, mut innermost) = (Vec::new(), Vec::new(), Vec::new());
    let mut add = |range: u32, call: u32| {
        ranges.push(range);
        of_calls.push(call);
        innermost.push(enclosure.innermost(call) == range);
    };
    for call in 0..calls {
        enclosure.for_each_nested(call, |range| add(range, call));
    }
    enclosure.loose().iter().for_each(|&(range, call)| add(range, call));
    table(vec![
        ("range", Arc::new(UInt32Array::from(ranges))),
        ("call", Arc::new(UInt32Array::from(of_calls))),
        ("is_innermost", Arc::new(BooleanArray::from(innermost))),
    ])
}

fn projected_table(projected: &[Projected]) -> Outcome<ArrowTable> {
    let all =
        |value: fn(&Totals) -> i64| Int64Array::from_iter_values(projected.iter().map(|p| value(&p.all)));
    let own = |value: fn(&Totals) -> i64| {
        projected.iter().map(|p| p.own.as_ref().map(value)).collect::<Int64Array>()
    };
    let index = |value: fn(&Projected) -> u32| {
        projected.iter().map(|p| Some(value(p)).filter(|&range| range != NONE)).collect::<UInt32Array>()
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("range", Arc::new(index(|p| p.range))),
        ("parent", Arc::new(index(|p| p.parent))),
        ("depth", Arc::new(index(|p| p.depth))),
        ("children", Arc::new(index(|p| p.children))),
        ("gpu_start_ns", Arc::new(all(|t| t.start))),
        ("gpu_end_ns", Arc::new(all(|t| t.end))),
        ("gpu_busy_ns", Arc::new(all(|t| t.busy))),
        ("launches", Arc::new(all(|t| i64::from(t.launches)))),
        ("gpu_ops", Arc::new(all(|t| i64::from(t.ops)))),
        ("own_start_ns", Arc::new(own(|t| t.start))),
        ("own_end_ns", Arc::new(own(|t| t.end))),
        ("own_busy_ns", Arc::new(own(|t| t.busy))),
        ("own_launches", Arc::new(own(|t| i64::from(t.launches)))),
        ("own_gpu_ops", Arc::new(own(|t| i64::from(t.ops)))),
    ];
    table(columns)
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Outcome<ArrowTable> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    Ok(ArrowTable::new(RecordBatch::try_from_iter_with_nullable(columns)?))
}
