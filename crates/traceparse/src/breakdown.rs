//! Where the time of a step went.
//!
//! At each instant of a step the first of seven activities that runs anywhere counts; what is left
//! is `other`. Each part is what its activity covers of the time that the ones before left over, so
//! the parts are disjoint and sum to the step.

use crate::interval::IntervalSet;

/// Number of activities: kernel, memcpy, memset, communication, runtime, dataloader, cpu exec.
pub(crate) const ACTIVITIES: usize = 7;

/// Time of each activity in order of priority, then the rest, ns.
pub(crate) type Parts = [i64; ACTIVITIES + 1];

/// The parts of each of `steps`, which are `(start, end)` in order and do not overlap.
///
/// `activities` are the instants at which each activity runs, on any thread, stream or device.
pub(crate) fn step_parts(steps: &[(i64, i64)], activities: [IntervalSet; ACTIVITIES]) -> Vec<Parts> {
    let mut parts = vec![Parts::default(); steps.len()];
    let mut left = IntervalSet::union_of(steps.iter().copied());
    for (priority, running) in activities.into_iter().enumerate() {
        add_lengths(&left.intersect(&running), steps, priority, &mut parts);
        left = left.subtract(&running);
    }
    add_lengths(&left, steps, ACTIVITIES, &mut parts);
    parts
}

/// Adds what each step has of `set` to its part `column`.
fn add_lengths(set: &IntervalSet, steps: &[(i64, i64)], column: usize, parts: &mut [Parts]) {
    let mut first = 0;
    for &(start, end) in set.parts() {
        while steps.get(first).is_some_and(|step| step.1 <= start) {
            first += 1;
        }
        // An interval can span steps that touch.
        let overlapping = steps.iter().zip(parts.iter_mut()).skip(first).take_while(|(step, _)| step.0 < end);
        for (step, step_parts) in overlapping {
            let inside = end.min(step.1).saturating_sub(start.max(step.0));
            step_parts[column] = step_parts[column].saturating_add(inside.max(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ACTIVITIES, Parts, step_parts};
    use crate::interval::IntervalSet;
    use proptest::prelude::*;

    #[test]
    fn a_step_that_kernels_cover_leaves_nothing_to_the_rest() {
        let activities =
            [vec![(0, 100)], vec![(10, 20)], vec![], vec![], vec![(5, 10)], vec![], vec![(0, 35)]];
        let parts = step_parts(&[(0, 100)], activities.map(IntervalSet::union_of));
        assert_eq!(parts, [[100, 0, 0, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn one_interval_counts_in_every_step_it_touches() {
        let mut activities: [IntervalSet; ACTIVITIES] = Default::default();
        activities[0] = IntervalSet::union_of([(5, 25)]);
        let parts = step_parts(&[(0, 10), (10, 10), (10, 20), (22, 30)], activities);
        assert_eq!(parts.iter().map(|p| p[0]).collect::<Vec<_>>(), [5, 0, 10, 3]);
        assert_eq!(parts.iter().map(|p| p[ACTIVITIES]).collect::<Vec<_>>(), [5, 0, 0, 5]);
    }

    proptest! {
        #[test]
        fn equals_counting_instants(
            lengths in proptest::collection::vec((0i64..4, 0i64..12), 1..5),
            activities in proptest::collection::vec(
                proptest::collection::vec((0i64..60, 0i64..20).prop_map(|(s, l)| (s, s + l)), 0..5),
                ACTIVITIES,
            ),
        ) {
            let mut at = 0;
            let steps: Vec<(i64, i64)> = lengths.iter().map(|&(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, at)
            }).collect();
            let sets = std::array::from_fn(|i| IntervalSet::union_of(activities[i].iter().copied()));
            let parts = step_parts(&steps, sets);
            for (step, parts) in steps.iter().zip(&parts) {
                let mut expected = Parts::default();
                for t in step.0..step.1 {
                    let first = activities.iter().position(|a| a.iter().any(|i| i.0 <= t && t < i.1));
                    expected[first.unwrap_or(ACTIVITIES)] += 1;
                }
                prop_assert_eq!(parts, &expected);
                prop_assert_eq!(parts.iter().sum::<i64>(), step.1 - step.0);
            }
        }
    }
}
