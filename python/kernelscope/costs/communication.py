"""Collectives: bytes of memory traffic, and the factor that makes bandwidths comparable."""

from collections.abc import Sequence
from dataclasses import replace

from kernelscope.costs.bind import Call
from kernelscope.costs.normalization import rms_norm
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError, Tensor

# The collectives by the kind that decides the bus factor; names without separators, in lower case.
_KINDS = {
    "all_reduce": "allreduce allreducecoalesced multimemallreduce",
    "all_gather": "allgather allgatherbase allgatherintotensor allgatherintotensorcoalesced "
    "allgathercoalesced",
    "reduce_scatter": "reducescatter reducescatterbase reducescattertensor reducescattertensorcoalesced",
    "all_to_all": "alltoall alltoallbase alltoallv alltoallsingle",
    "broadcast": "broadcast broadcastoop",
    "reduce": "reduce reduceoop",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send isend sendrecv",
    "recv": "recv irecv",
    "barrier": "barrier",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}


def collective_kind(name: str) -> str | None:
    """Returns the kind of a collective from its name in any library.

    ``nccl:_all_gather_base`` is ``all_gather``.
    """
    base = name.rpartition(":")[2].partition(".")[0]
    return _KIND_OF.get(base.replace("_", "").replace("-", "").lower())


def bus_factor(kind: str, ranks: int) -> float:
    """Share of the message that crosses each link in the best algorithm.

    Formula: all_reduce 2 (n - 1) / n; all_gather, reduce_scatter, all_to_all, gather and scatter (n - 1) / n;
    broadcast, reduce, send and recv 1; barrier 0. Bus bandwidth is message / time * factor.
    Raises: ShapeError: fewer than one rank, or no such kind.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    Example: ``bus_factor("all_reduce", 8)`` is 1.75.
    """
    if ranks < 1:
        raise ShapeError(f"{ranks} ranks")
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    if kind in {"broadcast", "reduce", "send", "recv"}:
        return 1.0
    if kind == "barrier":
        return 0.0
    raise ShapeError(f"{kind} is not a collective")


def message_bytes(kind: str, bytes_in: int, bytes_out: int) -> int:
    """The message that bandwidths refer to: the whole message, not one rank's part.

    Formula: the output of an all_gather (and gather), otherwise the input.
    """
    return bytes_out if kind in {"all_gather", "gather"} else bytes_in


_LIBRARIES = ("nccl:", "c10d::", "gloo:", "mpi:", "ucc:")
_SAME_SIZE = (
    "all_reduce allreduce_ allreduce allreduce_coalesced_ reduce reduce_ broadcast "
    "broadcast_ all_to_all send recv "
    "alltoall_base_ alltoall_ send_ recv_ _broadcast_oop _reduce_oop"
)


def _payload(call: Call, index: int) -> Sequence[Tensor]:
    """The tensor or tensors at ``index``. Raises: ShapeError: there are none."""
    return [call.tensor(index)] if isinstance(call.arg(index), Tensor) else call.tensor_list(index)


def _moved(source: Sequence[Tensor], written: int) -> Cost:
    return Cost(0, sum(t.read for t in source), written, source[0].dtype if source else None)


@operator(*(f"{library}{name}" for library in _LIBRARIES for name in _SAME_SIZE.split()))
@operator("vllm::all_reduce", "symm_mem::multimem_all_reduce_", "symm_mem::one_shot_all_reduce")
@operator("symm_mem::two_shot_all_reduce_", "_c10d_functional::all_reduce", "_c10d_functional::broadcast")
@operator("_c10d_functional::all_to_all_single", "_C_custom_ar::all_reduce")
def _same_size(call: Call) -> Cost:
    """Collectives whose result is as large as the input: both pass through memory once.

    The additions of a reduction are not counted: how they are shared depends on ranks and algorithm.
    """
    tensors = _payload(call, 0)
    return _moved(tensors, sum(t.nbytes for t in tensors))


