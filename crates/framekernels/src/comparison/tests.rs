use super::{Claim, Match, Owned, align, owners};
use crate::frame::NONE;
use proptest::prelude::*;

fn pairs(a: &[u32], b: &[u32]) -> Vec<(u32, u32)> {
    align(&[(a, b)]).into_iter().filter(|m| m.level == 0).map(|m| (m.a, m.b)).collect()
}

/// Length of a longest common subsequence, the slow way.
fn longest(a: &[u32], b: &[u32]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (at, y) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if x == y { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[test]
fn an_insertion_shifts_what_follows() {
    assert_eq!(pairs(&[1, 2, 1, 2, 3], &[1, 9, 2, 1, 2, 3]), [(0, 0), (1, 2), (2, 3), (3, 4), (4, 5)]);
    assert_eq!(pairs(&[], &[1]), []);
}

#[test]
fn weaker_tokens_fill_gaps_and_equal_gaps_go_by_place() {
    let strong: (&[u32], &[u32]) = (&[1, 50, 60, 2, 70], &[1, 51, 61, 2, 80]);
    let weak: (&[u32], &[u32]) = (&[1, 5, 6, 2, 7], &[1, 5, 9, 2, 8]);
    let found: Vec<_> = align(&[strong, weak]).into_iter().map(|m| (m.a, m.b, m.level)).collect();
    assert_eq!(found, [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 0), (4, 4, 2)]);
}

#[test]
fn sequences_without_anything_in_common_take_linear_time() {
    let a: Vec<u32> = (0..100_000).map(|i| i % 7).collect();
    let b: Vec<u32> = (0..100_000).map(|i| (i % 11 * (i % 13)) % 11 + 3).collect();
    assert!(!pairs(&a, &b).is_empty());
    let reversed: Vec<u32> = (0..100_000).rev().collect();
    let forward: Vec<u32> = (0..100_000).collect();
    assert!(!pairs(&forward, &reversed).is_empty());
}

#[test]
fn the_innermost_of_the_strongest_owns_each_moment() {
    let claim = |id, start, end, priority| Claim { start, end, priority, id };
    let claims = vec![claim(0, 0, 100, 2), claim(1, 10, 50, 2), claim(2, 20, 30, 0), claim(3, 120, 130, 1)];
    let owned = owners(claims, &[(0, 60), (60, 60), (90, 125)]);
    let row = |window, id, ns| Owned { window, id, ns };
    let mut expected = vec![row(0, 0, 20), row(0, 1, 30), row(0, 2, 10)];
    expected.extend([row(2, 0, 10), row(2, 3, 5), row(2, NONE, 20)]);
    let mut sorted = owned;
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
}

proptest! {
    #[test]
    fn matches_rise_and_agree(
        a in proptest::collection::vec(0u32..6, 0..60),
        b in proptest::collection::vec(0u32..6, 0..60),
    ) {
        let found = pairs(&a, &b);
        for pair in found.windows(2) {
            prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        }
        for &(x, y) in &found {
            prop_assert_eq!(a[x as usize], b[y as usize]);
        }
        prop_assert_eq!(found.len(), longest(&a, &b));
    }

    #[test]
    fn a_sequence_corresponds_to_itself(tokens in proptest::collection::vec(0u32..4, 0..80)) {
        let expected: Vec<Match> = (0..tokens.len() as u32).map(|at| Match { a: at, b: at, level: 0 }).collect();
        prop_assert_eq!(align(&[(&tokens, &tokens)]), expected);
    }

    #[test]
    fn every_moment_has_one_owner(
        claims in proptest::collection::vec((0i64..50, 0i64..20, 0u8..3), 0..20),
        lengths in proptest::collection::vec((0i64..5, 0i64..20), 0..4),
    ) {
        let claims: Vec<Claim> = (0..).zip(&claims)
            .map(|(id, &(start, length, priority))| Claim { start, end: start + length, priority, id }).collect();
        let mut at = 0;
        let windows: Vec<(i64, i64)> = lengths.iter().map(|&(gap, length)| {
            let start = at + gap;
            at = start + length;
            (start, at)
        }).collect();
        let owned = owners(claims.clone(), &windows);
        for (index, &(start, end)) in windows.iter().enumerate() {
            let mut expected = std::collections::BTreeMap::new();
            for t in start..end {
                let best = claims.iter().filter(|c| c.start <= t && t < c.end)
                    .min_by_key(|c| (c.priority, -c.start, c.end, -i64::from(c.id)));
                *expected.entry(best.map_or(NONE, |c| c.id)).or_insert(0) += 1;
            }
            let found: std::collections::BTreeMap<u32, i64> =
                owned.iter().filter(|o| o.window == index as u32).map(|o| (o.id, o.ns)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
