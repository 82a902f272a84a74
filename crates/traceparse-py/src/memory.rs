//! Relates the records of allocators.

use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, Int64Array};
use arrow_schema::ArrowError;
use framekernels::call_tree::NONE;
use framekernels::memory::{Course, Curve, Records};
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, links, table};

/// The records of an allocator, and what became of the memory of each device: see `framekernels::memory`.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct AllocatorRecords {
    records: Records,
    partners: Vec<u32>,
    courses: Vec<Course>,
}

#[pymethods]
impl AllocatorRecords {
    /// Records of so many devices in order of time.
    ///
    /// Columns: `device` (a number below `devices`), `start_ns`, `address`, `bytes`, `total_allocated_bytes` and
    /// `total_reserved_bytes`; the address and the totals may be null.
    #[new]
    fn new(py: Python<'_>, records: Frame, devices: usize) -> PyResult<Self> {
        answer(py, || {
            let records = Records {
                devices: records.kept_links("device", NONE)?.values().clone(),
                times: records.kept_numbers("start_ns")?.values().clone(),
                addresses: records.kept::<UInt64Type>("address")?,
                bytes: records.kept_numbers("bytes")?.values().clone(),
                allocated: records.kept::<Int64Type>("total_allocated_bytes")?,
                reserved: records.kept::<Int64Type>("total_reserved_bytes")?,
            };
            let partners = records.partners(false);
            let courses = records.courses(devices, &partners);
            Ok(Self { records, partners, courses })
        })
    }

    /// The free of each allocation and the allocation of each free, as `partner`, which have equal addresses on
    /// one device, or `anywhere`.
    fn partners(&self, py: Python<'_>, anywhere: bool) -> PyResult<ArrowTable> {
        answer(py, || {
            let found = if anywhere { self.records.partners(true) } else { self.partners.clone() };
            table(vec![("partner", links(found))])
        })
    }

    /// What became of the memory of each device, a row for each.
    fn courses(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let numbers = |of: fn(&Course) -> i64| -> ArrayRef {
                Arc::new(self.courses.iter().map(of).collect::<Int64Array>())
            };
            let options = |of: fn(&Course) -> Option<i64>| -> ArrayRef {
                Arc::new(self.courses.iter().map(of).collect::<Int64Array>())
            };
            let flags = |of: fn(&Course) -> bool| -> ArrayRef {
                Arc::new(BooleanArray::from_iter(self.courses.iter().map(|course| Some(of(course)))))
            };
            table(vec![
                ("records", numbers(|course| course.records)),
                ("allocations", numbers(|course| course.allocations)),
                ("frees", numbers(|course| course.frees)),
                ("allocated_bytes", numbers(|course| course.allocated)),
                ("is_told", flags(|course| course.is_told)),
                ("start_bytes", numbers(|course| course.start)),
                ("end_bytes", numbers(|course| course.end)),
                ("peak_bytes", numbers(|course| course.peak)),
                ("peak_at", numbers(|course| course.peak_at.into())),
                ("told_peak_bytes", options(|course| course.told_peak.map(|(most, _)| most))),
                ("peak_reserved_bytes", options(|course| course.reserved.map(|(most, _)| most))),
                ("fragmentation_bytes", options(|course| course.reserved.map(|(_, idle)| idle))),
                ("has_addresses", flags(|course| course.has_addresses)),
                ("open_bytes", numbers(|course| course.open)),
                ("open_allocations", numbers(|course| course.open_allocations)),
            ])
        })
    }

    /// What was allocated on a device after each of its records, or at most so many: the place `at` and
    /// `allocated_bytes`.
    fn curve(&self, py: Python<'_>, device: u32, most: Option<usize>) -> PyResult<ArrowTable> {
        answer(py, || {
            let (at, allocated) = self.records.curve(device, self.course(device)?, most);
            curve_table(at, allocated)
        })
    }

    /// The same by each of `times`, which ascend; nothing if one lies before the first record.
    fn held(&self, py: Python<'_>, device: u32, times: Vec<i64>) -> PyResult<Option<ArrowTable>> {
        answer(py, || {
            let found = self.records.held(device, self.course(device)?, &times);
            found.map(|(at, allocated)| curve_table(at, allocated)).transpose()
        })
    }

    /// The places `at` of the allocations that were not freed when most was told to be allocated on their
    /// devices.
    fn alive(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || table(vec![("at", links(self.records.alive(&self.courses, &self.partners)))]))
    }
}

impl AllocatorRecords {
    fn course(&self, device: u32) -> Outcome<&Course> {
        let missing = || ArrowError::InvalidArgumentError(format!("there is no device {device}"));
        self.courses.get(device as usize).ok_or_else(missing)
    }
}

fn curve_table(at: Vec<u32>, allocated: Vec<i64>) -> Outcome<ArrowTable> {
    table(vec![("at", links(at)), ("allocated_bytes", Arc::new(Int64Array::from(allocated)))])
}

/// What the records of memory of the `device_types` come to; those without bytes are left out.
///
/// Columns: of `records`, needs `start_ns`, `bytes` and `device_type`.
pub(crate) fn curve(records: &Frame, device_types: &[i64]) -> Outcome<Curve> {
    // What has no bytes changes nothing.
    let (times, bytes) = (records.numbers("start_ns")?, records.numbers("bytes")?);
    let moments = times.iter().copied().zip(bytes.iter().copied());
    let is_wanted = |device_type: i64| device_types.contains(&device_type);
    let types = records.kept::<Int32Type>("device_type")?;
    let of_devices = moments.zip(&types).filter(|(_, of)| of.is_some_and(|of| is_wanted(of.into())));
    Ok(Curve::new(of_devices.map(|(record, _)| record)))
}
