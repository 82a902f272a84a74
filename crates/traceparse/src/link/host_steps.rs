//! Finds the steps that the host marked: by annotations, by NVTX ranges, or not at all.

use framekernels::interval::IntervalTree;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;

use super::NONE;
use super::names::{Class, Names, step_number};
use super::order::Extents;
use crate::options::ReadOptions;
use crate::schema::{Ops, Ranges, Symbol, SymbolTable, Table, Tables};
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

/// A step as the host marked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostStep {
    /// Null for a trace without steps, taken as one.
    pub(super) number: Option<i32>,
    pub(super) name: Option<Symbol>,
    /// `row` of the annotation.
    pub(super) row: Option<u32>,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// The steps that the host marked, in order of start.
#[derive(Default)]
pub(super) struct HostSteps {
    pub(super) hosts: Vec<HostStep>,
    /// Names of the annotations and ranges that mark steps, other than `ProfilerStep#N`.
    pub(super) marks: HashSet<Symbol>,
    /// The part of each step that a process marked itself; empty unless several processes did.
    pub(super) by_process: HashMap<Ident, IntervalTree>,
}

/// The steps that annotations mark, else ranges; without any, the whole trace as one step.
pub(super) fn find(trace: &Trace, names: &Names, options: &ReadOptions) -> HostSteps {
    let name = options.step_range.as_deref();
    let found = match by_annotations(&trace.tables.ops, &trace.symbols, names, name) {
        found if found.hosts.is_empty() => by_ranges(trace, name),
        found => return found,
    };
    if !found.hosts.is_empty() {
        return found;
    }
    HostSteps { hosts: whole_trace(&trace.tables, names).into_iter().collect(), ..found }
}

/// The steps that annotations called `name` mark, counted from 0, or that `ProfilerStep#N` do.
fn by_annotations(ops: &Ops, symbols: &SymbolTable, names: &Names, name: Option<&str>) -> HostSteps {
    let mark = name.and_then(|name| symbols.find(name));
    let is_step = |op: &u32| match (name, mark) {
        (Some(_), None) => false,
        (Some(_), mark) => ops.name.get(*op as usize) == mark,
        (None, _) => names.is(&ops.name, *op, Class::STEP),
    };
    let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
    let step = |op: u32| {
        let (at, (start, end)) = (op as usize, extents.of(op));
        let (name, row) = (ops.name.get(at), ops.row.get(at));
        HostStep { number: name.and_then(|name| step_number(symbols.text(name))), name, row, start, end }
    };
    let mut hosts: Vec<HostStep> = (0..ops.len() as u32).filter(is_step).map(step).collect();
    hosts.sort_by_key(|step| step.start);
    if mark.is_some() {
        for (number, step) in hosts.iter_mut().enumerate() {
            step.number = i32::try_from(number).ok();
        }
    }
    HostSteps { hosts, marks: mark.into_iter().collect(), ..HostSteps::default() }
}

/// From the first to the last operator; without operators annotations, then NVTX ranges, then GPU
/// work, then calls.
fn whole_trace(tables: &Tables, names: &Names) -> Option<HostStep> {
    let Tables { ops, gpu_ops, launches, ranges, .. } = tables;
    let of_ops = Extents::new(&ops.start_ns, &ops.dur_ns);
    let is_operator = |op: &u32| !names.is(&ops.category, *op, Class::ANNOTATION_CATEGORY);
    let (start, end) = span((0..ops.len() as u32).filter(is_operator), of_ops)
        .or_else(|| span(0..ops.len() as u32, of_ops))
        .or_else(|| span(0..ranges.len() as u32, Extents::new(&ranges.start_ns, &ranges.dur_ns)))
        .or_else(|| span(0..gpu_ops.len() as u32, Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns)))
        .or_else(|| span(0..launches.len() as u32, Extents::new(&launches.start_ns, &launches.dur_ns)))?;
    Some(HostStep { number: None, name: None, row: None, start, end })
}

fn span(indices: impl Iterator<Item = u32>, extents: Extents<'_>) -> Option<(i64, i64)> {
    indices
        .map(|i| (extents.start(i), extents.end(i)))
        .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// The steps that ranges called `name` mark, or that ranges with the name of a step do.
///
/// Each process counts its own ranges. A step of several processes lasts from the first of them to
/// begin to the last to end.
fn by_ranges(trace: &Trace, name: Option<&str>) -> HostSteps {
    let numbers: HashMap<Symbol, Option<i32>> = match name {
        Some(name) => trace.symbols.find(name).map(|mark| (mark, None)).into_iter().collect(),
        None => detect(&trace.tables.ranges, &trace.symbols),
    };
    let found = merge(trace, &marked(trace, &numbers), &numbers);
    HostSteps { marks: numbers.into_keys().collect(), ..found }
}

/// The names that mark steps, with the numbers in them.
fn detect(ranges: &Ranges, symbols: &SymbolTable) -> HashMap<Symbol, Option<i32>> {
    let ranked = symbols.classify(step_name);
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut marks: HashMap<Symbol, (usize, Option<i32>)> = HashMap::new();
    for name in ranges.name.iter().flatten() {
        if let Some((rank, number)) = ranked[name.index()] {
            *counts.entry(rank).or_default() += 1;
            marks.insert(name, (rank, number));
        }
    }
    let best = counts.into_iter().find(|&(rank, count)| rank == 0 || count >= LEAST_STEPS);
    marks.retain(|_, (rank, _)| best.is_some_and(|(best, _)| best == *rank));
    marks.into_iter().map(|(name, (_, number))| (name, number)).collect()
}

/// Rank of a name that marks a step, and the number in it: 0 for the profiler's own, then by stem.
fn step_name(text: &str) -> Option<(usize, Option<i32>)> {
    if let Some(number) = step_number(text) {
        return Some((0, Some(number)));
    }
    let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = text[stem.len()..].parse().ok();
    let stem = stem.trim_end_matches([' ', '#', '_', ':', '-', '=', '[']).trim_start();
    let rank = STEMS.iter().position(|known| stem.eq_ignore_ascii_case(known))?;
    Some((rank + 1, number))
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
) -> HostSteps {
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
    HostSteps { hosts, by_process, ..HostSteps::default() }
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
        assert_eq!(step_name("step"), Some((1, None)));
        assert_eq!(step_name("Step #12"), Some((1, Some(12))));
        assert_eq!(step_name("iteration_3").map(|s| s.1), Some(Some(3)));
        assert_eq!(step_name("iter=7").map(|s| s.1), Some(Some(7)));
        assert_eq!(step_name("ProfilerStep#7"), Some((0, Some(7))));
        assert_eq!(step_name("Optimizer.step"), None);
        assert_eq!(step_name("footstep 3"), None);
        assert_eq!(step_name("aten::batch_norm"), None);
        assert_eq!(step_name(""), None);
    }
}
