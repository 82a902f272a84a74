//! Causal self-attention with the flash kernels.

use super::data::{BATCH, HEADS, HIDDEN, SEQUENCE};
use super::kernels::{flash, strided_copy};
use super::linear::linear;
use super::views::{as_strided, empty, empty_strided, reshape, transpose};
use crate::calls::Api;
use crate::plan::{Builder, op};
use crate::tensor::{DType, Input, Tensor};

/// Elements of a head's vectors.
const HEAD: i64 = HIDDEN / HEADS;

/// Self-attention of a hidden state: one projection in, the attention proper, one projection out.
pub(crate) fn attention(b: &mut Builder, name: &str, x: &Tensor) -> Tensor {
    let packed = linear(b, &format!("{name}.qkv"), x, 3 * HIDDEN, true);
    let part = Tensor { dims: x.dims.clone(), ..packed.clone() };
    let [split] = b.nodes();
    b.frame("torch/_tensor.py(1028): split", |b| {
        b.op(split.forward(op!("aten::split", &packed, HIDDEN, -1)), |b| {
            for index in 0..3 {
                let narrow = op!("aten::narrow", &packed, -1, index * HIDDEN, HIDDEN);
                b.op(narrow, |b| as_strided(b, &packed, &part));
            }
        });
    });
    let mut views = Vec::new();
    let mut per_head = Tensor::new(&[BATCH, SEQUENCE, HEADS, HEAD]);
    per_head.strides[..2].copy_from_slice(&packed.strides[..2]);
    let swapped_heads = per_head.transposed(1, 2);
    for _ in 0..3 {
        let [viewed, swapped] = b.nodes();
        b.frame("<built-in method view of Tensor object at 0x7f39d41be250>", |b| {
            b.leaf(viewed.forward(op!("aten::view", &part, &per_head.dims[..])), 1_000);
        });
        b.frame("<built-in method transpose of Tensor object at 0x7f39d41be390>", |b| {
            let op = op!("aten::transpose", &per_head, 1, 2);
            b.op(swapped.forward(op), |b| as_strided(b, &per_head, &swapped_heads));
        });
        views.push((viewed, swapped));
    }
    let (grad, whole) = (swapped_heads.clone(), x.clone());
    b.on_backward(move |b| {
        for (viewed, swapped) in views.into_iter().rev() {
            swapped.backward(b, "TransposeBackward0", &grad, |b| transpose(b, &grad, 1, 2));
            let grad = grad.transposed(1, 2);
            viewed.backward(b, "ViewBackward0", &grad, |b| reshape(b, &grad, &whole.dims));
        }
        split.backward(b, "SplitBackward0", &whole, |b| {
            b.op(op!("aten::cat", Input::tensors(&vec![whole.clone(); 3]), -1), |b| {
                b.wait(4_400);
                b.next_gradient(packed.bytes());
                b.launch(&strided_copy(packed.elements(), packed.bytes() * 2));
            });
        });
    });
    let attended = scaled_dot_product(b, &swapped_heads, name);
    let merged = merge_heads(b, &attended, x);
    linear(b, &format!("{name}.out"), &merged, HIDDEN, true)
}

