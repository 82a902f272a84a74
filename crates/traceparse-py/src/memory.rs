//! Relates the records of allocators.

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{Array, Int64Array, UInt32Array, UInt64Array};
use pyo3::prelude::*;
use traceparse::memory::{Curve, MemoryRecord, partners};

use crate::answer::answer;
use crate::frame::{Frame, Outcome, column, nullable};
use crate::table::{ArrowTable, table};

/// The free of each allocation and the allocation of each free, as `partner`: see `traceparse::memory`.
///
/// Records come in order of time, with `device`, `address` and `bytes`; the last two may be null.
#[pyfunction]
pub(crate) fn pair_allocations(py: Python<'_>, records: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let records = read_records(&records)?;
        let found: UInt32Array = partners(records.into_iter()).into_iter().collect();
        table(vec![("partner", Arc::new(found))])
    })
}

/// What the records of memory of the `device_types` come to; those without bytes are left out.
///
/// Columns: of `records`, needs `start_ns`, `bytes` and `device_type`.
pub(crate) fn curve(records: &Frame, device_types: &[i64]) -> Outcome<Curve> {
    // What has no bytes changes nothing.
    let (times, bytes) = (records.numbers("start_ns")?, records.numbers("bytes")?);
    let records_of = |is_wanted: &mut dyn Iterator<Item = bool>| {
        let pairs = times.iter().copied().zip(bytes.iter().copied()).zip(is_wanted);
        pairs.filter(|&(_, is_wanted)| is_wanted).map(|(pair, _)| pair).collect()
    };
    let is_wanted = |device_type: i64| device_types.contains(&device_type);
    Ok(Curve::new(match records.values::<Int32Type>("device_type") {
        Ok(types) => records_of(&mut types.iter().map(|&of| is_wanted(of.into()))),
        Err(_) => records_of(&mut records.options("device_type")?.iter().map(|of| of.is_some_and(is_wanted))),
    }))
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
