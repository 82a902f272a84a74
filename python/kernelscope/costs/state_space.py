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
