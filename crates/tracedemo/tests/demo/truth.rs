//! The truth equals a slow recount of the events.

use std::collections::{BTreeMap, HashMap};

use crate::reading::{CALLS, Event, GPU, HOST_OPS, of, parse, small, write};
use tracedemo::{DemoOptions, GpuTotals, OpTotals, StepTruth, Truth};

/// Traces that differ in all that changes what a trace holds.
fn traces() -> Vec<(Vec<Event>, Truth)> {
    let job = DemoOptions { ranks: 4, rank: 3, layers: Some(4), steps: Some(4), seed: 0, ..small() };
    let single = DemoOptions { ranks: 1, rank: 0, seed: 3, ..small() };
    [job, single].iter().map(write).map(|(json, truth)| (parse(&json).1, truth)).collect()
}

fn totals<'a>(events: impl Iterator<Item = &'a Event>) -> BTreeMap<String, GpuTotals> {
    let mut totals = BTreeMap::<String, GpuTotals>::new();
    for event in events {
        let entry = totals.entry(event.name.clone()).or_default();
        entry.calls += 1;
        entry.total_ns += event.dur;
    }
    totals
}

#[test]
fn events_are_counted_by_kind_and_table() {
    for (events, truth) in traces() {
        let mut kinds = BTreeMap::<String, u64>::new();
        for event in &events {
            *kinds.entry(format!("{} {}", event.phase, event.category).trim().to_owned()).or_default() += 1;
        }
        let counted = truth.events_by_kind.iter().filter(|(_, count)| **count > 0);
        assert!(
            counted
                .map(|(kind, count)| (*kind, count))
                .eq(kinds.iter().map(|(kind, count)| (kind.as_str(), count))),
            "{kinds:?}"
        );
        assert_eq!(truth.events, events.len() as u64);
        let tables = |name: &str| truth.tables[name];
        for (table, categories) in [("ops", HOST_OPS), ("launches", CALLS), ("gpu_ops", GPU)] {
            assert_eq!(tables(table), of(&events, categories).count() as u64);
        }
        let collectives = events.iter().filter(|event| event.args.get("Collective name").is_some());
        assert_eq!(tables("collectives"), collectives.count() as u64);
        assert_eq!(tables("collectives") > 0, truth.ranks > 1);
        let derived = ["collectives", "steps", "devices", "process_groups"].map(tables);
        assert_eq!(truth.tables.values().sum::<u64>() - derived.iter().sum::<u64>(), truth.events);
    }
}

#[test]
fn gpu_work_and_calls_are_summed_by_name() {
    for (events, truth) in traces() {
        assert_eq!(truth.kernels, totals(of(&events, &["kernel"])));
        assert_eq!(truth.memcpys, totals(of(&events, &["gpu_memcpy"])));
        assert_eq!(truth.memsets, totals(of(&events, &["gpu_memset"])));
        assert_eq!(truth.launches, totals(of(&events, CALLS)));
    }
}

/// Index of the innermost event of `ops` around each event; linear in their product, on purpose.
fn innermost(ops: &[&Event], inner: &Event, annotations_too: bool) -> Option<usize> {
    let around = ops.iter().enumerate().filter(|(_, op)| {
        (annotations_too || op.category == "cpu_op") && inner.is_within(op) && !std::ptr::eq(**op, inner)
    });
    around.min_by_key(|(_, op)| op.dur).map(|(index, _)| index)
}

#[test]
fn operators_are_summed_by_name() {
    for (events, truth) in traces() {
        let ops: Vec<&Event> = of(&events, HOST_OPS).collect();
        let parents: Vec<Option<usize>> = ops.iter().map(|op| innermost(&ops, op, true)).collect();
        let alone = |dur| OpTotals { calls: 1, host_total_ns: dur, host_self_ns: dur, ..OpTotals::default() };
        let mut totals: Vec<OpTotals> = ops.iter().map(|op| alone(op.dur)).collect();
        for (op, parent) in ops.iter().zip(&parents) {
            parent.iter().for_each(|&parent| totals[parent].host_self_ns -= op.dur);
        }
        let mut launch_ops = HashMap::new();
        for call in of(&events, CALLS) {
            let op = innermost(&ops, call, false);
            assert_eq!(op.and_then(|op| ops[op].int("External id")), call.int("External id"));
            assert!(launch_ops.insert(call.int("correlation"), (op, innermost(&ops, call, true))).is_none());
            if let Some(op) = op {
                totals[op].host_self_ns -= call.dur;
                totals[op].launches += 1;
            }
        }
        let (mut unlinked, mut orphans) = (0, 0);
        for work in of(&events, GPU) {
            let Some(&(op, mut inside)) = launch_ops.get(&work.int("correlation")) else {
                orphans += 1;
                continue;
            };
            assert_eq!(op.and_then(|op| ops[op].int("External id")), work.int("External id"));
            match op {
                Some(op) => {
                    totals[op].gpu_ops += 1;
                    totals[op].device_self_ns += work.dur;
                }
                None => unlinked += 1,
            }
            while let Some(op) = inside {
                totals[op].device_total_ns += work.dur;
                inside = parents[op];
            }
        }
        assert_eq!((unlinked, orphans), (truth.gpu_ops_without_op, truth.gpu_ops_without_launch));
        let mut sums = [BTreeMap::<String, OpTotals>::new(), BTreeMap::new()];
        for (op, totals) in ops.iter().zip(totals) {
            let is_annotation = op.category == "user_annotation";
            let name = if op.name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { &op.name };
            let sum = sums[usize::from(is_annotation)].entry(name.to_owned()).or_default();
            sum.calls += totals.calls;
            sum.host_total_ns += totals.host_total_ns;
            sum.host_self_ns += if is_annotation { 0 } else { totals.host_self_ns };
            sum.device_total_ns += totals.device_total_ns;
            sum.device_self_ns += totals.device_self_ns;
            sum.gpu_ops += totals.gpu_ops;
            sum.launches += totals.launches;
        }
        assert_eq!(truth.ops, sums[0]);
        let mut annotations = truth.annotations.clone();
        annotations.values_mut().for_each(|totals| totals.host_self_ns = 0);
        assert_eq!(annotations, sums[1]);
        let linked: u64 = truth.ops.values().map(|op| op.gpu_ops).sum();
        assert_eq!(linked, truth.gpu_ops_with_op);
        assert_eq!(linked + unlinked + orphans, truth.tables["gpu_ops"]);
    }
}

