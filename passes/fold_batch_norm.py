"""Fold batch norm, and any constant scale and shift by channel, into the product beside it.

    batch_norm(x).0                  ->  x * scale + shift
    conv2d(x, w) * s                 ->  conv2d(x, w * s)
    (conv2d(x, w) + b) * s           ->  conv2d(x, w * s) + b * s
    conv2d(x, w) + b + t             ->  conv2d(x, w) + (b + t)
    conv2d(x * s + t, w)             ->  conv2d(x, w * s) + sum(w * t), t zero where x is padded

Conv-BN-ReLU so ends as convolution, bias, relu. Matmuls by a constant and transposed convolutions
fold what follows them too. A shift before a padded convolution stays: the padding would have been
shifted as well. New weights are computed in float64 and rounded once. Run it after canonicalise
and before recognition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter

Vector = NDArray[np.float64]
PRODUCTS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul")


@dataclass(frozen=True)
class Product:
    """A product by a constant weight: which axis of result and of weight the channels lie on."""

    call: relax.Call
    weight: NDArray[Any]
    channel_axis: int
    weight_axis: int

    @property
    def channels(self) -> int:
        return int(self.weight.shape[self.weight_axis])

    def scaled(self, scale: Vector) -> relax.Call:
        """The product with its output channels multiplied by `scale`."""
        shape = [1] * self.weight.ndim
        shape[self.weight_axis] = self.channels
        return self.with_weight(self.weight * scale.reshape(shape))

    def with_weight(self, weight: NDArray[Any]) -> relax.Call:
        old = self.call
        arguments = [old.args[0], constant(weight.astype(self.weight.dtype))]
        return relax.Call(old.op, arguments, old.attrs, old.ty_args, old.span)


@function_pass
def fold_batch_norm(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        if isinstance(expr, relax.TupleGetItem):
            return _without_batch_norm(expr, rewriter)
        if op_name(expr) == "relax.nn.conv2d":
            return _with_earlier_affine(expr, rewriter)
        rule = {
            "relax.multiply": _multiply,
            "relax.divide": _divide,
            "relax.add": _add,
            "relax.subtract": _subtract,
        }.get(op_name(expr))
        return rule(expr, rewriter) if rule else None

    return rewriter.run(rewrite)


def batch_norm_affine(
    gamma: Vector, beta: Vector, mean: Vector, variance: Vector, epsilon: float
) -> tuple[Vector, Vector]:
    """(scale, shift): gamma * (x - mean) / sqrt(variance + epsilon) + beta = x * scale + shift."""
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def _without_batch_norm(item: relax.TupleGetItem, rewriter: Rewriter) -> relax.Expr | None:
    norm = rewriter.definition(item.tuple_value)
    if op_name(norm) != "relax.nn.batch_norm" or item.index != 0 or norm.attrs.training:
        return None
    arrays = [array_of(rewriter.definition(argument)) for argument in norm.args[1:]]
    if any(array is None for array in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    attrs, source = norm.attrs, norm.args[0]
    gamma = gamma if attrs.scale else np.ones_like(gamma)
    beta = beta if attrs.center else np.zeros_like(beta)
    scale, shift = batch_norm_affine(gamma, beta, mean, variance, float(attrs.epsilon))
    axis, names = int(attrs.axis) % len(shape_of(source)), onnx_nodes_of(item)
    scaled = rewriter.typed(_scaled(source, scale, axis, names, rewriter))
    return _shifted(scaled, shift, axis, names, rewriter)


def _scaled(
    source: relax.Expr, scale: Vector, axis: int, names: tuple[str, ...], rewriter: Rewriter
) -> relax.Expr:
    """`source` times `scale` along `axis`, inside the product that made it where there is one."""
    inner = rewriter.definition(source)
    product, bias = _product_of(source, axis, rewriter)
    if product is None:
        return with_names(relax.op.multiply(source, _along(scale, axis, source)), names)
    names = joined_names(product.call, inner) + names
    scaled = with_names(product.scaled(scale), names)
    if bias is None:
        return scaled
    return with_names(relax.op.add(scaled, _along(bias * scale, axis, source)), names)


def _shifted(
    source: relax.Expr, shift: Vector, axis: int, names: tuple[str, ...], rewriter: Rewriter
) -> relax.Expr:
    """`source` plus `shift` along `axis`, joined with the bias it already has."""
    inner = rewriter.definition(source)
    product, bias = _product_of(source, axis, rewriter)
    if product is None:
        return with_names(relax.op.add(source, _along(shift, axis, source)), names)
    names = joined_names(product.call, inner) + names
    total = shift if bias is None else bias + shift
    base = with_names(inner if bias is None else inner.args[0], names)
    base = source if bias is None and isinstance(source, relax.Var) else base
    return with_names(relax.op.add(base, _along(total, axis, product.call)), names)


def _product_of(
    source: relax.Expr, axis: int, rewriter: Rewriter
) -> tuple[Product | None, Vector | None]:
    """The product behind `source`, whose channels lie on `axis`, and the bias added to it."""
    if isinstance(source, relax.Var) and rewriter.reader_count(source) > 1:
        return None, None
    call = rewriter.definition(source)
    bias = None
    if op_name(call) == "relax.add":
        value = channel_values(call.args[1], axis, call, rewriter)
        inner = call.args[0]
        if value is None or (isinstance(inner, relax.Var) and rewriter.reader_count(inner) > 1):
            return None, None
        bias, call = value, rewriter.definition(inner)
    product = _product(call, rewriter)
    if product is None or product.channel_axis != axis:
        return None, None
    return product, bias


def _product(call: relax.Expr, rewriter: Rewriter) -> Product | None:
    name = op_name(call)
    if name not in PRODUCTS:
        return None
    weight = array_of(rewriter.definition(call.args[1]))
    if weight is None or weight.dtype not in (np.float32, np.float64):
        return None
    if name == "relax.matmul":
        return Product(call, weight, len(shape_of(call)) - 1, 1) if weight.ndim == 2 else None
    if name == "relax.nn.conv1d":
        plain = (call.attrs.data_layout, call.attrs.kernel_layout) == ("NCW", "OIW")
        return Product(call, weight, 1, 0) if plain else None
    if call.attrs.data_layout != "NCHW":
        return None
    if name == "relax.nn.conv2d":
        return Product(call, weight, 1, 0) if call.attrs.kernel_layout == "OIHW" else None
    return Product(call, weight, 1, 1) if int(call.attrs.groups) == 1 else None


def channel_values(
    expr: relax.Expr, axis: int, result: relax.Expr, rewriter: Rewriter
) -> Vector | None:
    """The constant `expr` as one value for each channel of `result`; None where it is not that."""
    value = array_of(rewriter.definition(expr))
    if value is None or not np.issubdtype(value.dtype, np.floating):
        return None
    shape = shape_of(result)
    if value.size == 1 and value.ndim <= len(shape):
        return np.full(shape[axis], value.reshape(-1)[0], np.float64)
    aligned = (1,) * (len(shape) - value.ndim) + value.shape
    expected = tuple(extent if place == axis else 1 for place, extent in enumerate(shape))
    return value.reshape(-1).astype(np.float64) if aligned == expected else None


def _along(values: Vector, axis: int, like: relax.Expr) -> relax.Expr:
    shape = [1] * len(shape_of(like))
    shape[axis] = values.size
    return constant(values.astype(str(like.ty.dtype.dtype)).reshape(shape))


def _operands(
    call: relax.Call, rewriter: Rewriter, *, commutes: bool
) -> tuple[relax.Expr, int, Vector] | None:
    """(product with or without bias, its channel axis, constant by channel) of a binary call."""
    pairs = [call.args, call.args[::-1]] if commutes else [call.args]
    for source, other in pairs:
        core = rewriter.definition(source)
        if op_name(core) == "relax.add":
            core = rewriter.definition(core.args[0])
        product = _product(core, rewriter)
        if product is None or shape_of(source) != shape_of(call):
            continue
        values = channel_values(other, product.channel_axis, call, rewriter)
        if values is not None:
            return source, product.channel_axis, values
    return None


def _multiply(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    return _folded_scale(_operands(call, rewriter, commutes=True), call, rewriter)


def _divide(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    found = _operands(call, rewriter, commutes=False)
    if found is None or (found[2] == 0).any():
        return None
    return _folded_scale((found[0], found[1], 1 / found[2]), call, rewriter)


def _folded_scale(
    found: tuple[relax.Expr, int, Vector] | None, call: relax.Call, rewriter: Rewriter
) -> relax.Expr | None:
    if found is None or _product_of(found[0], found[1], rewriter)[0] is None:
        return None
    return _scaled(*_ordered(found), onnx_nodes_of(call), rewriter)


def _add(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    return _folded_shift(_operands(call, rewriter, commutes=True), call, rewriter)


def _subtract(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    found = _operands(call, rewriter, commutes=False)
    negated = None if found is None else (found[0], found[1], -found[2])
    return _folded_shift(negated, call, rewriter)


def _folded_shift(
    found: tuple[relax.Expr, int, Vector] | None, call: relax.Call, rewriter: Rewriter
) -> relax.Expr | None:
    """A second bias joined with the first, or a first one in its normal form."""
    if found is None or _product_of(found[0], found[1], rewriter)[0] is None:
        return None
    return _shifted(*_ordered(found), onnx_nodes_of(call), rewriter)


def _ordered(found: tuple[relax.Expr, int, Vector]) -> tuple[relax.Expr, Vector, int]:
    source, axis, values = found
    return source, values, axis


def _with_earlier_affine(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    """The convolution with the scale and shift by input channel before it folded in."""
    product = _product(call, rewriter)
    if product is None:
        return None
    source, names, scale, shift = call.args[0], onnx_nodes_of(call), None, None
    for operator in ("relax.add", "relax.multiply"):
        inner = rewriter.definition(source)
        if op_name(inner) != operator or rewriter.reader_count(source) > 1:
            continue
        values = channel_values(inner.args[1], 1, inner, rewriter)
        if values is None or shape_of(inner.args[0]) != shape_of(inner):
            break
        padded = any(int(pad) for pad in call.attrs.padding)
        if operator == "relax.add":
            if padded and values.any():
                return None
            shift = values
        else:
            scale = values
        source, names = inner.args[0], names + onnx_nodes_of(inner)
    if scale is None and shift is None:
        return None
    return _absorbed(product, source, scale, shift, names)


def _absorbed(
    product: Product,
    source: relax.Expr,
    scale: Vector | None,
    shift: Vector | None,
    names: tuple[str, ...],
) -> relax.Expr:
    weight = product.weight.astype(np.float64)
    groups = int(product.call.attrs.groups)
    if scale is not None:
        scaled = weight * by_input_channel(scale, weight.shape, groups)
        call = product.with_weight(scaled)
    else:
        call = product.call
    call = relax.Call(call.op, [source, call.args[1]], call.attrs, call.ty_args)
    folded = with_names(call, names)
    if shift is None:
        return folded
    bias = (weight * by_input_channel(shift, weight.shape, groups)).sum(axis=(1, 2, 3))
    return with_names(relax.op.add(folded, _along(bias, 1, product.call)), names)


def by_input_channel(values: Vector, shape: tuple[int, ...], groups: int) -> Vector:
    """One value for each (output channel, input channel of its group) of an OIHW weight."""
    outputs, inputs = shape[:2]
    per_group = values.reshape(groups, inputs)
    return np.repeat(per_group, outputs // groups, axis=0).reshape(outputs, inputs, 1, 1)
