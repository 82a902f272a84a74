//! Finds the steps that the host marked: by annotations, by NVTX ranges, or not at all.

use framekernels::interval::IntervalTree;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;

use super::NONE;
use super::names::{Class, Names, step_number};
use super::order::Extents;
use super::periods::{self, Periods};
use super::serving::{ServingStep, serving_step};
use crate::options::ReadOptions;
use crate::schema::{Column, Ranges, Symbol, SymbolTable, Table, Tables};
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
    /// What the name of an engine's annotation tells.
    pub(super) serving: ServingStep,
}

/// The steps that the host marked, in order of start.
#[derive(Default)]
pub(super) struct HostSteps {
    pub(super) hosts: Vec<HostStep>,
    /// Names of the annotations and ranges that mark steps, other than `ProfilerStep#N`.
    pub(super) marks: HashSet<Symbol>,
    /// How sure steps are that were found and not marked.
    pub(super) confidence: Option<f64>,
    /// The part of each step that a process marked itself; empty unless several processes did.
    pub(super) by_process: HashMap<Ident, IntervalTree>,
}

/// What a caller names steps that nobody marked: the periods of what is launched.
const FOUND: &str = "found";

/// The steps that annotations mark, else ranges; without any, the whole trace as one step. `launch_of` has the
/// launch of each piece of GPU work.
pub(super) fn find(trace: &Trace, names: &Names, launch_of: &[u32], options: &ReadOptions) -> HostSteps {
    let name = options.step_range.as_deref();
    let found = match by_annotations(trace, names, name) {
        found if found.hosts.is_empty() => by_ranges(trace, name),
        found => return found,
    };
    if !found.hosts.is_empty() {
        return found;
    }
    if name == Some(FOUND)
        && let Some(found) = periods::find(&trace.tables, launch_of)
    {
        return of_periods(&found);
    }
    HostSteps { hosts: whole_trace(&trace.tables, names).into_iter().collect(), ..found }
}

/// The steps that annotations mark whose names are like `name`, counted from 0; without a name those of
/// `ProfilerStep#N`, else those of serving engines, counted from 0.
fn by_annotations(trace: &Trace, names: &Names, name: Option<&str>) -> HostSteps {
    let ops = &trace.tables.ops;
    let numbers = match name {
        Some(name) => uncounted(marks_like(&trace.symbols, name)),
        None => annotation_marks(trace, names),
    };
    let marks = Marks::new(&trace.symbols, &ops.start_ns, &ops.dur_ns, &ops.name, &ops.row);
    let tracks = ops.track.values();
    let is_mark = |op: &u32| ops.name.get(*op as usize).is_some_and(|name| numbers.contains_key(&name));
    let found: Vec<u32> = (0..ops.len() as u32).filter(is_mark).collect();
    let by_process = by_process(trace, marks.extents, found.iter().map(|&op| (op, tracks[op as usize])));
    let steps = if by_process.len() > 1 {
        merge(&marks, &by_process, &numbers)
    } else {
        HostSteps { hosts: in_order(&marks, found, tracks, &numbers), ..HostSteps::default() }
    };
    HostSteps { marks: numbers.into_keys().collect(), ..steps }
}

/// Periods as steps, counted from 0.
fn of_periods(found: &Periods) -> HostSteps {
    let step = |(&(start, end), number)| HostStep {
        number: Some(number),
        name: None,
        row: None,
        start,
        end,
        serving: ServingStep::default(),
    };
    let hosts = found.spans.iter().zip(0..).map(step).collect();
    HostSteps { hosts, confidence: Some(found.confidence), ..HostSteps::default() }
}

/// Names that mark steps without a number in them.
fn uncounted(names: impl IntoIterator<Item = Symbol>) -> HashMap<Symbol, Option<i32>> {
    names.into_iter().map(|name| (name, None)).collect()
}