/// Role of an event in the step breakdown, lowest first.
fn role(event: &Event) -> Option<usize> {
    let loads = event.name.starts_with("enumerate(DataLoader)#") && event.name.ends_with(".__next__");
    match event.category.as_str() {
        "kernel" if event.name.starts_with("nccl") => Some(3),
        "kernel" => Some(0),
        "gpu_memcpy" => Some(1),
        "gpu_memset" => Some(2),
        "cuda_runtime" | "cuda_driver" => Some(4),
        "user_annotation" if event.name.starts_with("ProfilerStep#") => None,
        "user_annotation" if loads => Some(5),
        "cpu_op" | "user_annotation" => Some(6),
        _ => None,
    }
}

/// Time of each role in a window, one stretch between two bounds after the other.
fn parts(events: &[Event], (start, end): (i64, i64), role: impl Fn(&Event) -> Option<usize>) -> [i64; 8] {
    let active = events.iter().filter(|event| event.phase == "X" && event.start < end && event.end() > start);
    let active: Vec<_> = active.filter_map(|event| Some((role(event)?, event))).collect();
    let bounds = active.iter().flat_map(|(_, event)| [event.start, event.end()]);
    let mut bounds: Vec<i64> = bounds.chain([start, end]).map(|at| at.clamp(start, end)).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut parts = [0; 8];
    for pair in bounds.windows(2) {
        let covering = active.iter().filter(|(_, event)| event.start <= pair[0] && pair[1] <= event.end());
        let part = covering.map(|(role, _)| *role).min().unwrap_or(7);
        parts[part] += pair[1] - pair[0];
    }
    parts
}

/// Windows of the steps: start, end and number of units of GPU work.
fn windows(events: &[Event]) -> Vec<(i64, i64, u64)> {
    let mut windows = Vec::new();
    let mut previous = i64::MIN;
    let steps = of(events, &["user_annotation"]).filter(|event| event.name.starts_with("ProfilerStep#"));
    for step in steps {
        let inside = |call: &&Event| step.start <= call.start && call.end() <= step.end();
        let launched: Vec<_> = of(events, CALLS).filter(inside).map(|call| call.int("correlation")).collect();
        let work: Vec<_> =
            of(events, GPU).filter(|work| launched.contains(&work.int("correlation"))).collect();
        let start = step.start.max(previous);
        let end = work.iter().map(|work| work.end()).max().unwrap_or(start).max(step.end()).max(start);
        windows.push((start, end, work.len() as u64));
        previous = end;
    }
    windows
}

#[test]
fn steps_are_broken_down_by_priority() {
    for (events, truth) in traces() {
        let windows = windows(&events);
        assert_eq!(truth.steps.len(), windows.len());
        for (step, &(start, end, gpu_ops)) in truth.steps.iter().zip(&windows) {
            assert_eq!(step.parts, parts(&events, (start, end), role), "step {}", step.step);
            assert_eq!((step.start_ns, step.total_ns, step.gpu_ops), (start, end - start, gpu_ops));
            assert_eq!(step.parts.iter().sum::<i64>(), step.total_ns);
        }
        let window = (windows[0].0, windows[windows.len() - 1].1);
        let kernels = parts(&events, window, |event| (event.category == "kernel").then_some(0));
        assert_eq!(truth.kernel_busy_ns, kernels[0]);
    }
}

#[test]
fn steps_are_such_that_no_definition_drops_one() {
    for (_, truth) in traces() {
        for pair in truth.steps.windows(2) {
            assert!(pair[1].gpu_ops * 10 >= pair[0].gpu_ops * 9, "the last steps are no remnants");
            assert!(pair[0].start_ns + pair[0].total_ns <= pair[1].start_ns);
        }
        let outlives =
            |step: &StepTruth| step.start_ns + step.total_ns > step.host_start_ns + step.host_dur_ns;
        assert!(truth.steps.iter().any(outlives), "kernels outlive their step");
        for part in (0..8).filter(|&part| part != 3 || truth.ranks > 1) {
            assert!(truth.steps.iter().any(|step| step.parts[part] > 0), "part {part}");
        }
    }
}
