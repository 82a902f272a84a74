//! Sets of time: unions of intervals.

/// A set of instants, kept as sorted, disjoint, non-empty intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntervalSet {
    parts: Vec<(i64, i64)>,
}

impl IntervalSet {
    /// The union of `intervals`, which may overlap and come in any order. Empty ones add nothing.
    pub fn union_of(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut parts: Vec<(i64, i64)> = Vec::new();
        let mut sorted = true;
        for (start, end) in intervals {
            if end <= start {
                continue;
            }
            match parts.last_mut() {
                // Most sources are nearly in order: merging here keeps the list short.
                Some(last) if sorted && start >= last.0 && start <= last.1 => last.1 = last.1.max(end),
                Some(last) => {
                    sorted &= start > last.1;
                    parts.push((start, end));
                }
                None => parts.push((start, end)),
            }
        }
        if !sorted {
            parts.sort_unstable();
            merge_sorted(&mut parts);
        }
        Self { parts }
    }

    /// The intervals, in order.
    pub fn parts(&self) -> &[(i64, i64)] {
        &self.parts
    }

    /// Whether no instant is in the set.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Total length.
    pub fn length(&self) -> i64 {
        self.parts.iter().fold(0, |sum: i64, &(start, end)| sum.saturating_add(end.saturating_sub(start)))
    }

    /// What is in both sets.
    pub fn intersect(&self, other: &Self) -> Self {
        let mut parts = Vec::new();
        let (mut a, mut b) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        while let (Some(&&(a_start, a_end)), Some(&&(b_start, b_end))) = (a.peek(), b.peek()) {
            let (start, end) = (a_start.max(b_start), a_end.min(b_end));
            if start < end {
                parts.push((start, end));
            }
            if a_end <= b_end {
                a.next();
            } else {
                b.next();
            }
        }
        Self { parts }
    }

    /// What is in this set and not in `other`.
    pub fn subtract(&self, other: &Self) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut holes = other.parts.iter().peekable();
        for &(start, end) in &self.parts {
            let mut from = start;
            while let Some(&&(hole_start, hole_end)) = holes.peek() {
                if hole_start >= end {
                    break;
                }
                if hole_start > from {
                    parts.push((from, hole_start));
                }
                from = from.max(hole_end);
                if hole_end > end {
                    break;
                }
                holes.next();
            }
            if from < end {
                parts.push((from, end));
            }
        }
        Self { parts }
    }

    /// The part of the set inside `[start, end)`.
    pub fn clip(&self, start: i64, end: i64) -> Self {
        let first = self.parts.partition_point(|part| part.1 <= start);
        let parts = self.parts[first..]
            .iter()
            .take_while(|part| part.0 < end)
            .map(|part| (part.0.max(start), part.1.min(end)))
            .filter(|part| part.0 < part.1)
            .collect();
        Self { parts }
    }
}

fn merge_sorted(parts: &mut Vec<(i64, i64)>) {
    let mut kept = 0;
    for next in 0..parts.len() {
        let (start, end) = parts[next];
        if kept > 0 && start <= parts[kept - 1].1 {
            parts[kept - 1].1 = parts[kept - 1].1.max(end);
        } else {
            parts[kept] = (start, end);
            kept += 1;
        }
    }
    parts.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::IntervalSet;
    use proptest::prelude::*;

    const SPAN: usize = 64;

    fn instants(set: &IntervalSet) -> Vec<bool> {
        let mut inside = vec![false; SPAN];
        for &(start, end) in set.parts() {
            inside[start as usize..end as usize].fill(true);
        }
        inside
    }

    fn check_form(set: &IntervalSet) {
        assert!(set.parts().iter().all(|p| p.0 < p.1), "no empty part: {set:?}");
        assert!(set.parts().windows(2).all(|w| w[0].1 <= w[1].0), "sorted and disjoint: {set:?}");
        let count = instants(set).into_iter().filter(|&i| i).count();
        assert_eq!(set.length(), count as i64);
    }

    fn intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
        proptest::collection::vec((0i64..50, -3i64..14).prop_map(|(s, l)| (s, s + l)), 0..14)
    }

    #[test]
    fn touching_intervals_merge_and_empty_ones_vanish() {
        let set = IntervalSet::union_of([(5, 9), (1, 3), (3, 4), (7, 7), (6, 12)]);
        assert_eq!(set.parts(), [(1, 4), (5, 12)]);
        assert_eq!(set.clip(2, 6).parts(), [(2, 4), (5, 6)]);
        assert!(IntervalSet::union_of([(3, 3), (9, 2)]).is_empty());
    }

    proptest! {
        #[test]
        fn equals_sets_of_instants(a in intervals(), b in intervals(), from in 0i64..60, length in 0i64..20) {
            let mut expected = vec![false; SPAN];
            for &(start, end) in a.iter().filter(|i| i.0 < i.1) {
                expected[start as usize..end as usize].fill(true);
            }
            let (a, b) = (IntervalSet::union_of(a), IntervalSet::union_of(b));
            prop_assert_eq!(&instants(&a), &expected);
            let (both, rest, clipped) = (a.intersect(&b), a.subtract(&b), a.clip(from, from + length));
            [&a, &both, &rest, &clipped].into_iter().for_each(check_form);
            let (in_a, in_b) = (instants(&a), instants(&b));
            for t in 0..SPAN {
                prop_assert_eq!(instants(&both)[t], in_a[t] && in_b[t]);
                prop_assert_eq!(instants(&rest)[t], in_a[t] && !in_b[t]);
                let inside = (from..from + length).contains(&(t as i64));
                prop_assert_eq!(instants(&clipped)[t], in_a[t] && inside);
            }
        }
    }
}
