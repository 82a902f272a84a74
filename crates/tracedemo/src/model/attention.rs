//! Causal self-attention with the flash kernels.

use super::kernels::{flash, strided_copy};
use super::linear::linear;
use super::parameters::Model;
use super::views::{Node, as_strided, empty, empty_strided, transpose, view};
use crate::calls::Api;
use crate::plan::{Builder, Op};
use crate::tensor::{DType, Input, Tensor};

/// Self-attention of a hidden state: one projection in, the attention proper, one projection out.
pub(crate) fn attention(model: &mut Model, b: &mut Builder, name: &str, x: &Tensor) -> Tensor {
    let config = model.config;
    let head_dim = config.hidden / config.heads;
    let packed = linear(model, b, &format!("{name}.qkv"), x, 3 * config.hidden, true);
    let heads = [config.batch, config.sequence, config.heads, head_dim];
    let part = Tensor { dims: x.dims.clone(), ..packed.clone() };
    let split = Node::new(b);
    b.frame("torch/_tensor.py(1028): split", |b| {
        let op = Op::new("aten::split", [(&packed).into(), config.hidden.into(), (-1).into()]);
        b.op(split.forward(op), |b| {
            for index in 0..3 {
                let start = Input::from(index * config.hidden);
                let inputs = [(&packed).into(), (-1).into(), start, config.hidden.into()];
                b.op(Op::new("aten::narrow", inputs), |b| as_strided(b, &packed, &part));
            }
        });
    });
    let mut views = Vec::new();
    let mut per_head = Tensor::new(&heads);
    per_head.strides[0] = packed.strides[0];
    per_head.strides[1] = packed.strides[1];
    for _ in 0..3 {
        let [viewed, swapped] = [(); 2].map(|()| Node::new(b));
        b.frame("<built-in method view of Tensor object at 0x7f39d41be250>", |b| {
            let op = Op::new("aten::view", [(&part).into(), heads[..].into()]);
            b.leaf(viewed.forward(op), 1_000);
        });
        b.frame("<built-in method transpose of Tensor object at 0x7f39d41be390>", |b| {
            let op = Op::new("aten::transpose", [(&per_head).into(), 1.into(), 2.into()]);
            let out = per_head.transposed(1, 2);
            b.op(swapped.forward(op), |b| as_strided(b, &per_head, &out));
        });
        views.push((viewed, swapped));
    }
    let (grad, packed_out, whole) = (per_head.transposed(1, 2), packed.clone(), x.clone());
    b.on_backward(move |b| {
        for (viewed, swapped) in views.into_iter().rev() {
            swapped.backward(b, "TransposeBackward0", &grad, |b| {
                transpose(b, &grad, 1, 2);
            });
            viewed.backward(b, "ViewBackward0", &grad.transposed(1, 2), |b| {
                let inputs = [Input::from(&grad.transposed(1, 2)), whole.dims[..].into()];
                b.op(Op::new("aten::reshape", inputs), |b| {
                    view(b, &grad.transposed(1, 2), &whole.dims);
                });
            });
        }
        split.backward(b, "SplitBackward0", &whole, |b| {
            let parts = Input::Tensors(vec![whole.clone(); 3]);
            b.op(Op::new("aten::cat", [parts, (-1).into()]), |b| {
                b.wait(4_400);
                b.next_gradient(packed_out.bytes());
                b.launch(Api::LAUNCH, &strided_copy(packed_out.elements(), packed_out.bytes() * 2));
            });
        });
    });
    let attended = scaled_dot_product(b, &per_head.transposed(1, 2), name);
    let merged = merge_heads(b, &attended, x);
    linear(model, b, &format!("{name}.out"), &merged, config.hidden, true)
}

