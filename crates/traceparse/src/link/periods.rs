//! Periods of a program that marks no steps, from what it launches: once in a period come a few kernels or graphs
//! that come nowhere else in it, always in one order. Where most work is that of graphs of several kinds, which come
//! in no order, each launch of one is a period, as serving engines launch them.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};

use super::NONE;
use super::order::Extents;
use crate::schema::{Symbol, Tables};

/// Fewer periods prove none.
const LEAST_PERIODS: usize = 3;
/// Fewer kinds of launches than these may come once in anything.
const LEAST_KINDS: usize = 3;
/// The share of launches of these kinds that must come where the period says, in percent.
const LEAST_SURE: f64 = 0.8;
/// Numbers of periods that are tried, the fewest first.
const MOST_TRIED: usize = 64;

/// Periods, and how sure they are.
#[derive(Debug, PartialEq)]
pub(super) struct Periods {
    /// Start and end on the host, in order.
    pub(super) spans: Vec<(i64, i64)>,
    /// Share of the launches between the first and the last period that come where they should, 0 to 1.
    pub(super) confidence: f64,
}

/// A launch of the thread that launches most: when, and what.
#[derive(Debug, Clone, Copy)]
struct Launch {
    start: i64,
    end: i64,
    kind: u32,
    /// Pieces of GPU work; several are a graph's.
    pieces: usize,
}

/// The periods of the thread that launched most work; `launch_of` has the launch of each piece of GPU work.
pub(super) fn find(tables: &Tables, launch_of: &[u32]) -> Option<Periods> {
    let launches = busiest_thread(tables, launch_of);
    periods(&launches).or_else(|| graph_launches(&launches))
}

/// What the thread launched that launched most pieces of work, in order. A kind is what a launch set off: the names
/// of all its work.
fn busiest_thread(tables: &Tables, launch_of: &[u32]) -> Vec<Launch> {
    let Tables { launches, gpu_ops, .. } = tables;
    let mut names: HashMap<u32, Vec<Option<Symbol>>> = HashMap::new();
    for (at, &launch) in launch_of.iter().enumerate().filter(|&(_, &launch)| launch != NONE) {
        names.entry(launch).or_default().push(gpu_ops.name.get(at));
    }
    let mut work: BTreeMap<u32, usize> = BTreeMap::new();
    for (&launch, of_launch) in &names {
        *work.entry(launches.track.values()[launch as usize]).or_default() += of_launch.len();
    }
    let Some((busiest, _)) = work.into_iter().max_by_key(|&(track, count)| (count, std::cmp::Reverse(track)))
    else {
        return Vec::new();
    };
    let hash = DefaultHashBuilder::default();
    let mut kinds: HashMap<u64, u32> = HashMap::new();
    let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
    let mut rows: Vec<u32> =
        names.keys().copied().filter(|&launch| launches.track.values()[launch as usize] == busiest).collect();
    rows.sort_unstable_by_key(|&launch| (extents.start(launch), launch));
    let kind = |launch: &u32| {
        // Streams finish in any order.
        let mut of_launch: Vec<Option<usize>> =
            names[launch].iter().map(|name| name.map(Symbol::index)).collect();
        of_launch.sort_unstable();
        let next = kinds.len() as u32;
        let kind = *kinds.entry(hash.hash_one(&of_launch)).or_insert(next);
        Launch { start: extents.start(*launch), end: extents.end(*launch), kind, pieces: of_launch.len() }
    };
    rows.iter().map(kind).collect()
}

/// The longest periods that are sure.
fn periods(launches: &[Launch]) -> Option<Periods> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for launch in launches {
        *counts.entry(launch.kind).or_default() += 1;
    }
    let mut of_count: BTreeMap<usize, usize> = BTreeMap::new();
    for &count in counts.values().filter(|&&count| count >= LEAST_PERIODS) {
        *of_count.entry(count).or_default() += 1;
    }
    let is_graph_only = counts.len() < LEAST_KINDS;
    let tried = of_count.keys().copied().take(MOST_TRIED);
    tried.into_iter().find_map(|count| {
        // A recording that begins or ends in a period has some kinds once less often.
        let is_of_period = |kind: &u32| counts[kind] == count || counts[kind] + 1 == count;
        let kinds = counts.keys().filter(|kind| is_of_period(kind)).count();
        if kinds < LEAST_KINDS && !is_graph_only {
            return None;
        }
        let marks: Vec<Launch> = launches.iter().copied().filter(|l| is_of_period(&l.kind)).collect();
        cut(launches, &marks, kinds)
    })
}

