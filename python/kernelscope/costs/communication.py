"""Collectives: the bytes that memory sees, and the factor that makes bandwidths comparable."""

from collections.abc import Sequence
from dataclasses import replace

from kernelscope.costs.bind import Call
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
    """What a collective does, from its name in any library: ``nccl:_all_gather_base`` is ``all_gather``."""
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
    raise ShapeError(f"{kind} is no collective")


def message_bytes(kind: str, bytes_in: int, bytes_out: int) -> int:
    """The message whose size bandwidths are quoted for: the whole, not one rank's part.

    Formula: the output of an all_gather (and gather), else the input.
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
        call.fail("the group's size is not among the inputs")
    cost = _moved(x, _resized(call, sum(t.nbytes for t in x), ranks))
    return replace(cost, status="estimate", note="the group's size comes from elsewhere")


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
        call.fail("the message's size was not recorded")
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
