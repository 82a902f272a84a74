//! The step as a whole, in its two variants.

use super::data::{drop_batch, next_batch};
use super::kernels::{elementwise, gemm};
use super::layers::{block, embedding, layer_norm};
use super::linear::linear;
use super::loss::{cross_entropy, read_back, seed_gradient};
use super::optimizer;
use super::parameters::{Bucket, Config, Model, Param, gather_on_host, wait_for_collectives};
use crate::calls::Api;
use crate::gpu::{GPUS, Kernel};
use crate::library::{Effect, GraphNode, Library, Stream, Thread};
use crate::plan::{Builder, Instr, Plan};
use crate::tensor::{DType, Tensor};

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
    pub(crate) leftovers: Vec<u32>,
    /// Device memory in use before the first step, bytes.
    pub(crate) allocated_bytes: i64,
    /// Device memory that the caching allocator holds, bytes.
    pub(crate) reserved_bytes: i64,
}

impl BuiltModel {
    /// Plan of a step.
    pub(crate) fn plan(&self, step: u64) -> &Plan {
        if step % GRAPH_EVERY == GRAPH_EVERY - 1 { &self.graphed } else { &self.eager }
    }
}

/// Writes down the model's step.
pub(crate) fn build(config: Config, library: Library) -> BuiltModel {
    let mut b = Builder::new(library);
    let leftovers = [gemm(8192, 1024, 4096, false), gemm(1024, 4096, 8192, false), leftover_add()];
    let leftovers = leftovers
        .map(|kernel| b.library.kernel(&kernel, Stream::Compute, GraphNode::default(), None))
        .to_vec();
    b.begin_frame("torch/profiler/profiler.py(925): step");
    b.leaf_frame("torch/profiler/profiler.py(1012): _transit_action", 11_000);
    b.call_with(Api::DEVICE_SYNC, Effect::DeviceSync);
    b.wait(60_000);
    let (prologue, library) = b.finish();
    let params = parameters(config, &library);
    let (eager, library) = step(config, library, &params, false);
    let (graphed, library) = step(config, library, &params, true);
    let mut b = Builder::new(library);
    b.wait(90_000);
    b.call_with(Api::DEVICE_SYNC, Effect::DeviceSync);
    b.end_frame();
    let (epilogue, mut library) = b.finish();
    let mut allocated_bytes = 0;
    for param in &params {
        let gradient = library.block(&param.gradient_key(), param.tensor.bytes(), true);
        // The parameter itself and the optimizer's two moments take as much each.
        allocated_bytes += 4 * library.blocks[gradient as usize].bytes;
    }
    let reserved_bytes = reserved_bytes(&eager, &library, allocated_bytes);
    BuiltModel { library, prologue, epilogue, eager, graphed, leftovers, allocated_bytes, reserved_bytes }
}

/// What the caching allocator has taken from the device to serve a step: the peak, fragments, and whole
/// segments of 2 MiB.
fn reserved_bytes(plan: &Plan, library: &Library, allocated_bytes: i64) -> i64 {
    let mut now = allocated_bytes;
    let mut peak = now;
    for instr in &plan.instrs {
        now += match instr {
            Instr::Alloc(block) if library.blocks[*block as usize].on_device => {
                library.blocks[*block as usize].bytes
            }
            Instr::Free(block) if library.blocks[*block as usize].on_device => {
                -library.blocks[*block as usize].bytes
            }
            _ => 0,
        };
        peak = peak.max(now);
    }
    (peak + peak / 16 + (2 << 20)) >> 21 << 21
}

fn leftover_add() -> Kernel {
    elementwise("at::native::CUDAFunctor_add<c10::BFloat16>", 3, 8 << 20, 48 << 20)
}

/// The model's parameters, learnt from a forward pass that is thrown away: a step frees their gradients
/// before its own forward pass.
fn parameters(config: Config, library: &Library) -> Vec<Param> {
    let mut model = Model { config, params: Vec::new() };
    let mut scratch = Builder::new(Library::new(library.layout, library.process));
    forward(&mut model, &mut scratch, &Tensor::of(DType::Long, &[config.batch, config.sequence]));
    model.params
}

fn step(config: Config, library: Library, params: &[Param], as_graph: bool) -> (Plan, Library) {
    let mut model = Model { config, params: Vec::new() };
    let mut builder = Builder::new(library);
    let b = &mut builder;
    b.begin_annotation("ProfilerStep#");
    b.end_frame();
    let tokens = next_batch(&model, b);
    b.begin_frame("train.py(118): train_step");
    optimizer::zero_grad(params, b);
    forward(&mut model, b, &tokens);
    backward(&model, b);
    read_back(b);
    b.leaf_frame("<built-in function print>", 9_000);
    optimizer::step(params, b, as_graph);
    drop_batch(&model, b);
    b.end_frame();
    b.overhead("Activity Buffer Request", 21_000);
    // The annotation ends inside the frame in which the next one begins: the two overlap in part.
    b.begin_frame("torch/profiler/profiler.py(925): step");
    b.end_op();
    b.wait(2_500);
    builder.finish()
}

fn forward(model: &mut Model, b: &mut Builder, tokens: &Tensor) {
    let parallel = model.config.ranks > 1;
    if parallel {
        b.begin_module("DistributedDataParallel", "torch/nn/parallel/distributed.py(1661): forward");
        b.begin_annotation("DistributedDataParallel.forward");
    }
    b.begin_module("TransformerLM", "model.py(96): forward");
    let outer = Bucket::open(model, b);
    let mut x = embedding(model, b, tokens);
    outer.close(model, b);
    for index in 0..model.config.layers {
        block(model, b, index, &x);
    }
    let bucket = Bucket::open(model, b);
    x = layer_norm(model, b, "norm", &x);
    let logits = linear(model, b, "head", &x, model.config.vocabulary, false);
    bucket.close(model, b);
    b.end_module();
    if parallel {
        b.end_op();
        b.end_module();
    }
    cross_entropy(model, b, &logits);
}

fn backward(model: &Model, b: &mut Builder) {
    b.frame("torch/_tensor.py(592): backward", |b| {
        b.frame("torch/autograd/__init__.py(243): backward", |b| {
            seed_gradient(b);
            b.frame("torch/autograd/graph.py(815): _engine_run_backward", |b| {
                b.switch(Thread::Autograd);
                b.run_backward();
                if model.config.ranks >= GPUS {
                    gather_on_host(model, b);
                }
                if model.config.ranks > 1 {
                    wait_for_collectives(b);
                }
                b.switch(Thread::Main);
            });
        });
    });
}