/// `F.scaled_dot_product_attention` of query, key and value of the same shape `(B, H, S, D)`.
fn scaled_dot_product(b: &mut Builder, q: &Tensor, name: &str) -> Tensor {
    let [node] = b.nodes();
    let by_token = q.transposed(1, 2);
    let out = Tensor::new(&[BATCH, SEQUENCE, HEADS, HEAD]).transposed(1, 2);
    let sums = Tensor::of(DType::FLOAT, &q.dims[..3]);
    let [out_key, sums_key] = ["output", "log-sum-exp"].map(|part| format!("{part} of {name}"));
    b.frame("<built-in function scaled_dot_product_attention>", |b| {
        let op = op!("aten::scaled_dot_product_attention", q, q, q, (), "0.", true, ());
        b.op(node.around(op), |b| {
            let op = op!("aten::_scaled_dot_product_flash_attention", q, q, q, "0.", true, false, ());
            b.op(node.forward(op), |b| {
                for _ in 0..3 {
                    transpose(b, q, 1, 2);
                }
                let (t, length) = (&by_token, SEQUENCE);
                let name = "aten::_flash_attention_forward";
                let op = op!(name, t, t, t, (), (), length, length, "0.", true, false, ());
                b.op(op, |b| {
                    empty(b, &out.transposed(1, 2), &out_key, true);
                    empty(b, &sums, &sums_key, true);
                    b.wait(4_100);
                    b.call(Api::ATTRIBUTE);
                    b.launch(&flash("flash_fwd_kernel", 1));
                });
                transpose(b, &out.transposed(1, 2), 1, 2);
            });
        });
    });
    let (grad, query) = (out.clone(), q.clone());
    b.on_backward(move |b| {
        node.backward(b, "ScaledDotProductFlashAttentionBackward0", &grad, |b| {
            let (g, q) = (&grad, &query);
            b.op(op!("aten::_scaled_dot_product_flash_attention_backward", g, q, q, q, g), |b| {
                for _ in 0..5 {
                    transpose(b, q, 1, 2);
                }
                let t = &by_token;
                b.op(op!("aten::_flash_attention_backward", t, t, t, t, t), |b| flash_backward(b, t));
            });
        });
        b.free_key(&out_key, grad.bytes());
        b.free_key(&sums_key, sums.bytes());
    });
    out
}

fn flash_backward(b: &mut Builder, by_token: &Tensor) {
    let accumulator = b.alloc_temporary(by_token.elements() * 4);
    b.next_gradient(3 * by_token.bytes());
    b.op(op!("aten::zeros", &by_token.dims[..]), |b| {
        b.wait(1_500);
        b.op(op!("aten::zero_", by_token), |b| b.memset(by_token.elements() * 4));
    });
    b.call(Api::ATTRIBUTE);
    for (name, work, more_ns) in [
        ("flash_bwd_dot_do_o_kernel", 0, 9_000),
        ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 3, 0),
        ("flash_bwd_convert_dq_kernel", 0, 11_000),
    ] {
        let mut kernel = flash(name, work);
        kernel.dur_ns += more_ns;
        b.launch(&kernel);
    }
    b.free(accumulator);
}

/// Puts the heads side by side again: a transpose and a copy.
fn merge_heads(b: &mut Builder, attended: &Tensor, out: &Tensor) -> Tensor {
    let [swapped, copied] = b.nodes();
    let by_token = attended.transposed(1, 2);
    b.frame("<built-in method transpose of Tensor object at 0x7f39d41be4d0>", |b| {
        let op = op!("aten::transpose", attended, 1, 2);
        b.op(swapped.forward(op), |b| as_strided(b, attended, &by_token));
    });
    let key = format!("merged heads {copied:?}");
    b.frame("<built-in method reshape of Tensor object at 0x7f39d41be610>", |b| {
        b.op(copied.around(op!("aten::reshape", &by_token, &out.dims[..])), |b| {
            b.op(copied.forward(op!("aten::clone", &by_token, 0)), |b| {
                empty_strided(b, &by_token.viewed(&by_token.dims), &key);
                b.op(op!("aten::copy_", &by_token, &by_token, false), |b| {
                    b.wait(2_400);
                    b.launch(&strided_copy(out.elements(), out.bytes() * 2));
                });
            });
            b.leaf(op!("aten::_unsafe_view", &by_token, &out.dims[..]), 900);
        });
    });
    let whole = out.clone();
    b.on_backward(move |b| {
        copied.backward(b, "UnsafeViewBackward0", &whole, |b| reshape(b, &whole, &by_token.dims));
        b.free_key(&key, whole.bytes());
        swapped.backward(b, "TransposeBackward0", &by_token, |b| transpose(b, &by_token, 1, 2));
    });
    out.clone()
}