/// The names of `ProfilerStep#N` with their numbers, else those that serving engines give their steps.
fn annotation_marks(trace: &Trace, names: &Names) -> HashMap<Symbol, Option<i32>> {
    let (ops, symbols) = (&trace.tables.ops, &trace.symbols);
    let named = |op: u32| ops.name.get(op as usize);
    let profiled = (0..ops.len() as u32).filter(|&op| names.is(&ops.name, op, Class::STEP)).filter_map(named);
    let numbers: HashMap<_, _> = profiled.map(|name| (name, step_number(symbols.text(name)))).collect();
    if !numbers.is_empty() {
        return numbers;
    }
    let of_engines = symbols.classify(|text| serving_step(text).is_some());
    let is_annotation = |op: &u32| names.is(&ops.category, *op, Class::ANNOTATION_CATEGORY);
    let annotations = (0..ops.len() as u32).filter(is_annotation).filter_map(named);
    uncounted(annotations.filter(|name| of_engines.get(name.index()) == Some(&true)))
}

/// The names that are `name`, or like it where it is a pattern: `*` stands for any text, `?` for any character,
/// and what stands between two `/` is a regular expression that a part of the name has to match.
fn marks_like(symbols: &SymbolTable, name: &str) -> HashSet<Symbol> {
    if let Some(mark) = symbols.find(name) {
        return HashSet::from_iter([mark]);
    }
    let mut marks = HashSet::new();
    let mut keep = |is_mark: &dyn Fn(&str) -> bool| {
        symbols.for_each(|symbol, text| {
            if is_mark(text) {
                marks.insert(symbol);
            }
        });
    };
    if let Some(expression) = regular_expression(name) {
        // One that is none was refused before the trace was read.
        if let Ok(expression) = regex_lite::Regex::new(expression) {
            keep(&|text| expression.is_match(text));
        }
    } else if name.contains(['*', '?']) {
        keep(&|text| is_like(text, name));
    }
    marks
}

/// What stands between the slashes of a name of steps that is a regular expression.
pub(super) fn regular_expression(name: &str) -> Option<&str> {
    name.strip_prefix('/')?.strip_suffix('/').filter(|expression| !expression.is_empty())
}

/// Whether a text is like a pattern; in time of their product at most.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut of_pattern) = (0, 0);
    // Where the last star stands, and the text that it does not stand for yet.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match (pattern.get(of_pattern), star) {
            (Some('*'), _) => {
                star = Some((of_pattern, at));
                of_pattern += 1;
            }
            (Some(&wanted), _) if wanted == '?' || wanted == text[at] => {
                at += 1;
                of_pattern += 1;
            }
            (_, Some((place, until))) => {
                star = Some((place, until + 1));
                (of_pattern, at) = (place + 1, until + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[of_pattern..].iter().all(|&c| c == '*')
}

/// The steps that ops of one process mark, without a number in the name counted from 0; one of those inside
/// another is part of it.
fn in_order(
    marks: &Marks<'_>,
    mut marked: Vec<u32>,
    tracks: &[u32],
    numbers: &HashMap<Symbol, Option<i32>>,
) -> Vec<HostStep> {
    marked.sort_by_key(|&op| (marks.extents.start(op), std::cmp::Reverse(marks.extents.end(op))));
    let mut hosts: Vec<HostStep> = Vec::new();
    let mut last_track = None;
    for op in marked {
        let track = tracks[op as usize];
        let counted = i32::try_from(hosts.len()).ok();
        let number = marks.name(op).and_then(|name| *numbers.get(&name)?);
        let step = marks.step(op, number.or(counted));
        let around = hosts.last_mut().filter(|around| {
            number.is_none()
                && last_track == Some(track)
                && step.end <= around.end
                && step.name != around.name
        });
        if let Some(around) = around {
            around.serving = around.serving.or(step.serving);
        } else {
            hosts.push(step);
            last_track = Some(track);
        }
    }
    hosts
}

/// The ops or ranges that may mark steps.
struct Marks<'a> {
    symbols: &'a SymbolTable,
    extents: Extents<'a>,
    names: &'a Column<Symbol>,
    rows: &'a Column<u32>,
}

