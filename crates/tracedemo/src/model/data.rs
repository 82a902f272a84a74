//! Sizes of the model and of a batch, the data loader, and the copy of a batch to the GPU.

use super::views::{as_strided, empty, empty_strided};
use crate::library::Stream;
use crate::options::Cause;
use crate::plan::{Builder, Instr, Op, op};
use crate::tensor::{DType, Input, Tensor};

pub(crate) const BATCH: i64 = 4;
pub(crate) const SEQUENCE: i64 = 1024;
pub(crate) const TOKENS: i64 = BATCH * SEQUENCE;
pub(crate) const HIDDEN: i64 = 1024;
pub(crate) const HEADS: i64 = 16;
pub(crate) const VOCABULARY: i64 = 32_000;

/// Tokens or targets of a batch.
pub(crate) fn tokens() -> Tensor {
    Tensor::of(DType::LONG, &[BATCH, SEQUENCE])
}

/// The hidden state of a batch.
pub(crate) fn hidden_state() -> Tensor {
    Tensor::new(&[BATCH, SEQUENCE, HIDDEN])
}

/// What a slow loader does.
const SLEEP: &str = "<built-in function sleep>";
/// Keys of the batch's device memory.
const DEVICE_BATCH: [&str; 2] = ["tokens on the device", "targets on the device"];

/// Fetches a batch for a model of that many layers; gives the tokens on the device.
pub(crate) fn next_batch(b: &mut Builder, layers: u32) -> Tensor {
    let batch = Tensor::of(DType::LONG, &[BATCH, SEQUENCE + 1]);
    let row = Tensor::of(DType::LONG, &[SEQUENCE + 1]);
    let host = b.frame("torch/utils/data/dataloader.py(734): __next__", |b| {
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", |b| {
            b.frame("torch/utils/data/dataloader.py(790): _next_data", |b| {
                b.if_cause(Cause::SlowLoader, |b| b.begin_frame(SLEEP));
                b.push(Instr::Late);
                b.if_cause(Cause::SlowLoader, Builder::end_frame);
                b.frame("torch/utils/data/_utils/fetch.py(51): fetch", |b| {
                    for _ in 0..BATCH {
                        sample(b, &row, layers);
                    }
                    b.frame("torch/utils/data/_utils/collate.py(400): default_collate", |b| {
                        let rows = Input::tensors(&vec![row; BATCH as usize]);
                        b.op(op!("aten::stack", rows.clone(), 0), |b| {
                            let host = empty(b, &batch, "batch on the host", false);
                            b.leaf(op!("aten::cat", rows, 0), 14_000);
                            host
                        })
                    })
                })
            })
        })
    });
    for key in DEVICE_BATCH {
        to_device(b, &Tensor { dims: tokens().dims, ..batch.clone() }, key);
    }
    b.frame("torch/cuda/streams.py(187): wait_stream", |b| {
        b.op(Op::bare("stream_wait"), |b| b.order_streams(Stream::Copy, Stream::Compute));
    });
    b.free(host);
    tokens()
}

pub(crate) fn drop_batch(b: &mut Builder) {
    for key in DEVICE_BATCH {
        b.free_key(key, tokens().bytes());
    }
}

fn sample(b: &mut Builder, row: &Tensor, layers: u32) {
    let corpus = Tensor::of(DType::LONG, &[48_000_000]);
    b.frame("corpus.py(29): __getitem__", |b| {
        // Preparing text takes longer than the GPU needs to finish the step before, so that it shows.
        b.wait(420_000 + 70_000 * layers);
        b.leaf_frame("<built-in function len>", 180);
        b.leaf_frame("<built-in method randint of Random object at 0x55d2c81f3e40>", 180);
        b.leaf_frame("corpus.py(17): _offset", 71_000);
        b.frame("<built-in method __getitem__ of Tensor object at 0x7f39d43a1d50>", |b| {
            let slice = op!("aten::slice", &corpus, 0, 1_048_576, 1_049_601, 1);
            b.op(slice, |b| as_strided(b, &corpus, row));
        });
        b.leaf_frame("corpus.py(24): _check", 96_000);
    });
}

/// `.to(device, non_blocking=True)` of a part of the batch, on the stream for copies.
fn to_device(b: &mut Builder, source: &Tensor, key: &str) {
    let part = tokens();
    b.frame("<built-in method to of Tensor object at 0x7f39d43a1e90>", |b| {
        b.op(op!("aten::to", source, 4, 0, (), true, false), |b| {
            b.op(op!("aten::_to_copy", source, 4, (), (), (), true), |b| {
                empty_strided(b, &part, key);
                b.op(op!("aten::copy_", &part, source, true), |b| {
                    b.wait(2_100);
                    b.copy("HtoD (Pinned -> Device)", Stream::Copy, part.bytes());
                });
            });
        });
    });
}
