"""Cost models: FLOPs and bytes of an operator from its recorded inputs, as pure arithmetic.

:func:`cost_of` computes the cost of one row of the ops table. One file per family of operators contains the
models; ``docs/costs.md`` describes the counting rules. See :func:`operator` for adding a model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

# Importing a family registers its models.
from kernelscope.costs import (
    attention,
    attention_functions,
    attention_libraries,
    communication,
    convolution,
    convolution_backward,
    copy_and_layout,
    elementwise,
    embedding_and_indexing,
    expert_routing,
    fourier,
    fused_pointwise,
    gemm,
    mixture_of_experts,
    normalization,
    optimizer,
    packed_weights,
    pooling_and_resampling,
    quantized,
    recommendation,
    recurrent,
    reduction,
    softmax_and_losses,
    state_space,
    triton,
    triton_templates,
)
from kernelscope.costs.bind import Arg, Call, bind
from kernelscope.costs.conventions import CONVENTIONS, ConventionName
from kernelscope.costs.registry import Model, find_model, load_models, models, operator
from kernelscope.costs.types import (
    LARGEST,
    UNKNOWN_DTYPE,
    Cost,
    DType,
    ShapeError,
    Status,
    Tensor,
    find_dtype,
)

__all__ = [
    "CONVENTIONS", "Call", "ConventionName", "Cost", "DType", "Model", "ShapeError", "Status", "Tensor",
    "attention", "attention_functions", "attention_libraries", "communication", "convolution",
    "convolution_backward", "copy_and_layout", "cost_of", "elementwise", "embedding_and_indexing",
    "expert_routing", "find_dtype", "find_model", "fourier", "fused_pointwise", "gemm", "load_models",
    "mixture_of_experts", "models", "normalization", "operator", "optimizer", "packed_weights",
    "pooling_and_resampling", "quantized", "recommendation", "recurrent", "reduction", "softmax_and_losses",
    "state_space", "triton", "triton_templates",
]  # fmt: skip

# What else than not fitting its inputs can go wrong in a model, a user's above all.
_MODEL_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
)


def cost_of(
    name: str,
    input_dims: str | None,
    input_types: str | None = None,
    input_strides: str | None = None,
    concrete_inputs: str | None = None,
    *,
    convention: ConventionName = "kernelscope",
    list_dtype: str | None = None,
    output_dims: tuple[int, ...] | None = None,
    hints: Mapping[str, int] | None = None,
) -> Cost:
    """Cost of one call of the operator ``name``, from the texts of its row in the ops table.

    Never raises because of trace contents. ``status`` gives the reason why a figure is None, and ``note`` any
    assumption or failure. If known from other sources, ``list_dtype`` is the element type of tensor lists,
    ``output_dims`` the shape of the result, and ``hints`` are numbers that some models need and no input
    contains (``docs/costs.md`` lists them). A cost based on such a type or hint is an estimate.

    Raises: KeyError: the ``convention`` does not exist.
    Example: ``cost_of("aten::mm", "[[8, 64], [64, 32]]", '["float", "float"]').flops`` is 32768.
    """
    rules = CONVENTIONS[convention]
    model = rules.find(name)
    if model is None:
        return Cost(None, None, None, None, "unknown_op")
    call = bind(
        name,
        # What is known from elsewhere may be all that a model needs.
        input_dims or ("[]" if hints else None),
        input_types,
        input_strides,
        concrete_inputs,
        list_dtype=list_dtype,
        output_dims=output_dims,
        hints=hints,
        dense=rules.dense,
    )
    if call is None:
        return Cost(None, None, None, None, "missing_shape", "no shapes were recorded", model.name)
    try:
        cost = _require_cost(model.function(call))
    except ShapeError as error:
        return Cost(None, None, None, None, "missing_shape", str(error), model.name)
    except (LookupError, ValueError) as error:
        note = f"{name}: the inputs do not fit the model: {error}"
        return Cost(None, None, None, None, "missing_shape", note, model.name)
    except _MODEL_FAILURES as error:
        note = f"the model {model.name} failed: {error!r}"
        return Cost(None, None, None, None, "unknown_op", note, model.name)
    return _checked(cost, call, model, moves_bytes=rules.moves_bytes, assumed=list_dtype)


def _require_cost(answer: object) -> Cost:
    """What a model gave. Raises: TypeError: it is no cost; a user's model may give anything."""
    if not isinstance(answer, Cost):
        raise TypeError(f"{answer!r} is not a cost")
    return answer


def _needs_types(cost: Cost, call: Call, model: Model) -> bool:
    """Whether the cost changes with the unknown element types: a model may ignore the input that has one."""
    double = DType("any", 8, "float", None)

    def typed(arg: Arg) -> Arg:
        if isinstance(arg, Tensor):
            return arg._replace(dtype=double) if arg.dtype is UNKNOWN_DTYPE else arg
        if isinstance(arg, tuple):
            return cast("Arg", tuple(typed(item) for item in arg))
        return arg

    again = model.function(replace(call, args=[typed(arg) for arg in call.args]))
    return again != cost


def _checked(cost: Cost, call: Call, model: Model, *, moves_bytes: bool, assumed: str | None) -> Cost:
    """The cost with what the model could not know: its name, unknown types, and numbers beyond int64."""
    figures = (cost.flops, cost.bytes_read, cost.bytes_written)
    if any(figure is not None and not 0 <= figure <= LARGEST for figure in figures):
        return Cost(None, None, None, None, "missing_shape", "the sizes exceed any memory", model.name)
    if not moves_bytes:
        return replace(cost, bytes_read=None, bytes_written=None, model=model.name)
    tensors = call.tensors()
    if any(tensor.dtype is UNKNOWN_DTYPE for tensor in tensors) and _needs_types(cost, call, model):
        note = cost.note or "an element type is unknown"
        return Cost(cost.flops, None, None, None, "unknown_dtype", note, model.name)
    status, note = cost.status, cost.note
    if cost.flops is None:
        # What a model cannot count is not known, whatever it knows of the bytes.
        status, note = "unknown_op", note or f"the model {model.name} does not count its operations"
    if status == "exact":
        if assumed and any(
            isinstance(arg, tuple) and arg and isinstance(arg[0], Tensor) for arg in call.args
        ):
            status, note = "estimate", f"assumes {assumed} for the tensor list"
        elif model.family != "gemm" and any(tensor.dtype.kind == "complex" for tensor in tensors):
            status, note = "estimate", "complex numbers are counted as real ones"
    return Cost(cost.flops, cost.bytes_read, cost.bytes_written, cost.dtype, status, note, model.name)
