use super::{Tiny, all, count, texts};
use crate::schema::{CollectiveRow, GpuAnnotationRow, SyncRow};
use crate::stats::Code;

#[test]
fn an_external_id_names_the_op_and_time_confirms_it() {
    let mut t = Tiny::default();
    let op = t.op("aten::mm", 7, 0..100, |r| r.external_id = Some(3));
    let launch = t.launch(7, 10..20, 900, 3);
    t.kernel("gemm", 30..60, 900, 3);
    let trace = t.link();
    let gpu = &trace.tables.gpu_ops;
    assert_eq!((gpu.launch_row.get(0), gpu.op_row.get(0)), (Some(launch), Some(op)));
    assert_eq!(texts(&trace, &gpu.link), [Some("external_id")]);
}

#[test]
fn an_external_id_may_name_an_annotation_or_an_op_elsewhere() {
    let mut t = Tiny::default();
    let step = t.op("ProfilerStep#4", 7, 0..500, |r| r.external_id = Some(2));
    let other = t.op("aten::mm", 8, 0..10, |r| r.external_id = Some(5));
    t.launch(7, 10..20, 900, 2);
    t.launch(7, 30..40, 901, 5);
    t.kernel("a", 30..60, 900, 2);
    t.kernel("b", 60..90, 901, 5);
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_ops.op_row), [Some(step), Some(other)]);
}

#[test]
fn without_an_id_the_innermost_operator_counts_and_no_annotation() {
    let mut t = Tiny::default();
    let outer = t.op("aten::linear", 7, 0..100, |_| {});
    let inner = t.op("aten::addmm", 7, 10..50, |_| {});
    t.op("my range", 7, 55..90, |r| r.category = None);
    let annotation = t.text("user_annotation");
    t.op("my range", 7, 55..90, |r| r.category = Some(annotation));
    t.op("ProfilerStep#1", 7, 200..300, |_| {});
    for (start, correlation) in [(20, 1), (45, 2), (210, 3)] {
        t.launch(7, start..start + 10, correlation, 0);
        t.kernel("k", start + 50..start + 60, correlation, 0);
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_ops.op_row), [Some(inner), Some(outer), None]);
    let links = [Some("containment"), Some("containment"), Some("no_op")];
    assert_eq!(texts(&trace, &trace.tables.gpu_ops.link), links);
    assert_eq!(count(&trace, Code::NoOpForLaunch), 1);
}

#[test]
fn ids_that_repeat_the_correlation_are_not_believed_in_old_files() {
    let mut t = Tiny::default();
    let wrong = t.op("aten::wrong", 7, 0..5, |r| r.external_id = Some(119));
    let right = t.op("aten::right", 7, 10..5000, |_| {});
    for id in 100..120 {
        t.launch(7, id..id + 1, id, id);
        t.kernel("k", id + 10..id + 11, id, id);
    }
    let trace = t.link();
    assert!(all(&trace.tables.gpu_ops.op_row).into_iter().all(|op| op == Some(right) && op != Some(wrong)));
    assert_eq!(count(&trace, Code::LegacyExternalId), 40);
}

#[test]
fn an_id_that_repeats_the_correlation_needs_an_op_around_the_launch() {
    let mut t = Tiny::default();
    let op = t.op("aten::mm", 7, 0..100, |r| r.external_id = Some(5));
    t.op("aten::add", 7, 200..300, |r| r.external_id = Some(6));
    t.launch(7, 10..20, 5, 5);
    t.launch(7, 110..120, 6, 6);
    t.launch(7, 210..220, 7, 6);
    t.kernel("a", 30..40, 5, 5);
    t.kernel("b", 130..140, 6, 6);
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_ops.op_row), [Some(op), None]);
    assert_eq!(texts(&trace, &trace.tables.gpu_ops.link), [Some("external_id"), Some("no_op")]);
    // Once on the launch and once on its kernel.
    assert_eq!(count(&trace, Code::UnconfirmedExternalId), 2);
}

