//! Layers of the model: normalisation, activation, embedding, and the block made of them.

use super::attention::attention;
use super::kernels::{elementwise, norm, small};
use super::linear::{linear, residual};
use super::parameters::{Bucket, Model, accumulate};
use super::views::{Node, empty, view};
use crate::calls::Api;
use crate::gpu::stream_ns;
use crate::plan::{Builder, Op};
use crate::tensor::{DType, Input, Tensor};

/// `nn.LayerNorm` over the last dimension.
pub(crate) fn layer_norm(model: &mut Model, b: &mut Builder, name: &str, x: &Tensor) -> Tensor {
    let columns = model.config.hidden;
    let rows = x.elements() / columns;
    let ranks = model.config.ranks;
    let weight = model.param(&format!("{name}.weight"), &[columns]);
    let bias = model.param(&format!("{name}.bias"), &[columns]);
    let node = Node::new(b);
    let statistics = Tensor::of(DType::Float, &[x.dims[0], x.dims[1], 1]);
    let mut block = 0;
    b.module("LayerNorm", "torch/nn/modules/normalization.py(217): forward", |b| {
        b.frame("torch/nn/functional.py(2910): layer_norm", |b| {
            let inputs = |rest: &[Input]| {
                let head = [x.into(), [columns][..].into(), (&weight.tensor).into(), (&bias.tensor).into()];
                head.into_iter().chain(rest.to_vec()).collect::<Vec<_>>()
            };
            let outer = Op::new("aten::layer_norm", inputs(&["1.0000000000000001e-05".into(), true.into()]));
            b.op(node.around(outer), |b| {
                let inner = Op::new("aten::native_layer_norm", inputs(&["1.0000000000000001e-05".into()]));
                b.op(node.forward(inner), |b| {
                    b.wait(1_900);
                    block = b.alloc_temporary(x.bytes());
                    empty(b, &Tensor::of(DType::Float, &[rows]), &format!("mean of {name}"), true);
                    empty(b, &Tensor::of(DType::Float, &[rows]), &format!("rstd of {name}"), true);
                    let kernel = "void at::native::(anonymous namespace)::\
                                  vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, \
                                  c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, \
                                  float*, float*, c10::BFloat16*)";
                    b.launch(Api::LAUNCH, &norm(kernel, rows, columns, 2));
                    view(b, &Tensor::of(DType::Float, &[rows]), &statistics.dims);
                    view(b, &Tensor::of(DType::Float, &[rows]), &statistics.dims);
                });
            });
        });
    });
    let (out, name) = (x.clone(), name.to_owned());
    b.on_backward(move |b| {
        node.backward(b, "NativeLayerNormBackward0", &out, |b| {
            let inputs = [(&out).into(), (&out).into(), [columns][..].into(), (&statistics).into()];
            b.op(Op::new("aten::native_layer_norm_backward", inputs), |b| {
                b.wait(2_200);
                b.next_gradient(out.bytes());
                b.alloc(&weight.gradient_key(), weight.tensor.bytes(), true);
                b.alloc(&bias.gradient_key(), bias.tensor.bytes(), true);
                let kernel = "void at::native::(anonymous namespace)::\
                              layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(c10::BFloat16 \
                              const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16 \
                              const*, c10::BFloat16*, int)";
                b.launch(Api::LAUNCH, &norm(kernel, rows, columns, 3));
                let kernel = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<\
                              c10::BFloat16, float, 64u, 1u, 32u, true, true, false>(long, long, \
                              c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, \
                              c10::BFloat16*, c10::BFloat16*)";
                b.launch(Api::LAUNCH, &small(kernel, (columns / 32) as u32, 256, stream_ns(out.bytes() * 2)));
            });
        });
        b.free(block);
        for statistic in ["mean", "rstd"] {
            let block = b.library.block(&format!("{statistic} of {name}"), rows * 4, true);
            b.free(block);
        }
        accumulate(b, &weight, ranks);
        accumulate(b, &bias, ranks);
    });
    x.clone()
}

/// `nn.GELU`.
fn gelu(b: &mut Builder, x: &Tensor) {
    let node = Node::new(b);
    let functor = "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::\
                   {lambda()#2}::operator()() const::{lambda()#4}::operator()() const::\
                   {lambda(c10::BFloat16)#1}";
    let mut block = 0;
    b.module("GELU", "torch/nn/modules/activation.py(733): forward", |b| {
        b.frame("<built-in function gelu>", |b| {
            let op = Op::new("aten::gelu", [x.into(), Input::Scalar(String::new())]);
            b.op(node.forward(op), |b| {
                b.wait(2_600);
                block = b.alloc_temporary(x.bytes());
                b.launch(Api::LAUNCH, &elementwise(functor, 2, x.elements(), x.bytes() * 2));
            });
        });
    });
    let out = x.clone();
    b.on_backward(move |b| {
        node.backward(b, "GeluBackward0", &out, |b| {
            let inputs = [(&out).into(), (&out).into(), Input::Scalar(String::new())];
            b.op(Op::new("aten::gelu_backward", inputs), |b| {
                b.wait(2_300);
                b.next_gradient(out.bytes());
                let functor = functor.replace("GeluCUDAKernelImpl", "GeluBackwardCUDAKernelImpl");
                b.launch(Api::LAUNCH, &elementwise(&functor, 3, out.elements(), out.bytes() * 3));
            });
        });
        b.free(block);
    });
}

