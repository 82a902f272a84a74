"""State-space models: the selective scan of Mamba and the short convolution before it."""

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError


def selective_scan_flops(
    batch: int, length: int, channels: int, state: int, *, skip: bool, gate: bool
) -> int:
    """FLOPs of a selective scan.

    Formula: 9 per step, channel and state entry: exp(delta * A) 2, delta * B * u 2 and 1 for delta * u, the
    recurrence 2, the sum over states with C 2. Per step and channel, 2 for ``D * u`` and 5 for the gate's
    silu and product.
    Raises: ShapeError: a size is negative.
    Source: Gu and Dao 2023 (Mamba), algorithm 2.
    Example: 1 x 1024 x 2048 channels x 16 states with D and gate: 1024 * 2048 * (144 + 2 + 5) = 316669952.
    """
    if min(batch, length, channels, state) < 0:
        raise ShapeError("a scan with a negative size")
    return batch * length * channels * (9 * state + (2 if skip else 0) + (5 if gate else 0))


@operator("mamba_ssm::selective_scan_fwd", "_C::selective_scan_fwd")
def _selective_scan(call: Call) -> Cost:
    """``selective_scan_fwd(u, delta, A, B, C, D, z, delta_bias, ...)``.

    Shapes: u and delta ``(batch, channels, length)``; A ``(channels, state)``. Reads every input, writes the
    output.
    """
    u, delta, a = call.tensor(0, rank=3), call.tensor(1, rank=3), call.tensor(2, rank=2)
    if u.shape != delta.shape or a.shape[0] != u.shape[1]:
        call.fail(f"a scan of {u.shape} with {a.shape}")
    rest = call.present(*range(3, 8))
    batch, channels, length = u.shape
    flops = selective_scan_flops(
        batch,
        length,
        channels,
        a.shape[1],
        skip=call.optional(5) is not None,
        gate=call.optional(6) is not None,
    )
    read = u.read + delta.read + a.read + sum(t.read for t in rest)
    return Cost(flops, read, u.nbytes, u.dtype)


@operator("causal_conv1d::causal_conv1d_fwd", "DaoAILab::_causal_conv1d_fwd_cpp", "_C::causal_conv1d_fwd")
def _causal_conv1d(call: Call) -> Cost:
    """``causal_conv1d_fwd(x, weight, bias, ...)``: 2 * width per element (depthwise), 5 for a silu not
    counted.

    Shapes: x ``(batch, channels, length)``; weight ``(channels, width)``.
    """
    x, weight, bias = call.tensor(0), call.tensor(1, rank=2), call.optional(2)
    if weight.shape[0] not in x.shape:
        call.fail(f"a convolution of {x.shape} with {weight.shape}")
    read = x.read + weight.read + (bias.read if bias else 0)
    return Cost(2 * weight.shape[1] * x.numel, read, x.nbytes, x.dtype)


@operator("mamba_ssm::selective_scan_bwd", "selective_scan_cuda::bwd")
def _selective_scan_backward(call: Call) -> Cost:
    """``selective_scan_bwd(u, delta, A, B, C, D, z, delta_bias, dout, ...)``: the scan again, and two
    gradients of each of its products.
    """
    forward = _selective_scan(call)
    dout = call.tensor(8)
    read = (forward.bytes_read or 0) + dout.read
    flops = 3 * (forward.flops or 0)
    return Cost(flops, read, forward.bytes_read, forward.dtype, "estimate", "three times the forward scan")


@operator("DaoAILab::_causal_conv1d_bwd_cpp", "causal_conv1d::causal_conv1d_bwd")
def _causal_conv1d_backward(call: Call) -> Cost:
    """``causal_conv1d_bwd(x, weight, bias, dout, ...)``: both gradients of 2 * width per element."""
    x, weight, bias, dout = call.tensor(0), call.tensor(1, rank=2), call.optional(2), call.tensor(3)
    if weight.shape[0] not in x.shape:
        call.fail(f"a convolution of {x.shape} with {weight.shape}")
    added = bias.nbytes if bias else 0
    read = x.read + weight.read + dout.read
    return Cost(4 * weight.shape[1] * x.numel, read, x.nbytes + weight.nbytes + added, x.dtype)


@operator("MambaSplitConv1dScanCombinedFn", composite=True)
def _mamba_2(call: Call) -> Cost:
    """``(zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, chunk_size, ..., headdim, ngroups, ...)``: the
    short convolution, and the products of the chunked scan.

    Shapes: zxbcdt ``(batch, tokens, 2 * inner + 2 * groups * states + heads)`` with inner = heads * headdim;
    conv1d_weight ``(inner + 2 * groups * states, width)``.
    Formula: 2 B T channels width + 2 B T C (G N + H P) + 4 B T H N P.
    Source: Dao and Gu 2024 (Mamba-2), section 6.
    """
    x, weight, heads = call.tensor(0, rank=3), call.tensor(1, rank=2), call.tensor(3).numel
    chunk, size, groups = call.integer(6), call.integer(15), call.integer(16, 1)
    batch, tokens, width = x.shape
    inner = heads * size
    states, rest = divmod(width - 2 * inner - heads, 2 * groups) if groups > 0 else (0, 1)
    if rest or states < 1 or weight.shape[0] != inner + 2 * groups * states:
        call.fail(f"{heads} heads of {size} in {x.shape} with {weight.shape}")
    of_token = weight.shape[0] * weight.shape[1] + chunk * (groups * states + inner) + 2 * inner * states
    read = x.read + weight.read + sum(t.read for t in call.present(2, 3, 4, 5))
    return Cost(2 * batch * tokens * of_token, read, batch * tokens * inner * x.dtype.bytes, x.dtype)


_CHUNK = 64
_CHUNKED = "ChunkGatedDeltaRule ChunkDeltaRule ChunkGLA ChunkSimpleGLA ChunkRetention ChunkLinearAttention"


@operator(*(f"{name}Function" for name in _CHUNKED.split()), composite=True)
def _chunked_attention(call: Call) -> Cost:
    """flash-linear-attention's ``(q, k, v, ...)``: scores inside a chunk, and a state between chunks.

    Shapes: q and k ``(batch, tokens, heads, d_k)``; v ``(batch, tokens, heads, d_v)``.
    Formula: per token and head 2 C (d_k + d_v) + 4 d_k d_v with chunks of C = 64; the delta rule solves a
    system in each chunk, another 2 C (2 d_k + d_v).
    Source: Yang et al. 2024 (Gated Linear Attention; DeltaNet), sections 4 and 3.
    """
    q, k, v = call.tensor(0, rank=4), call.tensor(1, rank=4), call.tensor(2, rank=4)
    size, wide = q.shape[-1], v.shape[-1]
    of_head = _CHUNK * (size + wide) + 2 * size * wide
    if "Delta" in call.name:
        of_head += _CHUNK * (2 * size + wide)
    rows = v.numel // max(wide, 1)
    rest = sum(t.read for t in call.tensors()[3:])
    read = q.read + k.read + v.read + rest
    note = f"chunks of {_CHUNK} are assumed"
    return Cost(2 * rows * of_head, read, v.nbytes, q.dtype, "estimate", note)
