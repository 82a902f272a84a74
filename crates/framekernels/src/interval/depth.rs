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

/// How often and how long so many intervals were open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthTotal {
    /// The position of an interval of the group.
    pub at: u32,
    /// How many were open.
    pub depth: i64,
    /// How many changes led to that.
    pub changes: i64,
    /// How long it lasted; after the last change of a group it counts nothing.
    pub duration: i64,
}

impl GroupedIntervals<'_> {
    /// Every change of each group in order of time. At one instant intervals open before others close.
    pub fn each_change(&self, mut tell: impl FnMut(Change)) {
        for group in self.each_group() {
            self.each_change_of(group, &mut tell);
        }
    }

    /// Every change of one group.
    fn each_change_of(&self, group: &[u32], mut tell: impl FnMut(Change)) {
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

    /// How often and how long each number of intervals was open, by group and number.
    #[must_use]
    pub fn depth_totals(&self) -> Vec<DepthTotal> {
        let mut found: Vec<DepthTotal> = Vec::new();
        let mut sums = Sums::default();
        for group in self.each_group() {
            let &[first, ..] = group else { continue };
            let mut last: Option<(i64, i64)> = None;
            self.each_change_of(group, |change| {
                if let Some((depth, since)) = last {
                    sums.add(depth, change.time.saturating_sub(since));
                }
                last = Some((change.depth, change.time));
            });
            if let Some((depth, _)) = last {
                sums.add(depth, 0);
            }
            sums.take(first, &mut found);
        }
        found
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

/// Changes and durations by depth.
#[derive(Debug, Default)]
struct Sums {
    /// From none on.
    open: Vec<(i64, i64)>,
    /// From one less than none downwards.
    below: Vec<(i64, i64)>,
}

impl Sums {
    fn add(&mut self, depth: i64, duration: i64) {
        let (side, place) = if depth < 0 { (&mut self.below, -1 - depth) } else { (&mut self.open, depth) };
        let place = place as usize;
        if place >= side.len() {
            side.resize(place + 1, (0, 0));
        }
        let (changes, total) = &mut side[place];
        *changes += 1;
        *total = total.saturating_add(duration);
    }

    /// Hands over what was added, and forgets it.
    fn take(&mut self, at: u32, found: &mut Vec<DepthTotal>) {
        let lowest = -(self.below.len() as i64);
        let below = (lowest..).zip(self.below.drain(..).rev());
        let open = (0_i64..).zip(self.open.drain(..));
        let known = below.chain(open).filter(|(_, sums)| sums.0 > 0);
        found.extend(known.map(|(depth, (changes, duration))| DepthTotal { at, depth, changes, duration }));
    }
}
