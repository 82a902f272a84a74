//! Grouped intervals against counting instant by instant.

use super::{Ends, GroupedIntervals, order_by_start};
use proptest::prelude::*;

/// Group, start, length and level.
type Row = (u32, i64, i64, u8);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let group = prop_oneof![0_u32..3, Just(4_000_000_000)];
    proptest::collection::vec((group, -10_i64..40, -3_i64..12, 0_u8..3), 0..20)
}

struct Columns {
    groups: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    levels: Vec<u8>,
}

impl Columns {
    fn new(rows: &[Row]) -> Self {
        Self {
            groups: rows.iter().map(|r| r.0).collect(),
            starts: rows.iter().map(|r| r.1).collect(),
            ends: rows.iter().map(|r| r.1 + r.2).collect(),
            levels: rows.iter().map(|r| r.3).collect(),
        }
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(Some(&self.groups), &self.starts, Ends::Times(&self.ends))
    }

    fn gaps(&self) -> Vec<(u32, i64)> {
        let mut gaps = Vec::new();
        self.intervals().each_gap(|at, before| gaps.push((at, before)));
        gaps
    }

    fn groups(&self) -> Vec<u32> {
        let mut groups = self.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Whether an interval that `keep` takes runs in a group at an instant.
    fn runs(&self, group: u32, t: i64, keep: impl Fn(usize) -> bool) -> bool {
        (0..self.groups.len())
            .any(|i| self.groups[i] == group && keep(i) && self.starts[i] <= t && t < self.ends[i])
    }
}

const INSTANTS: std::ops::Range<i64> = -20..60;

proptest! {
    #[test]
    fn union_and_covered_equal_sets_of_instants(rows in rows()) {
        let columns = Columns::new(&rows);
        let (parts, covered) = (columns.intervals().union(), columns.intervals().covered(|at| columns.levels[at as usize]));
        for group in columns.groups() {
            let of = |at: u32| columns.groups[at as usize] == group;
            let own: Vec<_> = parts.iter().filter(|p| of(p.0)).collect();
            prop_assert!(own.iter().all(|p| p.1 < p.2));
            prop_assert!(own.windows(2).all(|w| w[0].2 < w[1].1));
            for t in INSTANTS {
                let inside = own.iter().any(|p| p.1 <= t && t < p.2);
                prop_assert_eq!(inside, columns.runs(group, t, |_| true));
            }
            let highest = rows.iter().filter(|r| r.0 == group).map(|r| r.3).max().unwrap();
            let found: Vec<_> = covered.iter().filter(|c| of(c.0)).map(|c| (c.1, c.2)).collect();
            let expected: Vec<_> = (0..=highest).map(|level| {
                let ns = INSTANTS.filter(|&t| columns.runs(group, t, |i| columns.levels[i] <= level)).count();
                (level, ns as i64)
            }).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn gaps_are_what_nothing_covers(rows in rows()) {
        let columns = Columns::new(&rows);
        let gaps = columns.gaps();
        for group in columns.groups() {
            let own: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].0 == group).collect();
            let mut expected = Vec::new();
            for &i in &own {
                let earlier = |j: &&usize| (rows[**j].1, **j) < (rows[i].1, i);
                let reached = own.iter().filter(earlier).map(|&j| columns.ends[j].max(columns.starts[j])).max();
                if let Some(before) = reached.filter(|&before| before < rows[i].1) {
                    expected.push((i as u32, before));
                }
            }
            expected.sort_by_key(|&(at, _)| (rows[at as usize].1, at));
            let found: Vec<_> = gaps.iter().copied().filter(|g| columns.groups[g.0 as usize] == group).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn hidden_is_what_both_have(rows in rows(), cover in rows()) {
        let (columns, other) = (Columns::new(&rows), Columns::new(&cover));
        let hidden = columns.intervals().hidden_by(&other.intervals());
        for (i, &(group, start, length, _)) in rows.iter().enumerate() {
            let expected = (start..start + length).filter(|&t| other.runs(group, t, |_| true)).count();
            prop_assert_eq!(hidden[i], expected as i64);
        }
    }

    #[test]
    fn neighbours_with_one_label_share_a_run(rows in rows()) {
        let columns = Columns::new(&rows);
        // Those of level 0 have no label.
        let label = |at: u32| Some(columns.levels[at as usize]).filter(|&level| level > 0);
        let runs = columns.intervals().runs(label);
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.sort_by_key(|&i| (columns.groups[i as usize], columns.starts[i as usize], i));
        let same = |&a: &u32, &b: &u32| {
            columns.groups[a as usize] == columns.groups[b as usize] && label(a).is_some() && label(a) == label(b)
        };
        let expected = order.chunk_by(same).filter(|run| run.len() > 1);
        let expected: Vec<_> = (0..).zip(expected).flat_map(|(n, run)| run.iter().map(move |&at| (at, n))).collect();
        prop_assert_eq!(runs, expected);
    }

    #[test]
    fn filled_equals_summing_at_each_instant(rows in rows()) {
        let forward: Vec<Row> = rows.into_iter().map(|(g, s, length, level)| (g, s, length.abs(), level)).collect();
        let columns = Columns::new(&forward);
        let shares: Vec<f64> = forward.iter().map(|r| f64::from(r.3) * 0.375).collect();
        let found = columns.intervals().filled(|at| shares[at as usize]);
        let counts = |group: &u32| forward.iter().any(|r| r.0 == *group && r.2 > 0 && r.3 > 0);
        prop_assert_eq!(found.len(), columns.groups().iter().filter(|group| counts(group)).count());
        for (at, filled) in found {
            let group = columns.groups[at as usize];
            let sum_at = |t: i64| -> f64 {
                let open = (0..forward.len()).filter(|&i| columns.groups[i] == group
                    && columns.starts[i] <= t && t < columns.ends[i]);
                open.map(|i| shares[i]).sum()
            };
            prop_assert_eq!(filled, INSTANTS.map(|t| sum_at(t).min(1.0)).sum::<f64>());
        }
    }

    #[test]
    fn longest_shared_equals_looking_at_all(rows in rows(), others in rows()) {
        let (columns, others) = (Columns::new(&rows), Columns::new(&others));
        let found = columns.intervals().longest_shared(&others.intervals());
        for (at, found) in found.into_iter().enumerate() {
            let shared = |i: usize| {
                others.ends[i].min(columns.ends[at]) - others.starts[i].max(columns.starts[at])
            };
            let same = (0..others.groups.len()).filter(|&i| others.groups[i] == columns.groups[at]);
            let best = same.filter(|&i| shared(i) > 0).min_by_key(|&i| (-shared(i), i));
            prop_assert_eq!(found, best.map(|i| (i as u32, shared(i))));
        }
    }

    #[test]
    fn an_order_lengths_and_one_group_may_be_known(rows in rows()) {
        let columns = Columns::new(&rows);
        let order = order_by_start(Some(&columns.groups), &columns.starts);
        let lengths: Vec<i64> = rows.iter().map(|row| row.2).collect();
        let (starts, ends) = (&columns.starts, Ends::Lengths(&lengths));
        let known = GroupedIntervals::ordered(Some(&columns.groups), starts, ends, &order);
        prop_assert_eq!(known.union(), columns.intervals().union());
        let one = Columns { groups: vec![0; rows.len()], ..Columns::new(&rows) };
        prop_assert_eq!(GroupedIntervals::new(None, starts, ends).union(), one.intervals().union());
    }

    #[test]
    fn what_lies_outside_of_a_window_does_not_count(rows in rows(), first in -10_i64..30, length in 0_i64..30) {
        let columns = Columns::new(&rows);
        let window = (first, first + length);
        let clipped = Columns {
            starts: columns.starts.iter().map(|&start| start.max(window.0)).collect(),
            ends: columns.ends.iter().map(|&end| end.min(window.1)).collect(),
            ..Columns::new(&rows)
        };
        let spans = |found: Vec<(u32, i64, i64)>| -> Vec<_> {
            found.into_iter().map(|(at, start, end)| (columns.groups[at as usize], start, end)).collect()
        };
        let found = columns.intervals().within(window).union();
        prop_assert_eq!(spans(found), spans(clipped.intervals().union()));
    }
}
