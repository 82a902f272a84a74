//! Operators that make no GPU work: views and allocations.

use crate::plan::{Builder, Op, op};
use crate::tensor::{Input, Tensor};

pub(crate) fn view(b: &mut Builder, x: &Tensor, dims: &[i64]) {
    b.leaf(op!("aten::view", x, dims), 900);
}

/// `aten::reshape` of what a view can show.
pub(crate) fn reshape(b: &mut Builder, x: &Tensor, dims: &[i64]) {
    b.op(op!("aten::reshape", x, dims), |b| view(b, x, dims));
}

/// `aten::as_strided`, which every strided view ends in.
pub(crate) fn as_strided(b: &mut Builder, x: &Tensor, out: &Tensor) {
    b.leaf(op!("aten::as_strided", x, &out.dims[..], &out.strides[..], ()), 400);
}

pub(crate) fn transpose(b: &mut Builder, x: &Tensor, first: usize, second: usize) {
    let out = x.transposed(first, second);
    b.op(op!("aten::transpose", x, first as i64, second as i64), |b| as_strided(b, x, &out));
}

/// `aten::t`, as `mark` makes it; gives the view.
pub(crate) fn t(b: &mut Builder, x: &Tensor, mark: impl FnOnce(Op) -> Op) -> Tensor {
    b.op(mark(op!("aten::t", x)), |b| transpose(b, x, 0, 1));
    x.transposed(0, 1)
}

/// `aten::empty`, with the block of memory called `key`.
pub(crate) fn empty(b: &mut Builder, tensor: &Tensor, key: &str, on_device: bool) -> u32 {
    let sizes = [Input::from(&tensor.dims[..])].into_iter();
    b.op(Op::new("aten::empty", sizes.chain(options(tensor))), |b| {
        b.wait(900);
        b.alloc(key, tensor.bytes(), on_device)
    })
}

/// `aten::empty_strided`, with the block of device memory called `key`.
pub(crate) fn empty_strided(b: &mut Builder, tensor: &Tensor, key: &str) {
    let sizes = [Input::from(&tensor.dims[..]), Input::from(&tensor.strides[..])].into_iter();
    b.op(Op::new("aten::empty_strided", sizes.chain(options(tensor))), |b| {
        b.wait(1_300);
        b.alloc(key, tensor.bytes(), true)
    });
}

/// The arguments of a new tensor: type, layout, device, pinned or not, and memory format.
fn options(tensor: &Tensor) -> [Input; 5] {
    [tensor.dtype.number.into(), 0.into(), ().into(), false.into(), ().into()]
}
