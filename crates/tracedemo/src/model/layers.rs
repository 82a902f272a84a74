//! Layers of the model: normalisation, activation, embedding, and the block made of them.

use super::attention::attention;
use super::data::{HIDDEN, TOKENS, VOCABULARY, hidden_state};
use super::gradients::{accumulate, add_param, alloc_gradient, bucket};
use super::kernels::{elementwise, norm, small};
use super::linear::{linear, residual};
use super::views::{empty, reshape, view};
use crate::gpu::stream_ns;
use crate::plan::{Builder, op};
use crate::tensor::{DType, Param, Tensor};

/// `nn.LayerNorm` over the last dimension of a hidden state.
pub(crate) fn layer_norm(b: &mut Builder, name: &str, x: &Tensor) -> Tensor {
    let [weight, bias] = ["weight", "bias"].map(|part| add_param(b, &format!("{name}.{part}"), &[HIDDEN]));
    let [node] = b.nodes();
    let statistics = Tensor::of(DType::FLOAT, &[x.dims[0], x.dims[1], 1]);
    let flat = Tensor::of(DType::FLOAT, &[TOKENS]);
    let keys = ["mean", "rstd"].map(|statistic| format!("{statistic} of {name}"));
    let block = b.module("LayerNorm", "torch/nn/modules/normalization.py(217): forward", |b| {
        b.frame("torch/nn/functional.py(2910): layer_norm", |b| {
            let (w, bias, epsilon) = (&weight.tensor, &bias.tensor, "1.0000000000000001e-05");
            b.op(node.around(op!("aten::layer_norm", x, [HIDDEN], w, bias, epsilon, true)), |b| {
                b.op(node.forward(op!("aten::native_layer_norm", x, [HIDDEN], w, bias, epsilon)), |b| {
                    b.wait(1_900);
                    let block = b.alloc_temporary(x.bytes());
                    for key in &keys {
                        empty(b, &flat, key, true);
                    }
                    let kernel = "void at::native::(anonymous namespace)::\
                                  vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, \
                                  c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, \
                                  float*, float*, c10::BFloat16*)";
                    b.launch(&norm(kernel, TOKENS, HIDDEN, 2));
                    for _ in &keys {
                        view(b, &flat, &statistics.dims);
                    }
                    block
                })
            })
        })
    });
    let out = x.clone();
    b.on_backward(move |b| {
        let (x, bytes) = (&out, out.bytes());
        node.backward(b, "NativeLayerNormBackward0", x, |b| {
            b.op(op!("aten::native_layer_norm_backward", x, x, [HIDDEN], &statistics), |b| {
                b.wait(2_200);
                b.next_gradient(bytes);
                alloc_gradient(b, &weight);
                alloc_gradient(b, &bias);
                let kernel = "void at::native::(anonymous namespace)::\
                              layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(c10::BFloat16 \
                              const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16 \
                              const*, c10::BFloat16*, int)";
                b.launch(&norm(kernel, TOKENS, HIDDEN, 3));
                let kernel = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<\
                              c10::BFloat16, float, 64u, 1u, 32u, true, true, false>(long, long, \
                              c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, \
                              c10::BFloat16*, c10::BFloat16*)";
                b.launch(&small(kernel, (HIDDEN / 32) as u32, 256, stream_ns(bytes * 2)));
            });
        });
        b.free(block);
        keys.iter().for_each(|key| b.free_key(key, flat.bytes()));
        accumulate(b, &weight);
        accumulate(b, &bias);
    });
    x.clone()
}

fn gelu(b: &mut Builder, x: &Tensor) {
    let [node] = b.nodes();
    let functor = "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::\
                   {lambda()#2}::operator()() const::{lambda()#4}::operator()() const::\
                   {lambda(c10::BFloat16)#1}";
    let block = b.module("GELU", "torch/nn/modules/activation.py(733): forward", |b| {
        b.frame("<built-in function gelu>", |b| {
            b.op(node.forward(op!("aten::gelu", x, "")), |b| {
                b.wait(2_600);
                let block = b.alloc_temporary(x.bytes());
                b.launch(&elementwise(functor, 2, x.elements(), x.bytes() * 2));
                block
            })
        })
    });
    let x = x.clone();
    b.on_backward(move |b| {
        node.backward(b, "GeluBackward0", &x, |b| {
            b.op(op!("aten::gelu_backward", &x, &x, ""), |b| {
                b.wait(2_300);
                b.next_gradient(x.bytes());
                let functor = functor.replace("GeluCUDAKernelImpl", "GeluBackwardCUDAKernelImpl");
                b.launch(&elementwise(&functor, 3, x.elements(), x.bytes() * 3));
            });
        });
        b.free(block);
    });
}

