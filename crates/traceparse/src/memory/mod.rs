//! What became of the memory that an allocator handed out.

use hashbrown::HashMap;

use crate::interval::seek;

#[cfg(test)]
mod tests;

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
/// order of time.
///
/// An allocation is freed by the next record of its address, if that is a free. Records that are null, or
/// change nothing, are passed over.
pub fn partners(records: impl ExactSizeIterator<Item = Option<MemoryRecord>>) -> Vec<Option<u32>> {
    let mut found = vec![None; records.len()];
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
                *slot = Some(at);
            }
            if let Some(slot) = found.get_mut(at as usize) {
                *slot = Some(allocation);
            }
        }
    }
    found
}

/// What the sizes of `records`, time and bytes in any order, sum up to in each of `intervals`, start and end,
/// both included.
pub fn sums_within(mut records: Vec<(i64, i64)>, intervals: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
    // In order as a rule, which a stable sort makes use of.
    records.sort_by_key(|&(time, _)| time);
    let mut total = 0_i64;
    // The time of each record and the sum of all before it.
    let mut before: Vec<(i64, i64)> = Vec::with_capacity(records.len());
    for (time, bytes) in records {
        before.push((time, total));
        total = total.wrapping_add(bytes);
    }
    let sum = |at: usize| before.get(at).map_or(total, |&(_, sum)| sum);
    let (mut first, mut behind) = (0, 0);
    let within = intervals.map(|(start, end)| {
        first = seek(&before, first, |&(time, _)| time < start);
        behind = seek(&before, behind, |&(time, _)| time <= end);
        sum(behind).wrapping_sub(sum(first))
    });
    within.collect()
}
