//! The traced program: one training step of a small transformer language model, in its two variants.

mod attention;
mod data;
mod gradients;
pub(crate) mod kernels;
mod layers;
mod linear;
mod loss;
mod optimizer;
mod views;

use crate::calls::Api;
use crate::gpu::GPUS;
use crate::library::{Effect, GraphNode, Library, Process, Stream, Thread};
use crate::options::Cause;
use crate::plan::{Builder, Instr, Plan};
use crate::tensor::{Param, Tensor};
use data::{drop_batch, next_batch};
use gradients::{bucket, gather_on_host, wait_for_collectives};
use kernels::{elementwise, gemm};
use layers::{block, embedding, layer_norm};
use linear::linear;
use loss::{cross_entropy, read_back, seed_gradient};

/// Every so many steps the optimizer is replayed as a CUDA graph.
const GRAPH_EVERY: u64 = 4;

/// The plans of a trace and what they refer to.
#[derive(Debug)]
pub(crate) struct BuiltModel {
    pub(crate) library: Library,
    /// What happens before the first step.
    pub(crate) prologue: Plan,
    /// What happens after the last.
    pub(crate) epilogue: Plan,
    eager: Plan,
    graphed: Plan,
    /// Works that the GPU still has to do when the trace begins.
    pub(crate) leftovers: [u32; 3],
    /// Device memory in use before the first step, bytes.
    pub(crate) allocated_bytes: i64,
    /// Device memory that the caching allocator holds, bytes.
    pub(crate) reserved_bytes: i64,
}

impl BuiltModel {
    pub(crate) fn plan(&self, step: u64) -> &Plan {
        if step % GRAPH_EVERY == GRAPH_EVERY - 1 { &self.graphed } else { &self.eager }
    }
}

/// Writes down the step of a model of that many blocks, in a job with that cause.
pub(crate) fn build(layers: u32, process: Process, cause: Option<Cause>) -> BuiltModel {
    // Parameters are learnt from a forward pass that is thrown away: a step frees their gradients before
    // its own forward pass.
    let mut scratch = Builder::new(process, cause);
    forward(&mut scratch, layers, &data::tokens());
    let params = scratch.params;
    let mut b = Builder::new(process, cause);
    let add = elementwise("at::native::CUDAFunctor_add<c10::BFloat16>", 3, 8 << 20, 48 << 20);
    let leftovers = [gemm(8192, 1024, 4096, false), gemm(1024, 4096, 8192, false), add];
    let leftovers =
        leftovers.map(|kernel| b.library.kernel(&kernel, Stream::Compute, GraphNode::default(), None));
    b.begin_frame("torch/profiler/profiler.py(925): step");
    b.leaf_frame("torch/profiler/profiler.py(1012): _transit_action", 11_000);
    b.call_with(Api::DEVICE_SYNC, Effect::DeviceSync);
    b.wait(60_000);
    let prologue = b.finish();
    let [eager, graphed] = [false, true].map(|as_graph| step(&mut b, layers, &params, as_graph));
    b.wait(90_000);
    b.call_with(Api::DEVICE_SYNC, Effect::DeviceSync);
    b.end_frame();
    let epilogue = b.finish();
    let mut library = b.library;
    // The parameter itself and the optimizer's two moments take as much each as the gradient.
    let gradients =
        params.iter().map(|param| library.block(&param.gradient_key(), param.tensor.bytes(), true));
    let gradients: Vec<u32> = gradients.collect();
    let allocated_bytes = gradients.iter().map(|block| 4 * library.blocks[*block as usize].bytes).sum();
    let reserved_bytes = reserved_bytes(&eager, &library, allocated_bytes);
    BuiltModel { library, prologue, epilogue, eager, graphed, leftovers, allocated_bytes, reserved_bytes }
}

/// What the caching allocator has taken from the device to serve a step: the peak, fragments, and whole
/// segments of 2 MiB.
fn reserved_bytes(plan: &Plan, library: &Library, allocated_bytes: i64) -> i64 {
    let (mut now, mut peak) = (allocated_bytes, allocated_bytes);
    for instr in &plan.instrs {
        let (block, sign) = match *instr {
            Instr::Alloc(block) => (block, 1),
            Instr::Free(block) => (block, -1),
            _ => continue,
        };
        let block = &library.blocks[block as usize];
        now += if block.on_device { sign * block.bytes } else { 0 };
        peak = peak.max(now);
    }
    (peak + peak / 16 + (2 << 20)) >> 21 << 21
}

fn step(b: &mut Builder, layers: u32, params: &[Param], as_graph: bool) -> Plan {
    b.begin_annotation("ProfilerStep#");
    b.end_frame();
    let tokens = next_batch(b, layers);
    b.frame("train.py(118): train_step", |b| {
        optimizer::zero_grad(params, b);
        forward(b, layers, &tokens);
        backward(b);
        read_back(b);
        b.leaf_frame("<built-in function print>", 9_000);
        optimizer::step(params, b, as_graph);
        drop_batch(b);
    });
    b.overhead("Activity Buffer Request", 21_000);
    // The annotation ends inside the frame in which the next one begins: the two overlap in part.
    b.begin_frame("torch/profiler/profiler.py(925): step");
    b.end_op();
    b.wait(2_500);
    b.finish()
}

fn forward(b: &mut Builder, layers: u32, tokens: &Tensor) {
    let model = |b: &mut Builder| {
        b.module("TransformerLM", "model.py(96): forward", |b| {
            let x = bucket(b, |b| embedding(b, tokens));
            for index in 0..layers {
                block(b, index, &x);
            }
            bucket(b, |b| {
                let x = layer_norm(b, "norm", &x);
                linear(b, "head", &x, data::VOCABULARY, false)
            })
        })
    };
    let logits = if b.library.process.ranks > 1 {
        b.module("DistributedDataParallel", "torch/nn/parallel/distributed.py(1661): forward", |b| {
            b.annotation("DistributedDataParallel.forward", model)
        })
    } else {
        model(b)
    };
    cross_entropy(b, &logits);
}

fn backward(b: &mut Builder) {
    b.frame("torch/_tensor.py(592): backward", |b| {
        b.frame("torch/autograd/__init__.py(243): backward", |b| {
            seed_gradient(b);
            b.frame("torch/autograd/graph.py(815): _engine_run_backward", |b| {
                b.switch(Thread::Autograd);
                b.run_backward();
                if b.library.process.ranks >= GPUS {
                    gather_on_host(b);
                }
                if b.library.process.ranks > 1 {
                    wait_for_collectives(b);
                }
                b.switch(Thread::Main);
            });
        });
    });
}
