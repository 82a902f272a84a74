//! How many intervals of a group are open, at every change.

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
        let mut closing: Vec<u32> = Vec::new();
        for group in self.each_group() {
            closing.clear();
            closing.extend_from_slice(group);
            // Stable, since it is linear in what comes in runs.
            closing.sort_by_key(|&at| (self.end(at), at));
            let mut closing = closing.iter().copied().peekable();
            let mut depth = 0;
            let mut step = |at, time, opens| {
                depth += if opens { 1 } else { -1 };
                tell(Change { at, time, opens, depth });
            };
            for &at in group {
                let start = self.start(at);
                while let Some(earlier) = closing.next_if(|&other| self.end(other) < start) {
                    step(earlier, self.end(earlier), false);
                }
                step(at, start, true);
            }
            closing.for_each(|at| step(at, self.end(at), false));
        }
    }

    /// How often and how long each number of intervals was open, by group and number.
    #[must_use]
    pub fn depth_totals(&self) -> Vec<DepthTotal> {
        let mut found: Vec<DepthTotal> = Vec::new();
        let mut sums = Sums::default();
        let mut last: Option<Change> = None;
        self.each_change(|change| {
            match last {
                Some(before) if self.group(before.at) == self.group(change.at) => {
                    sums.add(before.depth, change.time.saturating_sub(before.time));
                }
                Some(before) => {
                    sums.add(before.depth, 0);
                    sums.take(before.at, &mut found);
                }
                None => {}
            }
            last = Some(change);
        });
        if let Some(before) = last {
            sums.add(before.depth, 0);
            sums.take(before.at, &mut found);
        }
        found
    }

    /// The integral of the summed `shares` of the intervals that are open, of which at most 1 counts: the
    /// position of an interval of each group, and the integral. A share beyond the column counts nothing.
    #[must_use]
    pub fn filled(&self, shares: &[f64]) -> Vec<(u32, f64)> {
        let mut found: Vec<(u32, f64)> = Vec::new();
        let (mut sum, mut since) = (0.0_f64, 0_i64);
        self.each_change(|change| {
            let group = self.group(change.at);
            match found.last_mut().filter(|last| self.group(last.0) == group) {
                Some(last) => last.1 += sum.clamp(0.0, 1.0) * change.time.saturating_sub(since) as f64,
                None => found.push((change.at, 0.0)),
            }
            let share = shares.get(change.at as usize).copied().unwrap_or_default();
            sum += if change.opens { share } else { -share };
            if change.depth == 0 {
                // What rounding left.
                sum = 0.0;
            }
            since = change.time;
        });
        found
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
