//! What became of the memory of each device.

use arrow_array::{Array, Int64Array, UInt64Array};
use arrow_buffer::ScalarBuffer;

use super::{MemoryRecord, partners};
use crate::frame::NONE;

/// How many rows of a curve stand for each part of it: the first, the last, the least and the most.
const ROWS_PER_PART: usize = 4;

/// The records of an allocator in order of time, by place.
#[derive(Debug, Clone)]
pub struct Records {
    /// On which device each was made: numbers that count from 0.
    pub devices: ScalarBuffer<u32>,
    /// When.
    pub times: ScalarBuffer<i64>,
    /// Of which block; null where that was not recorded.
    pub addresses: UInt64Array,
    /// Bytes allocated, negative when freed.
    pub bytes: ScalarBuffer<i64>,
    /// What the allocator says was allocated on the device afterwards.
    pub allocated: Int64Array,
    /// What it says was reserved then.
    pub reserved: Int64Array,
}

/// What became of the memory of one device.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// How many records there are.
    pub records: i64,
    /// How many of them allocate.
    pub allocations: i64,
    /// How many free.
    pub frees: i64,
    /// The sum of all allocations.
    pub allocated: i64,
    /// Whether every record tells what was allocated; else the records are summed, from 0 on.
    pub has_totals: bool,
    /// The place of the first record.
    pub first: u32,
    /// The place of the last one.
    pub last: u32,
    /// What was allocated before the first record.
    pub start: i64,
    /// What was allocated after the last one.
    pub end: i64,
    /// The most that was allocated.
    pub peak: i64,
    /// The first record after which it was.
    pub peak_at: u32,
    /// The most that a record tells was allocated, and the first that does.
    pub recorded_peak: Option<(i64, u32)>,
    /// The most that was reserved, and the most of it that was not allocated then.
    pub reserved: Option<(i64, i64)>,
    /// Whether records tell what they allocate or free.
    pub has_addresses: bool,
    /// The sum of the allocations that are not freed.
    pub open: i64,
    /// How many there are.
    pub open_allocations: i64,
}

impl Records {
    /// The free of each allocation and the allocation of each free: see [`partners`]. Equal addresses are the
    /// same where they are of one device, or anywhere.
    #[must_use]
    pub fn partners(&self, anywhere: bool) -> Vec<u32> {
        let columns = self.addresses.iter().zip(self.devices.iter().zip(self.bytes.iter()));
        partners(columns.map(|(address, (&device, &bytes))| {
            let device = if anywhere { 0 } else { device };
            Some(MemoryRecord { device, address: address?, bytes })
        }))
    }

    /// What became of the memory of each of so many devices; `partners` are those on one device.
    #[must_use]
    pub fn courses(&self, devices: usize, partners: &[u32]) -> Vec<Course> {
        let mut courses = vec![Course { has_totals: true, ..Course::default() }; devices];
        if self.allocated.null_count() > 0 {
            for (&device, allocated) in self.devices.iter().zip(&self.allocated) {
                if let (Some(course), None) = (courses.get_mut(device as usize), allocated) {
                    course.has_totals = false;
                }
            }
        }
        let totals = self.allocated.iter().zip(&self.reserved).zip(self.addresses.iter().zip(partners));
        for (((at, &device), &bytes), totals) in (0_u32..).zip(&self.devices).zip(&self.bytes).zip(totals) {
            let Some(course) = courses.get_mut(device as usize) else { continue };
            let ((allocated, reserved), (address, &partner)) = totals;
            course.go_on(at, bytes, allocated, reserved);
            if address.is_some() && bytes != 0 {
                course.has_addresses = true;
                if bytes > 0 && partner == NONE {
                    course.open = course.open.wrapping_add(bytes);
                    course.open_allocations += 1;
                }
            }
        }
        courses
    }

