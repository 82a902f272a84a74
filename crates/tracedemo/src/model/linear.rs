//! `nn.Linear`: matrix products forward and backward.

use super::kernels::{elementwise, gemm, reduce};
use super::parameters::{Model, Param, accumulate};
use super::views::{Node, t, view};
use crate::calls::Api;
use crate::plan::{Builder, Op};
use crate::tensor::{Input, Tensor};

/// `x @ weight.T + bias` for `x` of shape `(..., k)`; gives the output.
pub(crate) fn linear(
    model: &mut Model,
    b: &mut Builder,
    name: &str,
    x: &Tensor,
    n: i64,
    bias: bool,
) -> Tensor {
    let k = x.dims.last().copied().unwrap_or(1);
    let weight = model.param(&format!("{name}.weight"), &[n, k]);
    let bias = bias.then(|| model.param(&format!("{name}.bias"), &[n]));
    let mut out_dims = x.dims.clone();
    out_dims.pop();
    out_dims.push(n);
    let out = x.viewed(&out_dims);
    let ranks = model.config.ranks;
    b.module("Linear", "torch/nn/modules/linear.py(125): forward", |b| {
        b.frame("<built-in function linear>", |b| {
            forward(b, x, &weight, bias.as_ref(), &out, ranks);
        });
    });
    out
}

fn forward(b: &mut Builder, x: &Tensor, weight: &Param, bias: Option<&Param>, out: &Tensor, ranks: u32) {
    let (n, k) = (weight.tensor.dims[0], weight.tensor.dims[1]);
    let m = x.elements() / k;
    let [flattened, transposed, product, unflattened] = [(); 4].map(|()| Node::new(b));
    let bias_input = bias.map_or(Input::None, |bias| Input::from(&bias.tensor));
    let inputs = [x.into(), Input::from(&weight.tensor), bias_input];
    let mut block = 0;
    b.op(flattened.around(Op::new("aten::linear", inputs)), |b| {
        let rows = x.viewed(&[m, k]);
        let inputs = [x.into(), rows.dims[..].into()];
        b.leaf(flattened.forward(Op::new("aten::view", inputs)), 1_100);
        let weight_t = t(b, &weight.tensor, |op| transposed.forward(op));
        let inputs = match bias {
            Some(bias) => vec![(&bias.tensor).into(), (&rows).into(), (&weight_t).into(), 1.into(), 1.into()],
            None => vec![(&rows).into(), (&weight_t).into()],
        };
        let name = if bias.is_some() { "aten::addmm" } else { "aten::mm" };
        b.op(product.forward(Op::new(name, inputs)), |b| {
            b.wait(5_200);
            block = b.alloc_temporary(m * n * 2);
            b.call(Api::ATTRIBUTE);
            b.launch(Api::DRIVER_LAUNCH, &gemm(m, n, k, bias.is_some()));
        });
        let rows = out.viewed(&[m, n]);
        let inputs = [(&rows).into(), out.dims[..].into()];
        b.leaf(unflattened.forward(Op::new("aten::view", inputs)), 1_000);
    });
    let (x, out) = (x.clone(), out.clone());
    let (weight, bias) = (weight.clone(), bias.cloned());
    b.on_backward(move |b| {
        let rows = out.viewed(&[m, n]);
        unflattened.backward(b, "ViewBackward0", &out, |b| {
            b.op(Op::new("aten::reshape", [(&out).into(), rows.dims[..].into()]), |b| {
                view(b, &out, &rows.dims);
            });
        });
        let name = if bias.is_some() { "AddmmBackward0" } else { "MmBackward0" };
        product.backward(b, name, &rows, |b| product_backward(b, &rows, &x, &weight, bias.as_ref()));
        b.free(block);
        if let Some(bias) = &bias {
            accumulate(b, bias, ranks);
        }
        transposed.backward(b, "TBackward0", &weight.tensor.transposed(0, 1), |b| {
            t(b, &weight.tensor.transposed(0, 1), |op| op);
        });
        accumulate(b, &weight, ranks);
        flattened.backward(b, "ViewBackward0", &x.viewed(&[m, k]), |b| {
            let rows = x.viewed(&[m, k]);
            b.op(Op::new("aten::reshape", [(&rows).into(), x.dims[..].into()]), |b| {
                view(b, &rows, &x.dims);
            });
        });
    });
}

fn product_backward(b: &mut Builder, grad: &Tensor, x: &Tensor, weight: &Param, bias: Option<&Param>) {
    let (n, k) = (weight.tensor.dims[0], weight.tensor.dims[1]);
    let m = grad.dims[0];
    let weight_t = weight.tensor.transposed(0, 1);
    let weight_back = t(b, &weight_t, |op| op);
    b.op(Op::new("aten::mm", [grad.into(), (&weight_back).into()]), |b| {
        b.wait(4_800);
        b.next_gradient(m * k * 2);
        b.launch(Api::DRIVER_LAUNCH, &gemm(m, k, n, false));
    });
    let grad_t = t(b, grad, |op| op);
    let rows = x.viewed(&[m, k]);
    b.op(Op::new("aten::mm", [(&grad_t).into(), (&rows).into()]), |b| {
        b.wait(4_600);
        b.alloc(&weight.gradient_key(), n * k * 2, true);
        // Tall products are split along k, and the partial sums start from zero.
        b.memset(n.min(1024) * 4);
        b.launch(Api::DRIVER_LAUNCH, &gemm(n, k, m, false));
    });
    t(b, &Tensor::new(&[n, k]), |op| op);
    if let Some(bias) = bias {
        let inputs = [grad.into(), [0][..].into(), true.into(), Input::None];
        b.op(Op::new("aten::sum", inputs), |b| {
            b.wait(4_300);
            b.alloc(&bias.gradient_key(), n * 2, true);
            let sum = "at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, \
                       float, c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>";
            b.launch(Api::LAUNCH, &reduce(sum, m * n, n));
        });
        view(b, &Tensor::new(&[1, n]), &[n]);
    }
}

/// `a + b` of two hidden states.
pub(crate) fn residual(b: &mut Builder, x: &Tensor, y: &Tensor) -> Tensor {
    let node = Node::new(b);
    let mut block = 0;
    b.op(node.forward(Op::new("aten::add", [x.into(), y.into(), 1.into()])), |b| {
        b.wait(3_100);
        block = b.alloc_temporary(x.bytes());
        let functor = "at::native::CUDAFunctor_add<c10::BFloat16>";
        b.launch(Api::LAUNCH, &elementwise(functor, 3, x.elements(), x.bytes() * 3));
    });
    let out = x.clone();
    b.on_backward(move |b| {
        node.backward(b, "AddBackward0", &out, |b| b.wait(300));
        b.free(block);
    });
    x.clone()
}
