//! The first of several rows that belong together.

/// Of the rows that agree in group and id the one that starts first, in the order of the rows; of those
/// that start together, the first row. Nothing where these are all rows; without `groups` all agree in it.
///
/// Linear where the rows come in order of their ids, or in a few runs that do, and few share an id.
#[must_use]
pub(super) fn first_of_each(groups: Option<&[u32]>, ids: &[u32], starts: &[i64]) -> Option<Vec<u32>> {
    let count = ids.len().min(starts.len()).min(u32::MAX as usize);
    let count = groups.map_or(count, |groups| groups.len().min(count));
    let (ids, starts) = (&ids[..count], &starts[..count]);
    if ids.is_sorted_by(|earlier, later| earlier < later) {
        return None;
    }
    let group = |at: u32| groups.map_or(0, |groups| groups[at as usize]);
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|&at| ids[at as usize]);
    for same in order.chunk_by_mut(|&a, &b| ids[a as usize] == ids[b as usize]) {
        same.sort_by_key(|&at| (group(at), starts[at as usize]));
    }
    let key = |at: u32| (ids[at as usize], group(at));
    order.dedup_by(|later, first| key(*later) == key(*first));
    order.sort();
    (order.len() < count).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::first_of_each;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_looking_at_all(rows in proptest::collection::vec((0_u32..3, 0_u32..5, 0_i64..4), 0..24)) {
            let column = |value: fn(&(u32, u32, i64)) -> u32| rows.iter().map(value).collect::<Vec<_>>();
            let starts: Vec<i64> = rows.iter().map(|r| r.2).collect();
            let found = first_of_each(Some(&column(|r| r.0)), &column(|r| r.1), &starts);
            let is_first = |i: &usize| {
                let same = |j: &usize| rows[*j].0 == rows[*i].0 && rows[*j].1 == rows[*i].1;
                (0..rows.len()).filter(same).all(|j| (rows[*i].2, *i) <= (rows[j].2, j))
            };
            let expected: Vec<u32> = (0..rows.len()).filter(is_first).map(|i| i as u32).collect();
            prop_assert_eq!(found.is_none(), expected.len() == rows.len());
            prop_assert_eq!(found.unwrap_or_else(|| expected.clone()), expected);
        }
    }
}
