//! Intervals that lie in each other.

use std::cmp::Reverse;
use std::hash::Hash;

use hashbrown::HashMap;

use super::NONE;

/// Intervals by position: the group in which each can nest, and its time.
#[derive(Debug, Clone, Copy)]
pub struct Slices<'a, G = i64> {
    /// Any number that tells groups apart.
    pub groups: &'a [G],
    /// First instants.
    pub starts: &'a [i64],
    /// From the first instant to just after the last.
    pub lengths: &'a [i64],
    /// Of intervals with the same time, the lower row lies around the higher.
    pub rows: &'a [u32],
}

impl<G> Slices<'_, G> {
    #[inline]
    pub(crate) fn time(&self, at: u32) -> (i64, i64) {
        let value = |times: &[i64]| times.get(at as usize).copied().unwrap_or_default();
        let start = value(self.starts);
        (start, start.saturating_add(value(self.lengths)))
    }

    /// The start, and the end backwards: what intervals of a group are in order of.
    #[inline]
    pub(super) fn span(&self, at: u32) -> (i64, Reverse<i64>) {
        let (start, end) = self.time(at);
        (start, Reverse(end))
    }

    /// The same, with what decides between intervals of one time.
    #[inline]
    pub(crate) fn key(&self, at: u32) -> (i64, Reverse<i64>, u32) {
        let (start, end) = self.span(at);
        (start, end, self.rows.get(at as usize).copied().unwrap_or(NONE))
    }
}

/// The interval around each, as a call stack has them.
///
/// In order of start, the longest first, an interval that does not enclose the next one is closed;
/// what is still open and innermost lies around the next. Intervals that overlap in part are
/// therefore side by side. Those that do not `count` lie in none, and around none.
#[must_use]
pub fn nest<G: Copy + Eq + Hash>(slices: Slices<'_, G>, counts: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut parents = Vec::with_capacity(slices.groups.len());
    let mut known: HashMap<G, usize> = HashMap::new();
    let mut stacks: Vec<Stack> = Vec::new();
    let mut at = 0_u32;
    // Neighbours are mostly of one group.
    for run in slices.groups.chunk_by(|a, b| a == b) {
        let Some(&group) = run.first() else { continue };
        let place = *known.entry(group).or_insert(stacks.len());
        if place == stacks.len() {
            stacks.push(Stack::default());
        }
        let Some(stack) = stacks.get_mut(place) else { continue };
        for at in at..at + run.len() as u32 {
            if !counts(at) {
                parents.push(NONE);
                continue;
            }
            let key = slices.key(at);
            if stack.last.is_some_and(|last| key < last) {
                return nest_sorted(&slices, counts);
            }
            stack.last = Some(key);
            parents.push(stack.push(at, slices.time(at)));
        }
        at += run.len() as u32;
    }
    parents
}

/// The intervals of a group that are open.
#[derive(Debug, Default)]
struct Stack {
    /// Each with its end.
    open: Vec<(u32, i64)>,
    /// What came last.
    last: Option<(i64, Reverse<i64>, u32)>,
}

impl Stack {
    /// Opens the next interval; the one around it.
    #[inline]
    fn push(&mut self, at: u32, (start, end): (i64, i64)) -> u32 {
        while self.open.pop_if(|&mut (_, outer_end)| start >= outer_end || end > outer_end).is_some() {}
        let around = self.open.last().map_or(NONE, |&(outer, _)| outer);
        self.open.push((at, end));
        around
    }
}

/// The same for intervals in any order.
fn nest_sorted<G: Copy + Eq + Hash>(slices: &Slices<'_, G>, counts: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut parents = vec![NONE; slices.groups.len()];
    for (_, mut members) in by_group(slices.groups, counts) {
        members.sort_by_key(|&at| slices.key(at));
        let mut stack = Stack::default();
        for at in members {
            let around = stack.push(at, slices.time(at));
            if let Some(parent) = parents.get_mut(at as usize) {
                *parent = around;
            }
        }
    }
    parents
}

/// The groups with the positions of their members that count.
pub(crate) fn by_group<G: Copy + Eq + Hash>(
    groups: &[G],
    counts: impl Fn(u32) -> bool,
) -> Vec<(G, Vec<u32>)> {
    let mut members: Vec<(G, Vec<u32>)> = Vec::new();
    let mut known: HashMap<G, usize> = HashMap::new();
    let mut at = 0_u32;
    for run in groups.chunk_by(|a, b| a == b) {
        let until = at + run.len() as u32;
        let Some(&group) = run.first() else { continue };
        let place = *known.entry(group).or_insert(members.len());
        if place == members.len() {
            members.push((group, Vec::new()));
        }
        if let Some((_, members)) = members.get_mut(place) {
            members.extend((at..until).filter(|&at| counts(at)));
        }
        at = until;
    }
    members
}
