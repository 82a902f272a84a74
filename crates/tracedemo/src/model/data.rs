//! The data loader and the copy of a batch to the GPU.

use super::parameters::Model;
use super::views::{as_strided, empty, empty_strided};
use crate::calls::Api;
use crate::library::{Effect, Stream};
use crate::plan::{Builder, Op};
use crate::tensor::{DType, Input, Tensor};

/// Key of the batch's host memory.
const HOST_BATCH: &str = "batch on the host";
/// Keys of its device memory.
const DEVICE_BATCH: [&str; 2] = ["tokens on the device", "targets on the device"];

/// Fetches a batch; gives the tokens on the device.
pub(crate) fn next_batch(model: &Model, b: &mut Builder) -> Tensor {
    let config = model.config;
    let batch = Tensor::of(DType::Long, &[config.batch, config.sequence + 1]);
    let mut host = 0;
    b.frame("torch/utils/data/dataloader.py(734): __next__", |b| {
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", |b| {
            b.frame("torch/utils/data/dataloader.py(790): _next_data", |b| {
                b.late();
                b.frame("torch/utils/data/_utils/fetch.py(51): fetch", |b| {
                    for _ in 0..config.batch {
                        sample(b, &batch, config.layers);
                    }
                    b.frame("torch/utils/data/_utils/collate.py(400): default_collate", |b| {
                        let row = Tensor::of(DType::Long, &[config.sequence + 1]);
                        let rows = || Input::Tensors(vec![row.clone(); config.batch as usize]);
                        b.op(Op::new("aten::stack", [rows(), 0.into()]), |b| {
                            host = empty(b, &batch, HOST_BATCH, false);
                            b.op(Op::new("aten::cat", [rows(), 0.into()]), |b| b.wait(14_000));
                        });
                    });
                });
            });
        });
    });
    let tokens = Tensor::of(DType::Long, &[config.batch, config.sequence]);
    for key in DEVICE_BATCH {
        to_device(b, &batch, &tokens, key);
    }
    let mark = b.next_mark();
    b.frame("torch/cuda/streams.py(187): wait_stream", |b| {
        b.op(Op::bare("stream_wait"), |b| {
            b.call_with(Api::RECORD, Effect::Record { event: mark, stream: Stream::Copy });
            b.call_with(Api::STREAM_WAIT, Effect::StreamWait { event: mark, stream: Stream::Compute });
        });
    });
    b.free(host);
    tokens
}

/// Frees the batch on the device.
pub(crate) fn drop_batch(model: &Model, b: &mut Builder) {
    for key in DEVICE_BATCH {
        let block = b.library.block(key, model.config.tokens() * 8, true);
        b.free(block);
    }
}

fn sample(b: &mut Builder, batch: &Tensor, layers: u32) {
    let row = Tensor::of(DType::Long, &[batch.dims[1]]);
    let corpus = Tensor::of(DType::Long, &[48_000_000]);
    b.frame("corpus.py(29): __getitem__", |b| {
        // Preparing text takes longer than the GPU needs to finish the step before, so that it shows.
        b.wait(420_000 + 70_000 * layers);
        for part in
            ["<built-in function len>", "<built-in method randint of Random object at 0x55d2c81f3e40>"]
        {
            b.leaf_frame(part, 180);
        }
        b.leaf_frame("corpus.py(17): _offset", 71_000);
        b.frame("<built-in method __getitem__ of Tensor object at 0x7f39d43a1d50>", |b| {
            let inputs = [(&corpus).into(), 0.into(), 1_048_576.into(), 1_049_601.into(), 1.into()];
            b.op(Op::new("aten::slice", inputs), |b| as_strided(b, &corpus, &row));
        });
        b.leaf_frame("corpus.py(24): _check", 96_000);
    });
}

/// `.to(device, non_blocking=True)` of a part of the batch, on the stream for copies.
fn to_device(b: &mut Builder, batch: &Tensor, part: &Tensor, key: &str) {
    b.frame("<built-in method to of Tensor object at 0x7f39d43a1e90>", |b| {
        let source = Tensor { dims: part.dims.clone(), ..batch.clone() };
        let inputs = [(&source).into(), 4.into(), 0.into(), Input::None, true.into(), false.into()];
        b.op(Op::new("aten::to", inputs), |b| {
            let inputs = [(&source).into(), 4.into(), Input::None, Input::None, Input::None, true.into()];
            b.op(Op::new("aten::_to_copy", inputs), |b| {
                empty_strided(b, part, key, true);
                let inputs = [part.into(), (&source).into(), true.into()];
                b.op(Op::new("aten::copy_", inputs), |b| {
                    b.wait(2_100);
                    b.copy("HtoD (Pinned -> Device)", Stream::Copy, part.bytes());
                });
            });
        });
    });
}
