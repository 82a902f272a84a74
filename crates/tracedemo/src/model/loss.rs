//! Cross entropy over the vocabulary, and reading the loss back.

use super::data::{TOKENS, VOCABULARY};
use super::kernels::{elementwise, small, softmax};
use super::views::reshape;
use crate::calls::Api;
use crate::library::{Effect, Stream};
use crate::plan::{Builder, op};
use crate::tensor::{DType, Tensor};

/// `F.cross_entropy` of logits `(B, S, V)`.
pub(crate) fn cross_entropy(b: &mut Builder, logits: &Tensor) {
    let rows = Tensor::new(&[TOKENS, VOCABULARY]);
    let targets = Tensor::of(DType::LONG, &[TOKENS]);
    let (x, y) = (&rows, &targets);
    let [flattened, softmaxed, lost] = b.nodes();
    b.leaf(flattened.forward(op!("aten::view", logits, [-1, VOCABULARY])), 1_100);
    let block = b.frame("torch/nn/functional.py(3385): cross_entropy", |b| {
        b.frame("<built-in method cross_entropy_loss of type object at 0x7f3b08a1c6c0>", |b| {
            b.op(softmaxed.around(op!("aten::cross_entropy_loss", x, y, (), 1, -100, "0.")), |b| {
                let block = b.op(softmaxed.around(op!("aten::log_softmax", x, 1, ())), |b| {
                    b.op(softmaxed.forward(op!("aten::_log_softmax", x, 1, false)), |b| {
                        b.wait(3_300);
                        let block = b.alloc_temporary(x.bytes());
                        b.launch(&softmax("Forward", TOKENS, VOCABULARY, 3));
                        block
                    })
                });
                b.op(lost.around(op!("aten::nll_loss_nd", x, y, (), 1, -100)), |b| {
                    b.op(lost.forward(op!("aten::nll_loss_forward", x, y, (), 1, -100)), |b| {
                        b.wait(2_900);
                        let name = "void at::native::(anonymous namespace)::\
                                    nll_loss_forward_reduce_cuda_kernel_2d<c10::BFloat16, float, long>(...)";
                        b.launch(&small(name, 1, 32, 21_000));
                    });
                });
                block
            })
        })
    });
    let logits = logits.clone();
    b.on_backward(move |b| {
        let (x, scalar) = (&rows, Tensor::new(&[]));
        lost.backward(b, "NllLossBackward0", &scalar, |b| {
            b.op(op!("aten::nll_loss_backward", &scalar, x, &targets), |b| {
                b.wait(2_500);
                b.next_gradient(x.bytes());
                b.op(op!("aten::zero_", x), |b| b.memset(x.bytes()));
                let name = "void at::native::(anonymous namespace)::\
                            nll_loss_backward_reduce_cuda_kernel_2d<c10::BFloat16, long>(...)";
                b.launch(&small(name, 1, 32, 9_000));
            });
        });
        softmaxed.backward(b, "LogSoftmaxBackward0", x, |b| {
            b.op(op!("aten::_log_softmax_backward_data", x, x, 1, 15), |b| {
                b.wait(3_000);
                b.next_gradient(x.bytes());
                b.launch(&softmax("Backward", TOKENS, VOCABULARY, 4));
            });
        });
        b.free(block);
        flattened.backward(b, "ViewBackward0", x, |b| reshape(b, x, &logits.dims));
    });
}

/// The gradient of the loss by itself, with which the backward pass begins.
pub(crate) fn seed_gradient(b: &mut Builder) {
    let scalar = Tensor::new(&[]);
    b.op(op!("aten::ones_like", &scalar, (), (), (), (), 1), |b| {
        b.wait(1_400);
        b.next_gradient(2);
        b.op(op!("aten::fill_", &scalar, 1), |b| {
            b.launch(&elementwise("at::native::FillFunctor<c10::BFloat16>", 1, 1, 2));
        });
    });
}

/// `loss.item()`: a copy to the host, which waits for the GPU.
pub(crate) fn read_back(b: &mut Builder) {
    let scalar = Tensor::new(&[]);
    b.frame("<built-in method item of Tensor object at 0x7f39d41beb10>", |b| {
        b.op(op!("aten::item", &scalar), |b| {
            b.op(op!("aten::_local_scalar_dense", &scalar), |b| {
                b.wait(1_800);
                b.copy("DtoH (Device -> Pageable)", Stream::Compute, 2);
                b.call_with(Api::STREAM_SYNC, Effect::StreamSync(Stream::Compute));
            });
        });
    });
}