    /// What was allocated on a device after each of its records, with the place of the record; at most so many
    /// of them, if that is given.
    ///
    /// Of every stretch of time the first and the last are kept and those where least and most is allocated.
    #[must_use]
    pub fn curve(&self, device: u32, course: &Course, most: Option<usize>) -> (Vec<u32>, Vec<i64>) {
        let levels = self.levels(device, course);
        let Some(most) = most.filter(|&most| course.records > most as i64) else { return levels.unzip() };
        let time = |at: u32| self.times.get(at as usize).copied().unwrap_or_default();
        let (start, parts) = (i128::from(time(course.first)), (most / ROWS_PER_PART) as i128);
        let span = i128::from(time(course.last)) - start + 1;
        // The last moment of the part that a time lies in.
        let until = |time: i64| {
            let number = (i128::from(time) - start) * parts / span;
            (start + ((number + 1) * span - 1) / parts) as i64
        };
        let mut kept: Vec<(u32, i64)> = Vec::with_capacity(most);
        let mut part: Option<(i64, [(u32, i64); ROWS_PER_PART])> = None;
        for level in levels {
            let time = time(level.0);
            match &mut part {
                Some((until, [_, last, least, highest])) if time <= *until => {
                    *last = level;
                    if level.1 < least.1 {
                        *least = level;
                    }
                    if level.1 > highest.1 {
                        *highest = level;
                    }
                }
                _ => {
                    let rows = [level; ROWS_PER_PART];
                    kept.extend(part.replace((until(time), rows)).into_iter().flat_map(|part| part.1));
                }
            }
        }
        kept.extend(part.into_iter().flat_map(|part| part.1));
        kept.sort_unstable();
        kept.dedup();
        kept.into_iter().unzip()
    }

    /// What was allocated on a device at each of `times`, which ascend, with the place of the last record by
    /// then; nothing if one of them lies before the first record.
    #[must_use]
    pub fn held(&self, device: u32, course: &Course, times: &[i64]) -> Option<(Vec<u32>, Vec<i64>)> {
        let mut asked = times.iter().peekable();
        let (mut held, mut last) = (Vec::with_capacity(times.len()), None);
        for level in self.levels(device, course) {
            let time = self.times.get(level.0 as usize)?;
            while asked.next_if(|&asked| asked < time).is_some() {
                held.push(last?);
            }
            last = Some(level);
        }
        for _ in asked {
            held.push(last?);
        }
        Some(held.into_iter().unzip())
    }

    /// The places of the allocations that were not freed when a record gave the most of its device.
    #[must_use]
    pub fn alive(&self, courses: &[Course], partners: &[u32]) -> Vec<u32> {
        let peaks: Vec<Option<u32>> =
            courses.iter().map(|course| course.recorded_peak.map(|(_, at)| at)).collect();
        let records = (0_u32..).zip(&self.devices).zip(&self.bytes).zip(partners);
        let alive = records.filter(|&(((at, &device), &bytes), &partner)| {
            let peak = peaks.get(device as usize).copied().flatten();
            // Behind all others, if there is none.
            bytes > 0 && peak.is_some_and(|peak| at <= peak && partner > peak)
        });
        alive.map(|(((at, _), _), _)| at).filter(|&at| self.addresses.is_valid(at as usize)).collect()
    }

    /// Each record of a device, and what was allocated after it.
    fn levels(&self, device: u32, course: &Course) -> impl Iterator<Item = (u32, i64)> {
        let records = (0_u32..).zip(&self.devices).zip(self.bytes.iter().zip(&self.allocated));
        let (mut sum, has_totals) = (0_i64, course.has_totals);
        records.filter(move |&((_, &of), _)| of == device).map(move |((at, _), (&bytes, allocated))| {
            sum = sum.wrapping_add(bytes);
            (at, allocated.filter(|_| has_totals).unwrap_or(sum))
        })
    }
}

impl Course {
    fn go_on(&mut self, at: u32, bytes: i64, allocated: Option<i64>, reserved: Option<i64>) {
        let level = allocated.filter(|_| self.has_totals).unwrap_or_else(|| self.end.wrapping_add(bytes));
        if self.records == 0 {
            self.first = at;
            self.start = level.wrapping_sub(bytes);
        }
        if self.records == 0 || level > self.peak {
            (self.peak, self.peak_at) = (level, at);
        }
        (self.last, self.end) = (at, level);
        self.records += 1;
        self.allocations += i64::from(bytes > 0);
        self.frees += i64::from(bytes < 0);
        self.allocated = self.allocated.wrapping_add(bytes.max(0));
        if let Some(total) =
            allocated.filter(|&total| self.recorded_peak.is_none_or(|(most, _)| total > most))
        {
            self.recorded_peak = Some((total, at));
        }
        if let Some(reserved) = reserved {
            let idle = reserved.wrapping_sub(level);
            self.reserved = Some(self.reserved.map_or((reserved, idle), |most| most.max((reserved, idle))));
        }
    }
}
