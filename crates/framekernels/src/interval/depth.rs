//! How many intervals of a group are open, at every change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::GroupedIntervals;

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
