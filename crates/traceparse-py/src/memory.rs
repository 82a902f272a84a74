//! Relates the records of allocators.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{Array, Int64Array, UInt32Array, UInt64Array};
use pyo3::prelude::*;
use traceparse::memory::{MemoryRecord, partners, sums_within};

use crate::frame::{Frame, Outcome, column, nullable, refused};
use crate::table::{ArrowTable, table};
use crate::watch;

/// The free of each allocation and the allocation of each free, as `partner`: see `traceparse::memory`.
///
/// Records come in order of time, with `device`, `address` and `bytes`; the last two may be null.
#[pyfunction]
pub(crate) fn pair_allocations(py: Python<'_>, records: Frame) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| {
        let records = read_records(&records).map_err(|error| refused(&error))?;
        let found: UInt32Array = partners(records.into_iter()).into_iter().collect();
        table(vec![("partner", Arc::new(found))]).map_err(|error| refused(&error))
    })
}

/// What `records`, with `start_ns` and `bytes`, sum up to in each of `intervals`, with `start_ns` and
/// `dur_ns` (0 if null), as `bytes`: see `traceparse::memory`. Records without bytes are left out.
#[pyfunction]
pub(crate) fn sum_records_within(py: Python<'_>, records: Frame, intervals: Frame) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| {
        let found = bytes_within(&records, &intervals).map_err(|error| refused(&error))?;
        table(vec![("bytes", Arc::new(Int64Array::from(found)))]).map_err(|error| refused(&error))
    })
}

fn bytes_within(records: &Frame, intervals: &Frame) -> Outcome<Vec<i64>> {
    let (times, bytes) = (records.numbers("start_ns")?, records.options("bytes")?);
    let changes = times.iter().zip(bytes).filter_map(|(&time, bytes)| Some((time, bytes?)));
    let (starts, lengths) = (intervals.numbers("start_ns")?, intervals.numbers("dur_ns")?);
    let extents = starts.iter().zip(lengths.iter());
    let extents = extents.map(|(&start, &length)| (start, start.saturating_add(length)));
    Ok(sums_within(changes.collect(), extents))
}

fn read_records(frame: &Frame) -> Outcome<Vec<Option<MemoryRecord>>> {
    let mut found = Vec::new();
    for batch in frame.parts() {
        let device = column::<UInt32Type>(batch, "device")?;
        let (address, bytes): (&UInt64Array, &Int64Array) =
            (nullable(batch, "address")?, nullable(batch, "bytes")?);
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
