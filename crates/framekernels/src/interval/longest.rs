//! With which of many intervals others share most time.

use super::{GroupedIntervals, seek};

impl GroupedIntervals<'_> {
    /// Of each interval, by position, the one of its group in `other` with which it shares most time, and how
    /// much; of several the one whose position is least.
    ///
    /// Linear where the intervals of a group overlap little, here as there.
    #[must_use]
    pub fn longest_shared(&self, other: &GroupedIntervals<'_>) -> Vec<Option<(u32, i64)>> {
        let mut found = vec![None; self.positions()];
        let mut reached: Vec<i64> = Vec::new();
        self.each_pair(other, |group, others| {
            reached.clear();
            reached.extend(others.iter().scan(i64::MIN, |latest, &at| {
                *latest = other.end(at).max(*latest);
                Some(*latest)
            }));
            let mut first = 0;
            for &at in group {
                let (start, end) = (self.start(at), self.end(at));
                first = seek(&reached, first, |&latest| latest <= start);
                let ahead = others.get(first..).unwrap_or_default();
                for &near in ahead.iter().take_while(|&&near| other.start(near) < end) {
                    let shared = end.min(other.end(near)).saturating_sub(start.max(other.start(near)));
                    let best: &mut Option<(u32, i64)> = &mut found[at as usize];
                    if shared > 0 && best.is_none_or(|(at, most)| (shared, at) > (most, near)) {
                        *best = Some((near, shared));
                    }
                }
            }
        });
        found
    }
}
