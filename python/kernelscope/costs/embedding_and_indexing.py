"""Table lookups, gathers and scatters: no arithmetic, or one addition per moved element.

The touched rows depend on values that no trace records. Rows are assumed to be distinct, up to the whole
table, so such costs are estimates.
"""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import INT64, Cost, Tensor

_DISTINCT = "the indices are assumed to be distinct"


def lookup(table: Tensor, indices: Tensor, row: int) -> Cost:
    """Cost of copying ``row`` elements for each index.

    Formula: 0 FLOP; reads the indices and as many rows (at most the table), writes one row per index.
    Example: 888 rows of 2880 bfloat16 by int64: reads 888 * 8 + 888 * 2880 * 2, writes 888 * 2880 * 2.
    """
    moved = indices.numel * row * table.dtype.bytes
    return Cost(0, indices.read + min(moved, table.read), moved, table.dtype, "estimate", _DISTINCT)


def _row(table: Tensor, dim: int) -> int:
    """Elements of ``table`` for one index along ``dim``. Raises: IndexError: there is no such dimension."""
    axis = range(len(table.shape))[dim]
    return prod(size for index, size in enumerate(table.shape) if index != axis)


@operator("aten::embedding")
def _embedding(call: Call) -> Cost:
    """``embedding(weight, indices, padding_idx, ...)``; weight ``(rows, size)``."""
    table = call.tensor(0, rank=2)
    return lookup(table, call.tensor(1), table.shape[1])


@operator("aten::embedding_backward", composite=True)
@operator("aten::embedding_dense_backward")
def _embedding_backward(call: Call) -> Cost:
    """``embedding_dense_backward(grad_output, indices, num_weights, padding_idx, ...)``: an addition per
    element; writes the whole gradient of the table.
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), call.integer(2)
    size = grad.shape[-1] if grad.shape else 1
    return Cost(grad.numel, grad.read + indices.read, rows * size * grad.dtype.bytes, grad.dtype)


@operator("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def _embedding_bag(call: Call) -> Cost:
    """``_embedding_bag(weight, indices, offsets, ...)``: rows are summed by bag: an addition per element
    read.

    The offsets are taken to have one entry per bag.
    """
    table, indices, offsets = call.tensor(0, rank=2), call.tensor(1), call.tensor(2)
    moved = indices.numel * table.shape[1]
    read = indices.read + offsets.read + min(moved * table.dtype.bytes, table.read)
    written = offsets.numel * table.shape[1] * table.dtype.bytes
    return Cost(moved, read, written, table.dtype, "estimate", _DISTINCT)


@operator("aten::index_select")
def _index_select(call: Call) -> Cost:
    """``index_select(self, dim, index)``."""
    table, index = call.tensor(0), call.tensor(2)
    if not table.shape:
        return lookup(table, index, 1)
    return lookup(table, index, _row(table, call.integer(1) if call.is_recorded(1) else 0))


@operator("aten::gather", "aten::take", "aten::take_along_dim")
def _gather(call: Call) -> Cost:
    """``gather(self, dim, index)``: an element per index; ``take(self, index)`` likewise."""
    position = 2 if "::gather" in call.name else 1
    return lookup(call.tensor(0), call.tensor(position), 1)


@operator("aten::index", "aten::_unsafe_index")
def _index(call: Call) -> Cost:
    """``index(self, indices)``: the indices broadcast and pick along the leading dimensions they stand at.

    The list of index tensors must have been recorded, or ``output_dims`` given.
    """
    table = call.tensor(0)
    listed = call.arg(1)
    if isinstance(listed, tuple) and listed and all(isinstance(t, Tensor) for t in listed):
        indices = [t for t in listed if isinstance(t, Tensor)]
        picked = prod(max((t.shape for t in indices), key=prod))
        row = prod(table.shape[len(indices) :])
        read = sum(t.touched for t in indices) * INT64.bytes
        moved = picked * row * table.dtype.bytes
    elif call.output_dims is not None:
        moved, read = prod(call.output_dims) * table.dtype.bytes, 0
    else:
        call.fail("the index tensors were not recorded")
    return Cost(0, read + min(moved, table.read), moved, table.dtype, "estimate", _DISTINCT)


@operator("aten::index_put", "aten::_index_put_impl")
def _index_put(call: Call) -> Cost:
    """``index_put_(self, indices, values, accumulate)``: writes the values; without ``_`` a tensor
    like self. Accumulating reads what is there and adds.
    """
    x, values = call.tensor(0), call.tensor(2)
    adds = call.is_recorded(3) and call.arg(3) is True
    touched = values.numel * x.dtype.bytes
    read = values.read + ((touched if adds else 0) if call.inplace else x.read)
    note = "the index tensors were not recorded and are not counted"
    written = touched if call.inplace else x.nbytes
    return Cost(values.numel if adds else 0, read, written, x.dtype, "estimate", note)


def scatter(
    x: Tensor, index: Tensor, source: Tensor | None, moved: int, *, adds: bool, inplace: bool
) -> Cost:
    """Cost of writing ``moved`` elements of ``source`` (or one number) into ``x`` at ``index``.

    Formula: an addition per element if ``adds``, which in place also reads the existing elements. An
    out-of-place form reads all of x and writes a tensor of its size.
    """
    traffic = moved * x.dtype.bytes
    read = index.read + (min(source.read, traffic) if source else 0)
    read += (traffic if adds else 0) if inplace else x.read
    written = traffic if inplace else x.nbytes
    return Cost(moved if adds else 0, read, written, x.dtype, "estimate", _DISTINCT)


@operator("aten::scatter", "aten::scatter_add", "aten::scatter_reduce")
def _scatter(call: Call) -> Cost:
    """``scatter_(self, dim, index, src)``, ``scatter_add_``: an element per index."""
    x, index, source = call.tensor(0), call.tensor(2), call.optional(3)
    adds = "scatter_add" in call.name or "scatter_reduce" in call.name
    return scatter(x, index, source, index.numel, adds=adds, inplace=call.inplace)


@operator("aten::index_add", "aten::index_copy", "aten::index_fill")
def _index_add(call: Call) -> Cost:
    """``index_add_(self, dim, index, source)``: a slice of self per index."""
    x, index, source = call.tensor(0), call.tensor(2), call.optional(3)
    dim = call.integer(1) if call.is_recorded(1) else 0
    moved = source.numel if source and source.shape else index.numel * (_row(x, dim) if x.shape else 1)
    return scatter(x, index, source, moved, adds="index_add" in call.name, inplace=call.inplace)


@operator("aten::gather_backward", composite=True)
def _gather_backward(call: Call) -> Cost:
    """``gather_backward(grad, self, dim, index, sparse_grad)``: adds into zeros of self's shape."""
    grad, x, index = call.tensor(0), call.tensor(1), call.tensor(3)
    return Cost(grad.numel, grad.read + index.read, x.nbytes, grad.dtype, "estimate", _DISTINCT)


