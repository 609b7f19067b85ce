"""Carry permutes towards the outputs, through every operator that can work on the other layout.

    relu(permute(x, o))                      ->  permute(relu(x), o)
    add(permute(x, o), permute(y, o))        ->  permute(add(x, y), o)
    add(permute(x, o), constant)             ->  permute(add(x, constant in x's order), o)
    concat, pad, slice, softmax, mean        ->  likewise, their axes renamed
    reshape(permute(x, o))                   ->  reshape(x), when no element moves

On the way a permute meets the inverse one that layout conversion put before the next image
operator, and both vanish. An operator of several inputs is passed only when more of them are
permuted than would have to be. Run it after convert_layout and before cancel_permutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.cancel_permutes import joined_permute
from tilewright.passes.canonicalise import permutation
from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.convert_layout import TRANSPOSED, with_attributes
from tilewright.passes.layouts import inverse_order, moves_no_element, order_without
from tilewright.passes.names import beside, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter

# Operators that treat every element alike, whatever the axes are called.
UNARY = {
    *("abs", "acos", "acosh", "asin", "asinh", "astype", "atan", "atanh", "bitwise_not", "ceil"),
    *("clip", "cos", "cosh", "dequantize", "erf", "exp", "floor", "isfinite", "isinf", "isnan"),
    *("log", "logical_not", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu"),
    *("nn.relu6", "nn.silu", "nn.softplus", "quantize", "round", "rsqrt", "sigmoid", "sign"),
    *("sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
}
BROADCASTING = {
    *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
    *("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater"),
    *("greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "where"),
}
QUANTIZED_BROADCASTING = ("tilewright.add", "tilewright.subtract", "tilewright.multiply")
REDUCTIONS = frozenset(f"relax.{name}" for name in ("mean", "max", "min", "sum", "prod"))
SOFTMAXES = ("relax.nn.softmax", "relax.nn.log_softmax", "tilewright.softmax")


@function_pass
def sink_permutes(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)
    return rewriter.run(lambda expr: _sunk(expr, rewriter))


def _sunk(expr: relax.Expr, rewriter: Rewriter) -> relax.Expr | None:
    name = op_name(expr)
    if name == "relax.permute_dims":
        return joined_permute(expr, rewriter)
    if name.removeprefix("relax.") in BROADCASTING or name in QUANTIZED_BROADCASTING:
        return _sunk_operands(expr, list(expr.args), rewriter)
    if name == "relax.concat":
        return _sunk_operands(expr, list(expr.args[0].fields), rewriter)
    rule = RULES.get(name) or (_same if is_unary(name) else None)
    if rule is None:
        return None
    permute = rewriter.definition(expr.args[0])
    if op_name(permute) != "relax.permute_dims":
        return None
    sunk = rule(expr, permute.args[0], permutation(permute))
    return sunk if sunk is None else _named_like(sunk, permute)


def is_unary(name: str) -> bool:
    """Whether the operator treats every element of its first argument alike."""
    return name == "tilewright.lookup" or name.removeprefix("relax.") in UNARY


def _sunk_operands(
    call: relax.Call, operands: list[relax.Expr], rewriter: Rewriter
) -> relax.Expr | None:
    """The permute most operands share, carried past the operator; None when that costs more."""
    rank = len(shape_of(call))
    orders = [_order_of(operand, rewriter) for operand in operands]
    shared = [order for order in orders if order is not None and len(order) == rank]
    if not shared:
        return None
    order = max(shared, key=shared.count)
    sunk = [
        _unpermuted(operand, own, order, rewriter)
        for operand, own in zip(operands, orders, strict=True)
    ]
    added = sum(
        op_name(new) == "relax.permute_dims" for new in sunk if not isinstance(new, relax.Var)
    )
    if added >= shared.count(order):
        return None
    names = onnx_nodes_of(call)
    sunk = [
        with_names(new, beside(names, TRANSPOSED)) if op_name(new) == "relax.permute_dims" else new
        for new in sunk
    ]
    carried = rewriter.definition(operands[orders.index(order)])
    if op_name(call) == "relax.concat":
        axis = order[int(call.attrs.axis) % rank]
        return _named_like(_permuted(relax.op.concat(sunk, axis), order, names), carried)
    moved = relax.Call(call.op, sunk, call.attrs, call.ty_args)
    return _named_like(_permuted(moved, order, names), carried)


def _named_like(sunk: relax.Expr, permute: relax.Expr) -> relax.Expr:
    """A carried permute keeps its own name, whatever it was carried past."""
    if op_name(sunk) != "relax.permute_dims":
        return sunk
    return with_names(sunk, onnx_nodes_of(permute))


def _order_of(operand: relax.Expr, rewriter: Rewriter) -> list[int] | None:
    permute = rewriter.definition(operand)
    return permutation(permute) if op_name(permute) == "relax.permute_dims" else None


def _unpermuted(
    operand: relax.Expr, own: list[int] | None, order: list[int], rewriter: Rewriter
) -> relax.Expr:
    """`operand`, which broadcasts against a tensor permuted by `order`, before that permutation."""
    if own == order:
        return rewriter.definition(operand).args[0]
    shape = shape_of(operand)
    aligned = (1,) * (len(order) - len(shape)) + shape
    value = array_of(rewriter.definition(operand))
    if value is not None:
        if value.size == 1:
            return operand
        return constant(value.reshape(aligned).transpose(inverse_order(order)))
    if len(shape) == 0:
        return operand
    back = inverse_order(order)
    if moves_no_element(back, aligned):
        return relax.op.reshape(operand, [aligned[axis] for axis in back])
    if len(shape) != len(order):
        operand = relax.op.reshape(operand, aligned)
    return relax.op.permute_dims(operand, back)


def _permuted(expr: relax.Expr, order: Sequence[int], names: tuple[str, ...]) -> relax.Expr:
    return with_names(relax.op.permute_dims(with_names(expr, names), list(order)), names)


def _same(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    arguments = [source, *call.args[1:]]
    if op_name(call) not in ("relax.quantize", "relax.dequantize"):
        sunk: relax.Expr = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return _permuted(sunk, order, onnx_nodes_of(call))
    quantizes = op_name(call) == "relax.quantize"
    operation = relax.op.quantize if quantizes else relax.op.dequantize
    axis = order[int(call.attrs.axis) % len(order)]
    sunk = operation(*arguments, axis, call.attrs.out_dtype)
    return _permuted(sunk, order, onnx_nodes_of(call))


def _pad(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    pairs = np.array([int(width) for width in call.attrs.pad_width]).reshape(-1, 2)
    widths = [int(width) for width in pairs[inverse_order(order)].reshape(-1)]
    value = float(call.attrs.pad_value)
    return _permuted(
        relax.op.nn.pad(source, widths, call.attrs.pad_mode, value), order, onnx_nodes_of(call)
    )


def _slice(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    axes = relax.Tuple([relax.prim_value(order[int(axis)]) for axis in call.args[1].fields])
    sunk = relax.Call(call.op, [source, axes, *call.args[2:]], call.attrs, call.ty_args)
    return _permuted(sunk, order, onnx_nodes_of(call))


def _reduction(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    if call.attrs.axis is None:
        return None
    axes = [order[int(axis) % len(order)] for axis in call.attrs.axis]
    keepdims = bool(call.attrs.keepdims)
    reduce: Callable[..., relax.Expr] = getattr(relax.op, op_name(call).removeprefix("relax."))
    left = order if keepdims else order_without(order, axes)
    return _permuted(reduce(source, axes, keepdims), left, onnx_nodes_of(call))


def _softmax(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    quantized = op_name(call) == "tilewright.softmax"
    axis: Any = call.attrs["axis"] if quantized else call.attrs.axis
    axis = order[int(axis) % len(order)]
    if quantized:
        return _permuted(with_attributes(call, [source], axis=axis), order, onnx_nodes_of(call))
    log = op_name(call) == "relax.nn.log_softmax"
    softmax = relax.op.nn.log_softmax if log else relax.op.nn.softmax
    return _permuted(softmax(source, axis), order, onnx_nodes_of(call))


def _prelu(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    axis = order[int(call.attrs.axis) % len(order)]
    return _permuted(relax.op.nn.prelu(source, call.args[1], axis), order, onnx_nodes_of(call))


def _reshape(call: relax.Call, source: relax.Expr, order: list[int]) -> relax.Expr | None:
    if not moves_no_element(order, shape_of(source)):
        return None
    return with_names(relax.op.reshape(source, shape_of(call)), onnx_nodes_of(call))


RULES: dict[str, Callable[[relax.Call, relax.Expr, list[int]], relax.Expr | None]] = {
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.strided_slice": _slice,
    "relax.reshape": _reshape,
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(SOFTMAXES, _softmax),
}
