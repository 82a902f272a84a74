//! Sorting of what is nearly in order.

/// Runs per item from which on items count as in no order at all.
const DISORDER: usize = 8;

/// Sorts items by their keys and keeps those of equal keys in order.
///
/// Items that come in runs, of which each begins near the end of the one before, take one pass and what
/// moving them takes: recorders write streams one after the other, some milliseconds at a time.
pub fn settle<T: Copy, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    let mut ends: Vec<usize> = Vec::new();
    let most = items.len() / DISORDER;
    for (at, pair) in (1..).zip(items.windows(2)) {
        if matches!(pair, [earlier, later] if key(later) < key(earlier)) {
            ends.push(at);
            if ends.len() > most {
                // Keys may lie far from items: each is looked up once.
                items.sort_by_cached_key(key);
                return;
            }
        }
    }
    ends.push(items.len());
    let mut moved = Vec::new();
    while ends.len() > 1 {
        let (mut start, mut merged) = (0, Vec::with_capacity(ends.len().div_ceil(2)));
        for pair in ends.chunks(2) {
            let &[.., end] = pair else { continue };
            if let (&[middle, _], Some(both)) = (pair, items.get_mut(start..end)) {
                merge(both, middle - start, &key, &mut moved);
            }
            merged.push(end);
            start = end;
        }
        ends = merged;
    }
}

/// Merges two runs, of which the second begins at `middle`; `moved` is room for what has to move.
fn merge<T: Copy, K: Ord>(items: &mut [T], middle: usize, key: impl Fn(&T) -> K, moved: &mut Vec<T>) {
    let (left, right) = items.split_at(middle);
    let (Some(last), Some(first)) = (left.last().map(&key), right.first().map(&key)) else { return };
    // What lies before all of the other run, or behind it, stays where it is.
    let from = left.partition_point(|item| key(item) <= first);
    let until = middle + right.partition_point(|item| key(item) < last);
    moved.clear();
    moved.extend_from_slice(&left[from..]);
    let mut waiting = moved.iter().copied().peekable();
    let mut next = middle;
    for place in from..until {
        let later = items[..until].get(next).copied();
        let item = match (waiting.peek(), later) {
            (Some(earlier), Some(later)) if key(&later) < key(earlier) => {
                next += 1;
                later
            }
            (Some(_), _) => match waiting.next() {
                Some(earlier) => earlier,
                None => return,
            },
            // The rest of the second run is where it belongs.
            (None, _) => return,
        };
        items[place] = item;
    }
}

#[cfg(test)]
mod tests {
    use super::settle;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_stable_sort(runs in proptest::collection::vec((0_i64..90, 1_usize..40), 0..12)) {
            let keys = runs.iter().flat_map(|&(start, length)| (0..length as i64).map(move |at| start + at / 2));
            let mut items: Vec<(i64, usize)> = keys.zip(0..).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            settle(&mut items, |item| item.0);
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn sorts_what_is_in_no_order(keys in proptest::collection::vec(0_i64..20, 0..60)) {
            let mut items: Vec<(i64, usize)> = keys.into_iter().zip(0..).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            settle(&mut items, |item| item.0);
            prop_assert_eq!(items, expected);
        }
    }
}
