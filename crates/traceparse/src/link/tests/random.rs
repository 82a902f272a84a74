//! Random traces against a slow reading of the rules.

use proptest::prelude::*;

use super::Tiny;

/// Thread, start and duration.
type Span = (i64, i64, i64);

fn spans(count: usize) -> impl Strategy<Value = Vec<Span>> {
    proptest::collection::vec((0i64..2, 0i64..40, 0i64..20), 0..count)
}

/// The first of those that `keep` selects, by order of (start, longer first, row).
fn innermost(ops: &[Span], keep: impl Fn(&Span) -> bool) -> Option<u32> {
    let kept = (0u32..).zip(ops).filter(|(_, op)| keep(op));
    kept.max_by_key(|&(row, &(_, start, dur))| (start, -dur, row)).map(|(row, _)| row)
}

/// The rule of the profiler's tables: ops in order, each in the last open one that it does not
/// outlast.
fn slow_parents(ops: &[Span]) -> Vec<Option<u32>> {
    let mut parents = vec![None; ops.len()];
    for thread in 0..2 {
        let mut order: Vec<usize> = (0..ops.len()).filter(|&i| ops[i].0 == thread).collect();
        order.sort_by_key(|&i| (ops[i].1, -ops[i].2, i));
        let mut open: Vec<usize> = Vec::new();
        for i in order {
            let (_, start, dur) = ops[i];
            while let Some(&top) = open.last() {
                let end = ops[top].1 + ops[top].2;
                if start < end && start + dur <= end {
                    parents[i] = Some(top as u32);
                    break;
                }
                open.pop();
            }
            open.push(i);
        }
    }
    parents
}

proptest! {
    #[test]
    fn ops_launches_frames_and_modules(ops in spans(25), launches in spans(25), frames in spans(12)) {
        let mut t = Tiny::default();
        for &(tid, start, dur) in &ops {
            t.op("aten::mm", tid, start..start + dur, |_| {});
        }
        for (&(tid, start, dur), id) in launches.iter().zip(1..) {
            t.launch(tid, start..start + dur, id, 0);
        }
        let first_frame = (ops.len() + launches.len()) as u32;
        for &(tid, start, dur) in &frames {
            t.frame("nn.Module: A_0", tid, start..start + dur);
        }
        let trace = t.link();
        let tables = &trace.tables;
        prop_assert_eq!(tables.ops.parent_row.iter().collect::<Vec<_>>(), slow_parents(&ops));
        for (i, &(tid, start, dur)) in launches.iter().enumerate() {
            let op = innermost(&ops, |o| o.0 == tid && o.1 <= start && o.1 + o.2 >= start + dur);
            prop_assert_eq!(tables.launches.op_row.get(i), op);
        }
        for (i, &(tid, start, _)) in ops.iter().enumerate() {
            let module = innermost(&frames, |f| f.0 == tid && f.1 <= start && f.1 + f.2 > start);
            prop_assert_eq!(tables.ops.module_row.get(i), module.map(|m| first_frame + m));
        }
    }

    #[test]
    fn backward_ops_find_the_last_forward_op_of_their_number(
        forwards in proptest::collection::vec((0i64..30, 0i64..4), 0..20),
        backwards in proptest::collection::vec((0i64..40, 0i64..4), 0..20),
    ) {
        let mut t = Tiny::default();
        for &(start, sequence) in &forwards {
            t.op("aten::mm", 7, start..start + 1, |r| r.sequence = Some(sequence));
        }
        for &(start, sequence) in &backwards {
            t.op("MmBackward0", 8, start..start + 1, |r| {
                (r.sequence, r.forward_thread) = (Some(sequence), Some(1));
            });
        }
        let trace = t.link();
        for (i, &(start, sequence)) in backwards.iter().enumerate() {
            let candidates = (0u32..).zip(&forwards).filter(|(_, f)| f.1 == sequence && f.0 <= start);
            let expected = candidates.max_by_key(|&(row, f)| (f.0, row)).map(|(row, _)| row);
            prop_assert_eq!(trace.tables.ops.forward_row.get(forwards.len() + i), expected);
        }
    }

    #[test]
    fn parts_sum_to_each_step_and_steps_do_not_overlap(
        steps in proptest::collection::vec((0i64..200, 0i64..60), 0..6),
        ops in spans(12),
        work in proptest::collection::vec((0i64..250, 0i64..10, 0i64..80, 0i64..90), 0..20),
    ) {
        let mut t = Tiny::default();
        for (&(start, dur), step) in steps.iter().zip(1..) {
            t.op(&format!("ProfilerStep#{step}"), 0, start..start + dur, |_| {});
        }
        for &(tid, start, dur) in &ops {
            let name = if dur % 3 == 0 { "nccl:all_reduce" } else { "aten::mm" };
            t.op(name, tid, start..start + dur, |_| {});
        }
        for (&(start, dur, delay, length), id) in work.iter().zip(1..) {
            t.launch(0, start..start + dur, id, 0);
            let (kind, name) = [("kernel", "gemm"), ("memcpy", "copy"), ("kernel", "ncclKernel")][id as usize % 3];
            t.gpu_op(kind, name, start + delay..start + delay + length, id, 0);
        }
        let trace = t.link();
        let s = &trace.tables.steps;
        let parts = [
            &s.kernel_ns, &s.memcpy_ns, &s.memset_ns, &s.communication_ns,
            &s.runtime_ns, &s.dataloader_ns, &s.cpu_exec_ns, &s.other_ns,
        ];
        let mut end = i64::MIN;
        for i in 0..s.total_ns.len() {
            let sum: i64 = parts.iter().map(|part| part.values()[i]).sum();
            prop_assert_eq!(sum, s.total_ns.values()[i]);
            prop_assert!(parts.iter().all(|part| part.values()[i] >= 0));
            prop_assert!(s.start_ns.values()[i] >= end);
            end = s.start_ns.values()[i] + s.total_ns.values()[i];
        }
    }
}
