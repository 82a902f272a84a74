//! Time covered by intervals that come in any order and are merged set by set.

use std::collections::BTreeMap;

/// A set of instants that grows: single intervals and whole sets can be added.
///
/// Merging moves the smaller set into the larger one, so a tree of sets that is merged from its leaves
/// to its root costs `O(n log² n)` for `n` intervals, however deep it is.
#[derive(Debug, Clone, Default)]
pub struct BusySet {
    /// End of each part by its start; parts are disjoint and do not touch.
    parts: BTreeMap<i64, i64>,
    length: i64,
}

impl BusySet {
    /// Adds `[start, end)`; an empty interval adds nothing.
    pub fn insert(&mut self, start: i64, end: i64) {
        if end <= start {
            return;
        }
        let (mut from, mut to) = (start, end);
        // Parts that begin by `to` and reach `from` melt into one.
        while let Some((&part_start, &part_end)) = self.parts.range(..=to).next_back() {
            if part_end < from {
                break;
            }
            if part_start <= from && part_end >= to {
                return;
            }
            self.parts.remove(&part_start);
            self.length = self.length.saturating_sub(part_end.saturating_sub(part_start));
            (from, to) = (from.min(part_start), to.max(part_end));
        }
        self.parts.insert(from, to);
        self.length = self.length.saturating_add(to.saturating_sub(from));
    }

    /// Adds everything that is in `other`.
    pub fn merge(&mut self, mut other: Self) {
        if other.parts.len() > self.parts.len() {
            std::mem::swap(self, &mut other);
        }
        for (start, end) in other.parts {
            self.insert(start, end);
        }
    }

    /// Total length.
    pub fn length(&self) -> i64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::BusySet;
    use proptest::prelude::*;

    #[test]
    fn touching_parts_are_one() {
        let mut set = BusySet::default();
        for (start, end) in [(5, 9), (1, 3), (9, 12), (3, 5), (4, 4), (20, 10)] {
            set.insert(start, end);
        }
        assert_eq!((set.length(), set.parts.len()), (11, 1));
    }

    proptest! {
        #[test]
        fn equals_the_union(
            a in proptest::collection::vec((0i64..60, -3i64..14), 0..20),
            b in proptest::collection::vec((0i64..60, -3i64..14), 0..20),
        ) {
            let fill = |intervals: &[(i64, i64)]| {
                let mut set = BusySet::default();
                intervals.iter().for_each(|&(start, length)| set.insert(start, start + length));
                set
            };
            let (mut left, right) = (fill(&a), fill(&b));
            left.merge(right);
            let is_in = |instant: i64| a.iter().chain(&b).any(|&(s, length)| s <= instant && instant < s + length);
            prop_assert_eq!(left.length(), (0..80).filter(|&instant| is_in(instant)).count() as i64);
            let parts: Vec<_> = left.parts.into_iter().collect();
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 < pair[1].0), "{parts:?}");
            prop_assert!(parts.iter().all(|&(start, end)| start < end && (start..end).all(is_in)));
        }
    }
}
