"""Operators of FBGEMM for recommendation models: pooled lookups in many tables, and jagged tensors.

The values of indices are not recorded. Tables are assumed to be equally wide, and rows to be distinct.
"""

from dataclasses import replace
from math import prod

from kernelscope.costs.bind import NO_VALUE, Call
from kernelscope.costs.registry import operator, operator_prefix
from kernelscope.costs.types import FLOAT32, Cost, Tensor

_EQUAL = "tables are assumed to be equally wide, and the indices to be distinct"


def _rows_of(table: Tensor, moved: int) -> int:
    """Bytes of rows with this count of numbers, at most of all rows."""
    return min(moved * table.dtype.bytes, table.read)


def _pooled(call: Call, first: int, width: int | None) -> Cost:
    """Cost of adding rows of tables by bag; the inputs from ``first`` on begin with the tables.

    ``width`` is the mean width of a table, if it follows from other inputs.
    """
    table, bounds = call.tensor(first), call.tensor(first + 5, rank=1)
    indices, offsets = call.tensor(first + 8, rank=1), call.tensor(first + 9, rank=1)
    tables = bounds.numel - 1
    if tables < 1:
        call.fail("there are no tables")
    total = call.integer(first + 6) if width is None else tables * width
    moved = indices.numel * total // tables
    weights = call.optional(first + 11)
    read = indices.read + offsets.read + _rows_of(table, moved) + (weights.read if weights else 0)
    written = (offsets.numel - 1) // tables * total * FLOAT32.bytes
    flops = (2 if weights else 1) * moved
    return Cost(flops, read, written, table.dtype, "estimate", _EQUAL)


@operator_prefix("fbgemm::split_embedding_codegen_forward_")
def _pooled_forward(call: Call) -> Cost:
    """``(dev_weights, uvm_weights, lxu_cache_weights, weights_placements, weights_offsets, D_offsets,
    total_D, max_D, indices, offsets, pooling_mode, indice_weights, ...)``: reads a row for each index, and
    adds it to its bag.

    Shapes: dev_weights all tables in one; D_offsets ``(tables + 1,)``; offsets ``(tables * batch + 1,)``;
    result ``(batch, total_D)``.
    """
    return _pooled(call, 0, None)


@operator_prefix("fbgemm::split_embedding_codegen_lookup_")
def _pooled_lookup(call: Call) -> Cost:
    """The same behind a placeholder, with the sizes of hashes before the indices: ``(placeholder,
    dev_weights, ..., max_D, hash_size_cumsum, total_hash_size_bits, indices, offsets, pooling_mode,
    indice_weights, ..., momentum1_dev, ...)``.

    Where the total width was not recorded, it follows from the state of a rowwise optimizer, with a number
    for each row.
    """
    state = call.optional(20) if "_rowwise_" in call.name else None
    width = call.tensor(1).numel // state.numel if state and state.numel else None
    without = [*call.args[1:9], *call.args[11:]]
    return _pooled(replace(call, args=without), 0, width if call.arg(7) is NO_VALUE else None)


@operator_prefix("fbgemm::split_embedding_nobag_codegen_forward_")
def _lookup(call: Call) -> Cost:
    """``(dev_weights, ..., weights_offsets, D, indices, offsets, ...)``: copies a row for each index.

    Shapes: result ``(indices, D)``.
    """
    table, width, indices = call.tensor(0), call.integer(5), call.tensor(6, rank=1)
    moved = indices.numel * width
    read = indices.read + _rows_of(table, moved)
    return Cost(0, read, moved * FLOAT32.bytes, table.dtype, "estimate", _EQUAL)


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
    rows = _rows_of(table, moved)
    read = grad.read + indices.read + offsets.read + rows
    return Cost(2 * moved, read, rows, table.dtype, "estimate", _EQUAL)


@operator("fbgemm::permute_pooled_embs", "fbgemm::permute_pooled_embs_auto_grad")
@operator("fbgemm::recat_embedding_grad_output_mixed_D_batch")
@operator_prefix("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbs")
def _permute_pooled(call: Call) -> Cost:
    """``permute_pooled_embs(pooled_embs, ...)`` and its gradient: moves ``(batch, total_D)``."""
    x = call.tensor(0)
    return Cost(0, x.read, x.nbytes, x.dtype)


@operator("fbgemm::block_bucketize_sparse_features")
def _bucketize(call: Call) -> Cost:
    """``block_bucketize_sparse_features(lengths, indices, ...)``: a division with remainder per index, which
    moves to its bucket. The lengths of each bucket are not counted.
    """
    lengths, indices = call.tensor(0), call.tensor(1)
    note = "the lengths of buckets are not counted"
    return Cost(
        2 * indices.numel, lengths.read + indices.read, indices.nbytes, indices.dtype, "estimate", note
    )


@operator("fbgemm::permute_1D_sparse_data", "fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_data")
@operator("fbgemm::permute_sparse_features")
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
