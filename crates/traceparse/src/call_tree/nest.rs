//! Intervals that lie in each other.

use std::cmp::Reverse;

use hashbrown::HashMap;

use super::NONE;

/// Intervals by position: the group in which each can nest, and its time.
#[derive(Debug, Clone, Copy)]
pub struct Slices<'a> {
    /// Any number that tells groups apart.
    pub groups: &'a [i64],
    /// First instants.
    pub starts: &'a [i64],
    /// Instants just after the last.
    pub ends: &'a [i64],
    /// Of intervals with the same time, the lower row lies around the higher.
    pub rows: &'a [u32],
}

/// The interval around each, as a call stack has them.
///
/// In order of start, the longest first, an interval that does not enclose the next one is closed;
/// what is still open and innermost lies around the next. Intervals that overlap in part are
/// therefore side by side.
#[must_use]
pub fn nest(slices: Slices<'_>) -> Vec<u32> {
    let mut parents = vec![NONE; slices.groups.len()];
    let time = |at: u32| {
        let value = |times: &[i64]| times.get(at as usize).copied().unwrap_or_default();
        (value(slices.starts), value(slices.ends))
    };
    let mut open: Vec<(u32, i64)> = Vec::new();
    for mut members in by_group(slices.groups) {
        let key = |&at: &u32| {
            let (start, end) = time(at);
            (start, Reverse(end), slices.rows.get(at as usize).copied())
        };
        if !members.is_sorted_by_key(key) {
            // The tables of a trace are in order, each of them: few runs are to be merged.
            members.sort_by_key(key);
        }
        open.clear();
        for at in members {
            let (start, end) = time(at);
            while open.pop_if(|&mut (_, outer_end)| start >= outer_end || end > outer_end).is_some() {}
            if let (Some(&(outer, _)), Some(parent)) = (open.last(), parents.get_mut(at as usize)) {
                *parent = outer;
            }
            open.push((at, end));
        }
    }
    parents
}

/// The positions of the members of each group.
fn by_group(groups: &[i64]) -> Vec<Vec<u32>> {
    let mut members: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<i64, usize> = HashMap::new();
    let mut at = 0_u32;
    // Neighbours are mostly of one group.
    for run in groups.chunk_by(|a, b| a == b) {
        let Some(&group) = run.first() else { continue };
        let place = *known.entry(group).or_insert(members.len());
        if place == members.len() {
            members.push(Vec::new());
        }
        let end = at + run.len() as u32;
        if let Some(positions) = members.get_mut(place) {
            positions.extend(at..end);
        }
        at = end;
    }
    members
}
