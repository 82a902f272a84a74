//! Where numbers stand in a column of them.

use arrow_array::RecordBatch;

use crate::frame::{Frame, NONE, Result, positions, table};
use crate::interval::{seek, settle};

/// Places that are looked at one by one.
const NEAR: usize = 8;

/// Where each of `wanted` stands in `numbers`, in which none is there twice, or [`NONE`].
///
/// Linear where `numbers` ascend and `wanted` nearly do.
#[must_use]
pub fn places(numbers: &[u32], wanted: &[u32]) -> Vec<u32> {
    if numbers.is_sorted() {
        return ascending(numbers, wanted);
    }
    let mut order: Vec<u32> = (0..NONE).take(numbers.len()).collect();
    settle(&mut order, |&at| numbers[at as usize]);
    let sorted: Vec<u32> = order.iter().map(|&at| numbers[at as usize]).collect();
    let mut found = ascending(&sorted, wanted);
    for place in &mut found {
        *place = order.get(*place as usize).copied().unwrap_or(NONE);
    }
    found
}

fn ascending(numbers: &[u32], wanted: &[u32]) -> Vec<u32> {
    let (Some(&low), Some(&high)) = (numbers.first(), numbers.last()) else {
        return vec![NONE; wanted.len()];
    };
    let inside = |&number: &u32| (low..=high).contains(&number) && number != NONE;
    if (high - low) as usize + 1 == numbers.len() {
        return wanted.iter().map(|number| if inside(number) { number - low } else { NONE }).collect();
    }
    let mut last = 0;
    let place = |number: &u32| {
        if !inside(number) {
            return NONE;
        }
        // Most look for what they looked for last, or for one of the next.
        let near = numbers.get(last..).unwrap_or_default().iter().take(NEAR);
        if let Some(further) = near.take_while(|&other| other <= number).count().checked_sub(1)
            && numbers.get(last + further) == Some(number)
        {
            last += further;
            return last as u32;
        }
        last = seek(numbers, last, |other| other < number);
        if numbers.get(last) == Some(number) { last as u32 } else { NONE }
    };
    wanted.iter().map(place).collect()
}

/// Where each `row` of `wanted` stands in `rows`: `at`, null for null and for one that is not there.
pub fn find_rows(rows: &Frame, wanted: &Frame) -> Result<RecordBatch> {
    table([("at", positions(places(&rows.u32_array("row")?, &wanted.u32_array("row")?)))])
}

#[cfg(test)]
mod tests {
    use super::places;
    use crate::frame::NONE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_looking_through_all(
            numbers in proptest::collection::hash_set(3_u32..40, 0..30),
            wanted in proptest::collection::vec(0_u32..44, 0..30),
            is_sorted: bool,
        ) {
            let mut numbers: Vec<u32> = numbers.into_iter().collect();
            if is_sorted {
                numbers.sort_unstable();
            }
            let find = |w: &u32| numbers.iter().position(|n| n == w).map_or(NONE, |at| at as u32);
            let expected: Vec<u32> = wanted.iter().map(find).collect();
            prop_assert_eq!(places(&numbers, &wanted), expected);
        }

        #[test]
        fn knows_places_in_what_has_no_holes(first in 0_u32..9, wanted in proptest::collection::vec(0_u32..30, 9)) {
            let numbers: Vec<u32> = (first..first + 9).collect();
            let find = |w: &u32| numbers.iter().position(|n| n == w).map_or(NONE, |at| at as u32);
            let expected: Vec<u32> = wanted.iter().map(find).collect();
            prop_assert_eq!(places(&numbers, &wanted), expected);
        }
    }
}