/// A transformer block: attention and a feed-forward network, each behind a norm and beside a residual.
pub(crate) fn block(b: &mut Builder, index: u32, x: &Tensor) {
    let name = |part: &str| format!("blocks.{index}.{part}");
    bucket(b, |b| {
        b.module("Block", "model.py(71): forward", |b| {
            let normed = layer_norm(b, &name("norm1"), x);
            let attended = b.module("SelfAttention", "model.py(38): forward", |b| {
                attention(b, &name("attention"), &normed)
            });
            let x = residual(b, x, &attended);
            let normed = layer_norm(b, &name("norm2"), &x);
            let narrow = b.module("FeedForward", "model.py(57): forward", |b| {
                let wide = linear(b, &name("up"), &normed, 4 * HIDDEN, true);
                gelu(b, &wide);
                linear(b, &name("down"), &wide, HIDDEN, true)
            });
            residual(b, &x, &narrow);
        });
    });
}

/// `nn.Embedding` of a batch of tokens.
pub(crate) fn embedding(b: &mut Builder, tokens: &Tensor) -> Tensor {
    let weight = add_param(b, "embedding.weight", &[VOCABULARY, HIDDEN]);
    let out = hidden_state();
    let [node] = b.nodes();
    let block = b.module("Embedding", "torch/nn/modules/sparse.py(192): forward", |b| {
        b.frame("torch/nn/functional.py(2437): embedding", |b| {
            let w = &weight.tensor;
            b.op(node.forward(op!("aten::embedding", w, tokens, -1, false, false)), |b| {
                reshape(b, tokens, &[-1]);
                let block = b.op(op!("aten::index_select", w, 0, &tokens.viewed(&[TOKENS])), |b| {
                    b.wait(5_600);
                    let block = b.alloc_temporary(out.bytes());
                    let kernel = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, \
                                  int, long, long, long, long, bool)";
                    b.launch(&small(kernel, TOKENS as u32, 128, stream_ns(out.bytes() * 2)));
                    block
                });
                view(b, &out.viewed(&[TOKENS, HIDDEN]), &out.dims);
                block
            })
        })
    });
    let (grad, tokens) = (out.clone(), tokens.clone());
    b.on_backward(move |b| {
        node.backward(b, "EmbeddingBackward0", &grad, |b| {
            let (g, t, v) = (&grad, &tokens, VOCABULARY);
            b.op(op!("aten::embedding_backward", g, t, v, -1, false, false), |b| {
                let op = op!("aten::embedding_dense_backward", g, t, v, -1, false);
                b.op(op, |b| dense_backward(b, &weight, g));
            });
        });
        b.free(block);
        b.drop_gradient();
        accumulate(b, &weight);
    });
    out
}

/// The gradient of an embedding: tokens are sorted, and rows of equal tokens summed.
fn dense_backward(b: &mut Builder, weight: &Param, grad: &Tensor) {
    b.wait(3_400);
    alloc_gradient(b, weight);
    b.memset(weight.tensor.bytes());
    let keys = b.alloc_temporary(TOKENS * 16);
    for (name, dur_ns) in [
        ("cub::DeviceRadixSortHistogramKernel<policy_hub<long, long>, false, long, int>", 5_100),
        ("cub::DeviceRadixSortExclusiveSumKernel<policy_hub<long, long>, int>", 2_300),
        ("cub::DeviceRadixSortOnesweepKernel<policy_hub<long, long>, false, long, long, int>", 7_900),
        ("cub::DeviceRadixSortOnesweepKernel<policy_hub<long, long>, false, long, long, int>", 7_800),
    ] {
        let name = format!("void at_cuda_detail::{name}(...)");
        b.launch(&small(&name, (TOKENS / 1536) as u32, 384, dur_ns));
    }
    let sum = "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long*, \
               c10::BFloat16 const*, long*, long, long, int)";
    b.launch(&small(sum, (TOKENS / 8) as u32, 256, stream_ns(grad.bytes() * 3)));
    b.free(keys);
}
