//! The model, its parameters, and what becomes of their gradients: accumulation and sums over the ranks.

use super::kernels::{all_gather, all_reduce, elementwise};
use crate::calls::Api;
use crate::library::{CollectiveArgs, Effect, Group, Stream};
use crate::plan::{Builder, Op};
use crate::tensor::{Input, Tensor};

/// Sizes of the model and of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) layers: u32,
    pub(crate) ranks: u32,
    pub(crate) batch: i64,
    pub(crate) sequence: i64,
    pub(crate) hidden: i64,
    pub(crate) heads: i64,
    pub(crate) vocabulary: i64,
}

impl Config {
    /// The demo's model, with that many blocks, on that many ranks.
    pub(crate) fn new(layers: u32, ranks: u32) -> Self {
        Self { layers, ranks, batch: 4, sequence: 1024, hidden: 1024, heads: 16, vocabulary: 32_000 }
    }

    /// Tokens of a batch.
    pub(crate) fn tokens(&self) -> i64 {
        self.batch * self.sequence
    }

    /// Shape of the hidden state.
    pub(crate) fn hidden_state(&self) -> Tensor {
        Tensor::new(&[self.batch, self.sequence, self.hidden])
    }
}

/// A parameter of the model.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
}

impl Param {
    /// Key of its gradient's memory.
    pub(crate) fn gradient_key(&self) -> String {
        format!("gradient of {}", self.name)
    }
}

/// The model while its step is written down.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: Config,
    /// Parameters in the order in which the forward pass meets them.
    pub(crate) params: Vec<Param>,
}

impl Model {
    /// Adds a parameter.
    pub(crate) fn param(&mut self, name: &str, dims: &[i64]) -> Param {
        let param = Param { name: name.to_owned(), tensor: Tensor::new(dims) };
        self.params.push(param.clone());
        param
    }
}

/// `AccumulateGrad` of a parameter; with several ranks the gradient moves into its bucket.
pub(crate) fn accumulate(b: &mut Builder, param: &Param, ranks: u32) {
    let tensor = &param.tensor;
    b.op(Op::bare("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"), |b| {
        b.op(Op::new("torch::autograd::AccumulateGrad", [tensor.into()]), |b| {
            b.op(Op::new("aten::detach", [tensor.into()]), |b| {
                b.leaf(Op::new("detach", [tensor.into()]), 350);
            });
        });
        if ranks > 1 {
            b.op(Op::new("aten::mul", [tensor.into(), Input::None]), |b| {
                b.wait(2_700);
                let functor = "at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, \
                               at::native::binary_internal::MulFunctor<float> >";
                b.launch(Api::LAUNCH, &elementwise(functor, 2, tensor.elements(), tensor.bytes() * 2));
            });
        }
    });
}

/// A part of the model whose gradients one collective sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    first_param: usize,
    place: usize,
}

impl Bucket {
    /// A bucket of the parameters that the model meets from now on.
    pub(crate) fn open(model: &Model, b: &Builder) -> Self {
        Self { first_param: model.params.len(), place: b.backward_place() }
    }

    /// Ends the bucket: with several ranks, the backward pass sums its gradients when it has been
    /// through all that came since it was opened.
    pub(crate) fn close(self, model: &Model, b: &mut Builder) {
        let ranks = model.config.ranks;
        let params = &model.params[self.first_param..];
        let elements = params.iter().map(|param| param.tensor.elements()).sum();
        if ranks > 1 {
            b.on_backward_at(self.place, move |b| sum_over_ranks(b, elements, ranks));
        }
    }
}

fn sum_over_ranks(b: &mut Builder, elements: i64, ranks: u32) {
    let number = b.next_collective();
    let args = CollectiveArgs {
        name: "allreduce",
        in_elements: elements,
        out_elements: elements,
        dtype: "BFloat16",
        group: Group::of_all(ranks),
    };
    let bucket = Tensor::new(&[elements]);
    let inputs =
        || [Input::Tensors(vec![bucket.clone()]), Input::None, Input::None, Input::None, Input::from(-1)];
    b.op(Op::new("c10d::allreduce_", inputs()), |b| {
        let op = Op::new("record_param_comms", [(&bucket).into(), Input::None, 0.into()]);
        b.op(op.collective(number, &args), |b| {
            b.annotation("nccl:all_reduce", |b| b.wait(7_500));
            b.call(Api::CAPTURING);
            let mark = b.next_mark();
            b.call_with(Api::RECORD, Effect::Record { event: mark, stream: Stream::Compute });
            b.call_with(Api::STREAM_WAIT, Effect::StreamWait { event: mark, stream: Stream::Comm });
            b.launch_collective(&all_reduce(elements, ranks), number, &args);
            b.call(Api::RECORD);
        });
    });
    b.background_query();
}

/// Gathers what each rank of the host has of the parameters, right after the last sum over all ranks.
pub(crate) fn gather_on_host(model: &Model, b: &mut Builder) {
    /// Elements that a rank has.
    const ELEMENTS: i64 = 1 << 23;
    let group = Group::of_host(b.library.process.rank, model.config.ranks);
    let elements = ELEMENTS * i64::from(group.size);
    let number = b.next_collective();
    let args = CollectiveArgs {
        name: "_allgather_base",
        in_elements: ELEMENTS,
        out_elements: elements,
        dtype: "BFloat16",
        group,
    };
    let (shard, whole) = (Tensor::new(&[ELEMENTS]), Tensor::new(&[elements]));
    let inputs = || [(&whole).into(), (&shard).into(), Input::None, false.into(), Input::from(-1)];
    b.op(Op::new("c10d::_allgather_base_", inputs()), |b| {
        let op = Op::new("record_param_comms", [(&shard).into(), Input::None, 0.into()]);
        b.op(op.collective(number, &args), |b| {
            b.annotation("nccl:_all_gather_base", |b| b.wait(6_500));
            b.launch_collective(&all_gather(elements, group.size), number, &args);
            b.call(Api::RECORD);
        });
    });
}

/// Lets the compute stream wait for all collectives so far.
pub(crate) fn wait_for_collectives(b: &mut Builder) {
    if b.collective_count() > 0 {
        let bare = Op::bare("torch.distributed.ddp.reducer::finalize_backward");
        b.op(bare, |b| {
            let mark = b.next_mark();
            b.call_with(Api::RECORD, Effect::Record { event: mark, stream: Stream::Comm });
            b.call_with(Api::STREAM_WAIT, Effect::StreamWait { event: mark, stream: Stream::Compute });
        });
    }
}
