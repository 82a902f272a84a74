//! `nn.Linear`: matrix products forward and backward.

use super::gradients::{accumulate, add_param, alloc_gradient};
use super::kernels::{elementwise, gemm, reduce};
use super::loss::read_back;
use super::views::{reshape, t, view};
use crate::calls::Api;
use crate::options::Cause;
use crate::plan::{Builder, op};
use crate::tensor::{Input, Param, Tensor};

/// `x @ weight.T + bias` for `x` of shape `(..., k)`; gives the output.
pub(crate) fn linear(b: &mut Builder, name: &str, x: &Tensor, n: i64, has_bias: bool) -> Tensor {
    let mut out_dims = x.dims.clone();
    let k = out_dims.pop().unwrap_or(1);
    out_dims.push(n);
    let weight = add_param(b, &format!("{name}.weight"), &[n, k]);
    let bias = has_bias.then(|| add_param(b, &format!("{name}.bias"), &[n]));
    let out = x.viewed(&out_dims);
    b.module("Linear", "torch/nn/modules/linear.py(125): forward", |b| {
        b.frame("<built-in function linear>", |b| forward(b, x, weight, bias, &out));
        b.if_cause(Cause::Synchronisation, |b| b.frame("guard.py(12): check_finite", read_back));
    });
    out
}

fn forward(b: &mut Builder, x: &Tensor, weight: Param, bias: Option<Param>, out: &Tensor) {
    let (n, k) = (weight.tensor.dims[0], weight.tensor.dims[1]);
    let m = x.elements() / k;
    let (rows, out_rows) = (x.viewed(&[m, k]), out.viewed(&[m, n]));
    let [flattened, transposed, product, unflattened] = b.nodes();
    let bias_input = bias.as_ref().map_or(Input::from(()), |bias| Input::from(&bias.tensor));
    let block = b.op(flattened.around(op!("aten::linear", x, &weight.tensor, bias_input.clone())), |b| {
        b.leaf(flattened.forward(op!("aten::view", x, &rows.dims[..])), 1_100);
        let weight_t = t(b, &weight.tensor, |op| transposed.forward(op));
        let op = match &bias {
            Some(_) => op!("aten::addmm", bias_input, &rows, &weight_t, 1, 1),
            None => op!("aten::mm", &rows, &weight_t),
        };
        let block = b.op(product.forward(op), |b| {
            b.wait(5_200);
            let block = b.alloc_temporary(out.bytes());
            b.call(Api::ATTRIBUTE);
            b.launch_by(Api::DRIVER_LAUNCH, &gemm(m, n, k, bias.is_some()));
            block
        });
        b.leaf(unflattened.forward(op!("aten::view", &out_rows, &out.dims[..])), 1_000);
        block
    });
    let (x, out) = (x.clone(), out.clone());
    b.on_backward(move |b| {
        unflattened.backward(b, "ViewBackward0", &out, |b| reshape(b, &out, &out_rows.dims));
        let name = if bias.is_some() { "AddmmBackward0" } else { "MmBackward0" };
        product.backward(b, name, &out_rows, |b| {
            product_backward(b, &out_rows, &rows, &weight, bias.as_ref());
        });
        b.free(block);
        if let Some(bias) = &bias {
            accumulate(b, bias);
        }
        let grad = weight.tensor.transposed(0, 1);
        transposed.backward(b, "TBackward0", &grad, |b| t(b, &grad, |op| op));
        accumulate(b, &weight);
        flattened.backward(b, "ViewBackward0", &rows, |b| reshape(b, &rows, &x.dims));
    });
}

fn product_backward(b: &mut Builder, grad: &Tensor, rows: &Tensor, weight: &Param, bias: Option<&Param>) {
    let (m, n, k) = (grad.dims[0], weight.tensor.dims[0], weight.tensor.dims[1]);
    let weight_back = t(b, &weight.tensor.transposed(0, 1), |op| op);
    b.op(op!("aten::mm", grad, &weight_back), |b| {
        b.wait(4_800);
        b.next_gradient(rows.bytes());
        b.launch_by(Api::DRIVER_LAUNCH, &gemm(m, k, n, false));
    });
    let grad_t = t(b, grad, |op| op);
    b.op(op!("aten::mm", &grad_t, rows), |b| {
        b.wait(4_600);
        alloc_gradient(b, weight);
        // Tall products are split along k, and the partial sums start from zero.
        b.memset(n.min(1024) * 4);
        b.launch_by(Api::DRIVER_LAUNCH, &gemm(n, k, m, false));
    });
    t(b, &weight.tensor, |op| op);
    if let Some(bias) = bias {
        b.op(op!("aten::sum", grad, [0], true, ()), |b| {
            b.wait(4_300);
            alloc_gradient(b, bias);
            let sum = "at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, \
                       float, c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>";
            b.launch(&reduce(sum, m * n, n));
        });
        view(b, &Tensor::new(&[1, n]), &[n]);
    }
}

/// `a + b` of two hidden states.
pub(crate) fn residual(b: &mut Builder, x: &Tensor, y: &Tensor) -> Tensor {
    let [node] = b.nodes();
    let block = b.op(node.forward(op!("aten::add", x, y, 1)), |b| {
        b.wait(3_100);
        let block = b.alloc_temporary(x.bytes());
        let functor = "at::native::CUDAFunctor_add<c10::BFloat16>";
        b.launch(&elementwise(functor, 3, x.elements(), x.bytes() * 3));
        block
    });
    let out = x.clone();
    b.on_backward(move |b| {
        node.backward(b, "AddBackward0", &out, |b| b.wait(300));
        b.free(block);
    });
    x.clone()
}
