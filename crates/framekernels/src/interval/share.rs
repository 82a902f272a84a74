//! Shares of what lasts at the same moments: of the time that it covers, and summed up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::GroupedIntervals;

impl GroupedIntervals<'_> {
    /// The part of each interval in the time that the intervals of its group cover, by position.
    ///
    /// A moment is shared equally by the intervals that last in it, so the parts of a group sum to the
    /// time that it covers. An interval of negative length has no part.
    #[must_use]
    pub fn shared(&self) -> Vec<f64> {
        let parts = vec![0.0; self.positions()];
        let mut sweep = Sweep { now: i64::MIN, covered: 0.0, open: BinaryHeap::new(), parts };
        for group in self.each_group() {
            let mut coming = group.iter().copied().peekable();
            while let Some(at) = coming.next() {
                let (start, end) = (self.start(at), self.end(at));
                sweep.close(start);
                if sweep.open.is_empty() && coming.peek().is_none_or(|&next| self.start(next) >= end) {
                    sweep.put(at, end.saturating_sub(start).max(0) as f64);
                } else {
                    sweep.start(at, start, end);
                }
            }
            sweep.finish();
        }
        sweep.parts
    }

    /// The integral of the summed `share` of the intervals that are open, of which at most 1 counts: the
    /// position of an interval of each group, and the integral. Intervals that take no time, or whose share
    /// is not above 0, are left out.
    #[must_use]
    pub fn filled(&self, share: impl Fn(u32) -> f64) -> Vec<(u32, f64)> {
        let counts = |&at: &u32| share(at) > 0.0 && self.end(at) > self.start(at);
        let of_group = |group: &[u32]| {
            let mut open: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
            let (mut first, mut total) = (None, Filled::default());
            // The only one that is open, which most are.
            let mut lone: Option<u32> = None;
            for &at in group.iter().filter(|at| counts(at)) {
                first = first.or(Some(at));
                let start = self.start(at);
                if let Some(last) = lone.take() {
                    total.change(self.start(last), share(last), false);
                    if self.end(last) <= start {
                        total.change(self.end(last), 0.0, true);
                    } else {
                        open.push(Reverse((self.end(last), last)));
                    }
                }
                while let Some(&Reverse((end, ended))) = open.peek().filter(|last| last.0.0 <= start) {
                    open.pop();
                    total.change(end, -share(ended), open.is_empty());
                }
                if open.is_empty() {
                    lone = Some(at);
                } else {
                    total.change(start, share(at), false);
                    open.push(Reverse((self.end(at), at)));
                }
            }
            if let Some(last) = lone {
                total.change(self.start(last), share(last), false);
                open.push(Reverse((self.end(last), last)));
            }
            while let Some(Reverse((end, ended))) = open.pop() {
                total.change(end, -share(ended), open.is_empty());
            }
            Some((first?, total.filled))
        };
        self.each_group().filter_map(of_group).collect()
    }
}

/// An integral of a sum of shares, of which at most 1 counts.
#[derive(Debug, Default)]
struct Filled {
    filled: f64,
    sum: f64,
    last: Option<i64>,
}

impl Filled {
    /// Adds a share from `time` on, which is no earlier than the last one.
    fn change(&mut self, time: i64, share: f64, is_last: bool) {
        let since = self.last.replace(time).unwrap_or(time);
        self.filled += self.sum.clamp(0.0, 1.0) * time.saturating_sub(since) as f64;
        // Where nothing is open, rounding may have left something.
        self.sum = if is_last { 0.0 } else { self.sum + share };
    }
}

/// The state of a sweep over the time of one group.
struct Sweep {
    now: i64,
    /// How much an interval has had that lasts since the group began.
    covered: f64,
    /// What lasts, by its end.
    open: BinaryHeap<Reverse<(i64, u32)>>,
    /// Of an interval that lasts, less what it must not have; of one that is over, or lasts alone, its part.
    parts: Vec<f64>,
}

impl Sweep {
    /// Ends what lasts no longer than `until`.
    fn close(&mut self, until: i64) {
        while let Some(&Reverse((end, at))) = self.open.peek().filter(|open| open.0.0 <= until) {
            self.advance(end);
            self.end(at);
        }
    }

    fn start(&mut self, at: u32, start: i64, end: i64) {
        self.advance(start);
        if end > start {
            self.open.push(Reverse((end, at)));
            self.put(at, -self.covered);
        }
    }

    fn finish(&mut self) {
        self.close(i64::MAX);
        (self.now, self.covered) = (i64::MIN, 0.0);
    }

    fn put(&mut self, at: u32, value: f64) {
        if let Some(part) = self.parts.get_mut(at as usize) {
            *part = value;
        }
    }

    fn advance(&mut self, to: i64) {
        if !self.open.is_empty() {
            self.covered += to.saturating_sub(self.now) as f64 / self.open.len() as f64;
        }
        self.now = to;
    }

    fn end(&mut self, at: u32) {
        self.open.pop();
        if let Some(part) = self.parts.get_mut(at as usize) {
            *part += self.covered;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::interval::{Ends, GroupedIntervals};

    proptest! {
        #[test]
        fn a_moment_is_shared_by_what_lasts_in_it(
            pieces in prop::collection::vec((0..2_u32, 0..20_i64, -2..12_i64), 0..24)
        ) {
            let groups: Vec<u32> = pieces.iter().map(|p| p.0).collect();
            let starts: Vec<i64> = pieces.iter().map(|p| p.1).collect();
            let ends: Vec<i64> = pieces.iter().map(|p| p.1 + p.2).collect();
            let lasts = |at: usize, moment: i64| starts[at] <= moment && moment < ends[at];
            let lengths: Vec<i64> = pieces.iter().map(|p| p.2).collect();
            let found = GroupedIntervals::new(Some(&groups), &starts, Ends::Lengths(&lengths)).shared();
            for (at, part) in found.into_iter().enumerate() {
                let others = |t| (0..pieces.len()).filter(|&o| groups[o] == groups[at] && lasts(o, t)).count();
                let moments = (0..40).filter(|&t| lasts(at, t));
                let expected: f64 = moments.map(|t| 1.0 / others(t) as f64).sum();
                prop_assert!((part - expected).abs() < 1e-9);
            }
        }
    }
}
