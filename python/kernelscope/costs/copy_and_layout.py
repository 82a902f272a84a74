"""Copies, fills and views: bytes without arithmetic. Views move nothing."""

from collections.abc import Sequence
from math import ceil, isfinite, prod

from kernelscope.costs.attention import clamped_sum
from kernelscope.costs.bind import Arg, Call
from kernelscope.costs.elementwise import elementwise
from kernelscope.costs.registry import operator
from kernelscope.costs.types import FLOAT32, INT64, LARGEST, Cost, Tensor

_VIEWS = (
    "alias as_strided as_strided_ chunk detach detach_ diagonal expand expand_as lift_fresh movedim narrow "
    "numpy_T permute resolve_conj resolve_neg select slice split split_with_sizes squeeze squeeze_ swapaxes "
    "swapdims t t_ transpose transpose_ unbind unflatten unfold unsafe_chunk unsafe_split "
    "unsqueeze unsqueeze_ "
    "view view_as _unsafe_view _reshape_alias broadcast_to broadcast_tensors result_type empty empty_like "
    "empty_strided new_empty new_empty_strided resize_ set_ record_stream is_pinned "
    "pin_memory _pin_memory lift "
    "_conj conj real imag view_as_real view_as_complex"
)


def copy(source: Tensor, out: Tensor) -> Cost:
    """Cost of copying ``source``, converted if the types differ, to ``out``.

    Formula: 0 FLOP; reads the distinct elements of source, writes every element of out.
    Example: (8, 64) float16 to float32: reads 1024, writes 2048.
    """
    return Cost(0, source.read, out.nbytes, source.dtype)


@operator(*(f"aten::{name}" for name in _VIEWS.split()))
@operator("detach", "detach_")
def _view(call: Call) -> Cost:
    """Another look at the same memory, or memory that nobody fills: nothing moves."""
    del call
    return Cost(0, 0, 0, None)


@operator("aten::copy")
def _copy(call: Call) -> Cost:
    """``copy_(self, src, non_blocking)``: src broadcasts to self."""
    out, source = call.tensor(0), call.tensor(1)
    return copy(source, Tensor(out.shape, out.dtype))


@operator("aten::clone")
def _clone(call: Call) -> Cost:
    """``clone(self, memory_format)``."""
    x = call.tensor(0)
    return copy(x, x)


@operator("aten::contiguous", "aten::reshape", "aten::flatten", composite=True)
def _contiguous(call: Call) -> Cost:
    """Copies only where the layout must change, by a ``clone`` inside: nothing of its own."""
    call.tensor(0)
    return Cost(0, 0, 0, None)


@operator("aten::item", "aten::is_nonzero", composite=True)
@operator("aten::_local_scalar_dense")
def _item(call: Call) -> Cost:
    """``_local_scalar_dense(self)``: one element goes to the host; nothing is written on the device."""
    x = call.tensor(0)
    return Cost(0, x.dtype.bytes, 0, x.dtype)


def _width(call: Call, index: int, default: int) -> int:
    """Bytes of an element of the type whose number stands at ``index``, or ``default``."""
    known = call.scalar_type(index)
    return known.bytes if known else default


@operator("aten::_to_copy", "aten::to", "aten::type_as", composite=True)
def _to_copy(call: Call) -> Cost:
    """``_to_copy(self, dtype, layout, device, ...)``: a ``copy_`` inside does the work."""
    x = call.tensor(0)
    return Cost(0, x.read, x.numel * _width(call, 1, x.dtype.bytes), x.dtype)


@operator("aten::fill", "aten::zero")
def _fill(call: Call) -> Cost:
    """``fill_(self, value)``, ``zero_(self)``: writes every element; a value in a tensor is read."""
    x, value = call.tensor(0), call.optional(1)
    return Cost(0, value.read if value else 0, x.nbytes, x.dtype)


@operator("aten::zeros_like", "aten::ones_like", "aten::full_like", composite=True)
def _fill_like(call: Call) -> Cost:
    """``zeros_like(self, dtype, ...)``: a ``fill_`` inside writes every element, in the type of self."""
    x = call.tensor(0)
    return Cost(0, 0, x.nbytes, x.dtype)


@operator("aten::uniform", "aten::normal", "aten::bernoulli", "aten::random", "aten::exponential")
@operator("aten::cauchy", "aten::log_normal", "aten::geometric")
def _random(call: Call) -> Cost:
    """``normal_(self, ...)``: writes every element; drawing random numbers is not counted.

    Forms that are not in place take a tensor of parameters, which is read.
    """
    x = call.tensor(0)
    return Cost(0, 0 if call.inplace else x.read, x.nbytes, x.dtype)