/// `F.scaled_dot_product_attention` of query, key and value of the same shape `(B, H, S, D)`.
fn scaled_dot_product(b: &mut Builder, query: &Tensor, name: &str) -> Tensor {
    let node = Node::new(b);
    let (batch_heads, sequence, dim) = (query.dims[0] * query.dims[1], query.dims[2], query.dims[3]);
    let out = Tensor::new(&[query.dims[0], sequence, query.dims[1], dim]).transposed(1, 2);
    let sums = Tensor::of(DType::Float, &query.dims[..3]);
    let [out_key, sums_key] = ["output", "log-sum-exp"].map(|part| format!("{part} of {name}"));
    let three = [Input::from(query), Input::from(query), Input::from(query)];
    let causal = ["0.".into(), true.into(), false.into(), Input::None];
    b.frame("<built-in function scaled_dot_product_attention>", |b| {
        let inputs = three.iter().cloned().chain([Input::None, "0.".into(), true.into(), Input::None]);
        b.op(node.around(Op::new("aten::scaled_dot_product_attention", inputs)), |b| {
            let inputs = three.iter().cloned().chain(causal.clone());
            let op = Op::new("aten::_scaled_dot_product_flash_attention", inputs);
            b.op(node.forward(op), |b| {
                for _ in 0..3 {
                    transpose(b, query, 1, 2);
                }
                let by_token = query.transposed(1, 2);
                let inputs = [(); 3].map(|()| Input::from(&by_token)).into_iter();
                let limits = [Input::None, Input::None, sequence.into(), sequence.into()];
                let inputs = inputs.chain(limits).chain(causal.clone());
                b.op(Op::new("aten::_flash_attention_forward", inputs), |b| {
                    empty(b, &out.transposed(1, 2), &out_key, true);
                    empty(b, &sums, &sums_key, true);
                    b.wait(4_100);
                    b.call(Api::ATTRIBUTE);
                    b.launch(Api::LAUNCH, &flash("flash_fwd_kernel", batch_heads, sequence, dim, 1));
                });
                transpose(b, &out.transposed(1, 2), 1, 2);
            });
        });
    });
    let (grad, query) = (out.clone(), query.clone());
    b.on_backward(move |b| {
        node.backward(b, "ScaledDotProductFlashAttentionBackward0", &grad, |b| {
            let inputs = [Input::from(&grad)].into_iter().chain(three.clone()).chain([(&grad).into()]);
            let op = Op::new("aten::_scaled_dot_product_flash_attention_backward", inputs);
            b.op(op, |b| {
                for _ in 0..5 {
                    transpose(b, &query, 1, 2);
                }
                let by_token = query.transposed(1, 2);
                let inputs = [(); 5].map(|()| Input::from(&by_token));
                b.op(Op::new("aten::_flash_attention_backward", inputs), |b| {
                    flash_backward(b, &by_token, batch_heads, sequence, dim);
                });
            });
        });
        for (key, bytes) in [(out_key, grad.bytes()), (sums_key, sums.bytes())] {
            let block = b.library.block(&key, bytes, true);
            b.free(block);
        }
    });
    out
}

fn flash_backward(b: &mut Builder, by_token: &Tensor, batch_heads: i64, sequence: i64, dim: i64) {
    let accumulator = b.alloc_temporary(by_token.elements() * 4);
    b.next_gradient(3 * by_token.bytes());
    b.op(Op::new("aten::zeros", [by_token.dims[..].into()]), |b| {
        b.wait(1_500);
        b.op(Op::new("aten::zero_", [by_token.into()]), |b| b.memset(by_token.elements() * 4));
    });
    b.call(Api::ATTRIBUTE);
    let mut dot = flash("flash_bwd_dot_do_o_kernel", batch_heads, sequence, dim, 0);
    dot.dur_ns += 9_000;
    b.launch(Api::LAUNCH, &dot);
    let name = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel";
    b.launch(Api::LAUNCH, &flash(name, batch_heads, sequence, dim, 3));
    let mut convert = flash("flash_bwd_convert_dq_kernel", batch_heads, sequence, dim, 0);
    convert.dur_ns += 11_000;
    b.launch(Api::LAUNCH, &convert);
    b.free(accumulator);
}

/// Puts the heads side by side again: a transpose and a copy.
fn merge_heads(b: &mut Builder, attended: &Tensor, out: &Tensor) -> Tensor {
    let [swapped, copied] = [(); 2].map(|()| Node::new(b));
    let by_token = attended.transposed(1, 2);
    let mut key = String::new();
    b.frame("<built-in method transpose of Tensor object at 0x7f39d41be4d0>", |b| {
        let op = Op::new("aten::transpose", [attended.into(), 1.into(), 2.into()]);
        b.op(swapped.forward(op), |b| as_strided(b, attended, &by_token));
    });
    b.frame("<built-in method reshape of Tensor object at 0x7f39d41be610>", |b| {
        let op = Op::new("aten::reshape", [(&by_token).into(), out.dims[..].into()]);
        b.op(copied.around(op), |b| {
            key = format!("merged heads {}", copied.sequence);
            let op = Op::new("aten::clone", [(&by_token).into(), 0.into()]);
            b.op(copied.forward(op), |b| {
                empty_strided(b, &by_token.viewed(&by_token.dims), &key, true);
                let inputs = [(&by_token).into(), (&by_token).into(), false.into()];
                b.op(Op::new("aten::copy_", inputs), |b| {
                    b.wait(2_400);
                    b.launch(Api::LAUNCH, &strided_copy(out.elements(), out.bytes() * 2));
                });
            });
            b.leaf(Op::new("aten::_unsafe_view", [(&by_token).into(), out.dims[..].into()]), 900);
        });
    });
    let (grad, whole) = (by_token, out.clone());
    b.on_backward(move |b| {
        copied.backward(b, "UnsafeViewBackward0", &whole, |b| {
            b.op(Op::new("aten::reshape", [(&whole).into(), grad.dims[..].into()]), |b| {
                view(b, &whole, &grad.dims);
            });
        });
        let block = b.library.block(&key, whole.bytes(), true);
        b.free(block);
        swapped.backward(b, "TransposeBackward0", &grad, |b| {
            transpose(b, &grad, 1, 2);
        });
    });
    out.clone()
}
