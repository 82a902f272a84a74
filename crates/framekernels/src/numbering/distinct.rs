//! The first of the rows that share a number.

/// The first row of each number, in order, where the numbers come to no more than the memory for the largest
/// of them allows; rows without one are left out.
#[must_use]
pub fn distinct(numbers: impl Iterator<Item = Option<u32>>) -> Vec<u32> {
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    let mut last = None;
    for (number, row) in numbers.zip(0_u32..) {
        if number == last {
            continue;
        }
        last = number;
        let Some(number) = number else { continue };
        let number = number as usize;
        if number >= seen.len() {
            seen.resize(number + 1, false);
        }
        if let Some(known) = seen.get_mut(number)
            && !*known
        {
            *known = true;
            found.push(row);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::distinct;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_looking_at_all_before(numbers in proptest::collection::vec(proptest::option::of(0_u32..9), 0..40)) {
            let is_first = |&row: &usize| numbers[row].is_some() && !numbers[..row].contains(&numbers[row]);
            let expected: Vec<u32> = (0..numbers.len()).filter(is_first).map(|row| row as u32).collect();
            prop_assert_eq!(distinct(numbers.iter().copied()), expected);
        }
    }
}