@operator("c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allgather_into_tensor_coalesced_")
@operator("c10d::reduce_scatter_tensor_coalesced_")
def _into_tensor(call: Call) -> Cost:
    """``_allgather_base_(output_tensor, input_tensor, ...)``, ``_reduce_scatter_base_`` likewise."""
    out = _payload(call, 0)
    source = [call.tensor(1)] if isinstance(call.arg(0), Tensor) else call.tensor_list(1)
    return _moved(source, sum(t.nbytes for t in out))


@operator("nccl:all_gather", "nccl:_all_gather_base", "nccl:reduce_scatter", "nccl:_reduce_scatter_base")
def _gather(call: Call) -> Cost:
    """Only the input is recorded: the result is larger, or smaller, by the group's size (hint
    ``group_size``).
    """
    x, ranks = _payload(call, 0), call.hints.get("group_size")
    if ranks is None or ranks < 1:
        call.fail("the group size is not among the inputs")
    cost = _moved(x, _resized(call, sum(t.nbytes for t in x), ranks))
    return replace(cost, status="estimate", note="the group size comes from elsewhere")


def _resized(call: Call, size: int, ranks: int) -> int:
    """Bytes of the result: of all ranks' parts, or of one rank's part."""
    if ranks < 1:
        call.fail(f"{ranks} ranks")
    return size * ranks if "all_gather" in call.name else size // ranks


@operator("record_param_comms")
def _recorded_message(call: Call) -> Cost:
    """The recorder's own call inside a collective: its arguments give elements and type of the message.

    The caller gives ``bytes_in`` and ``bytes_out``, of one rank, as hints.
    """
    sent, received = call.hints.get("bytes_in"), call.hints.get("bytes_out")
    if sent is None or received is None:
        call.fail("the message size was not recorded")
    return Cost(0, sent, received, None)


@operator("vllm::all_gather", "vllm::reduce_scatter")
def _vllm_sized(call: Call) -> Cost:
    """``all_gather(tensor, dim, world_size, group_name)``: the result is larger, or smaller, by the
    world's size.
    """
    x, ranks = call.tensor(0), call.integer(2)
    return Cost(0, x.read, _resized(call, x.nbytes, ranks), x.dtype)


@operator("_c10d_functional::all_gather_into_tensor", "_c10d_functional::reduce_scatter_tensor")
def _functional_sized(call: Call) -> Cost:
    """``all_gather_into_tensor(input, group_size, group_name)``, ``reduce_scatter_tensor(input, op, size,
    ...)``.
    """
    x, ranks = call.tensor(0), call.integer(1 if "all_gather" in call.name else 2)
    return Cost(0, x.read, _resized(call, x.nbytes, ranks), x.dtype)


def reduced_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None, written: Sequence[Tensor], *, narrow: int = 0
) -> Cost:
    """Cost of an all-reduce of ``x`` whose sum is normalised inside the same kernel.

    Formula: the norm's operations (see rms_norm), plus ``narrow`` per number if the result is converted to a
    narrow type. x, weight and residual are read, and ``written`` are written. The sum counts as memory
    traffic only if it is among them. Additions between ranks are not counted, as in every collective.
    Example: (16, 64) of bfloat16 with residual: 5 * 1024 FLOP, reads 2048 + 2048 + 128, writes 4096.
    """
    norm = rms_norm(x, weight, residual=residual is not None)
    read = x.read + weight.read + (residual.read if residual else 0)
    return Cost((norm.flops or 0) + narrow * x.numel, read, sum(t.nbytes for t in written), x.dtype)


def _narrowed(cost: Cost, factor: Tensor | None, *, guessed: bool) -> Cost:
    """With the factor that scales narrow results; ``guessed`` where the norm itself may not be written."""
    cost = replace(cost, bytes_read=(cost.bytes_read or 0) + (factor.read if factor else 0))
    note = "the norm is assumed to be written in addition to its narrow form"
    return replace(cost, status="estimate", note=note) if guessed else cost


