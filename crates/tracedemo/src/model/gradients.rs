//! The model's parameters, and what becomes of their gradients: accumulation and sums over the ranks.

use super::kernels::{all_gather, all_reduce, elementwise};
use crate::calls::Api;
use crate::library::{CollectiveArgs, Group, Stream};
use crate::options::Cause;
use crate::plan::{Builder, Op, op};
use crate::tensor::{Input, Param, Tensor};

pub(crate) fn add_param(b: &mut Builder, name: &str, dims: &[i64]) -> Param {
    let param = Param { name: name.to_owned(), tensor: Tensor::new(dims) };
    b.params.push(param.clone());
    param
}

pub(crate) fn alloc_gradient(b: &mut Builder, param: &Param) {
    b.alloc(&param.gradient_key(), param.tensor.bytes(), true);
}

/// `AccumulateGrad` of a parameter; with several ranks the gradient moves into its bucket.
pub(crate) fn accumulate(b: &mut Builder, param: &Param) {
    let tensor = &param.tensor;
    b.op(Op::bare("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"), |b| {
        b.op(op!("torch::autograd::AccumulateGrad", tensor), |b| {
            b.op(op!("aten::detach", tensor), |b| b.leaf(op!("detach", tensor), 350));
        });
        if b.library.process.ranks > 1 {
            b.op(op!("aten::mul", tensor, ()), |b| {
                b.wait(2_700);
                let functor = "at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, \
                               at::native::binary_internal::MulFunctor<float> >";
                b.launch(&elementwise(functor, 2, tensor.elements(), tensor.bytes() * 2));
            });
        }
    });
}

/// A part of the model, `body`, whose gradients one collective sums: with several ranks, when the backward
/// pass has been through all of it.
pub(crate) fn bucket<R>(b: &mut Builder, body: impl FnOnce(&mut Builder) -> R) -> R {
    let (first_param, place) = (b.params.len(), b.backward_place());
    let made = body(b);
    let elements = b.params[first_param..].iter().map(|param| param.tensor.elements()).sum();
    if b.library.process.ranks > 1 {
        b.on_backward_at(place, move |b| sum_over_ranks(b, elements));
    }
    made
}

fn sum_over_ranks(b: &mut Builder, elements: i64) {
    let ranks = b.library.process.ranks;
    let group = Group::of_all(ranks);
    let number = b.next_collective();
    let args =
        CollectiveArgs { number, name: "allreduce", in_elements: elements, out_elements: elements, group };
    let bucket = Tensor::new(&[elements]);
    b.op(op!("c10d::allreduce_", Input::tensors(std::slice::from_ref(&bucket)), (), (), (), -1), |b| {
        b.op(op!("record_param_comms", &bucket, (), 0).collective(args), |b| {
            b.annotation("nccl:all_reduce", |b| b.wait(7_500));
            b.call(Api::CAPTURING);
            b.order_streams(Stream::Compute, Stream::Comm);
            b.launch_collective(&all_reduce(elements, ranks), args);
            b.call(Api::RECORD);
        });
    });
    b.if_cause(Cause::SerialisedAllReduce, |b| b.order_streams(Stream::Comm, Stream::Compute));
    b.background_query();
}

/// Gathers what each rank of the host has of the parameters, right after the last sum over all ranks.
pub(crate) fn gather_on_host(b: &mut Builder) {
    /// Elements that a rank has.
    const ELEMENTS: i64 = 1 << 23;
    let group = Group::of_host(b.library.process.rank, b.library.process.ranks);
    let elements = ELEMENTS * i64::from(group.size);
    let (number, name) = (b.next_collective(), "_allgather_base");
    let args = CollectiveArgs { number, name, in_elements: ELEMENTS, out_elements: elements, group };
    let (shard, whole) = (Tensor::new(&[ELEMENTS]), Tensor::new(&[elements]));
    b.op(op!("c10d::_allgather_base_", &whole, &shard, (), false, -1), |b| {
        b.op(op!("record_param_comms", &shard, (), 0).collective(args), |b| {
            b.annotation("nccl:_all_gather_base", |b| b.wait(6_500));
            b.launch_collective(&all_gather(elements, group.size), args);
            b.call(Api::RECORD);
        });
    });
}

/// Lets the compute stream wait for all collectives so far.
pub(crate) fn wait_for_collectives(b: &mut Builder) {
    let bare = Op::bare("torch.distributed.ddp.reducer::finalize_backward");
    b.op(bare, |b| b.order_streams(Stream::Comm, Stream::Compute));
}
