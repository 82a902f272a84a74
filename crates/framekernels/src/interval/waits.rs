//! How many calls wait for the work that they launched.

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt32Type};

use super::{Ends, GroupedIntervals};
use crate::frame::{Frame, NONE, Result, records};

/// Every change of the number of calls that wait in each group: `at`, the position of the work that ends
/// the wait, `at_ns`, `opens`, `depth`.
///
/// Works have a `launch`, the position of a call in `launches`, or null, their `start_ns`, and `group` unless
/// all are of one. A call waits from its own `start_ns` until its first work of a group starts.
pub fn depth_changes(works: &Frame, launches: &Frame) -> Result<RecordBatch> {
    let waits = Waits::read(works, launches)?;
    let mut changes: Vec<Change> = Vec::with_capacity(2 * waits.starts.len());
    waits.intervals().each_change(|change| changes.push(change));
    records!(changes, change =>
        at: waits.row(change.at), at_ns: change.time, opens: change.opens, depth: change.depth)
}

/// From when to when calls wait for the works that they start.
struct Waits {
    groups: Option<Vec<u32>>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    /// The works that end a wait.
    rows: Vec<u32>,
}

impl Waits {
    fn read(works: &Frame, launches: &Frame) -> Result<Self> {
        let groups = works.has("group").then(|| works.values::<UInt32Type>("group")).transpose()?;
        let (ids, ends) = (works.u32_array("launch")?, works.values::<Int64Type>("start_ns")?);
        let launched = (0_u32..).zip(ids.iter()).filter(|&(_, &id)| id != NONE);
        let mut rows: Vec<u32> = launched.map(|(at, _)| at).collect();
        let of = gathered(&ids, &rows);
        let own = groups.map(|groups| gathered(groups, &rows));
        if let Some(first) = first_of_each(own.as_deref(), &of, &gathered(ends, &rows)) {
            rows = gathered(&rows, &first);
        }
        Ok(Self {
            groups: groups.map(|groups| gathered(groups, &rows)),
            starts: gathered(launches.values::<Int64Type>("start_ns")?, &gathered(&ids, &rows)),
            ends: gathered(ends, &rows),
            rows,
        })
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(self.groups.as_deref(), &self.starts, Ends::Times(&self.ends))
    }

    /// The row of the work at a position.
    fn row(&self, at: u32) -> u32 {
        self.rows.get(at as usize).copied().unwrap_or(at)
    }
}

/// The values at some rows.
fn gathered<V: Copy>(values: &[V], rows: &[u32]) -> Vec<V> {
    rows.iter().filter_map(|&row| values.get(row as usize).copied()).collect()
}

/// A change of the number of open intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The position of the interval that opens or closes.
    pub at: u32,
    /// When.
    pub time: i64,
    /// Whether it opens.
    pub opens: bool,
    /// How many are open from then on; fewer than none where intervals end before they start.
    pub depth: i64,
}

impl GroupedIntervals<'_> {
    /// Every change of each group in order of time. At one instant intervals open before others close.
    pub fn each_change(&self, mut tell: impl FnMut(Change)) {
        for group in self.each_group() {
            let closing = self.by_end(group);
            let mut closing = closing.iter().map(|&at| (self.end(at), at)).peekable();
            let mut depth = 0;
            let mut step = |at, time, opens| {
                depth += if opens { 1 } else { -1 };
                tell(Change { at, time, opens, depth });
            };
            for &at in group {
                let start = self.start(at);
                while let Some((end, earlier)) = closing.next_if(|&(end, _)| end < start) {
                    step(earlier, end, false);
                }
                step(at, start, true);
            }
            closing.for_each(|(end, at)| step(at, end, false));
        }
    }
}

/// Of the rows that agree in group and id the one that starts first, in the order of the rows; of those
/// that start together, the first row. Nothing where these are all rows; without `groups` all agree in it.
///
/// Linear where the rows come in order of their ids, or in a few runs that do, and few share an id.
#[must_use]
fn first_of_each(groups: Option<&[u32]>, ids: &[u32], starts: &[i64]) -> Option<Vec<u32>> {
    let count = ids.len().min(starts.len()).min(u32::MAX as usize);
    let count = groups.map_or(count, |groups| groups.len().min(count));
    let (ids, starts) = (&ids[..count], &starts[..count]);
    if ids.is_sorted_by(|earlier, later| earlier < later) {
        return None;
    }
    let group = |at: u32| groups.map_or(0, |groups| groups[at as usize]);
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|&at| ids[at as usize]);
    for same in order.chunk_by_mut(|&a, &b| ids[a as usize] == ids[b as usize]) {
        same.sort_by_key(|&at| (group(at), starts[at as usize]));
    }
    let key = |at: u32| (ids[at as usize], group(at));
    order.dedup_by(|later, first| key(*later) == key(*first));
    order.sort();
    (order.len() < count).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::first_of_each;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_looking_at_all(rows in proptest::collection::vec((0_u32..3, 0_u32..5, 0_i64..4), 0..24)) {
            let column = |value: fn(&(u32, u32, i64)) -> u32| rows.iter().map(value).collect::<Vec<_>>();
            let starts: Vec<i64> = rows.iter().map(|r| r.2).collect();
            let found = first_of_each(Some(&column(|r| r.0)), &column(|r| r.1), &starts);
            let is_first = |i: &usize| {
                let same = |j: &usize| rows[*j].0 == rows[*i].0 && rows[*j].1 == rows[*i].1;
                (0..rows.len()).filter(same).all(|j| (rows[*i].2, *i) <= (rows[j].2, j))
            };
            let expected: Vec<u32> = (0..rows.len()).filter(is_first).map(|i| i as u32).collect();
            prop_assert_eq!(found.is_none(), expected.len() == rows.len());
            prop_assert_eq!(found.unwrap_or_else(|| expected.clone()), expected);
        }
    }
}
