use super::{Tiny, all, count, texts};
use crate::options::ReadOptions;
use crate::schema::MemoryRow;
use crate::stats::Code;
use crate::trace::Trace;

/// Start, total and whether partial, of every step.
fn spans(trace: &Trace) -> Vec<(i64, i64, bool)> {
    let steps = &trace.tables.steps;
    let rows = 0..steps.start_ns.len();
    rows.map(|i| {
        (steps.start_ns.values()[i], steps.total_ns.values()[i], steps.is_partial.get(i) == Some(true))
    })
    .collect()
}

#[test]
fn a_step_lasts_until_its_work_is_done_and_delays_the_next() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#1", 7, 100..300, |_| {});
    t.op("ProfilerStep#2", 7, 300..500, |_| {});
    t.launch(7, 150..160, 1, 0);
    t.launch(7, 310..320, 2, 0);
    t.kernel("a", 200..350, 1, 0);
    t.kernel("b", 350..400, 2, 0);
    t.kernel("of no launch", 360..370, 9, 0);
    t.kernel("before all", 90..110, 8, 0);
    let trace = t.link();
    assert_eq!(all(&trace.tables.steps.step), [Some(1), Some(2)]);
    assert_eq!(spans(&trace), [(110, 240, false), (350, 150, false)]);
    assert_eq!(all(&trace.tables.launches.step), [Some(1), Some(2)]);
    assert_eq!(all(&trace.tables.gpu_ops.step), [Some(1), Some(2), Some(2), None]);
}

#[test]
fn steps_that_the_end_of_the_trace_cuts_are_partial() {
    let mut t = Tiny::default();
    for (step, pieces) in [(1, 10), (2, 10), (3, 7), (4, 0)] {
        let begin = 1000 * step;
        t.op(&format!("ProfilerStep#{step}"), 7, begin..begin + 1000, |_| {});
        for piece in 0..pieces {
            t.launch(7, begin + piece..begin + piece + 1, begin + piece, 0);
            t.kernel("k", begin + 500..begin + 600, begin + piece, 0);
        }
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.steps.is_partial), [false, false, true, true].map(Some));
}

#[test]
fn ops_and_memory_belong_to_the_step_they_begin_in_on_any_thread() {
    let mut t = Tiny::default();
    t.op("aten::early", 7, 90..110, |_| {});
    t.op("ProfilerStep#5", 7, 100..200, |_| {});
    t.op("ProfilerStep#6", 7, 200..300, |_| {});
    t.op("aten::across", 8, 190..210, |_| {});
    t.op("aten::late", 8, 300..310, |_| {});
    t.launch(7, 195..205, 0, 0);
    for start_ns in [50, 200] {
        let (row, track) = (t.next_row(), t.track(9));
        t.trace.tables.memory.push(MemoryRow { row, track, start_ns, ..Default::default() });
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.step), [None, Some(5), Some(6), Some(5), None]);
    assert_eq!(all(&trace.tables.launches.step), [Some(5)]);
    assert_eq!(all(&trace.tables.memory.step), [None, Some(6)]);
}

#[test]
fn overlapping_steps_are_counted_and_the_last_to_begin_has_the_rows() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#1", 7, 0..100, |_| {});
    t.op("ProfilerStep#2", 8, 50..150, |_| {});
    t.op("aten::add", 9, 60..70, |_| {});
    let trace = t.link();
    assert_eq!(spans(&trace), [(0, 100, false), (100, 50, false)]);
    assert_eq!(trace.tables.ops.step.get(2), Some(2));
    assert_eq!(count(&trace, Code::OverlappingSteps), 1);
}

#[test]
fn a_named_annotation_can_mark_steps() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#9", 7, 0..1000, |_| {});
    t.op("train step", 7, 500..600, |_| {});
    t.op("train step", 7, 100..300, |_| {});
    t.op("aten::add", 7, 510..540, |_| {});
    let options = ReadOptions { step_range: Some("train step".to_owned()), ..Default::default() };
    let trace = t.link_with(&options);
    let steps = &trace.tables.steps;
    assert_eq!(all(&steps.step), [Some(0), Some(1)]);
    assert_eq!(texts(&trace, &steps.name), [Some("train step"); 2]);
    assert_eq!(all(&steps.row), [Some(2), Some(1)]);
    assert_eq!(steps.cpu_exec_ns.values(), [0, 30]);
    assert_eq!(steps.other_ns.values(), [200, 70]);
    assert_eq!(trace.tables.ops.step.get(3), Some(1));
}

#[test]
fn a_trace_without_steps_is_one_step_of_its_operators_or_of_its_gpu_work() {
    let mut t = Tiny::default();
    t.op("aten::mm", 7, 100..160, |_| {});
    t.op("aten::add", 8, 300..370, |_| {});
    t.launch(8, 310..330, 5, 0);
    t.kernel("k", 320..420, 5, 0);
    let trace = t.link();
    let steps = &trace.tables.steps;
    assert_eq!((steps.step.get(0), steps.name.get(0), steps.row.get(0)), (None, None, None));
    assert_eq!(spans(&trace), [(100, 320, false)]);
    let parts = [&steps.kernel_ns, &steps.runtime_ns, &steps.cpu_exec_ns, &steps.other_ns];
    assert_eq!(parts.map(|part| part.values()[0]), [100, 10, 70, 140]);

    let mut t = Tiny::default();
    t.kernel("k", 320..420, 5, 0);
    t.kernel("k", 500..600, 6, 0);
    assert_eq!(spans(&t.link()), [(320, 280, false)]);
    assert!(spans(&Tiny::default().link()).is_empty());
}

/// The plugin begins even the only step after such work, and so loses what the host did before.
#[test]
fn work_whose_launch_is_not_recorded_does_not_shorten_a_trace_without_steps() {
    let mut t = Tiny::default();
    t.op("aten::mm", 7, 100..400, |_| {});
    t.launch(7, 310..330, 5, 0);
    t.kernel("launched before the recording", 150..250, 9, 0);
    t.kernel("k", 320..420, 5, 0);
    let trace = t.link();
    assert_eq!(spans(&trace), [(100, 320, false)]);
    assert_eq!(trace.tables.steps.kernel_ns.values(), [200]);
}

#[test]
fn parts_in_order_of_priority_sum_to_the_step() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#1", 7, 0..1000, |_| {});
    t.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 7, 0..100, |_| {});
    t.op("aten::stack", 7, 50..90, |_| {});
    t.op("aten::mm", 7, 200..400, |_| {});
    t.op("nccl:all_reduce", 7, 500..600, |_| {});
    t.op("c10d::allreduce_", 7, 510..590, |_| {});
    t.launch(7, 250..260, 1, 0);
    t.kernel("gemm", 255..300, 1, 0);
    t.gpu_op("memcpy", "Memcpy HtoD", 290..320, 1, 0);
    t.gpu_op("memset", "Memset", 310..330, 1, 0);
    t.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", 550..700, 1, 0);
    let trace = t.link();
    let s = &trace.tables.steps;
    let parts = [&s.kernel_ns, &s.memcpy_ns, &s.memset_ns, &s.communication_ns, &s.runtime_ns];
    // The host starts the all-reduce from 500 on: communication is what its kernel does.
    assert_eq!(parts.map(|part| part.values()[0]), [45, 20, 10, 150, 5]);
    let rest = [&s.dataloader_ns, &s.cpu_exec_ns, &s.other_ns, &s.total_ns];
    assert_eq!(rest.map(|part| part.values()[0]), [100, 170, 500, 1000]);
}
