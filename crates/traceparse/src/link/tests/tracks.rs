use std::ops::Range;

use super::{Tiny, all, count, texts};
use crate::schema::{DeviceRow, MetadataRow, RangeRow, SyncRow, Tables};
use crate::stats::Code;
use crate::tracks::Ident;

fn metadata(t: &mut Tiny, track: u32, name: &str, value: &str) {
    let (row, name, value) = (t.next_row(), Some(t.text(name)), Some(t.text(value)));
    t.trace.tables.metadata.push(MetadataRow { row, name, track, start_ns: None, value });
}

#[test]
fn threads_take_the_last_name_of_each_kind() {
    let mut t = Tiny::default();
    let (first, second) = (t.track(7), t.track(8));
    metadata(&mut t, first, "process_name", "old");
    metadata(&mut t, second, "process_name", "python");
    metadata(&mut t, first, "process_labels", "CPU");
    metadata(&mut t, first, "thread_name", "thread 7");
    metadata(&mut t, first, "thread_sort_index", "-3");
    metadata(&mut t, first, "process_sort_index", "9");
    let text = t.text("stream 7");
    let odd = t.trace.tracks.number((Ident::Int(0), Ident::Text(text)));
    metadata(&mut t, odd, "thread_sort_index", "no number");
    let trace = t.link();
    let threads = &trace.tables.threads;
    assert_eq!(texts(&trace, &threads.process_name), [Some("python"), Some("python"), None]);
    assert_eq!(texts(&trace, &threads.process_label), [Some("CPU"), Some("CPU"), None]);
    assert_eq!(texts(&trace, &threads.thread_name), [Some("thread 7"), None, None]);
    assert_eq!(all(&threads.sort_index), [Some(-3), None, None]);
    assert_eq!(all(&threads.pid), [Some(1), Some(1), Some(0)]);
    assert_eq!(all(&threads.tid), [Some(7), Some(8), None]);
    assert_eq!(texts(&trace, &threads.tid_text), [None, None, Some("stream 7")]);
    assert_eq!(all(&trace.tables.metadata.tid)[5..], [Some(7), None]);
}

#[test]
fn devices_that_only_events_mention_are_added() {
    let mut t = Tiny::default();
    t.trace.tables.devices.push(DeviceRow { device: 0, sm_count: Some(80), ..Default::default() });
    t.kernel("k", 0..1, 1, 0);
    for device in [Some(3), Some(-1), None, Some(2), Some(3)] {
        let mut row = SyncRow { row: t.next_row(), ..Default::default() };
        row.device = device;
        t.trace.tables.syncs.push(row);
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.devices.device), [Some(0), Some(2), Some(3)]);
    assert_eq!(all(&trace.tables.devices.sm_count), [Some(80), None, None]);
}

/// Links ops with these threads and times; their parents, and how many overlap in part.
fn nested<const N: usize>(ops: [(i64, Range<i64>); N]) -> (Vec<Option<u32>>, Vec<u32>, u64) {
    let mut t = Tiny::default();
    for (tid, span) in ops {
        t.op("aten::mm", tid, span, |_| {});
    }
    let trace = t.link();
    let table = &trace.tables.ops;
    (all(&table.parent_row), table.depth.values().to_vec(), count(&trace, Code::PartialOverlap))
}

#[test]
fn ops_nest_by_time_on_their_thread() {
    let found = nested([(7, 0..100), (7, 10..90), (7, 20..30), (7, 100..120), (8, 20..30)]);
    assert_eq!(found, (vec![None, Some(0), Some(1), None, None], vec![0, 1, 2, 0, 0], 0));
}

#[test]
fn equal_intervals_nest_in_order_of_the_source_and_longer_ones_first() {
    let found = nested([(7, 0..10), (7, 0..20), (7, 0..10)]);
    assert_eq!(found, (vec![Some(1), None, Some(0)], vec![1, 0, 2], 0));
}

#[test]
fn an_op_that_outlasts_another_closes_it_and_both_stay() {
    let found = nested([(7, 0..50), (7, 40..60), (7, 45..48)]);
    assert_eq!(found, (vec![None, None, Some(1)], vec![0, 0, 1], 1));
}

#[test]
fn an_op_without_a_duration_is_a_leaf() {
    let mut t = Tiny::default();
    let a = t.op("a", 7, 0..50, |_| {});
    t.op("open", 7, 5..5, |row| row.dur_ns = None);
    t.op("b", 7, 10..20, |_| {});
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.parent_row), [None, Some(a), Some(a)]);
}

/// A range for each name, one after the other on one thread.
fn ranges(names: &[&str]) -> Tiny {
    let mut t = Tiny::default();
    for (name, start_ns) in names.iter().zip((0..).step_by(10)) {
        let row = RangeRow {
            row: t.next_row(),
            name: Some(t.text(name)),
            kind: t.text("push_pop"),
            track: t.track(7),
            start_ns,
            dur_ns: Some(5),
            ..Default::default()
        };
        t.trace.tables.ranges.push(row);
    }
    t
}

#[test]
fn operators_take_the_memory_of_the_ranges_if_all_ranges_are_operators() {
    let trace = ranges(&["aten::mm", "aten::add"]).link();
    let Tables { ops, ranges: found, .. } = &trace.tables;
    assert!(ops.start_ns.shares_with(&found.start_ns) && ops.pid.shares_with(&found.pid));
    assert_eq!(all(&ops.start_ns), [Some(0), Some(10)]);
    assert_eq!(all(&ops.tid), [Some(7), Some(7)]);

    let trace = ranges(&["aten::mm", "epoch 1", "aten::add"]).link();
    let Tables { ops, ranges: found, .. } = &trace.tables;
    assert!(!ops.start_ns.shares_with(&found.start_ns) && !ops.pid.shares_with(&found.pid));
    assert_eq!(all(&ops.start_ns), [Some(0), Some(20)]);
    assert_eq!(all(&ops.row), [Some(0), Some(2)]);
    assert_eq!(all(&found.start_ns), [Some(0), Some(10), Some(20)]);
}
