//! Operators that make no GPU work: views, casts, allocations, and the wrappers of the backward pass.

use crate::library::FlowEnd;
use crate::plan::{Builder, Op};
use crate::tensor::{DType, Input, Tensor};

/// `aten::view`; gives the view.
pub(crate) fn view(b: &mut Builder, x: &Tensor, dims: &[i64]) -> Tensor {
    b.leaf(Op::new("aten::view", [x.into(), dims.into()]), 900);
    x.viewed(dims)
}

/// `aten::as_strided`, which every strided view ends in.
pub(crate) fn as_strided(b: &mut Builder, x: &Tensor, out: &Tensor) {
    let inputs = [x.into(), out.dims[..].into(), out.strides[..].into(), Input::None];
    b.leaf(Op::new("aten::as_strided", inputs), 400);
}

/// `aten::transpose`.
pub(crate) fn transpose(b: &mut Builder, x: &Tensor, first: usize, second: usize) -> Tensor {
    let out = x.transposed(first, second);
    let inputs = [x.into(), (first as i64).into(), (second as i64).into()];
    b.op(Op::new("aten::transpose", inputs), |b| as_strided(b, x, &out));
    out
}

/// `aten::t`.
pub(crate) fn t(b: &mut Builder, x: &Tensor, op: impl FnOnce(Op) -> Op) -> Tensor {
    let out = x.transposed(0, 1);
    b.op(op(Op::new("aten::t", [x.into()])), |b| {
        transpose(b, x, 0, 1);
    });
    out
}

/// `aten::empty`, with the block of memory called `key`.
pub(crate) fn empty(b: &mut Builder, tensor: &Tensor, key: &str, on_device: bool) -> u32 {
    let inputs = empty_inputs(tensor);
    let mut block = 0;
    b.op(Op::new("aten::empty", inputs), |b| {
        b.wait(900);
        block = b.alloc(key, tensor.bytes(), on_device);
    });
    block
}

/// `aten::empty_strided`, with the block of memory called `key`.
pub(crate) fn empty_strided(b: &mut Builder, tensor: &Tensor, key: &str, on_device: bool) -> u32 {
    let inputs = [tensor.dims[..].into(), tensor.strides[..].into()];
    let inputs = inputs.into_iter().chain(empty_inputs(tensor).into_iter().skip(1));
    let mut block = 0;
    b.op(Op::new("aten::empty_strided", inputs), |b| {
        b.wait(1_300);
        block = b.alloc(key, tensor.bytes(), on_device);
    });
    block
}

fn empty_inputs(tensor: &Tensor) -> [Input; 6] {
    // Numbers of c10::ScalarType.
    let dtype = match tensor.dtype {
        DType::Long => 4,
        DType::Float => 6,
        DType::BFloat16 => 15,
    };
    let dims = tensor.dims[..].into();
    [dims, Input::from(dtype as i64), 0.into(), Input::None, false.into(), Input::None]
}

/// An operator's place in the autograd graph: its sequence number and flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) sequence: u32,
    flow: u32,
}

impl Node {
    /// The next node of the step.
    pub(crate) fn new(b: &mut Builder) -> Self {
        Self { sequence: b.next_sequence(), flow: b.next_flow() }
    }

    /// Marks the forward operator that the node belongs to.
    pub(crate) fn forward(self, op: Op) -> Op {
        op.sequence(self.sequence).flow(FlowEnd::Start(self.flow))
    }

    /// Marks an operator around it, which shares the sequence number.
    pub(crate) fn around(self, op: Op) -> Op {
        op.sequence(self.sequence)
    }

    /// The node's part of the backward pass: the engine's wrapper, the function, and `body` inside.
    pub(crate) fn backward(
        self,
        b: &mut Builder,
        name: &str,
        grad: &Tensor,
        body: impl FnOnce(&mut Builder),
    ) {
        let wrapper = format!("autograd::engine::evaluate_function: {name}");
        b.op(Op::bare(&wrapper).backward_of(self.sequence), |b| {
            let function = Op::new(name, [grad.into()]);
            b.op(function.backward_of(self.sequence).flow(FlowEnd::End(self.flow)), body);
        });
    }
}
