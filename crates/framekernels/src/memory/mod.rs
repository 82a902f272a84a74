//! What became of the memory that an allocator handed out.

use hashbrown::HashMap;

use crate::frame::NONE;

mod allocator;
mod records;
#[cfg(test)]
mod tests;

pub use allocator::AllocatorRecords;
pub use records::{Course, Records};

/// A record of an allocator.
#[derive(Debug, Clone, Copy)]
pub struct MemoryRecord {
    /// Where the address lies: any number that tells devices apart.
    pub device: u32,
    /// The address.
    pub address: u64,
    /// Bytes allocated, negative when freed.
    pub bytes: i64,
}

/// The free of each allocation and the allocation of each free, as places among `records`, which come in
/// order of time; [`NONE`] where there is none.
///
/// An allocation is freed by the next record of its address, if that is a free. Records that are null, or
/// change nothing, are passed over.
pub fn partners(records: impl ExactSizeIterator<Item = Option<MemoryRecord>>) -> Vec<u32> {
    let mut found = vec![NONE; records.len()];
    // The last record of each address, if it is an allocation.
    let mut open: HashMap<(u32, u64), u32> = HashMap::new();
    for (at, record) in (0_u32..).zip(records) {
        let Some(MemoryRecord { device, address, bytes }) = record.filter(|record| record.bytes != 0) else {
            continue;
        };
        if bytes > 0 {
            open.insert((device, address), at);
        } else if let Some(allocation) = open.remove(&(device, address)) {
            if let Some(slot) = found.get_mut(allocation as usize) {
                *slot = at;
            }
            if let Some(slot) = found.get_mut(at as usize) {
                *slot = allocation;
            }
        }
    }
    found
}

/// What is allocated at each time, counted from the first record on.
#[derive(Debug)]
pub struct Curve {
    times: Vec<i64>,
    /// The sum of all records before each, and of all.
    sums: Vec<i64>,
}

impl Curve {
    /// The curve of `records`, time and bytes in any order.
    #[must_use]
    pub fn new(records: impl Iterator<Item = (i64, i64)>) -> Self {
        let most = records.size_hint().1.unwrap_or_default();
        let (mut times, mut bytes) = (Vec::with_capacity(most), Vec::with_capacity(most + 1));
        for (time, change) in records {
            times.push(time);
            bytes.push(change);
        }
        // In order as a rule.
        if !times.is_sorted() {
            let mut pairs: Vec<(i64, i64)> = times.into_iter().zip(bytes).collect();
            pairs.sort_by_key(|&(time, _)| time);
            (times, bytes) = pairs.into_iter().unzip();
        }
        let mut total = 0_i64;
        for sum in &mut bytes {
            total = total.wrapping_add(std::mem::replace(sum, total));
        }
        bytes.push(total);
        Self { times, sums: bytes }
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.times.is_empty()
    }

    /// What the records sum up to in each of `intervals`, start and end, both included.
    pub fn changes(
        &self,
        intervals: impl ExactSizeIterator<Item = (i64, i64)>,
    ) -> impl ExactSizeIterator<Item = i64> {
        intervals.map(move |(start, end)| {
            let first = self.times.partition_point(|&time| time < start);
            let behind = first + self.times[first..].partition_point(|&time| time <= end);
            let sum = |at: usize| self.sums.get(at).copied().unwrap_or_default();
            sum(behind).wrapping_sub(sum(first))
        })
    }
}