# Patterns of FlashInfer that write a narrow result and not the norm.
_NARROW_ALONE = {2, 3, 8}


@operator("flashinfer::trtllm_allreduce_fusion")
def _flashinfer_fusion(call: Call) -> Cost:
    """``trtllm_allreduce_fusion(allreduce_in, world_size, ..., fp32_acc, pattern_code, allreduce_out,
    residual_in, residual_out, norm_out, quant_out, scale_out, rms_gamma, rms_eps, scale_factor, ...)``: the
    tensors that are passed say what is fused; without a weight it is an all-reduce.

    The workspace of the exchange (input 5) is not counted.
    """
    x, weight, residual, narrow = call.tensor(0), call.optional(17), call.optional(12), call.optional(15)
    # Newer versions have an option behind the pattern that older ones have before it.
    pattern = next((code for at in (9, 10) if type(code := call.arg(at)) is int), None)
    norm = () if narrow and pattern in _NARROW_ALONE else (14,)
    written = call.present(11, 13, *norm, 15, 16)
    if not written or (residual and residual.numel != x.numel):
        call.fail("no result has the size of the input")
    if weight is None:
        return _moved([x], sum(t.nbytes for t in written))
    each = 0 if narrow is None else 2 if call.optional(16) else 1
    guessed = narrow is not None and pattern is None and call.optional(14) is not None
    cost = reduced_norm(x, weight, residual, written, narrow=each)
    return _narrowed(cost, call.optional(19), guessed=guessed)


@operator("vllm::flashinfer_trtllm_fused_allreduce_norm", composite=True)
def _vllm_fusion(call: Call) -> Cost:
    """``flashinfer_trtllm_fused_allreduce_norm(allreduce_in, residual, rms_gamma, rms_eps, ..., norm_out,
    quant_out, scale_out, scale_factor)``; the residual is updated in place, and so is allreduce_in where no
    result is passed. A wrapper: large inputs are reduced and normalized by operators of their own.
    """
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if residual.numel != x.numel:
        call.fail(f"residual {residual.shape} for {x.shape}")
    results = call.present(*range(3, len(call.args)))
    factor = results.pop() if results and results[-1].numel == 1 < x.numel else None
    narrow = next((t for t in results if t.dtype.bytes == 1), None)
    each = 0 if narrow is None else 1 if results[-1] is narrow else 2
    cost = reduced_norm(x, weight, residual, [residual, *(results or [x])], narrow=each)
    return _narrowed(cost, factor, guessed=narrow is not None and results[0] is not narrow)


@operator("sglang::flashinfer_allreduce_residual_rmsnorm", "vllm::rocm_aiter_fused_allreduce_rmsnorm")
@operator("aiter::fused_allreduce_rmsnorm")
def _fused_allreduce_rmsnorm(call: Call) -> Cost:
    """``flashinfer_allreduce_residual_rmsnorm(input, residual, weight, eps, ...)``: a new residual and the
    norm are results. aiter's ``fused_allreduce_rmsnorm(handle, input, residual, residual_out, out, weight,
    eps, ...)`` is given where they go.
    """
    if call.optional(0) is None:
        x, residual, weight = call.tensor(1), call.tensor(2), call.tensor(5)
    else:
        x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if residual.numel != x.numel or weight.numel != x.shape[-1]:
        call.fail(f"residual {residual.shape} and weight {weight.shape} for {x.shape}")
    return reduced_norm(x, weight, residual, [residual, x])


@operator("vllm::rocm_aiter_fused_allreduce_rmsnorm_no_residual")
def _allreduce_rmsnorm(call: Call) -> Cost:
    """``rocm_aiter_fused_allreduce_rmsnorm_no_residual(input, weight, eps, group_name)``."""
    x, weight = call.tensor(0), call.tensor(1)
    return reduced_norm(x, weight, None, [x])
