//! Nothing grows faster than the input, and nothing depends on the number of threads.

use std::time::{Duration, Instant};

use super::{Tiny, all};
use crate::options::ReadOptions;

/// Far above what linear work takes, far below what quadratic work takes.
const LIMIT: Duration = Duration::from_secs(300);

fn many(rows: i64, mut add: impl FnMut(&mut Tiny, i64)) -> crate::trace::Trace {
    let mut t = Tiny::default();
    for row in 0..rows {
        add(&mut t, row);
    }
    let begin = Instant::now();
    let trace = t.link();
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    trace
}

#[test]
fn many_ops_of_one_start_with_launches_and_arrows() {
    let trace = many(600_000, |t, i| {
        t.op("aten::mm", 7, 0..10, |r| (r.sequence, r.external_id) = (Some(1), Some(1)));
        t.launch(7, 0..10, 1, 1);
        t.kernel("k", 0..10, 1, 1);
        t.op("MmBackward0", 8, 20..30, |r| (r.sequence, r.forward_thread) = (Some(1), Some(1)));
        t.flow(i, (7, 0), (8, 20));
    });
    assert!(trace.tables.gpu_ops.op_row.iter().all(|op| op.is_some()));
}

#[test]
fn deep_nesting_of_ops_frames_and_steps() {
    let depth = 500_000;
    let trace = many(depth, |t, i| {
        t.op("ProfilerStep#1", 7, i..3 * depth - i, |_| {});
        t.frame("nn.Module: A_0", 7, i..3 * depth - i);
        t.launch(7, depth + i..depth + i + 1, i, 0);
        t.kernel("k", depth + i..depth + i + 1, i, 0);
    });
    assert_eq!(trace.tables.ops.depth.values().last(), Some(&499_999));
    assert_eq!(trace.tables.python.parent_row.get(0), None);
    assert_eq!(trace.tables.python.parent_row.iter().flatten().count(), 499_999);
}

#[test]
fn staircases_of_partial_overlaps() {
    let trace = many(600_000, |t, i| {
        t.op("aten::mm", 7, i..i + 100_000, |_| {});
        t.frame("f", 7, i..i + 100_000);
        t.launch(7, i..i + 90_000, i + 1, 0);
        t.kernel("k", i..i + 90_000, i + 1, 0);
    });
    assert!(trace.tables.launches.op_row.iter().all(|op| op.is_some()));
}

#[test]
fn extreme_times_do_not_overflow() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#1", 7, 0..1, |r| (r.start_ns, r.dur_ns) = (i64::MIN, Some(i64::MAX)));
    t.op("ProfilerStep#2", 7, 0..1, |r| (r.start_ns, r.dur_ns) = (i64::MAX, Some(i64::MAX)));
    t.op("aten::mm", 7, 0..1, |r| (r.start_ns, r.dur_ns) = (i64::MIN, Some(i64::MIN)));
    t.launch(7, i64::MIN..i64::MIN, i64::MIN, i64::MAX);
    t.kernel("k", i64::MAX..i64::MAX, i64::MIN, i64::MAX);
    t.frame("f", 7, i64::MAX..i64::MAX);
    assert_eq!(t.link().tables.steps.step.len(), 2);
}

#[test]
fn one_thread_finds_the_same_as_several() {
    let build = || {
        let mut t = Tiny::default();
        t.frame("nn.Module: A_0", 7, 0..100);
        t.op("ProfilerStep#1", 7, 0..100, |_| {});
        t.op("aten::mm", 7, 10..40, |r| r.sequence = Some(1));
        t.launch(7, 20..25, 3, 0);
        t.kernel("k", 30..60, 3, 0);
        t
    };
    let several = build().link();
    let one = build().link_with(&ReadOptions { threads: Some(1), ..Default::default() });
    assert_eq!(all(&one.tables.gpu_ops.step), [Some(1)]);
    assert_eq!(one.stats, several.stats);
    assert_eq!(one.tables.into_batches(&one.symbols), several.tables.into_batches(&several.symbols));
}
