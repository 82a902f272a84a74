//! Sets of time as sorted, disjoint intervals: the few operations that the step breakdown needs.

/// From the first bound up to, not including, the second.
pub(crate) type Interval = (i64, i64);

/// Parts of `intervals` inside `window`, merged where they touch or overlap.
pub(crate) fn union_within(intervals: &[Interval], window: Interval) -> Vec<Interval> {
    let clipped = intervals.iter().map(|&(start, end)| (start.max(window.0), end.min(window.1)));
    let mut clipped: Vec<Interval> = clipped.filter(|(start, end)| start < end).collect();
    clipped.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(clipped.len());
    for (start, end) in clipped {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Time in `free` that no interval of `taken` covers; both sorted and disjoint.
pub(crate) fn subtract(free: &[Interval], taken: &[Interval]) -> Vec<Interval> {
    let mut rest = Vec::with_capacity(free.len() + taken.len());
    let mut next = 0;
    for &(mut start, end) in free {
        while next < taken.len() && taken[next].1 <= start {
            next += 1;
        }
        let mut index = next;
        while index < taken.len() && taken[index].0 < end {
            if start < taken[index].0 {
                rest.push((start, taken[index].0));
            }
            start = taken[index].1;
            index += 1;
        }
        if start < end {
            rest.push((start, end));
        }
    }
    rest
}

/// Sum of the lengths.
pub(crate) fn length(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

#[cfg(test)]
mod tests {
    use super::{length, subtract, union_within};

    #[test]
    fn a_union_merges_and_clips() {
        let merged = union_within(&[(5, 9), (0, 3), (3, 4), (8, 20), (30, 40)], (1, 12));
        assert_eq!(merged, [(1, 4), (5, 12)]);
        assert_eq!(length(&merged), 10);
    }

    #[test]
    fn what_is_subtracted_leaves_the_rest() {
        let free = [(0, 10), (20, 30), (40, 50)];
        assert_eq!(subtract(&free, &[(2, 4), (8, 25), (45, 60)]), [(0, 2), (4, 8), (25, 30), (40, 45)]);
        assert_eq!(subtract(&free, &[]), free);
        assert_eq!(subtract(&free, &[(0, 50)]), []);
    }
}
