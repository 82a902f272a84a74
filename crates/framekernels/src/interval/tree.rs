//! An index of intervals.

/// A static index of intervals: sorted starts, and the largest ends of all ranges of positions.
///
/// Intervals are kept in order of (start, longer first, id). `furthest` is an implicit binary
/// tree without pointers: node `n` has the children `2n` and `2n + 1`, the leaves are the ends
/// themselves, and a node holds the largest end below it. A query cuts the positions at a start by
/// binary search and finds the ends that reach far enough by walking the tree, so each answer costs
/// `O(log n)`, however intervals nest or overlap, without recursion or allocation.
#[derive(Debug, Default)]
pub struct IntervalTree {
    starts: Vec<i64>,
    ids: Vec<u32>,
    furthest: Vec<i64>,
    /// Number of the first leaf: a power of two.
    leaves: usize,
}

impl IntervalTree {
    /// The index of `(start, end, id)` triples, in any order. An end before its start counts as
    /// the start.
    pub fn new(intervals: impl IntoIterator<Item = (i64, i64, u32)>) -> Self {
        let mut sorted: Vec<_> = intervals.into_iter().map(|(s, e, id)| (s, e.max(s), id)).collect();
        let key = |&(start, end, id): &(i64, i64, u32)| (start, std::cmp::Reverse(end), id);
        if !sorted.is_sorted_by_key(key) {
            sorted.sort_unstable_by_key(key);
        }
        let leaves = sorted.len().next_power_of_two();
        let mut furthest = vec![i64::MIN; 2 * leaves];
        for (position, &(_, end, _)) in sorted.iter().enumerate() {
            furthest[leaves + position] = end;
        }
        for node in (1..leaves).rev() {
            furthest[node] = furthest[2 * node].max(furthest[2 * node + 1]);
        }
        Self {
            starts: sorted.iter().map(|i| i.0).collect(),
            ids: sorted.iter().map(|i| i.2).collect(),
            furthest,
            leaves,
        }
    }

    /// Every interval that starts by `start` and reaches to `end`, in order: outermost first where
    /// they nest.
    pub fn containing(&self, start: i64, end: i64) -> impl Iterator<Item = u32> + '_ {
        self.reaching(self.started(start), end).map(|p| self.ids[p])
    }

    /// Of the intervals that start by `start` and reach to `end`, the one with the latest start,
    /// the shortest among those.
    pub fn innermost(&self, start: i64, end: i64) -> Option<u32> {
        self.last_reaching(self.started(start), end).map(|p| self.ids[p])
    }

    /// Of the intervals that contain the instant, the one with the latest start, the shortest among
    /// those.
    pub fn innermost_at(&self, at: i64) -> Option<u32> {
        self.innermost(at, at.saturating_add(1))
    }

    fn started(&self, by: i64) -> usize {
        self.starts.partition_point(|&s| s <= by)
    }

    /// The positions below `before` whose intervals reach to `end`, in order.
    fn reaching(&self, before: usize, end: i64) -> impl Iterator<Item = usize> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.first_reaching(from, end).filter(|&p| p < before)?;
            from = found + 1;
            Some(found)
        })
    }

    /// The first position at or after `from` whose interval reaches to `end`.
    fn first_reaching(&self, from: usize, end: i64) -> Option<usize> {
        if from >= self.ids.len() {
            return None;
        }
        let mut node = self.leaves + from;
        // Up and to the right, to the first subtree that reaches far enough.
        while self.furthest[node] < end {
            while node & 1 == 1 {
                node >>= 1;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves {
            node *= 2;
            if self.furthest[node] < end {
                node += 1;
            }
        }
        Some(node - self.leaves)
    }

    /// The last position below `before` whose interval reaches to `end`.
    fn last_reaching(&self, before: usize, end: i64) -> Option<usize> {
        if before == 0 {
            return None;
        }
        let mut node = self.leaves + before - 1;
        // Up and to the left, to the first subtree that reaches far enough.
        while self.furthest[node] < end {
            while node & 1 == 0 {
                node >>= 1;
            }
            if node == 1 {
                return None;
            }
            node -= 1;
        }
        while node < self.leaves {
            node = 2 * node + 1;
            if self.furthest[node] < end {
                node -= 1;
            }
        }
        Some(node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::IntervalTree;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    #[test]
    fn nested_and_partly_overlapping_intervals() {
        let tree = IntervalTree::new([(0, 100, 0), (10, 40, 1), (30, 60, 2), (30, 50, 3), (70, 70, 4)]);
        assert_eq!(tree.innermost(35, 38), Some(3));
        assert_eq!(tree.innermost(35, 55), Some(2));
        assert_eq!(tree.innermost(12, 41), Some(0));
        assert_eq!(tree.innermost_at(60), Some(0));
        assert_eq!(tree.innermost(70, 70), Some(4));
        assert_eq!(tree.innermost_at(100), None);
        assert_eq!(tree.containing(39, 40).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(IntervalTree::new([]).innermost_at(0).is_none());
    }

    #[test]
    fn deep_nesting_is_searched_in_logarithmic_time() {
        let depth = 1_000_000_i64;
        let tree = IntervalTree::new((0..depth).map(|i| (i, 2 * depth - i, i as u32)));
        let begin = Instant::now();
        for i in 0..depth {
            assert_eq!(tree.innermost(depth, 2 * depth - i), Some(i as u32));
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
    }

    proptest! {
        #[test]
        fn equals_a_search_of_all(
            intervals in proptest::collection::vec((0i64..40, 0i64..20), 0..40),
            queries in proptest::collection::vec((-2i64..60, 0i64..12), 1..20),
        ) {
            let mut sorted: Vec<_> = intervals.iter().enumerate().map(|(i, &(s, l))| (s, s + l, i as u32)).collect();
            let tree = IntervalTree::new(sorted.iter().rev().copied());
            sorted.sort_by_key(|&(s, e, id)| (s, -e, id));
            let select = |keep: &dyn Fn(i64, i64) -> bool| -> Vec<u32> {
                sorted.iter().filter(|i| keep(i.0, i.1)).map(|i| i.2).collect()
            };
            for (start, length) in queries {
                let end = start + length;
                let containing = select(&|s, e| s <= start && e >= end);
                prop_assert_eq!(tree.innermost(start, end), containing.last().copied());
                prop_assert_eq!(tree.containing(start, end).collect::<Vec<_>>(), containing);
                let at_point = select(&|s, e| s <= start && e > start);
                prop_assert_eq!(tree.innermost_at(start), at_point.last().copied());
            }
        }
    }
}
