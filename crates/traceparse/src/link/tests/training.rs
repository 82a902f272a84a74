use super::{Tiny, all, texts};

const NODE: &str = "autograd::engine::evaluate_function: MmBackward0";

#[test]
fn an_arrow_leads_from_a_backward_op_to_its_forward_op() {
    let mut t = Tiny::default();
    let outer = t.op("aten::linear", 7, 0..100, |r| r.sequence = Some(4));
    let inner = t.op("aten::t", 7, 0..10, |r| r.sequence = Some(5));
    let set =
        |thread| move |r: &mut crate::schema::OpRow| (r.sequence, r.forward_thread) = (Some(4), Some(thread));
    t.op(NODE, 8, 500..600, set(1));
    t.op("MmBackward0", 8, 510..600, set(1));
    t.op("aten::mm", 8, 520..600, |_| {});
    t.flow(1, (7, 0), (8, 500));
    let trace = t.link();
    // The wrapped node has no arrow of its own: the thread that the arrow taught and the number tell.
    assert_eq!(all(&trace.tables.ops.forward_row), [None, None, Some(outer), Some(outer), None]);
    assert_ne!(outer, inner);
}

#[test]
fn without_arrows_thread_and_number_tell_and_the_last_forward_op_wins() {
    let mut t = Tiny::default();
    let old = t.op("aten::mul", 7, 0..10, |r| r.sequence = Some(4));
    t.op("aten::view", 7, 20..30, |r| r.sequence = Some(5));
    let mm = t.op("aten::mm", 7, 40..50, |r| r.sequence = Some(5));
    let set = |r: &mut crate::schema::OpRow| (r.sequence, r.forward_thread) = (Some(5), Some(1));
    t.op(NODE, 8, 500..600, set);
    t.op("aten::later", 7, 700..710, |r| r.sequence = Some(5));
    t.op("MulBackward0", 8, 600..610, |r| (r.sequence, r.forward_thread) = (Some(4), Some(1)));
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.forward_row), [None, None, None, Some(mm), None, Some(old)]);
}

#[test]
fn a_number_on_two_threads_is_resolved_by_other_numbers() {
    let mut t = Tiny::default();
    let first = t.op("aten::mm", 7, 0..10, |r| r.sequence = Some(1));
    t.op("aten::mm", 9, 0..10, |r| r.sequence = Some(1));
    let second = t.op("aten::mm", 7, 10..20, |r| r.sequence = Some(2));
    t.op(NODE, 8, 500..510, |r| (r.sequence, r.forward_thread) = (Some(1), Some(3)));
    t.op(NODE, 8, 520..530, |r| (r.sequence, r.forward_thread) = (Some(2), Some(3)));
    let trace = t.link();
    assert_eq!(all(&trace.tables.ops.forward_row)[3..], [Some(first), Some(second)]);

    let mut t = Tiny::default();
    t.op("aten::mm", 7, 0..10, |r| r.sequence = Some(1));
    t.op("aten::mm", 9, 0..10, |r| r.sequence = Some(1));
    t.op(NODE, 8, 500..510, |r| (r.sequence, r.forward_thread) = (Some(1), Some(3)));
    assert_eq!(t.link().tables.ops.forward_row.get(2), None, "nothing tells the thread");
}

#[test]
fn phases_pass_to_what_an_op_encloses() {
    let mut t = Tiny::default();
    t.op("ProfilerStep#1", 7, 0..1000, |_| {});
    t.op("aten::mm", 7, 10..20, |r| r.sequence = Some(1));
    t.op("aten::empty", 7, 12..15, |_| {});
    t.op("aten::empty", 7, 30..40, |_| {});
    t.op(NODE, 8, 50..90, |_| {});
    t.op("aten::mm", 8, 60..70, |r| r.sequence = Some(2));
    t.op("Optimizer.step#SGD.step", 7, 100..200, |_| {});
    t.op("aten::add_", 7, 110..120, |_| {});
    t.op("Optimizer.zero_grad#SGD.zero_grad", 7, 200..210, |_| {});
    let trace = t.link();
    let phases: Vec<_> = texts(&trace, &trace.tables.ops.phase).into_iter().flatten().collect();
    let expected = "other forward forward other backward backward optimizer optimizer optimizer";
    assert_eq!(phases.join(" "), expected);
}

#[test]
fn the_innermost_module_that_is_open_when_an_op_starts_counts() {
    let mut t = Tiny::default();
    let net = t.frame("nn.Module: Net_0", 7, 0..100);
    t.frame("torch/nn/modules/module.py(1): forward", 7, 5..95);
    let linear = t.frame("nn.Module: Linear_3", 7, 10..50);
    t.op("aten::linear", 7, 12..60, |_| {});
    t.op("aten::relu", 7, 50..70, |_| {});
    t.op("aten::add", 7, 100..110, |_| {});
    t.op("aten::linear", 8, 12..60, |_| {});
    let trace = t.link();
    let ops = &trace.tables.ops;
    assert_eq!(texts(&trace, &ops.module), [Some("Linear_3"), Some("Net_0"), None, None]);
    assert_eq!(all(&ops.module_row), [Some(linear), Some(net), None, None]);
    assert_eq!(texts(&trace, &ops.phase), ["forward", "forward", "other", "other"].map(Some));
}

#[test]
fn backward_ops_have_the_module_of_their_forward_unless_they_call_one() {
    let mut t = Tiny::default();
    t.frame("nn.Module: Linear_3", 7, 0..100);
    t.frame("nn.Module: Block_1", 8, 540..560);
    t.op("aten::mm", 7, 10..50, |r| r.sequence = Some(4));
    t.op(NODE, 8, 500..600, |r| (r.sequence, r.forward_thread) = (Some(4), Some(1)));
    t.op("aten::mm", 8, 510..530, |_| {});
    t.op("recomputed", 8, 545..550, |_| {});
    t.op("aten::mm", 8, 570..580, |_| {});
    let trace = t.link();
    let modules = ["Linear_3", "Linear_3", "Linear_3", "Block_1", "Linear_3"].map(Some);
    assert_eq!(texts(&trace, &trace.tables.ops.module), modules);
    let phases = ["forward", "backward", "backward", "recompute", "backward"].map(Some);
    assert_eq!(texts(&trace, &trace.tables.ops.phase), phases);
}
