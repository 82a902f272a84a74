"""Recurrent layers and cells: matrix products of the gates, and pointwise operations on the gates."""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError, Tensor

# Gates per hidden unit, by cuDNN's mode: relu, tanh, lstm, gru.
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}


def recurrent_layer_flops(
    tokens: int, inputs: int, hidden: int, gates: int, *, directions: int = 1, projected: int = 0
) -> int:
    """FLOPs of the matrix products of one layer over ``tokens`` (steps x batch).

    Formula: 2 * tokens * directions * (gates * hidden * (inputs + recurrent) + hidden * projected), with
    recurrent = projected or hidden. The pointwise operations on the gates are not counted.
    Raises: ShapeError: a size is negative.
    Source: Hochreiter and Schmidhuber 1997; torch.nn.LSTM (documentation).
    Example: LSTM cell, 16 x 128 in, 256 hidden: 2 * 16 * 1024 * (128 + 256) = 12582912.
    """
    if min(tokens, inputs, hidden, gates, directions, projected) < 0:
        raise ShapeError("a recurrent layer with a negative size")
    recurrent = projected or hidden
    once = gemm_flops(tokens, gates * hidden, inputs + recurrent) + gemm_flops(tokens, projected, hidden)
    return directions * once


def _stack_flops(
    call: Call, x: Tensor, mode: int, hidden: int, projected: int, layers: int, directions: int
) -> int:
    if mode not in _GATES or not x.shape:
        call.fail(f"there is no recurrent network of mode {mode} over {x.shape}")
    tokens, inputs = prod(x.shape[:-1]), x.shape[-1]
    total = 0
    wide = directions * (projected or hidden)
    if not 0 <= layers <= 10_000:
        call.fail(f"{layers} layers")
    for layer in range(layers):
        size = inputs if layer == 0 else wide
        total += recurrent_layer_flops(
            tokens, size, hidden, _GATES[mode], directions=directions, projected=projected
        )
    return total


@operator("aten::_cudnn_rnn")
def _cudnn_rnn(call: Call) -> Cost:
    """``_cudnn_rnn(input, weight, weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size,
    num_layers, batch_first, dropout, train, bidirectional, batch_sizes, dropout_state)``.

    Reads input, weights and states, writes the output and the states; what training keeps for the backward
    (its reserve) is not counted. Listed weights have the type of the input, which cuDNN demands.
    """
    x, buffer = call.tensor(0), call.optional(3)
    mode, hidden, projected, layers = (call.integer(index) for index in range(6, 10))
    directions = 2 if call.flag(13) else 1
    flops = _stack_flops(call, x, mode, hidden, projected, layers, directions)
    states = call.present(4, 5)
    weights = buffer.read if buffer else sum(t.touched for t in call.tensor_list(1)) * x.dtype.bytes
    read = x.read + weights + sum(t.read for t in states)
    out = prod(x.shape[:-1]) * directions * (projected or hidden) * x.dtype.bytes
    return Cost(flops, read, out + sum(t.nbytes for t in states), x.dtype)


@operator("aten::_cudnn_rnn_backward")
def _cudnn_rnn_backward(call: Call) -> Cost:
    """``_cudnn_rnn_backward(input, weight, weight_stride0, weight_buf, hx, cx, output, grad_output, grad_hy,
    grad_cy, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train, bidirectional, ...)``.

    Formula: twice the forward: gradients by input and by weight. Reads input, weights, output and its
    gradient, writes the gradients of input and weights.
    """
    x, weights = call.tensor(0), call.tensor(3)
    output, grad = call.tensor(6), call.optional(7)
    mode, hidden, projected, layers = (call.integer(index) for index in range(10, 14))
    directions = 2 if call.flag(17) else 1
    flops = 2 * _stack_flops(call, x, mode, hidden, projected, layers, directions)
    read = x.read + weights.read + output.read + (grad.read if grad else 0)
    return Cost(flops, read, x.nbytes + weights.nbytes, x.dtype)


@operator("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", composite=True)
def _layers(call: Call) -> Cost:
    """``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)``, and of
    packed sequences ``lstm(data, batch_sizes, hx, params, ..., bidirectional)``; hx of an LSTM is two states.

    Formula: 2 FLOP for each token and number of a weight matrix; the pointwise work on the gates is not
    counted. Reads input, states and params, writes the output and the states.
    """
    x, *others = call.tensors()
    lengths = [t for t in others[:1] if len(t.shape) == 1]
    others = others[len(lengths) :]
    at = 2 if "lstm" in call.name else 1
    states, params = others[:at], others[at:]
    if not states or not params or not x.shape or not states[0].shape:
        call.fail("a recurrent network without states or weights")
    tokens = prod(x.shape[:-1])
    weights = [t for t in params if len(t.shape) == 2]
    directions = 2 if call.flag(len(call.args) - (1 if lengths else 2)) else 1
    out = tokens * directions * states[0].shape[-1] * x.dtype.bytes
    read = x.read + sum(t.read for t in (*lengths, *states, *params))
    flops = 2 * tokens * sum(t.numel for t in weights)
    return Cost(flops, read, out + sum(t.nbytes for t in states), x.dtype)


@operator("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell", composite=True)
def _cell(call: Call) -> Cost:
    """``lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh)``; hx of an LSTM is a list of two states.

    Shapes: input ``(batch, inputs)``; w_ih ``(gates * hidden, inputs)``; w_hh ``(gates * hidden, hidden)``.
    """
    x, w_ih, w_hh = call.tensor(0), call.tensor(2, rank=2), call.tensor(3, rank=2)
    batch = prod(x.shape[:-1])
    flops = gemm_flops(batch, w_ih.shape[0], w_ih.shape[1]) + gemm_flops(batch, w_hh.shape[0], w_hh.shape[1])
    state = batch * w_hh.shape[1] * x.dtype.bytes
    states = 2 if "lstm" in call.name else 1
    biases = sum(t.read for t in call.present(4, 5))
    read = x.read + w_ih.read + w_hh.read + biases + states * state
    return Cost(flops, read, states * state, x.dtype)


@operator("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell")
def _fused_cell(call: Call) -> Cost:
    """``_thnn_fused_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias)``: pointwise only.

    Formula: per hidden unit, LSTM: 4 gate sums and 8 biases, 3 sigmoids (4 each), 2 tanh, 4 for the states:
    30; GRU: 3 gate sums less 1, 6 biases, 2 sigmoids, tanh and blend: 23. Writes the states and keeps the
    gates for the backward.
    """
    gates, hidden_gates, state = call.tensor(0), call.tensor(1), call.tensor(2)
    lstm = "lstm" in call.name
    biases = sum(t.read for t in call.present(3, 4))
    read = gates.read + hidden_gates.read + state.read + biases
    kept = gates.nbytes if lstm else 5 * state.nbytes
    return Cost(
        (30 if lstm else 23) * state.numel, read, (2 if lstm else 1) * state.nbytes + kept, gates.dtype
    )