impl<'a> Marks<'a> {
    fn new(
        symbols: &'a SymbolTable,
        starts: &'a Column<i64>,
        durations: &'a Column<i64>,
        names: &'a Column<Symbol>,
        rows: &'a Column<u32>,
    ) -> Self {
        Self { symbols, extents: Extents::new(starts, durations), names, rows }
    }

    fn name(&self, row: u32) -> Option<Symbol> {
        self.names.get(row as usize)
    }

    /// The step that a row marks.
    fn step(&self, row: u32, number: Option<i32>) -> HostStep {
        let (name, (start, end)) = (self.name(row), self.extents.of(row));
        let serving = name.and_then(|name| serving_step(self.symbols.text(name))).unwrap_or_default();
        HostStep { number, name, row: self.rows.get(row as usize), start, end, serving }
    }
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
    Some(HostStep { number: None, name: None, row: None, start, end, serving: ServingStep::default() })
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
    let numbers = match name {
        Some(name) => uncounted(marks_like(&trace.symbols, name)),
        None => detect(&trace.tables.ranges, &trace.symbols),
    };
    let ranges = &trace.tables.ranges;
    let marks = Marks::new(&trace.symbols, &ranges.start_ns, &ranges.dur_ns, &ranges.name, &ranges.row);
    let found = merge(&marks, &by_process(trace, marks.extents, marking(trace, &numbers)), &numbers);
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
    if marks.is_empty() {
        let named = ranges.name.iter().flatten();
        return uncounted(named.filter(|&name| serving_step(symbols.text(name)).is_some()));
    }
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

/// The ranges whose names mark steps, with their tracks.
fn marking(trace: &Trace, numbers: &HashMap<Symbol, Option<i32>>) -> impl Iterator<Item = (u32, u32)> {
    let ranges = &trace.tables.ranges;
    let mark = trace.symbols.find("mark");
    let is_step = move |&(index, _): &(u32, u32)| {
        let at = index as usize;
        ranges.name.get(at).is_some_and(|name| numbers.contains_key(&name))
            && ranges.kind.get(at) != mark
            && ranges.dur_ns.get(at).is_some()
    };
    (0..).zip(ranges.track.values().iter().copied()).filter(is_step)
}

/// What marks steps, outermost only, by process; of the thread that has most of them.
fn by_process(
    trace: &Trace,
    extents: Extents<'_>,
    marking: impl Iterator<Item = (u32, u32)>,
) -> BTreeMap<i64, (Ident, Vec<u32>)> {
    let mut by_track: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (index, track) in marking {
        by_track.entry(track).or_default().push(index);
    }
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
    marks: &Marks<'_>,
    marked: &BTreeMap<i64, (Ident, Vec<u32>)>,
    numbers: &HashMap<Symbol, Option<i32>>,
) -> HostSteps {
    let number_in_name = |row: u32| marks.name(row).and_then(|name| *numbers.get(&name)?);
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
            let (start, end) = marks.extents.of(row);
            let step = steps.entry(number).or_insert_with(|| marks.step(row, Some(number)));
            step.start = step.start.min(start);
            step.end = step.end.max(end);
        }
    }
    let mut hosts: Vec<HostStep> = steps.into_values().collect();
    hosts.sort_by_key(|step| (step.start, step.number));
    let by_process = if marked.len() > 1 { indices(&hosts, &parts, marks.extents) } else { HashMap::new() };
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
    use super::{is_like, step_name};

    #[test]
    fn patterns() {
        for (text, pattern, is) in [
            ("execute_32", "execute_*", true),
            ("execute_", "execute_*", true),
            ("my execute_1", "execute_*", false),
            ("a-b-c", "a*c", true),
            ("a-b-c-d", "a*c", false),
            ("ab", "a?", true),
            ("a", "a?", false),
            ("", "*", true),
        ] {
            assert_eq!(is_like(text, pattern), is, "{text} {pattern}");
        }
        let (text, pattern) = ("a".repeat(3000), "a*".repeat(40) + "b");
        assert!(!is_like(&text, &pattern), "in good time");
    }

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
