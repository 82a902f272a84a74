//! Searches of a sorted list that begin where the last one ended.

/// How many places are looked at one by one.
const NEAR: usize = 8;

/// The place of the first of `sorted` that does not stand `before`; `from` is where it is looked for first.
///
/// As [`slice::partition_point`], but a place near `from` is found in a few steps.
pub fn seek<T>(sorted: &[T], from: usize, before: impl Fn(&T) -> bool) -> usize {
    let (passed, ahead) = sorted.split_at(from.min(sorted.len()));
    let (is_ahead, mut reach) = (passed.last().is_none_or(&before), 1);
    if is_ahead {
        let near = ahead.get(..NEAR).unwrap_or(ahead);
        if let Some(steps) = near.iter().position(|value| !before(value)) {
            return passed.len() + steps;
        }
        reach = near.len().max(1);
        while ahead.get(reach - 1).is_some_and(&before) {
            reach *= 2;
        }
        return passed.len() + ahead.get(..reach).unwrap_or(ahead).partition_point(before);
    }
    while reach < passed.len() && passed.get(passed.len() - reach).is_some_and(|value| !before(value)) {
        reach *= 2;
    }
    let first = passed.len().saturating_sub(reach);
    first + passed.get(first..).unwrap_or_default().partition_point(before)
}

#[cfg(test)]
mod tests {
    use super::seek;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_partition_point(
            mut values in proptest::collection::vec(0i64..40, 0..60),
            from in 0usize..70,
            wanted in -1i64..42,
        ) {
            values.sort_unstable();
            let found = seek(&values, from, |&value| value < wanted);
            prop_assert_eq!(found, values.partition_point(|&value| value < wanted));
        }
    }
}