/// Cuts where the first kind of a period comes again, if the kinds come in turn.
fn cut(launches: &[Launch], marks: &[Launch], kinds: usize) -> Option<Periods> {
    let in_turn = marks.windows(kinds + 1).filter(|turn| turn[0].kind == turn[kinds].kind).count();
    let turns = marks.len().checked_sub(kinds)?;
    if turns == 0 {
        return None;
    }
    let confidence = in_turn as f64 / turns as f64;
    let first = (confidence >= LEAST_SURE).then(|| first_kind(launches, marks))??;
    let starts: Vec<i64> = marks.iter().filter(|mark| mark.kind == first).map(|mark| mark.start).collect();
    let end = launches.iter().map(|launch| launch.end).max()?;
    let ends = starts.iter().skip(1).copied().chain([end]);
    let mut spans: Vec<(i64, i64)> = starts.iter().copied().zip(ends).collect();
    // What begins last is a period only if it got as far as others.
    let pieces = |span: &(i64, i64)| {
        let at = |moment| launches.partition_point(|launch| launch.start < moment);
        launches[at(span.0)..at(span.1)].iter().map(|launch| launch.pieces).sum::<usize>()
    };
    if let [.., before, last] = spans.as_slice()
        && 10 * pieces(last) < 9 * pieces(before)
    {
        spans.pop();
    }
    let mut sizes: Vec<usize> = spans.iter().map(pieces).collect();
    sizes.sort_unstable();
    // What is done between marks has to be of one size, or they mark something else.
    let median = *sizes.get(sizes.len() / 2)?;
    let alike = sizes.iter().filter(|&&size| 10 * size.abs_diff(median) <= median).count();
    let is_sure = spans.len() >= LEAST_PERIODS && alike as f64 >= LEAST_SURE * spans.len() as f64;
    is_sure.then_some(Periods { spans, confidence })
}

/// The launches of graphs as periods, each from the longest pause before it on, where graphs have most work.
fn graph_launches(launches: &[Launch]) -> Option<Periods> {
    let places: Vec<usize> = (0..launches.len()).filter(|&at| launches[at].pieces > 1).collect();
    let of_graphs: usize = places.iter().map(|&at| launches[at].pieces).sum();
    let all: usize = launches.iter().map(|launch| launch.pieces).sum();
    if places.len() < LEAST_PERIODS || 2 * of_graphs < all {
        return None;
    }
    let pause = |at: &usize| launches[*at].start.saturating_sub(launches[at - 1].end);
    let mut begins: Vec<usize> = vec![places[0]];
    let mut usual: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    usual.sort_unstable();
    let usual = *usual.get(usual.len() / 2)?;
    let mut irregular = 0;
    for pair in places.windows(2) {
        let mut pauses: Vec<usize> = (pair[0] + 1..=pair[1]).collect();
        pauses.sort_by_key(|at| std::cmp::Reverse(pause(at)));
        // So many launches between two graphs are a step of their own, as of a prompt.
        let steps = if pair[1] - pair[0] > 2 * usual + LEAST_KINDS { 2 } else { 1 };
        irregular += usize::from(steps > 1);
        let mut found: Vec<usize> = pauses.into_iter().take(steps).collect();
        found.sort_unstable();
        begins.extend(found);
    }
    let end = launches.iter().map(|launch| launch.end).max()?;
    let starts = || begins.iter().map(|&at| launches[at].start);
    let spans = starts().zip(starts().skip(1).chain([end])).filter(|span| span.0 < span.1).collect();
    Some(Periods { spans, confidence: 1.0 - irregular as f64 / places.len() as f64 })
}

