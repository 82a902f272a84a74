//! Trees of calls against loops that are plainly right.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    CallTree, Circular, Forest, NONE, Nested, Paths, Points, Slices, folded, innermost, marked_around, nest,
    own_times, path_texts,
};
use crate::frame::{column, frame, positions};

/// Groups, starts, lengths and rows.
type Columns = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<u32>);

/// Parents of calls in any order, names and values.
fn calls() -> impl Strategy<Value = (Vec<u32>, Vec<u32>, Vec<i64>)> {
    let shuffled = |size: usize| Just((0..size as u32).collect::<Vec<_>>()).prop_shuffle();
    let of = move |size: usize| {
        let parents = vec(prop_oneof![1 => Just(u32::MAX), 4 => 0..size.max(1) as u32], size);
        (parents, shuffled(size), any::<bool>(), vec(0..2_u32, size), vec(-5..5_i64, size))
    };
    (0..24_usize).prop_flat_map(of).prop_map(|(wanted, order, in_order, names, values)| {
        let place = |at: usize| if in_order { at } else { order[at] as usize };
        let mut parents = vec![NONE; wanted.len()];
        for (at, &parent) in wanted.iter().enumerate() {
            if (parent as usize) < at {
                parents[place(at)] = place(parent as usize) as u32;
            }
        }
        (parents, names, values)
    })
}

fn kept_of(forest: &Forest) -> Vec<u32> {
    (0..forest.len() as u32).map(|at| forest.kept(at)).collect()
}

/// The call and those around it, from the inside out.
fn way(parents: &[u32], at: u32) -> Vec<u32> {
    std::iter::successors(Some(at), |&at| Some(parents[at as usize]).filter(|&p| p != NONE)).collect()
}

#[test]
fn nothing_marked_is_around_calls_in_each_other() {
    // 1, 2 and 3 lie in each other, 4 in them, and 5 in the marked one.
    let parents = [1, 2, 3, 1, 2, 4];
    assert_eq!(marked_around(&[true, false, false, false, true, true], |at| parents[at]), [NONE, NONE, 4]);
}

