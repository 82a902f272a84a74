//! Steps that NVTX ranges mark.

use framekernels::interval::IntervalTree;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;

use super::NONE;
use super::extents::Extents;
use super::names::{Class, Names, step_number};
use super::steps::HostStep;
use crate::schema::{Ranges, Symbol, SymbolTable, Table};
use crate::trace::Trace;
use crate::tracks::Ident;

/// What a range that marks steps is called, best first, without its number and in lower case.
const STEMS: [&str; 14] = [
    "step",
    "train_step",
    "train step",
    "training_step",
    "training step",
    "iteration",
    "iter",
    "train_iteration",
    "training iteration",
    "train_iter",
    "global_step",
    "batch",
    "train_batch",
    "minibatch",
];

/// Fewer ranges of one kind mark no steps, unless they were asked for.
const LEAST_STEPS: usize = 2;

/// Steps that ranges mark.
#[derive(Default)]
pub(super) struct RangeSteps {
    pub(super) hosts: Vec<HostStep>,
    /// Names of the ranges.
    pub(super) marks: HashSet<Symbol>,
    /// The part of each step that a process marked itself; empty unless several processes did.
    pub(super) by_process: HashMap<Ident, IntervalTree>,
}

/// The steps that ranges called `name` mark, or that ranges with the name of a step do.
///
/// Each process counts its own ranges. A step of several processes lasts from the first of them to
/// begin to the last to end.
pub(super) fn find(trace: &Trace, names: &Names, name: Option<&str>) -> RangeSteps {
    let ranges = &trace.tables.ranges;
    if ranges.is_empty() {
        return RangeSteps::default();
    }
    let symbols = &trace.symbols;
    let numbers = match name {
        Some(name) => symbols.find(name).map(|mark| vec![(mark, None)]).unwrap_or_default(),
        None => detect(ranges, symbols, names),
    };
    let numbers: HashMap<Symbol, Option<i32>> = numbers.into_iter().collect();
    if numbers.is_empty() {
        return RangeSteps::default();
    }
    let marked = marked(trace, &numbers);
    let mut found = merge(trace, &marked, &numbers);
    found.marks = numbers.into_keys().collect();
    found
}

/// The names that mark steps, with the numbers in them.
fn detect(ranges: &Ranges, symbols: &SymbolTable, names: &Names) -> Vec<(Symbol, Option<i32>)> {
    let mut counts: HashMap<Symbol, usize> = HashMap::new();
    let mut profiler_steps = false;
    let ranked = symbols.classify(step_name);
    for index in 0..ranges.len() as u32 {
        profiler_steps |= names.is(&ranges.name, index, Class::STEP);
        if let Some(name) = ranges.name.get(index as usize)
            && (ranked[name.index()].is_some() || names.is(&ranges.name, index, Class::STEP))
        {
            *counts.entry(name).or_default() += 1;
        }
    }
    if profiler_steps {
        let numbered = counts.keys().map(|&name| (name, step_number(symbols.text(name))));
        return numbered.filter(|(_, number)| number.is_some()).collect();
    }
    let mut totals: BTreeMap<usize, usize> = BTreeMap::new();
    for (name, count) in &counts {
        if let Some((rank, _)) = ranked[name.index()] {
            *totals.entry(rank).or_default() += count;
        }
    }
    let best = totals.into_iter().find(|&(_, count)| count >= LEAST_STEPS).map(|(rank, _)| rank);
    let of_best = counts.keys().filter_map(|&name| {
        let (rank, number) = ranked[name.index()]?;
        (Some(rank) == best).then_some((name, number))
    });
    of_best.collect()
}

/// Rank of the stem of a name that marks a step, and the number in the name.
fn step_name(text: &str) -> Option<(usize, Option<i32>)> {
    let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = text[stem.len()..].parse().ok();
    let stem = stem.trim_end_matches([' ', '#', '_', ':', '-', '=', '[']).trim_start();
    let rank = STEMS.iter().position(|known| stem.eq_ignore_ascii_case(known))?;
    Some((rank, number))
}