/// A transformer block: attention and a feed-forward network, each behind a norm and beside a residual.
pub(crate) fn block(model: &mut Model, b: &mut Builder, index: u32, x: &Tensor) {
    let bucket = Bucket::open(model, b);
    let name = |part: &str| format!("blocks.{index}.{part}");
    b.begin_module("Block", "model.py(71): forward");
    let normed = layer_norm(model, b, &name("norm1"), x);
    b.begin_module("SelfAttention", "model.py(38): forward");
    let attended = attention(model, b, &name("attention"), &normed);
    b.end_module();
    let x = residual(b, x, &attended);
    let normed = layer_norm(model, b, &name("norm2"), &x);
    b.begin_module("FeedForward", "model.py(57): forward");
    let wide = linear(model, b, &name("up"), &normed, 4 * model.config.hidden, true);
    gelu(b, &wide);
    let narrow = linear(model, b, &name("down"), &wide, model.config.hidden, true);
    b.end_module();
    residual(b, &x, &narrow);
    b.end_module();
    bucket.close(model, b);
}

/// `nn.Embedding` of a batch of tokens.
pub(crate) fn embedding(model: &mut Model, b: &mut Builder, tokens: &Tensor) -> Tensor {
    let config = model.config;
    let weight = model.param("embedding.weight", &[config.vocabulary, config.hidden]);
    let out = config.hidden_state();
    let node = Node::new(b);
    let mut block = 0;
    b.module("Embedding", "torch/nn/modules/sparse.py(192): forward", |b| {
        b.frame("torch/nn/functional.py(2437): embedding", |b| {
            let inputs = [(&weight.tensor).into(), tokens.into(), (-1).into(), false.into(), false.into()];
            b.op(node.forward(Op::new("aten::embedding", inputs)), |b| {
                let flat = tokens.viewed(&[config.tokens()]);
                b.op(Op::new("aten::reshape", [tokens.into(), [-1][..].into()]), |b| {
                    view(b, tokens, &[-1]);
                });
                let inputs = [(&weight.tensor).into(), 0.into(), (&flat).into()];
                b.op(Op::new("aten::index_select", inputs), |b| {
                    b.wait(5_600);
                    block = b.alloc_temporary(out.bytes());
                    let kernel = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, \
                                  int, long, long, long, long, bool)";
                    let blocks = config.tokens() as u32;
                    b.launch(Api::LAUNCH, &small(kernel, blocks, 128, stream_ns(out.bytes() * 2)));
                });
                view(b, &out.viewed(&[config.tokens(), config.hidden]), &out.dims);
            });
        });
    });
    let (grad, tokens, ranks) = (out.clone(), tokens.clone(), config.ranks);
    b.on_backward(move |b| {
        node.backward(b, "EmbeddingBackward0", &grad, |b| {
            let rest = [config.vocabulary.into(), (-1).into(), false.into()];
            let inputs = || [Input::from(&grad), Input::from(&tokens)].into_iter().chain(rest.clone());
            b.op(Op::new("aten::embedding_backward", inputs().chain([false.into()])), |b| {
                b.op(Op::new("aten::embedding_dense_backward", inputs()), |b| {
                    dense_backward(b, &weight.gradient_key(), &weight.tensor, config.tokens(), &grad);
                });
            });
        });
        b.free(block);
        b.drop_gradient();
        accumulate(b, &weight, ranks);
    });
    out
}

/// The gradient of an embedding: tokens are sorted, and rows of equal tokens summed.
fn dense_backward(b: &mut Builder, key: &str, weight: &Tensor, tokens: i64, grad: &Tensor) {
    b.wait(3_400);
    b.alloc(key, weight.bytes(), true);
    b.memset(weight.bytes());
    let keys = b.alloc_temporary(tokens * 16);
    for (name, dur_ns) in [
        ("cub::DeviceRadixSortHistogramKernel<policy_hub<long, long>, false, long, int>", 5_100),
        ("cub::DeviceRadixSortExclusiveSumKernel<policy_hub<long, long>, int>", 2_300),
        ("cub::DeviceRadixSortOnesweepKernel<policy_hub<long, long>, false, long, long, int>", 7_900),
        ("cub::DeviceRadixSortOnesweepKernel<policy_hub<long, long>, false, long, long, int>", 7_800),
    ] {
        let name = format!("void at_cuda_detail::{name}(...)");
        b.launch(Api::LAUNCH, &small(&name, (tokens / 1536).max(1) as u32, 384, dur_ns));
    }
    let sum = "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long*, \
               c10::BFloat16 const*, long*, long, long, int)";
    b.launch(Api::LAUNCH, &small(sum, (tokens / 8) as u32, 256, stream_ns(grad.bytes() * 3)));
    b.free(keys);
}
