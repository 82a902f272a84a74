//! Host events without a timestamp: recorded at 0 without a duration.

use super::names::is_annotation_category;
use crate::options::ReadOptions;
use crate::schema::{Column, Symbol, Table, Tables, UntimedEventRow};
use crate::stats::Code;
use crate::time::HOUR_NS;
use crate::trace::Trace;

/// Adds what is read to find the events without a time among those that are wanted.
pub(super) fn add_needed(widened: &mut ReadOptions, options: &ReadOptions) {
    let wants_all = options.wants("untimed_events");
    for (table, times, described) in [
        ("ops", &["start_ns", "dur_ns"][..], &["name", "track", "category", "external_id"][..]),
        ("launches", &["start_ns", "dur_ns"], &["name", "track", "category", "external_id", "correlation"]),
        ("python", &["start_ns", "dur_ns"], &["name", "track"]),
        ("memory", &["start_ns"], &["name", "track"]),
    ] {
        if wants_all || options.wants(table) {
            widened.add(table, times);
        }
        if wants_all {
            widened.add(table, described);
        }
    }
}

/// Moves the events into a table of their own, and counts them by kind.
pub(super) fn take(trace: &mut Trace) {
    let Trace { tables, symbols, stats, .. } = trace;
    let Tables { ops, launches, python, memory, untimed_events: untimed, .. } = tables;
    let [operator, annotation, call, frame, record] = [
        (Code::UntimedOperators, "operator"),
        (Code::UntimedAnnotations, "annotation"),
        (Code::UntimedCalls, "call"),
        (Code::UntimedFrames, "frame"),
        (Code::UntimedMemory, "memory"),
    ];
    let is_annotation = |category: Option<Symbol>| {
        category.is_some_and(|category| is_annotation_category(symbols.text(category)))
    };
    let of_op = |category| if is_annotation(category) { annotation } else { operator };
    let memory_is_timed =
        moments_have_time(&memory.start_ns, [&ops.start_ns, &launches.start_ns, &python.start_ns]);
    let mut found: Vec<((Code, &str), UntimedEventRow)> = Vec::new();
    macro_rules! take {
        ($table:ident where $is_timed:expr, $kind:expr, $($column:ident: $value:expr),*) => {
            let is_timed: Vec<bool> = $is_timed;
            for at in (0..is_timed.len()).filter(|&at| !is_timed[at]) {
                let event = UntimedEventRow {
                    row: $table.row.values()[at],
                    name: $table.name.get(at),
                    track: $table.track.values()[at],
                    recorded_start_ns: $table.start_ns.get(at),
                    $( $column: $value(at), )*
                    ..Default::default()
                };
                found.push(($kind(event.category), event));
            }
            $table.keep_rows(&is_timed);
        };
    }
    take!(ops where have_time(&ops.start_ns, &ops.dur_ns), of_op, category: |at| ops.category.get(at),
        external_id: |at| ops.external_id.get(at), recorded_dur_ns: |at| ops.dur_ns.get(at));
    take!(launches where have_time(&launches.start_ns, &launches.dur_ns), |_| call,
        category: |at| launches.category.get(at), external_id: |at| launches.external_id.get(at),
        correlation: |at| launches.correlation.get(at), recorded_dur_ns: |at| launches.dur_ns.get(at));
    take!(python where have_time(&python.start_ns, &python.dur_ns), |_| frame,
        recorded_dur_ns: |at| python.dur_ns.get(at));
    take!(memory where memory_is_timed, |_| record,);
    found.sort_by_key(|(_, event)| event.row);
    for ((code, kind), event) in found {
        stats.note(code, None);
        untimed.push(UntimedEventRow { kind: symbols.intern(kind), ..event });
    }
}

/// Which events have a time: not 0 without a duration.
fn have_time(starts: &Column<i64>, durations: &Column<i64>) -> Vec<bool> {
    let has_time = |(at, &start): (usize, &i64)| start != 0 || durations.get(at) != Some(0);
    starts.values().iter().enumerate().map(has_time).collect()
}

/// Which moments have a time: not 0 if everything that starts elsewhere is far from 0.
fn moments_have_time(moments: &Column<i64>, others: [&Column<i64>; 3]) -> Vec<bool> {
    let moments = moments.values();
    let starts = others.iter().flat_map(|starts| starts.values()).chain(moments);
    let nearest = starts.filter(|&&start| start != 0).map(|start| start.saturating_abs());
    // All starts are looked at only where it matters.
    let none_at_zero = moments.contains(&0) && nearest.min().is_some_and(|nearest| nearest > HOUR_NS);
    moments.iter().map(|&start| start != 0 || !none_at_zero).collect()
}