/// The ranges that mark steps, outermost only, by process; of the thread that has most of them.
fn marked(trace: &Trace, numbers: &HashMap<Symbol, Option<i32>>) -> BTreeMap<i64, (Ident, Vec<u32>)> {
    let ranges = &trace.tables.ranges;
    let mark = trace.symbols.find("mark");
    let mut by_track: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (index, &track) in (0..ranges.len() as u32).zip(ranges.track.values()) {
        let at = index as usize;
        let is_step = ranges.name.get(at).is_some_and(|name| numbers.contains_key(&name));
        if is_step && ranges.kind.get(at) != mark && ranges.dur_ns.get(at).is_some() {
            by_track.entry(track).or_default().push(index);
        }
    }
    let extents = Extents::new(&ranges.start_ns, &ranges.dur_ns);
    let mut by_process: BTreeMap<i64, (Ident, Vec<u32>)> = BTreeMap::new();
    for (track, mut rows) in by_track {
        rows.sort_by_key(|&row| (extents.start(row), std::cmp::Reverse(extents.end(row))));
        let mut end = i64::MIN;
        rows.retain(|&row| {
            let is_outermost = extents.end(row) > end;
            end = end.max(extents.end(row));
            is_outermost
        });
        let process = trace.tracks.key(track).0;
        let known = by_process.entry(process.int().unwrap_or(i64::MIN)).or_insert((process, Vec::new()));
        if rows.len() > known.1.len() {
            known.1 = rows;
        }
    }
    by_process
}

/// Steps of all processes by number, else by position.
fn merge(
    trace: &Trace,
    marked: &BTreeMap<i64, (Ident, Vec<u32>)>,
    numbers: &HashMap<Symbol, Option<i32>>,
) -> RangeSteps {
    let ranges = &trace.tables.ranges;
    let extents = Extents::new(&ranges.start_ns, &ranges.dur_ns);
    let number_in_name = |row: u32| ranges.name.get(row as usize).and_then(|name| *numbers.get(&name)?);
    let mut steps: BTreeMap<i32, HostStep> = BTreeMap::new();
    let mut parts: Vec<(Ident, i32, u32)> = Vec::new();
    for (process, rows) in marked.values() {
        let in_names: HashSet<i32> = rows.iter().filter_map(|&row| number_in_name(row)).collect();
        // Numbers count only if they tell every step apart.
        let are_named = in_names.len() == rows.len();
        for (position, &row) in rows.iter().enumerate() {
            let counted = i32::try_from(position).unwrap_or(i32::MAX);
            let number = if are_named { number_in_name(row).unwrap_or(counted) } else { counted };
            parts.push((*process, number, row));
            let (start, end) = extents.of(row);
            let step = steps.entry(number).or_insert_with(|| HostStep {
                number: Some(number),
                name: ranges.name.get(row as usize),
                row: ranges.row.get(row as usize),
                start,
                end,
            });
            step.start = step.start.min(start);
            step.end = step.end.max(end);
        }
    }
    let mut hosts: Vec<HostStep> = steps.into_values().collect();
    hosts.sort_by_key(|step| (step.start, step.number));
    let by_process = if marked.len() > 1 { indices(&hosts, &parts, extents) } else { HashMap::new() };
    RangeSteps { hosts, by_process, ..RangeSteps::default() }
}

/// For each process an index of its own ranges, as the steps they belong to.
fn indices(
    hosts: &[HostStep],
    parts: &[(Ident, i32, u32)],
    extents: Extents<'_>,
) -> HashMap<Ident, IntervalTree> {
    let positions: HashMap<Option<i32>, u32> = hosts.iter().map(|step| step.number).zip(0..).collect();
    let mut intervals: HashMap<Ident, Vec<(i64, i64, u32)>> = HashMap::new();
    for &(process, number, row) in parts {
        let (start, end) = extents.of(row);
        let position = positions.get(&Some(number)).copied().unwrap_or(NONE);
        intervals.entry(process).or_default().push((start, end, position));
    }
    intervals.into_iter().map(|(process, parts)| (process, IntervalTree::new(parts))).collect()
}

#[cfg(test)]
mod tests {
    use super::step_name;

    #[test]
    fn names_of_steps() {
        assert_eq!(step_name("step"), Some((0, None)));
        assert_eq!(step_name("Step #12"), Some((0, Some(12))));
        assert_eq!(step_name("iteration_3").map(|s| s.1), Some(Some(3)));
        assert_eq!(step_name("iter=7").map(|s| s.1), Some(Some(7)));
        assert_eq!(step_name("Optimizer.step"), None);
        assert_eq!(step_name("footstep 3"), None);
        assert_eq!(step_name("aten::batch_norm"), None);
        assert_eq!(step_name(""), None);
    }
}
