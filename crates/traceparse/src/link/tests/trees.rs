use super::tiny::{Tiny, all, count};
use crate::stats::Code;

#[test]
fn ops_nest_by_time_on_their_thread() {
    let mut t = Tiny::default();
    let linear = t.op("aten::linear", 7, 0..100, |_| {});
    let addmm = t.op("aten::addmm", 7, 10..90, |_| {});
    t.op("aten::copy_", 7, 20..30, |_| {});
    t.op("aten::relu", 7, 100..120, |_| {});
    t.op("aten::add", 8, 20..30, |_| {});
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.parent_row), [None, Some(linear), Some(addmm), None, None]);
    assert_eq!(trace.tables.ops.depth.values(), [0, 1, 2, 0, 0]);
    assert_eq!(count(&trace, Code::PartialOverlap), 0);
}

#[test]
fn equal_intervals_nest_in_order_of_the_source_and_longer_ones_first() {
    let mut t = Tiny::default();
    t.op("inner", 7, 0..10, |_| {});
    let outer = t.op("outer", 7, 0..20, |_| {});
    t.op("same", 7, 0..10, |_| {});
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.parent_row), [Some(outer), None, Some(0)]);
}

#[test]
fn an_op_that_outlasts_another_closes_it_and_both_stay() {
    let mut t = Tiny::default();
    t.op("a", 7, 0..50, |_| {});
    let b = t.op("b", 7, 40..60, |_| {});
    t.op("c", 7, 45..48, |_| {});
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.parent_row), [None, None, Some(b)]);
    assert_eq!(count(&trace, Code::PartialOverlap), 1);
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