@operator("aten::nonzero")
def _nonzero(call: Call) -> Cost:
    """``nonzero(self)``: a test per element; how many indices it writes depends on the values.

    Written are those of ``output_dims``; where these are not known, at most: every element set.
    """
    x = call.tensor(0)
    if call.output_dims is not None:
        return Cost(x.numel, x.read, prod(call.output_dims) * INT64.bytes, x.dtype)
    written = x.numel * max(len(x.shape), 1) * INT64.bytes
    return Cost(x.numel, x.read, written, x.dtype, "estimate", "every element is assumed to be set")


@operator("aten::masked_select")
def _masked_select(call: Call) -> Cost:
    """``masked_select(self, mask)``: the upper bound: every element is selected."""
    x, mask = call.tensor(0), call.tensor(1)
    return Cost(
        0, x.read + mask.read, x.nbytes, x.dtype, "estimate", "every element is assumed to be selected"
    )


@operator("aten::bucketize", "aten::searchsorted")
def _search(call: Call) -> Cost:
    """``bucketize(self, boundaries)``, ``searchsorted(sorted_sequence, self)``: a binary search per
    element.
    """
    first, second = call.tensor(0), call.tensor(1)
    x, bounds = (second, first) if "searchsorted" in call.name else (first, second)
    length = bounds.shape[-1] if bounds.shape else 1
    steps = max(length, 1).bit_length()
    return Cost(x.numel * steps, x.read + bounds.read, x.numel * INT64.bytes, x.dtype)


@operator("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache")
def _store_cache(call: Call) -> Cost:
    """``reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, ...)``: writes the new
    tokens' keys and values into the cache, in its element type.
    """
    k, v, k_cache, v_cache, slots = (call.tensor(index) for index in range(5))
    written = k.numel * k_cache.dtype.bytes + v.numel * v_cache.dtype.bytes
    return Cost(0, k.read + v.read + slots.read, written, k.dtype)


@operator("_C_cache_ops::concat_and_cache_mla")
def _store_latent(call: Call) -> Cost:
    """``concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping, ...)``: both parts in a row of the cache."""
    latent, rotary, cache, slots = (call.tensor(index) for index in range(4))
    written = (latent.numel + rotary.numel) * cache.dtype.bytes
    return Cost(0, latent.read + rotary.read + slots.read, written, latent.dtype)
