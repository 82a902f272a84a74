//! The rows that weigh most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The `count` rows that weigh most, the heaviest first; of those that weigh the same the least first.
#[must_use]
pub fn heaviest(weighed: impl Iterator<Item = (u32, i64)>, count: usize) -> Vec<u32> {
    // The lightest of them is on top.
    let mut found: BinaryHeap<Reverse<(i64, Reverse<u32>)>> = BinaryHeap::new();
    for (row, weight) in weighed {
        let own = Reverse((weight, Reverse(row)));
        if found.len() < count {
            found.push(own);
        } else if let Some(mut lightest) = found.peek_mut()
            && own < *lightest
        {
            *lightest = own;
        }
    }
    found.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(row)))| row).collect()
}

#[cfg(test)]
mod tests {
    use super::heaviest;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_sorting_all(weights in proptest::collection::vec(-3_i64..9, 0..30), count in 0_usize..12) {
            let rows = || (0_u32..).zip(weights.iter().copied());
            let mut expected: Vec<(u32, i64)> = rows().collect();
            expected.sort_by_key(|&(row, weight)| (std::cmp::Reverse(weight), row));
            expected.truncate(count);
            let expected: Vec<u32> = expected.into_iter().map(|row| row.0).collect();
            prop_assert_eq!(heaviest(rows(), count), expected);
        }
    }
}
