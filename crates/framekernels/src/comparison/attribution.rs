//! Gives each moment of a window to one of the intervals that claim it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::frame::NONE;

/// An interval `[start, end)` that claims its moments.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// Its first instant.
    pub start: i64,
    /// The instant after its last.
    pub end: i64,
    /// Claims of a lower number win.
    pub priority: u8,
    /// What stands for the claim in the result; not [`NONE`].
    pub id: u32,
}

/// The time of a window that belongs to one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owned {
    /// Index of the window.
    pub window: u32,
    /// The claim's id, or [`NONE`].
    pub id: u32,
    /// Time that it owns; more than 0.
    pub ns: i64,
}

/// A claim that is open, the strongest last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    priority: Reverse<u8>,
    /// Place in the order of starts: of equal claims, the one that starts last is innermost and wins.
    place: usize,
}

/// Divides every window among `claims`; the parts of a window sum to its length.
///
/// Windows are `(start, end)` in order and do not overlap.
pub fn owners(mut claims: Vec<Claim>, windows: &[(i64, i64)]) -> Vec<Owned> {
    claims.retain(|claim| claim.end > claim.start);
    claims.sort_unstable_by_key(|claim| (claim.start, Reverse(claim.end), claim.id));
    let mut division = Division { claims: &claims, next: 0, open: BinaryHeap::new() };
    let mut owned = Vec::new();
    let mut sums: Vec<i64> = vec![0; claims.len()];
    let mut touched = Vec::new();
    for (window, &(start, end)) in (0..).zip(windows) {
        let (mut now, mut unclaimed) = (start, 0_i64);
        while now < end {
            let (owner, until) = division.at(now);
            let until = until.min(end);
            match owner.and_then(|place| sums.get_mut(place).map(|sum| (place, sum))) {
                Some((place, sum)) => {
                    if *sum == 0 {
                        touched.push(place);
                    }
                    *sum = sum.saturating_add(until.saturating_sub(now));
                }
                None => unclaimed = unclaimed.saturating_add(until.saturating_sub(now)),
            }
            now = until;
        }
        for place in touched.drain(..) {
            if let (Some(claim), Some(sum)) = (claims.get(place), sums.get_mut(place)) {
                owned.push(Owned { window, id: claim.id, ns: std::mem::take(sum) });
            }
        }
        if unclaimed > 0 {
            owned.push(Owned { window, id: NONE, ns: unclaimed });
        }
    }
    owned
}

/// The state of a sweep over time.
struct Division<'c> {
    claims: &'c [Claim],
    next: usize,
    open: BinaryHeap<Open>,
}

impl Division<'_> {
    /// The place of the claim that owns `now`, and until when that is certain. `now` never goes back.
    fn at(&mut self, now: i64) -> (Option<usize>, i64) {
        while let Some(claim) = self.claims.get(self.next).filter(|claim| claim.start <= now) {
            self.open.push(Open { priority: Reverse(claim.priority), place: self.next });
            self.next += 1;
        }
        let coming = self.claims.get(self.next).map_or(i64::MAX, |claim| claim.start);
        while let Some(top) = self.open.peek() {
            match self.claims.get(top.place).filter(|claim| claim.end > now) {
                Some(claim) => return (Some(top.place), claim.end.min(coming)),
                None => drop(self.open.pop()),
            }
        }
        (None, coming)
    }
}
