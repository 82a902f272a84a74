"""Operators of FBGEMM for recommendation models: pooled lookups in many tables, and jagged tensors.

The values of indices are not recorded. Tables are assumed to be equally wide, and rows to be distinct.
"""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator, operator_prefix
from kernelscope.costs.types import FLOAT32, Cost, Tensor

_EQUAL = "tables are assumed to be equally wide, and the indices to be distinct"


@operator_prefix("fbgemm::split_embedding_codegen_forward_", "fbgemm::split_embedding_nobag_codegen_forward_")
def _pooled_lookup(call: Call) -> Cost:
    """``(dev_weights, uvm_weights, lxu_cache_weights, weights_placements, weights_offsets, D_offsets,
    total_D, max_D, indices, offsets, pooling_mode, indice_weights, ...)``, without pooling ``(...,
    weights_offsets, D, indices, offsets, ...)``: reads a row for each index, and adds it to its bag.

    Shapes: dev_weights all tables in one; D_offsets ``(tables + 1,)``; offsets ``(tables * batch + 1,)``;
    result ``(batch, total_D)``, without pooling ``(indices, D)``.
    """
    table = call.tensor(0)
    if "nobag" in call.name:
        width, indices = call.integer(5), call.tensor(6, rank=1)
        moved = indices.numel * width
        read = indices.read + moved * table.dtype.bytes
        return Cost(0, read, moved * FLOAT32.bytes, table.dtype, "estimate", _EQUAL)
    tables, total = call.tensor(5, rank=1).numel - 1, call.integer(6)
    indices, offsets = call.tensor(8, rank=1), call.tensor(9, rank=1)
    if tables < 1:
        call.fail("there are no tables")
    moved = indices.numel * total // tables
    weighted = "_weighted" in call.name
    read = indices.read + offsets.read + moved * table.dtype.bytes
    read += indices.numel * FLOAT32.bytes if weighted else 0
    written = (offsets.numel - 1) // tables * total * FLOAT32.bytes
    return Cost((2 if weighted else 1) * moved, read, written, table.dtype, "estimate", _EQUAL)


@operator_prefix("fbgemm::split_embedding_backward_codegen_")
def _pooled_update(call: Call) -> Cost:
    """``(grad_output, dev_weights, uvm_weights, lxu_cache_weights, weights_placements, weights_offsets,
    D_offsets, max_D, hash_size_cumsum, total_hash_size_bits, indices, offsets, ...)``: updates the row of
    each index, by a product and a difference per number. The state of the optimizer is not counted.
    """
    grad, table = call.tensor(0, rank=2), call.tensor(1)
    tables = call.tensor(6, rank=1).numel - 1
    indices, offsets = call.tensor(10, rank=1), call.tensor(11, rank=1)
    if tables < 1:
        call.fail("there are no tables")
    moved = indices.numel * grad.shape[1] // tables
    read = grad.read + indices.read + offsets.read + moved * table.dtype.bytes
    return Cost(2 * moved, read, moved * table.dtype.bytes, table.dtype, "estimate", _EQUAL)


@operator("fbgemm::permute_1D_sparse_data", "fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_data")
def _permute(call: Call) -> Cost:
    """``permute_2D_sparse_data(permute, lengths, values, weights, permuted_lengths_sum)``: moves lists.

    Shapes: permute ``(lists,)``; lengths ``(lists,)`` or ``(lists, batch)``; values ``(sum,)``.
    """
    permute, lengths, values = call.tensor(0), call.tensor(1), call.tensor(2)
    weights = call.optional(3)
    moved = values.read + (weights.read if weights else 0)
    written = moved + lengths.nbytes
    note = "every list is assumed to be moved once"
    return Cost(0, permute.read + lengths.read + moved, written, values.dtype, "estimate", note)


@operator("fbgemm::bounds_check_indices")
def _bounds(call: Call) -> Cost:
    """``bounds_check_indices(rows_per_table, indices, offsets, mode, warning, ...)``: two comparisons per
    index; writes only what is out of bounds.
    """
    rows, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    return Cost(2 * indices.numel, rows.read + indices.read + offsets.read, 0, indices.dtype)


@operator("fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_exclusive_cumsum")
@operator("fbgemm::asynchronous_inclusive_cumsum")
def _cumsum(call: Call) -> Cost:
    """``asynchronous_complete_cumsum(t)``: an addition per number; the complete one has one more per row."""
    x = call.tensor(0)
    more = prod(x.shape[:-1]) if "complete" in call.name else 0
    return Cost(x.numel, x.read, (x.numel + more) * x.dtype.bytes, x.dtype)


@operator(
    "fbgemm::jagged_to_padded_dense", "fbgemm::jagged_2d_to_dense", "fbgemm::jagged_to_padded_dense_forward"
)
def _to_dense(call: Call) -> Cost:
    """``jagged_to_padded_dense(values, offsets, max_lengths, padding_value)``: values ``(sum, width)`` to
    ``(batch, *max_lengths, width)``.
    """
    values, offsets = call.tensor(0), call.arg(1)
    first = offsets if isinstance(offsets, Tensor) else call.tensor_list(1)[0]
    lengths = call.integers(2)
    width = prod(values.shape[1:])
    result = (first.numel - 1) * prod(lengths) * width
    return Cost(0, values.read + first.read, result * values.dtype.bytes, values.dtype)


@operator_prefix("fbgemm::jagged_dense_elementwise_")
def _with_dense(call: Call) -> Cost:
    """``jagged_dense_elementwise_add_jagged_output(x_values, x_offsets, y)``: an addition or a product with
    the dense numbers at the same places, as many as values.
    """
    values = call.tensor(0)
    dense = next((t for t in reversed(call.tensors()) if len(t.shape) > 2), None)
    if dense is None:
        call.fail("the dense tensor was not recorded")
    return Cost(
        values.numel,
        values.read + min(values.numel * dense.dtype.bytes, dense.read),
        values.nbytes,
        values.dtype,
    )


@operator("fbgemm::jagged_index_select", "fbgemm::jagged_slice", "fbgemm::jagged_unique_indices")
def _select(call: Call) -> Cost:
    """``jagged_index_select(values, ...)``: moves at most all values."""
    values = call.tensor(0)
    note = "all values are assumed to be moved"
    return Cost(0, values.read, values.nbytes, values.dtype, "estimate", note)