/// The kind before which the host pauses longest: between periods it waits or prepares the next.
fn first_kind(launches: &[Launch], marks: &[Launch]) -> Option<u32> {
    let mut gaps: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for mark in marks {
        let at = launches.partition_point(|launch| launch.start < mark.start);
        let before = at.checked_sub(1).map(|at| launches[at].end);
        gaps.entry(mark.kind).or_default().extend(before.map(|end| mark.start.saturating_sub(end)));
    }
    let median = |mut gaps: Vec<i64>| {
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    };
    gaps.into_iter().map(|(kind, gaps)| (median(gaps), std::cmp::Reverse(kind))).max().map(|(_, kind)| kind.0)
}

#[cfg(test)]
mod tests {
    use super::{Launch, graph_launches, periods};
    use proptest::prelude::*;

    /// Launches by letter, 10 ns apart and 5 long; `|` is a pause.
    fn launches(text: &str) -> Vec<Launch> {
        let mut at = 0;
        let mut found = Vec::new();
        for letter in text.chars() {
            if letter == '|' {
                at += 1000;
            } else {
                // A capital is a graph.
                let pieces = if letter.is_ascii_uppercase() { 50 } else { 1 };
                found.push(Launch { start: at, end: at + 5, kind: u32::from(letter), pieces });
                at += 10;
            }
        }
        found
    }

    fn starts(text: &str) -> Option<Vec<i64>> {
        periods(&launches(text)).map(|found| found.spans.iter().map(|span| span.0).collect())
    }

    #[test]
    fn periods_begin_behind_the_pause() {
        // Layers abc come four times in a step, e, f and g once.
        let step = "eabcabcabcabcfg|";
        let text = step.repeat(4);
        assert_eq!(starts(&text), Some(vec![0, 1150, 2300, 3450]));
        // The recording begins in a step, and ends in one.
        let text = format!("abcabcfg|{}eabc", step.repeat(4));
        assert_eq!(starts(&text), Some(vec![1080, 2230, 3380, 4530]));
        assert_eq!(periods(&launches(&step.repeat(4))).unwrap().confidence, 1.0);
    }

    #[test]
    fn a_period_may_differ_in_what_is_not_its_mark() {
        // Every second step does something else in between.
        let [a, b] = [format!("e{}fg|", "a".repeat(20)), format!("e{}fg|", "b".repeat(21))];
        let text = format!("{a}{b}").repeat(3);
        let found = periods(&launches(&text)).unwrap();
        assert_eq!((found.spans.len(), found.confidence), (6, 1.0));
        // A single graph is launched again and again.
        assert_eq!(starts("g|g|g|g"), Some(vec![0, 1010, 2020, 3030]));
    }

    #[test]
    fn graphs_of_several_sizes_are_steps_in_any_order() {
        // A copy, a graph of some batch size and sampling; once a prompt without a graph.
        let text = "cAs|cBs|cAs|abababababab|cCs|cAs|cBs|";
        assert_eq!(periods(&launches(text)), None);
        let found = graph_launches(&launches(text)).unwrap();
        let starts: Vec<i64> = found.spans.iter().map(|span| span.0).collect();
        assert_eq!(starts, [10, 1030, 2060, 3090, 4210, 5240, 6270]);
        assert!((0.8..1.0).contains(&found.confidence));
        assert_eq!(graph_launches(&launches("aA|aa|aA|")), None);
    }

    #[test]
    fn what_has_no_order_has_no_periods() {
        for text in ["", "a", "abab", "abcdefghijk", "abccbabcaacbbacabcb", "aabbccddaabdcd"] {
            assert_eq!(starts(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn periods_follow_one_another(text in "[a-f|]{0,60}") {
            if let Some(found) = periods(&launches(&text)) {
                prop_assert!(found.spans.windows(2).all(|pair| pair[0].1 == pair[1].0));
                prop_assert!(found.spans.iter().all(|span| span.0 < span.1));
                prop_assert!((0.0..=1.0).contains(&found.confidence));
            }
        }
    }
}
