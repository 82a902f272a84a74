//! Relates the records of allocators, for frames that Python hands over as Arrow IPC streams.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, Int64Array, UInt32Array, UInt64Array};
use arrow_ipc::reader::StreamReader;
use pyo3::prelude::*;
use traceparse::memory::{MemoryRecord, partners, sums_within};

use crate::projection::{Outcome, column, nullable, refused, table};
use crate::table::ArrowTable;
use crate::watch;

/// The free of each allocation and the allocation of each free, as `partner`: see `traceparse::memory`.
///
/// Records come in order of time, with `device`, `address` and `bytes`; the last two may be null.
#[pyfunction]
pub(crate) fn pair_allocations(py: Python<'_>, records: Vec<u8>) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| {
        let records = read_records(&records).map_err(|error| refused(&error))?;
        let found: UInt32Array = partners(records.into_iter()).into_iter().collect();
        table(vec![("partner", Arc::new(found))]).map_err(|error| refused(&error))
    })
}

/// What `records`, with `start_ns` and `bytes`, sum up to in each of `intervals`, with `start_ns` and
/// `dur_ns` (0 if null), as `bytes`: see `traceparse::memory`. Records without bytes are left out.
#[pyfunction]
pub(crate) fn sum_records_within(
    py: Python<'_>,
    records: Vec<u8>,
    intervals: Vec<Vec<u8>>,
) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| {
        let (records, intervals) = read_changes(&records, &intervals).map_err(|error| refused(&error))?;
        let found = Int64Array::from(sums_within(records, intervals.into_iter()));
        table(vec![("bytes", Arc::new(found))]).map_err(|error| refused(&error))
    })
}

type Pairs = Vec<(i64, i64)>;

fn read_changes(records: &[u8], intervals: &[Vec<u8>]) -> Outcome<(Pairs, Pairs)> {
    let (mut changes, mut extents) = (Vec::new(), Vec::new());
    for batch in StreamReader::try_new(records, None)? {
        let batch = batch?;
        let (time, bytes): (_, &Int64Array) =
            (column::<Int64Type>(&batch, "start_ns")?, nullable(&batch, "bytes")?);
        changes.extend(time.values().iter().zip(bytes).filter_map(|(&time, bytes)| Some((time, bytes?))));
    }
    for stream in intervals {
        for batch in StreamReader::try_new(stream.as_slice(), None)? {
            let batch = batch?;
            let (start, length): (_, &Int64Array) =
                (column::<Int64Type>(&batch, "start_ns")?, nullable(&batch, "dur_ns")?);
            let extent =
                |(&start, length): (&i64, Option<i64>)| (start, start.saturating_add(length.unwrap_or(0)));
            extents.extend(start.values().iter().zip(length).map(extent));
        }
    }
    Ok((changes, extents))
}

fn read_records(stream: &[u8]) -> Outcome<Vec<Option<MemoryRecord>>> {
    let mut found = Vec::new();
    for batch in StreamReader::try_new(stream, None)? {
        let batch = batch?;
        let device = column::<UInt32Type>(&batch, "device")?;
        let (address, bytes): (&UInt64Array, &Int64Array) =
            (nullable(&batch, "address")?, nullable(&batch, "bytes")?);
        found.extend((0..batch.num_rows()).map(|at| {
            let is_known = !address.is_null(at) && !bytes.is_null(at);
            is_known.then(|| MemoryRecord {
                device: device.value(at),
                address: address.value(at),
                bytes: bytes.value(at),
            })
        }));
    }
    Ok(found)
}
