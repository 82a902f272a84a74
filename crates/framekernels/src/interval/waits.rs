//! How many calls wait for the work that they launched.

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt32Type};

use super::{Change, Ends, GroupedIntervals, first_of_each};
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
