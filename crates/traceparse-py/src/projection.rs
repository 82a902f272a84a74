//! Projects host ranges onto the GPU, for frames that Python hands over as Arrow IPC streams.
//!
//! A stream of bytes costs one copy of a few integer columns, and no unsafe code.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::projection::{Call, Enclosure, HostRange, NONE, Projection, Totals, Work, project};
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::table::ArrowTable;
use crate::watch;

/// Collects host ranges, calls and GPU work, and relates them.
///
/// Frames are added part by part, so that their copies are never all there at once.
#[pyclass(module = "kernelscope._traceparse")]
#[derive(Default)]
pub(crate) struct RangeProjector {
    ranges: Vec<HostRange>,
    calls: Vec<Call>,
    work: Vec<Work>,
}

#[pymethods]
impl RangeProjector {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds ranges: columns `start_ns`, `end_ns`, `thread`, `process` and `crosses_threads`, none null.
    fn add_ranges(&mut self, py: Python<'_>, stream: &[u8]) -> PyResult<()> {
        read_ranges(stream, &mut self.ranges).map_err(|error| errors::to_python(py, &refused(&error)))
    }

    /// Adds calls: columns `start_ns`, `end_ns`, `thread` and `process`, none null.
    fn add_calls(&mut self, py: Python<'_>, stream: &[u8]) -> PyResult<()> {
        read_calls(stream, &mut self.calls).map_err(|error| errors::to_python(py, &refused(&error)))
    }

    /// Adds GPU work: columns `call` (an index into the calls), `start_ns` and `end_ns`, none null.
    fn add_work(&mut self, py: Python<'_>, stream: &[u8]) -> PyResult<()> {
        read_work(stream, &mut self.work).map_err(|error| errors::to_python(py, &refused(&error)))
    }

    /// What the ranges come to on the GPU, one row for each that has GPU work. Forgets everything.
    fn project(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let Self { ranges, calls, work } = std::mem::take(self);
        watch::run(py, None, move |_| {
            let projection = project(&ranges, &calls, &work);
            drop((ranges, calls, work));
            projected_table(projection).map_err(|error| refused(&error))
        })
    }

    /// Every pair of a range and a call that it encloses, as indices, and whether the range is the
    /// innermost. Forgets everything.
    fn pairs(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let Self { ranges, calls, .. } = std::mem::take(self);
        watch::run(py, None, move |_| {
            let enclosure = Enclosure::find(&ranges, &calls);
            pair_table(&enclosure, calls.len() as u32).map_err(|error| refused(&error))
        })
    }
}

/// What Python is told of frames that are not as they must be.
pub(crate) fn refused(error: &ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the frames are not what is needed: {error}"))
}

pub(crate) type Outcome<T> = std::result::Result<T, ArrowError>;

fn read_ranges(stream: &[u8], ranges: &mut Vec<HostRange>) -> Outcome<()> {
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
    Ok(())
}

fn read_calls(stream: &[u8], calls: &mut Vec<Call>) -> Outcome<()> {
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
    Ok(())
}

fn read_work(stream: &[u8], work: &mut Vec<Work>) -> Outcome<()> {
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
    Ok(())
}

fn place(batch: &RecordBatch) -> Outcome<(&UInt32Array, &Int64Array)> {
    Ok((column::<UInt32Type>(batch, "thread")?, column::<Int64Type>(batch, "process")?))
}

/// A column of integers of a batch that Python handed over.
pub(crate) fn column<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Outcome<&'a PrimitiveArray<T>> {
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

fn projected_table(projection: Projection) -> Outcome<ArrowTable> {
    let Projection { ranges, all, own, parents, depths, children } = projection;
    let number = |totals: &[Totals], value: fn(&Totals) -> i64| -> ArrayRef {
        let known = |totals: &Totals| (totals.launches > 0).then(|| value(totals));
        Arc::new(totals.iter().map(known).collect::<Int64Array>())
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("range", Arc::new(UInt32Array::from(ranges))),
        (
            "parent",
            Arc::new(parents.iter().map(|&p| Some(p).filter(|&p| p != NONE)).collect::<UInt32Array>()),
        ),
        ("depth", Arc::new(UInt32Array::from(depths))),
        ("children", Arc::new(UInt32Array::from(children))),
        ("gpu_start_ns", number(&all, |t| t.start)),
        ("gpu_end_ns", number(&all, |t| t.end)),
        ("gpu_busy_ns", number(&all, |t| t.busy)),
        ("launches", number(&all, |t| i64::from(t.launches))),
        ("gpu_ops", number(&all, |t| i64::from(t.ops))),
    ];
    drop((all, parents));
    columns.extend([
        ("own_start_ns", number(&own, |t| t.start)),
        ("own_end_ns", number(&own, |t| t.end)),
        ("own_busy_ns", number(&own, |t| t.busy)),
        ("own_launches", number(&own, |t| i64::from(t.launches))),
        ("own_gpu_ops", number(&own, |t| i64::from(t.ops))),
    ]);
    table(columns)
}

/// A table of columns that may hold nulls.
pub(crate) fn table(columns: Vec<(&str, ArrayRef)>) -> Outcome<ArrowTable> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    Ok(ArrowTable::new(RecordBatch::try_from_iter_with_nullable(columns)?))
}