#[test]
fn every_gpu_op_says_how_or_why_not() {
    let mut t = Tiny::default();
    let op = t.op("aten::mm", 7, 0..100, |r| r.external_id = Some(3));
    t.kernel("before the window", 0..5, 77, 0);
    t.kernel("its launch was dropped", 10..20, 78, 3);
    t.kernel("no correlation", 20..30, 0, 0);
    t.kernel("no correlation, but an id", 20..30, 0, 3);
    t.kernel("an id that no op has", 20..30, 0, 99);
    let trace = t.link();
    let links = ["no_launch", "gpu_external_id", "no_correlation", "gpu_external_id", "no_correlation"];
    assert_eq!(texts(&trace, &trace.tables.gpu_ops.link), links.map(Some));
    assert_eq!(all(&trace.tables.gpu_ops.op_row), [None, Some(op), None, Some(op), None]);
    assert_eq!(count(&trace, Code::LaunchOutsideTrace), 2);
}

#[test]
fn a_graph_launch_shares_itself_and_its_op_with_all_its_kernels() {
    let mut t = Tiny::default();
    let op = t.op("replay", 7, 0..100, |r| r.external_id = Some(3));
    let launch = t.launch(7, 10..20, 900, 3);
    for start in [30, 40, 50] {
        t.kernel("k", start..start + 10, 900, 3);
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_ops.launch_row), [Some(launch); 3]);
    assert_eq!(all(&trace.tables.gpu_ops.op_row), [Some(op); 3]);
}

#[test]
fn of_launches_with_one_correlation_the_last_before_the_work_counts() {
    let mut t = Tiny::default();
    let first = t.launch(7, 10..20, 5, 0);
    let second = t.launch(7, 100..110, 5, 0);
    t.kernel("a", 30..40, 5, 0);
    t.kernel("b", 130..140, 5, 0);
    t.launch(7, 150..160, 6, 0);
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_ops.launch_row), [Some(first), Some(second)]);
    assert_eq!(count(&trace, Code::DuplicateCorrelation), 1);
    assert_eq!(count(&trace, Code::LaunchWithoutGpuWork), 1);
}

#[test]
fn communication_by_name_by_arguments_and_by_op() {
    let mut t = Tiny::default();
    t.op("record_param_comms", 7, 0..100, |_| {});
    t.launch(7, 10..20, 1, 0);
    t.kernel("some_transport", 30..40, 1, 0);
    t.gpu_op("memcpy", "Memcpy DtoD", 40..50, 1, 0);
    t.kernel("ncclDevKernel_AllGather_RING_LL(int)", 50..60, 2, 0);
    let row = t.kernel("unnamed", 60..70, 3, 0);
    t.kernel("gemm", 70..80, 4, 0);
    let source = t.text("gpu_op");
    t.trace.tables.collectives.push(CollectiveRow { row, source, ..Default::default() });
    let trace = t.link();
    let expected = [true, false, true, true, false].map(Some);
    assert_eq!(all(&trace.tables.gpu_ops.is_communication), expected);
}

#[test]
fn annotations_on_the_gpu_and_synchronisations_find_their_host_rows() {
    let mut t = Tiny::default();
    let op = t.op("my range", 7, 0..100, |r| r.external_id = Some(3));
    let launch = t.launch(7, 10..20, 5, 0);
    for (name, id) in [("my range", 3), ("another", 3), ("my range", 4)] {
        let (row, name, external_id) = (t.next_row(), Some(t.text(name)), Some(id));
        let (start_ns, dur_ns) = (30, Some(10));
        let annotation = GpuAnnotationRow { row, name, external_id, start_ns, dur_ns, ..Default::default() };
        t.trace.tables.gpu_annotations.push(annotation);
    }
    for correlation in [Some(5), Some(6), None] {
        let row = t.next_row();
        t.trace.tables.syncs.push(SyncRow { row, correlation, start_ns: 15, ..Default::default() });
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.gpu_annotations.op_row), [Some(op), None, None]);
    assert_eq!(all(&trace.tables.syncs.launch_row), [Some(launch), None, None]);
}