# dtype, layout, device, pin_memory: what calls without an ``out=`` end in.
_OPTIONS = 4


def _steps(call: Call, values: Sequence[Arg]) -> int | None:
    """How many numbers ``arange`` gives; None where its values were not recorded."""
    numbers = [value for value in values if type(value) is int or (type(value) is float and isfinite(value))]
    if not numbers or len(numbers) != len(values) or len(numbers) > 3:
        return None
    start, end, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if max(map(abs, numbers)) > LARGEST or step == 0 or (end - start) * step < 0:
        call.fail(f"there are no numbers from {start} to {end} in steps of {step}")
    if all(type(number) is int for number in numbers):
        return int(-((start - end) // step))
    count = (end - start) / step
    return ceil(count) if isfinite(count) else call.fail(f"{count} numbers")


@operator("aten::arange")
def _arange(call: Call) -> Cost:
    """``arange(end, ...)``, ``arange(start, end, step, ...)``: writes ceil((end - start) / step) numbers.

    They have the type of the ``out=``, or the recorded one, else int64 if all values are whole and float32
    if not. The ``out=`` is recorded before it gets its size, so that the values come first.
    Example: ``arange(0, 10, 3)``: 4 int64, 32 bytes.
    """
    out = call.last_tensor(0)
    values = call.args[:-1] if out is not None else call.args[: max(len(call.args) - _OPTIONS, 0)]
    count = _steps(call, values)
    if out is not None:
        if count is None and not out.numel:
            call.fail("the values were not recorded")
        return Cost(0, 0, (out.numel if count is None else count) * out.dtype.bytes, out.dtype)
    if count is None:
        call.fail("the values were not recorded")
    default = INT64 if all(type(value) is int for value in values) else FLOAT32
    dtype = call.scalar_type(len(values)) or default
    return Cost(0, 0, count * dtype.bytes, dtype)


@operator("aten::linspace")
def _linspace(call: Call) -> Cost:
    """``linspace(start, end, steps, ...)``: writes ``steps`` numbers, float32 unless a type or tensor says
    otherwise.
    """
    out = call.last_tensor(3)
    dtype = out.dtype if out is not None else call.scalar_type(3) or FLOAT32
    return Cost(0, 0, call.integer(2) * dtype.bytes, dtype)


@operator("aten::scalar_tensor", composite=True)
def _scalar_tensor(call: Call) -> Cost:
    """``scalar_tensor(s, dtype, ...)``: a ``fill_`` inside writes the one number; its type may be
    recorded.
    """
    return Cost(0, 0, _width(call, 1, FLOAT32.bytes), None)


@operator("aten::full", composite=True)
def _full(call: Call) -> Cost:
    """``full(size, fill_value, dtype, ...)``: a ``fill_`` inside writes it; float32 unless recorded."""
    return Cost(0, 0, prod(call.integers(0)) * _width(call, 2, FLOAT32.bytes), None)


@operator("aten::new_zeros", "aten::new_ones", "aten::new_full", composite=True)
def _new(call: Call) -> Cost:
    """``new_zeros(self, size, dtype, ...)``: a ``fill_`` inside writes the elements, in the type of self."""
    x = call.tensor(0)
    return Cost(0, 0, prod(call.integers(1)) * x.dtype.bytes, x.dtype)


@operator("aten::cat", "aten::concat", "aten::_cat", "aten::concatenate")
def _cat(call: Call) -> Cost:
    """``cat(tensors, dim)``: reads every tensor, writes as many elements.

    Profilers do not record the element type of a list.
    """
    parts = call.tensor_list(0)
    if not parts:
        return Cost(0, 0, 0, None)
    return Cost(0, sum(t.read for t in parts), sum(t.nbytes for t in parts), parts[0].dtype)


@operator("aten::stack", "aten::hstack", "aten::vstack", composite=True)
def _stack(call: Call) -> Cost:
    """``stack(tensors, dim)``: a ``cat`` inside does the work."""
    return _cat(call)


@operator("aten::repeat", "aten::tile", composite=True)
def _repeat(call: Call) -> Cost:
    """``repeat(self, repeats)``: reads self once, writes it as often as the repeats say."""
    x = call.tensor(0)
    times = prod(call.integers(1))
    return Cost(0, x.read, x.nbytes * times, x.dtype)


@operator("aten::roll", "aten::flip", "aten::rot90", "aten::channel_shuffle")
@operator("aten::pixel_shuffle", "aten::pixel_unshuffle")
def _rearrange(call: Call) -> Cost:
    """Elements in another order: all are read and written."""
    x = call.tensor(0)
    return copy(x, x)


@operator("aten::tril", "aten::triu")
def _triangle(call: Call) -> Cost:
    """``tril(self, diagonal)``, ``triu``: reads the elements of the triangle, writes all; in place, only
    those outside must be written.

    Formula: of a matrix of r rows and c columns ``tril`` keeps the sum over rows i of
    min(max(i + 1 + diagonal, 0), c), ``triu`` what ``tril`` of the diagonal below leaves.
    Shapes: ``(..., r, c)``.
    Example: 4 x 4 float32: keeps 10, reads 40, writes 64 bytes.
    """
    x, diagonal = call.tensor(0), call.integer(1, 0)
    if len(x.shape) < 2:
        call.fail(f"{x.shape} does not have rows and columns")
    rows, columns = x.shape[-2:]
    if "::triu" in call.name:
        kept = rows * columns - clamped_sum(diagonal, rows, columns)
    else:
        kept = clamped_sum(diagonal + 1, rows, columns)
    kept *= prod(x.shape[:-2])
    if call.inplace:
        return Cost(0, 0, (x.numel - kept) * x.dtype.bytes, x.dtype)
    return Cost(0, min(kept, x.touched) * x.dtype.bytes, x.nbytes, x.dtype)


@operator("aten::split_with_sizes_copy", "aten::unbind_copy", "aten::_chunk_cat")
def _split_copy(call: Call) -> Cost:
    """``split_with_sizes_copy(self, ...)``, ``_chunk_cat(tensors, ...)``: every element is copied."""
    parts = call.tensors()[:1] if "chunk_cat" not in call.name else list(call.tensor_list(0))
    if not parts:
        call.fail("no tensor was recorded")
    return Cost(0, sum(t.read for t in parts), sum(t.nbytes for t in parts), parts[0].dtype)


@operator("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward", composite=True)
def _view_backward(call: Call) -> Cost:
    """``slice_backward(grad, input_sizes, ...)``: zeros of the input's shape with the gradient copied in."""
    grad = call.tensor(0)
    sizes = call.integers(1)
    return Cost(0, grad.read, prod(sizes) * grad.dtype.bytes, grad.dtype)


def pad(call: Call) -> Cost:
    """Cost of padding the first input by the pairs of the second, from the last dimension backwards."""
    x, pads = call.tensor(0), call.integers(1)
    shape = list(x.shape)
    for pair in range(len(pads) // 2):
        shape[len(shape) - 1 - pair] += pads[2 * pair] + pads[2 * pair + 1]
    if any(size < 0 for size in shape):
        call.fail(f"{pads} removes more than {x.shape} has")
    return Cost(0, x.read, prod(shape) * x.dtype.bytes, x.dtype)


@operator("aten::constant_pad_nd", "aten::pad")
def _constant_pad(call: Call) -> Cost:
    """``constant_pad_nd(self, pad, value)``: writes the padded shape."""
    return pad(call)


@operator("aten::repeat_interleave")
def _repeat_interleave(call: Call) -> Cost:
    """``repeat_interleave(self, repeats, dim, output_size)``: the output's size must have been recorded."""
    x = call.tensor(0)
    size = call.integer(3)
    rows = x.shape[call.integer(2, 0)] if x.shape else 1
    return Cost(0, x.read, (x.numel // rows if rows else 0) * size * x.dtype.bytes, x.dtype)


@operator("aten::one_hot", composite=True)
def _one_hot(call: Call) -> Cost:
    """``one_hot(self, num_classes)``: zeros and a scatter, int64."""
    x, classes = call.tensor(0), call.integer(1)
    if classes < 0:
        call.fail("the number of classes depends on the values")
    return Cost(0, x.read, x.numel * classes * INT64.bytes, x.dtype)


@operator("torch::distributed::reducer::mul_out")
@operator("torch.distributed.ddp.reducer::copy_bucket_to_grad", composite=True)
def _reducer(call: Call) -> Cost:
    """DDP's bucket: a gradient divided by the world's size into the bucket, and copied back."""
    x = call.tensor(0)
    return elementwise(1 if "mul_out" in call.name else 0, [x], x.shape, x.dtype)


@operator(
    "aten::randperm",
    "aten::rand",
    "aten::randn",
    "aten::randint",
    "aten::zeros",
    "aten::ones",
    composite=True,
)
def _created(call: Call) -> Cost:
    """``randn(size, dtype, ...)``: writes the elements; float32 unless another type is recorded (by number).

    The filling operator inside does the work.
    """
    out = call.last_tensor(0)
    if out is not None:
        return Cost(0, 0, out.nbytes, out.dtype)
    if not isinstance(call.arg(0), tuple):
        call.fail("the shape was not recorded")
    width = _width(call, 1, FLOAT32.bytes)
    return Cost(0, 0, prod(call.integers(0)) * width, FLOAT32 if width == FLOAT32.bytes else None)
