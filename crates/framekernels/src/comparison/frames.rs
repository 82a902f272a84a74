//! Comparisons of traces that come in frames.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};

use super::{Claim, Match, align, owners};
use crate::frame::{Frame, NONE, Result, records};

/// The time of each window, which is `(start, end)` in order, by whose claim it counts for: `window`, `id`
/// (null for nobody) and `ns`. See [`owners`].
///
/// Claims have `start_ns`, `end_ns`, `priority` and `id`, none null.
pub fn attribute_windows(claims: &Frame, windows: &[(i64, i64)]) -> Result<RecordBatch> {
    let (starts, ends) = (claims.values::<Int64Type>("start_ns")?, claims.values::<Int64Type>("end_ns")?);
    let (priorities, ids) = (claims.values::<UInt8Type>("priority")?, claims.values::<UInt32Type>("id")?);
    let claims = (0..claims.height()).map(|row| Claim {
        start: starts[row],
        end: ends[row],
        priority: priorities[row],
        id: ids[row],
    });
    let owned = owners(claims.collect(), windows);
    records!(owned, part => window: part.window, id: Some(part.id).filter(|&id| id != NONE), ns: part.ns)
}

/// Which events of two frames correspond, group by group, as indices of their rows: `a`, `b`, and `level`. See
/// [`align`].
///
/// Both have the column `group`, which never falls, and a column of tokens for each of `levels`.
pub fn align_events(a: &Frame, b: &Frame, levels: &[String]) -> Result<RecordBatch> {
    let columns = |frame: &'_ Frame| -> Result<Vec<_>> {
        levels.iter().map(|name| Ok(frame.values::<UInt32Type>(name)?.clone())).collect()
    };
    let (a_levels, b_levels) = (columns(a)?, columns(b)?);
    let (a_groups, b_groups) = (a.values::<UInt32Type>("group")?, b.values::<UInt32Type>("group")?);
    let mut found: Vec<Match> = Vec::new();
    let mut start = 0;
    for group in a_groups.chunk_by(|a, b| a == b) {
        let left = start..start + group.len();
        start = left.end;
        let right = rows_of(b_groups, group[0]);
        let tokens = a_levels.iter().zip(&b_levels);
        let tokens: Vec<_> = tokens.map(|(a, b)| (&a[left.clone()], &b[right.clone()])).collect();
        found.extend(align(&tokens).into_iter().map(|m| Match {
            a: m.a + left.start as u32,
            b: m.b + right.start as u32,
            ..m
        }));
    }
    records!(found, pair => a: pair.a, b: pair.b, level: pair.level)
}

/// Where a group is among groups that never fall.
fn rows_of(groups: &[u32], group: u32) -> Range<usize> {
    groups.partition_point(|&other| other < group)..groups.partition_point(|&other| other <= group)
}
