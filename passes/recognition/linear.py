"""Convolution, dense and matmul with their bias.

    quantize(clip(conv2d(dequantize(x), dequantize(w)) + dequantize(b)))
        -> tilewright.conv2d(x, w, b, multiplier)

The bias must be int32 on the scale of the accumulator, input scale times weight scale: then
adding it before the multiplication is what the float model says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.quantized_ops import call
from tilewright.passes.recognition.terms import (
    Declined,
    Goal,
    Weight,
    constant_weight,
    dequantized,
    is_constant_weight,
    require_only_reader,
)
from tilewright.passes.rewriter import Rewriter

# The product of two float32 scales, computed in float32 or rounded from float64.
BIAS_SCALE_TOLERANCE = 1e-6
PRODUCTS = ("relax.nn.conv2d", "relax.matmul")


def is_linear(expr: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether `expr` is a product, or a product with a bias added."""
    core = rewriter.definition(expr)
    return op_name(core) in PRODUCTS or _product_and_bias(core, rewriter) is not None


def recognise_linear(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    core = rewriter.definition(expr)
    require_only_reader(expr, rewriter)
    parts = _product_and_bias(core, rewriter)
    product_expr, bias_expr = parts if parts else (expr, None)
    require_only_reader(product_expr, rewriter)
    product = rewriter.definition(product_expr)
    names = joined_names(product, core) + goal.names
    if op_name(product) == "relax.nn.conv2d":
        return with_names(_conv2d(product, bias_expr, goal, rewriter), names)
    if is_constant_weight(product.args[1], rewriter) and len(shape_of(product.args[1])) == 2:
        return with_names(_dense(product, bias_expr, goal, rewriter), names)
    if bias_expr is not None:
        raise Declined("a bias on a product of two activations is not supported")
    return with_names(_matmul(product, goal, rewriter), names)


def _product_and_bias(core: relax.Expr, rewriter: Rewriter) -> tuple[relax.Expr, relax.Expr] | None:
    """(product, bias) when `core` adds a constant to a convolution or matmul."""
    if op_name(core) != "relax.add":
        return None
    for product, bias in (core.args, core.args[::-1]):
        if op_name(rewriter.definition(product)) not in PRODUCTS:
            continue
        is_float_constant = array_of(rewriter.definition(bias)) is not None
        if is_float_constant or is_constant_weight(bias, rewriter):
            return product, bias
    return None


def _conv2d(
    product: relax.Call, bias_expr: relax.Expr | None, goal: Goal, rewriter: Rewriter
) -> relax.Call:
    attrs = product.attrs
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        raise Declined(f"convolution layout {attrs.data_layout} is not supported")
    source = dequantized(product.args[0], rewriter)
    weight = constant_weight(product.args[1], rewriter)
    channels = weight.values.shape[0]
    multiplier = source.scale * weight.scales(0, channels)
    bias = _bias(bias_expr, multiplier, (1, channels, 1, 1), rewriter)
    return call(
        "conv2d",
        [source.value, constant(_int8(weight)), constant(bias), constant(multiplier)],
        data_layout="NCHW",
        kernel_layout="OIHW",
        strides=[int(value) for value in attrs.strides],
        padding=[int(value) for value in attrs.padding],
        dilation=[int(value) for value in attrs.dilation],
        groups=int(attrs.groups),
        input_zero=source.zero,
        weight_zero=weight.zero,
        requantize="two_step",
        **goal.output,
    )


def _dense(
    product: relax.Call, bias_expr: relax.Expr | None, goal: Goal, rewriter: Rewriter
) -> relax.Call:
    source = dequantized(product.args[0], rewriter)
    if len(shape_of(source.value)) < 2:
        raise Declined("a vector times a matrix is not supported; give it a batch dimension")
    weight = constant_weight(product.args[1], rewriter)
    columns = weight.values.shape[1]
    multiplier = source.scale * weight.scales(1, columns)
    shape = (1,) * (len(shape_of(product)) - 1) + (columns,)
    bias = _bias(bias_expr, multiplier, shape, rewriter)
    return call(
        "dense",
        [source.value, constant(_int8(weight)), constant(bias), constant(multiplier)],
        input_zero=source.zero,
        weight_zero=weight.zero,
        requantize="two_step",
        **goal.output,
    )


def _matmul(product: relax.Call, goal: Goal, rewriter: Rewriter) -> relax.Call:
    a, b = (dequantized(argument, rewriter) for argument in product.args)
    if min(len(shape_of(a.value)), len(shape_of(b.value))) < 2:
        raise Declined("a product with a vector is not supported; give it a second dimension")
    return call(
        "matmul",
        [a.value, b.value],
        a_zero=a.zero,
        b_zero=b.zero,
        multiplier=float(a.scale * b.scale),
        requantize="two_step",
        **goal.output,
    )


def _int8(weight: Weight) -> NDArray[Any]:
    if weight.values.dtype not in (np.int8, np.uint8):
        raise Declined(f"{weight.values.dtype} weights are not supported")
    return weight.values


def _bias(
    expr: relax.Expr | None,
    multiplier: NDArray[np.float32],
    shape: tuple[int, ...],
    rewriter: Rewriter,
) -> NDArray[np.int32]:
    """The int32 bias of every output channel; `shape` is how one channel each broadcasts."""
    if expr is None:
        return np.zeros(multiplier.shape, np.int32)
    if array_of(rewriter.definition(expr)) is not None:
        raise Declined("its bias is float, not int32 on the scale input times weight")
    bias = constant_weight(expr, rewriter)
    given = (1,) * (len(shape) - bias.values.ndim) + bias.values.shape
    if given != shape:
        raise Declined(f"its bias has shape {list(given)}, one value a channel is supported")
    if bias.values.dtype != np.int32 or bias.zero != 0:
        raise Declined(f"its bias is {bias.values.dtype}, int32 without zero point is supported")
    scale = np.broadcast_to(bias.scale.reshape(-1), multiplier.shape)
    if not np.allclose(scale, multiplier, rtol=BIAS_SCALE_TOLERANCE, atol=0):
        raise Declined("its bias scale is not input scale times weight scale")
    return bias.values.reshape(-1)
