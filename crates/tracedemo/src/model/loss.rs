//! Cross entropy over the vocabulary, and reading the loss back.

use super::kernels::{elementwise, small, softmax};
use super::parameters::Model;
use super::views::{Node, view};
use crate::calls::Api;
use crate::library::{Effect, Stream};
use crate::plan::{Builder, Op};
use crate::tensor::{DType, Input, Tensor};

/// `F.cross_entropy` of logits `(B, S, V)`.
pub(crate) fn cross_entropy(model: &Model, b: &mut Builder, logits: &Tensor) {
    let config = model.config;
    let rows = Tensor::new(&[config.tokens(), config.vocabulary]);
    let targets = Tensor::of(DType::Long, &[config.tokens()]);
    let scalar = Tensor::new(&[]);
    let [flattened, softmaxed, lost] = [(); 3].map(|()| Node::new(b));
    let mut block = 0;
    let op = Op::new("aten::view", [logits.into(), [-1, config.vocabulary][..].into()]);
    b.leaf(flattened.forward(op), 1_100);
    b.frame("torch/nn/functional.py(3385): cross_entropy", |b| {
        b.frame("<built-in method cross_entropy_loss of type object at 0x7f3b08a1c6c0>", |b| {
            let ignored = || [Input::None, 1.into(), (-100).into()].into_iter();
            let inputs = [Input::from(&rows), Input::from(&targets)].into_iter();
            let op = Op::new("aten::cross_entropy_loss", inputs.chain(ignored()).chain(["0.".into()]));
            b.op(softmaxed.around(op), |b| {
                let inputs = || [Input::from(&rows), 1.into(), Input::None];
                b.op(softmaxed.around(Op::new("aten::log_softmax", inputs())), |b| {
                    let op = Op::new("aten::_log_softmax", [(&rows).into(), 1.into(), false.into()]);
                    b.op(softmaxed.forward(op), |b| {
                        b.wait(3_300);
                        block = b.alloc_temporary(rows.bytes());
                        let (count, columns) = (rows.dims[0], rows.dims[1]);
                        b.launch(Api::LAUNCH, &softmax(&softmax_name(false), count, columns, 3));
                    });
                });
                let inputs = [Input::from(&rows), Input::from(&targets)].into_iter().chain(ignored());
                b.op(lost.around(Op::new("aten::nll_loss_nd", inputs)), |b| {
                    let inputs = [Input::from(&rows), Input::from(&targets)].into_iter().chain(ignored());
                    b.op(lost.forward(Op::new("aten::nll_loss_forward", inputs)), |b| {
                        b.wait(2_900);
                        let name = "void at::native::(anonymous namespace)::\
                                    nll_loss_forward_reduce_cuda_kernel_2d<c10::BFloat16, float, long>(...)";
                        b.launch(Api::LAUNCH, &small(name, 1, 32, 21_000));
                    });
                });
            });
        });
    });
    let logits = logits.clone();
    b.on_backward(move |b| {
        lost.backward(b, "NllLossBackward0", &scalar, |b| {
            let inputs = [(&scalar).into(), (&rows).into(), (&targets).into()];
            b.op(Op::new("aten::nll_loss_backward", inputs), |b| {
                b.wait(2_500);
                b.next_gradient(rows.bytes());
                b.op(Op::new("aten::zero_", [(&rows).into()]), |b| b.memset(rows.bytes()));
                let name = "void at::native::(anonymous namespace)::\
                            nll_loss_backward_reduce_cuda_kernel_2d<c10::BFloat16, long>(...)";
                b.launch(Api::LAUNCH, &small(name, 1, 32, 9_000));
            });
        });
        softmaxed.backward(b, "LogSoftmaxBackward0", &rows, |b| {
            let inputs = [(&rows).into(), (&rows).into(), 1.into(), 15.into()];
            b.op(Op::new("aten::_log_softmax_backward_data", inputs), |b| {
                b.wait(3_000);
                b.next_gradient(rows.bytes());
                b.launch(Api::LAUNCH, &softmax(&softmax_name(true), rows.dims[0], rows.dims[1], 4));
            });
        });
        b.free(block);
        flattened.backward(b, "ViewBackward0", &rows, |b| {
            b.op(Op::new("aten::reshape", [(&rows).into(), logits.dims[..].into()]), |b| {
                view(b, &rows, &logits.dims);
            });
        });
    });
}

fn softmax_name(backward: bool) -> String {
    let direction = if backward { "Backward" } else { "Forward" };
    format!(
        "void at::native::(anonymous namespace)::cunn_SoftMax{direction}<8, c10::BFloat16, float, \
         c10::BFloat16, at::native::(anonymous namespace)::LogSoftMax{direction}Epilogue>(c10::BFloat16*, \
         c10::BFloat16 const*, int)"
    )
}

/// The gradient of the loss by itself, with which the backward pass begins.
pub(crate) fn seed_gradient(b: &mut Builder) {
    let scalar = Tensor::new(&[]);
    let inputs = [Input::from(&scalar)].into_iter().chain([(); 4].map(|()| Input::None)).chain([1.into()]);
    b.op(Op::new("aten::ones_like", inputs), |b| {
        b.wait(1_400);
        b.next_gradient(2);
        b.op(Op::new("aten::fill_", [(&scalar).into(), 1.into()]), |b| {
            let functor = "at::native::FillFunctor<c10::BFloat16>";
            b.launch(Api::LAUNCH, &elementwise(functor, 1, 1, 2));
        });
    });
}

/// `loss.item()`: a copy to the host, which waits for the GPU.
pub(crate) fn read_back(b: &mut Builder) {
    let scalar = Tensor::new(&[]);
    b.frame("<built-in method item of Tensor object at 0x7f39d41beb10>", |b| {
        b.op(Op::new("aten::item", [(&scalar).into()]), |b| {
            b.op(Op::new("aten::_local_scalar_dense", [(&scalar).into()]), |b| {
                b.wait(1_800);
                b.copy("DtoH (Device -> Pageable)", Stream::Compute, 2);
                b.call_with(Api::STREAM_SYNC, Effect::StreamSync(Stream::Compute));
            });
        });
    });
}
