//! The records of allocators in a frame.

use arrow_array::RecordBatch;

use super::{Course, Records};
use crate::frame::{Frame, Result, column, invalid, positions, records, table};

/// The records of an allocator, and what became of the memory of each device.
#[derive(Debug)]
pub struct AllocatorRecords {
    records: Records,
    partners: Vec<u32>,
    courses: Vec<Course>,
}

impl AllocatorRecords {
    /// Records of so many devices in order of time.
    ///
    /// Columns: `device` (a number below `devices`), `start_ns`, `address`, `bytes`, `total_allocated_bytes`
    /// and `total_reserved_bytes`; the address and the totals may be null.
    pub fn new(frame: &Frame, devices: usize) -> Result<Self> {
        let records = Records {
            devices: frame.u32_array("device")?,
            times: frame.i64_array("start_ns")?,
            addresses: frame.array::<arrow_array::UInt64Array>("address")?.clone(),
            bytes: frame.i64_array("bytes")?,
            allocated: frame.nullable_i64("total_allocated_bytes")?,
            reserved: frame.nullable_i64("total_reserved_bytes")?,
        };
        let partners = records.partners(false);
        let courses = records.courses(devices, &partners);
        Ok(Self { records, partners, courses })
    }

    /// The free of each allocation and the allocation of each free, as `partner`, which have equal addresses
    /// on one device, or `anywhere`.
    pub fn partners(&self, anywhere: bool) -> Result<RecordBatch> {
        let found = if anywhere { self.records.partners(true) } else { self.partners.clone() };
        table([("partner", positions(found))])
    }

    /// What became of the memory of each device, a row for each: see [`Course`].
    pub fn courses(&self) -> Result<RecordBatch> {
        records!(self.courses, course =>
            records: course.records,
            allocations: course.allocations,
            frees: course.frees,
            allocated_bytes: course.allocated,
            has_totals: course.has_totals,
            start_bytes: course.start,
            end_bytes: course.end,
            peak_bytes: course.peak,
            peak_at: i64::from(course.peak_at),
            recorded_peak_bytes: course.recorded_peak.map(|(most, _)| most),
            peak_reserved_bytes: course.reserved.map(|(most, _)| most),
            fragmentation_bytes: course.reserved.map(|(_, idle)| idle),
            has_addresses: course.has_addresses,
            open_bytes: course.open,
            open_allocations: course.open_allocations,
        )
    }

    /// What was allocated on a device after each of its records, or at most so many: the place `at` and
    /// `allocated_bytes`.
    pub fn curve(&self, device: u32, most: Option<usize>) -> Result<RecordBatch> {
        curve_table(self.records.curve(device, self.course(device)?, most))
    }

    /// The same by each of `times`, which ascend; nothing if one lies before the first record.
    pub fn held(&self, device: u32, times: &[i64]) -> Result<Option<RecordBatch>> {
        self.records.held(device, self.course(device)?, times).map(curve_table).transpose()
    }

    /// The places `at` of the allocations that were not freed when a record says that most was allocated on
    /// their devices.
    pub fn alive(&self) -> Result<RecordBatch> {
        table([("at", positions(self.records.alive(&self.courses, &self.partners)))])
    }

    fn course(&self, device: u32) -> Result<&Course> {
        self.courses.get(device as usize).ok_or_else(|| invalid(format!("there is no device {device}")))
    }
}

fn curve_table((at, allocated): (Vec<u32>, Vec<i64>)) -> Result<RecordBatch> {
    table([("at", positions(at)), ("allocated_bytes", column(allocated))])
}