proptest! {
    #[test]
    fn sums_are_those_of_all_pairs((parents, _, values) in calls()) {
        let forest = Forest::new(parents.clone()).unwrap();
        let sum = |is_in: &dyn Fn(usize, u32) -> bool, at: u32| -> i64 {
            (0..values.len()).filter(|&inner| is_in(inner, at)).map(|inner| values[inner]).sum()
        };
        let calls = 0..values.len() as u32;
        let is_child = |inner: usize, at: u32| parents[inner] == at;
        let is_inside = |inner: usize, at: u32| way(&parents, inner as u32).contains(&at);
        let expected: Vec<_> = calls.clone().map(|at| sum(&is_child, at)).collect();
        let own: Vec<i64> = values.iter().zip(&expected).map(|(value, inner)| value - inner).collect();
        let mut found = values.clone();
        forest.subtract_children(&mut found);
        prop_assert_eq!(&found, &own);
        let is_alike = |at: u32| way(&parents, at).get(1).is_some_and(|&p| values[p as usize] == values[at as usize]);
        let expected: Vec<_> = calls.clone().map(|at| i64::from(!is_alike(at))).collect();
        let mut found = values.clone();
        forest.changes(&mut found);
        prop_assert_eq!(&found, &expected);
        let expected: Vec<_> = calls.map(|at| sum(&is_inside, at)).collect();
        let mut found = values.clone();
        forest.with_inner(&mut found);
        prop_assert_eq!(&found, &expected);
    }

    #[test]
    fn calls_are_merged_into_the_first_that_is_retained((parents, marks, _) in calls()) {
        let mut forest = Forest::new(parents.clone()).unwrap();
        let mut places = Vec::new();
        let marked = forest.number(|at| marks[at] == 1, &mut places);
        forest.keep_marked(|at| marks[at] == 1);
        let first = |at| way(&parents, at).into_iter().find(|&on| marks[on as usize] == 1).unwrap_or(NONE);
        let expected: Vec<_> = (0..parents.len() as u32).map(first).collect();
        let nearest: Vec<_> = places.iter().map(|&place| *marked.get(place as usize).unwrap_or(&NONE)).collect();
        prop_assert!(marked.is_sorted() && marked.iter().all(|&at| marks[at as usize] == 1));
        prop_assert_eq!(&nearest, &expected);
        prop_assert_eq!(kept_of(&forest), expected);
        let around = |at: usize| if marks[at] == 1 && parents[at] != NONE { first(parents[at]) } else { NONE };
        let expected: Vec<_> = (0..parents.len()).map(around).collect();
        prop_assert_eq!(forest.parents(), expected);
    }

    #[test]
    fn repeats_are_merged_as_if_one_by_one((parents, names, _) in calls()) {
        let mut forest = Forest::new(parents.clone()).unwrap();
        forest.merge_repeats(&names);
        let (mut parents, mut kept) = (parents.clone(), (0..parents.len() as u32).collect::<Vec<_>>());
        let mut gone = vec![false; parents.len()];
        while let Some(at) = (0..parents.len()).find(|&at| {
            let (parent, alike) = (parents[at], |other: &&u32| **other == parents[at]);
            !gone[at] && parent != NONE && parents.iter().filter(alike).count() == 1
                && names[at] == names[parent as usize]
        }) {
            let into = std::mem::replace(&mut parents[at], NONE);
            gone[at] = true;
            parents.iter_mut().chain(&mut kept).filter(|p| **p == at as u32).for_each(|p| *p = into);
        }
        prop_assert_eq!(kept_of(&forest), kept);
        prop_assert_eq!(forest.parents(), &parents);
        prop_assert!((0..gone.len()).all(|at| forest.is_merged(at) == gone[at]));
    }

    #[test]
    fn columns_are_those_of_one_call_after_the_other(
        (parents, names, values) in calls(),
        merges in any::<bool>(),
        linked in vec((prop_oneof![1 => Just(NONE), 9 => 0..24_u32], -5..5_i64), 0..12),
        records in vec((0..9_i64, -5..5_i64), 0..6),
    ) {
        let size = values.len();
        let (mut forest, rows) = (Forest::new(parents.clone()).unwrap(), 0..size as u32);
        let mut tree = CallTree::new(&frame([
            ("row", positions(rows.clone().collect())), ("parent_row", positions(parents)),
        ])).unwrap();
        if merges {
            forest.merge_repeats(&names);
            tree.merge_repeats(&frame([("name", positions(names.clone()))])).unwrap();
        }
        let classes = frame([("class", positions(names.clone()))]);
        tree.put(&frame([("given", column(values.clone())), ("added", column(values.clone()))])).unwrap();
        tree.put_by_class(&classes, &frame([("of_class", column([7_i64, -2]))])).unwrap();
        let lasts = [("start_ns", column(values.clone())), ("dur_ns", column(vec![3_i64; size]))];
        let (times, bytes): (Vec<i64>, Vec<i64>) = records.iter().copied().unzip();
        let types: ArrayRef = Arc::new(Int32Array::from(vec![1; times.len()]));
        let memory = [("start_ns", column(times)), ("bytes", column(bytes)), ("device_type", types)];
        tree.put_records(&frame(lasts), &frame(memory), &[1], "within").unwrap();
        let (calls, numbers): (Vec<u32>, Vec<i64>) = linked.iter().copied().unzip();
        let kinds: Vec<u32> = (0..linked.len() as u32).map(|at| at % 2).collect();
        tree.add(&frame([("call", positions(calls.clone())), ("added", column(numbers.clone()))])).unwrap();
        let keys = [("added", column([4_i64, -1])), ("again", column([false, true]))];
        let (counts, sums) = (["added".to_owned()], ["again".to_owned()]);
        let links = frame([("call", positions(calls)), ("value", column(numbers))]);
        let of_links = frame([("class", positions(kinds.clone()))]);
        tree.add_by_class(&links, &of_links, &frame(keys), &counts, &sums).unwrap();
        let kept = |of: &dyn Fn(usize) -> i64| -> Vec<i64> {
            (0..size).map(|at| if forest.is_merged(at) { 0 } else { of(at) }).collect()
        };
        let inside = |start: i64| {
            let inside = records.iter().filter(|(time, _)| (start..=start + 3).contains(time));
            inside.map(|(_, bytes)| bytes).sum::<i64>()
        };
        let given = kept(&|at| values[at]);
        let within = kept(&|at| inside(values[at]));
        let of_class = kept(&|at| [7, -2][names[at] as usize]);
        let (mut added, mut again) = (given.clone(), vec![0; size]);
        for (&(call, value), &kind) in linked.iter().zip(&kinds).filter(|(link, _)| (link.0 as usize) < size) {
            let call = forest.kept(call) as usize;
            added[call] += value + [4, -1][kind as usize];
            again[call] += [0, value][kind as usize];
        }
        let mut expected = vec![
            ("given", given), ("within", within), ("of_class", of_class), ("added", added), ("again", again),
        ];
        for (at, (from, inner, own)) in [("given", "a", "b"), ("within", "c", "d"), ("added", "e", "f")]
            .into_iter().enumerate()
        {
            let mut sums = vec![expected[[0, 1, 3][at]].1.clone(); 2];
            forest.with_inner(&mut sums[0]);
            forest.subtract_children(&mut sums[1]);
            tree.with_inner(from, inner).unwrap();
            tree.subtract_children(from, own).unwrap();
            expected.extend([inner, own].into_iter().zip(sums));
        }
        let mut marked = expected[2].1.clone();
        forest.changes(&mut marked);
        tree.mark_changes("of_class", "marked").unwrap();
        expected.push(("marked", marked));
        let numbers = |table: &RecordBatch, name: &str| -> Vec<i64> {
            table.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
        };
        for (name, expected) in expected {
            let asked = [name.to_owned()];
            let places: Vec<usize> = (0..size).filter(|&at| !forest.is_merged(at)).collect();
            let all: Vec<i64> = places.iter().map(|&at| expected[at]).collect();
            prop_assert_eq!(numbers(&tree.columns(&asked).unwrap(), name), all.clone());
            let found = numbers(&tree.columns_where(name, &asked).unwrap(), name);
            prop_assert_eq!(found, all.into_iter().filter(|&value| value != 0).collect::<Vec<_>>());
            let sum = |class: u32| (0..size).filter(|&of| names[of] == class).map(|of| expected[of]).sum::<i64>();
            prop_assert_eq!(numbers(&tree.class_sums(&classes, 2, &asked).unwrap(), name), [sum(0), sum(1)]);
        }
    }

    #[test]
    fn slices_nest_as_on_a_stack(
        slices in vec((0..3_i64, 0..12_i64, 0..12_i64, any::<u32>()), 0..40),
        left_out in 0..5_u32,
    ) {
        let column = |of: fn(&(i64, i64, i64, u32)) -> i64| slices.iter().map(of).collect::<Vec<_>>();
        let (groups, starts, ends) = (column(|s| s.0), column(|s| s.1), column(|s| s.1 + s.2));
        let lengths = column(|s| s.2);
        let counts = |at: u32| left_out == 0 || at % left_out != 1;
        let rows: Vec<u32> = slices.iter().map(|s| s.3).collect();
        let mut order: Vec<usize> = (0..slices.len()).collect();
        order.sort_by_key(|&at| (starts[at], -ends[at], rows[at]));
        let mut expected = vec![NONE; slices.len()];
        for group in 0..3 {
            let mut stack: Vec<usize> = Vec::new();
            for &at in order.iter().filter(|&&at| groups[at] == group && counts(at as u32)) {
                stack.truncate(
                    stack.iter().rposition(|&o| starts[at] < ends[o] && ends[at] <= ends[o]).map_or(0, |o| o + 1),
                );
                expected[at] = stack.last().map_or(NONE, |&outer| outer as u32);
                stack.push(at);
            }
        }
        let found = nest(Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows }, counts);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn each_moment_counts_for_what_started_last(
        slices in vec((0..3_i64, 0..12_i64, 0..12_i64, any::<bool>()), 0..20),
    ) {
        let part = |is_call: bool| {
            let of = slices.iter().filter(|s| s.3 == is_call);
            let (groups, times): (Vec<i64>, Vec<(i64, i64)>) = of.map(|s| (s.0, (s.1, s.2))).unzip();
            let (starts, lengths): (Vec<i64>, Vec<i64>) = times.into_iter().unzip();
            let rows: Vec<u32> = (0..groups.len() as u32).collect();
            (groups, starts, lengths, rows)
        };
        let (calls, others) = (part(true), part(false));
        let mut expected = vec![0; calls.0.len()];
        for (group, moment) in (0..3_i64).flat_map(|group| (0..24_i64).map(move |moment| (group, moment))) {
            let running = |of: &Columns, at: usize| {
                of.0[at] == group && of.1[at] <= moment && moment < of.1[at] + of.2[at]
            };
            let key = |of: &Columns, at: usize| (of.1[at], -(of.1[at] + of.2[at]));
            let called = (0..calls.0.len()).filter(|&at| running(&calls, at)).map(|at| (key(&calls, at), 0, at));
            let beside = (0..others.0.len()).filter(|&at| running(&others, at)).map(|at| (key(&others, at), 1, at));
            if let Some((_, 0, at)) = called.chain(beside).max() {
                expected[at] += 1;
            }
        }
        let [calls, others] = [&calls, &others]
            .map(|of| Slices { groups: &of.0, starts: &of.1, lengths: &of.2, rows: &of.3 });
        prop_assert_eq!(own_times(calls, others), expected);
    }

    #[test]
    fn the_innermost_is_the_first_on_the_way_from_the_last_that_started(
        slices in vec((0..2_u32, 0..12_i64, 0..8_i64, any::<bool>()), 1..20),
        points in vec((0..3_u32, -1..14_i64, 0..4_i64), 1..20),
    ) {
        let column = |of: fn(&(u32, i64, i64, bool)) -> i64| slices.iter().map(of).collect::<Vec<_>>();
        let (starts, ends) = (column(|s| s.1), column(|s| s.1 + s.2));
        let (groups, tracks) = (column(|s| s.0.into()), slices.iter().map(|s| s.0).collect::<Vec<_>>());
        let lengths = column(|s| s.2);
        let rows: Vec<u32> = (0..slices.len() as u32).map(|at| 7 + 2 * at).collect();
        let around = nest(Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows }, |_| true);
        let parents: Vec<u32> = around.iter().map(|&at| rows.get(at as usize).copied().unwrap_or(NONE)).collect();
        let (asked, from): (Vec<u32>, Vec<i64>) = points.iter().map(|p| (p.0, p.1)).unzip();
        let until: Vec<i64> = points.iter().map(|p| p.1 + p.2).collect();
        let expected: Vec<u32> = points.iter().map(|&(track, start, length)| {
            let before = (0..slices.len()).filter(|&at| tracks[at] == track && starts[at] <= start);
            let last = before.max_by_key(|&at| (starts[at], -ends[at], rows[at]));
            let on_way = last.map_or(Vec::new(), |at| way(&around, at as u32));
            let runs = |&at: &u32| {
                let end = ends[at as usize];
                end > start && end >= start + length && slices[at as usize].3
            };
            on_way.into_iter().find(runs).unwrap_or(NONE)
        }).collect();
        let nested = Nested { rows: &rows, parents: &parents, tracks: &tracks, starts: &starts, lengths: &lengths };
        let points = Points { tracks: &asked, starts: &from, ends: &until };
        prop_assert_eq!(innermost(points, nested, |at| slices[at as usize].3), Some(expected));
    }

    #[test]
    fn a_path_is_the_names_on_the_way((parents, names, _) in calls(), most in 1..4_usize) {
        let paths = Paths::new(&Forest::new(parents.clone()).unwrap(), &names, most as u32);
        let texts: Vec<String> = vec!["a".into(), String::new()];
        let found = path_texts(&paths.parents, &paths.names, &texts, &paths.of, true);
        let back = path_texts(&paths.parents, &paths.names, &texts, &paths.of, false);
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        for at in 0..parents.len() {
            let mut on_way: Vec<u32> = way(&parents, at as u32).iter().map(|&on| names[on as usize]).collect();
            on_way.reverse();
            on_way.truncate(most);
            let shown: Vec<&str> =
                on_way.iter().map(|&name| texts[name as usize].as_str()).filter(|t| !t.is_empty()).collect();
            prop_assert_eq!(&found[at], &shown.join(";"));
            prop_assert_eq!(back[at].len(), found[at].len());
            prop_assert_eq!(*known.entry(on_way).or_insert(paths.of[at]), paths.of[at]);
        }
        prop_assert_eq!(known.len(), paths.names.len());
    }

    #[test]
    fn the_nearest_marked_call_around((parents, names, _) in calls()) {
        let marked: Vec<bool> = names.iter().map(|&name| name == 0).collect();
        let found = marked_around(&marked, |at| parents[at]);
        let those = (0..parents.len()).filter(|&at| marked[at]);
        let expected: Vec<u32> = those.map(|at| {
            let on_way = way(&parents, at as u32).into_iter().skip(1);
            on_way.into_iter().find(|&on| marked[on as usize]).unwrap_or(NONE)
        }).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn folds_are_the_sums_of_texts((parents, names, _) in calls(), values in vec(-3..9_i64, 40)) {
        let names: Vec<u32> = names.iter().zip(0..).map(|(&name, at)| 2 * name + at % 2).collect();
        let Paths { mut of, parents, names } = Paths::new(&Forest::new(parents).unwrap(), &names, 4);
        // Names of the same text, one of two parts, and one without.
        let texts: Vec<String> = ["a", "a", "a;a", ""].map(String::from).to_vec();
        if let Some(first) = of.first_mut() {
            *first = NONE;
        }
        let found = path_texts(&parents, &names, &texts, &of, true);
        let mut sums: HashMap<&str, (i64, i64)> = HashMap::new();
        for (text, &value) in found.iter().zip(&values).filter(|(text, _)| !text.is_empty()) {
            let sum = sums.entry(text).or_default();
            *sum = (sum.0 + value, sum.1 + 1);
        }
        let mut expected: Vec<_> = sums.into_iter().filter(|(_, (sum, _))| *sum > 0).collect();
        expected.sort_by_key(|&(text, (sum, _))| (-sum, text));
        let folds = folded(&parents, &names, &texts, &of, &values, 2);
        prop_assert_eq!(folds.len(), expected.len());
        for (place, (fold, (text, (sum, calls)))) in folds.iter().zip(expected).enumerate() {
            prop_assert_eq!(fold.text.as_deref(), (place < 2).then_some(text));
            prop_assert_eq!((fold.sum, fold.calls), (sum, calls));
        }
    }
}

#[test]
fn calls_in_each_other_are_refused() {
    assert_eq!(Forest::new(vec![1, 0]).unwrap_err(), Circular);
    assert_eq!(Forest::new(vec![NONE, 1]).unwrap_err(), Circular);
}

#[test]
fn deep_calls_take_no_stack() {
    let size = 300_000_u32;
    let parents: Vec<u32> = (1..size).chain([NONE]).collect();
    let mut forest = Forest::new(parents).unwrap();
    let mut sums = vec![1; size as usize];
    forest.with_inner(&mut sums);
    assert_eq!(sums.last(), Some(&i64::from(size)));
    forest.merge_repeats(&vec![7; size as usize]);
    assert!(kept_of(&forest).iter().all(|&kept| kept == size - 1));
}
