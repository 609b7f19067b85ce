"""Run a Relax function binding by binding: quantised operators by `reference.py`, others in numpy.

For tests of graph passes: no kernel, no schedule and no target is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests import reference
from tests.reference import Array, Quantization
from tilewright.passes.constants import array_of, op_name, scalar_of

TO_NCHW = (0, 3, 1, 2)
TO_NHWC = (0, 2, 3, 1)


def run_relax(module: tvm.IRModule, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs of `main` for inputs by parameter name."""
    function = module["main"]
    values: dict[relax.Var, Any] = {var: inputs[var.name] for var in function.params}
    for block in function.body.blocks:
        for binding in block.bindings:
            result = _evaluated(binding.value, values)
            values[binding.var] = result
            if isinstance(result, np.ndarray):
                shape = tuple(int(extent) for extent in binding.var.ty.shape.values)
                assert (result.shape, str(result.dtype)) == (shape, binding.var.ty.dtype.dtype)
    result = _evaluated(function.body.body, values)
    return list(result) if isinstance(result, tuple) else [result]


def _evaluated(expr: relax.Expr, values: dict[relax.Var, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, relax.Tuple):
        return tuple(_evaluated(field, values) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _evaluated(expr.tuple_value, values)[expr.index]
    if isinstance(expr, relax.ShapeExpr):
        return [int(extent) for extent in expr.values]
    if (array := array_of(expr)) is not None:
        return array
    if not isinstance(expr, relax.Call):
        return scalar_of(expr)
    arguments = [_evaluated(argument, values) for argument in expr.args]
    return OPERATORS[op_name(expr)](expr, arguments)


def _quantization(call: relax.Call, side: str, dtype: Any) -> Quantization:
    scale = np.float32(call.attrs[f"{side}_scale"])
    return Quantization(np.asarray(scale), int(call.attrs[f"{side}_zero"]), str(dtype))


def _limited(call: relax.Call, values: Array) -> Array:
    return np.clip(values, int(call.attrs["clip_low"]), int(call.attrs["clip_high"])).astype(
        values.dtype
    )


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


def _conv2d(call: relax.Call, arguments: list[Array]) -> Array:
    x, weight, bias, multiplier = arguments
    channels_last = call.attrs["data_layout"] == "NHWC"
    if channels_last:
        x, weight = x.transpose(TO_NCHW), weight.transpose(3, 2, 0, 1)
    sums = reference.convolution_sum(
        x,
        int(call.attrs["input_zero"]),
        weight,
        int(call.attrs["weight_zero"]),
        strides=_ints(call.attrs["strides"]),
        pads=_ints(call.attrs["padding"]),
        dilations=_ints(call.attrs["dilation"]),
        groups=int(call.attrs["groups"]),
    )
    to = _quantization(call, "output", call.attrs["out_dtype"])
    sums = sums + bias.reshape(-1, 1, 1)
    result = _requantized(call, sums, multiplier.reshape(-1, 1, 1), to)
    return _limited(call, result.transpose(TO_NHWC) if channels_last else result)


def _requantized(call: relax.Call, sums: Array, multiplier: Array, to: Quantization) -> Array:
    if call.attrs["requantize"] == "premultiplied":
        return reference.requantize_once(sums, multiplier, to)
    return reference.requantize(sums, multiplier, to, reference.UNBOUNDED)


def _dense(call: relax.Call, arguments: list[Array]) -> Array:
    x, weight, bias, multiplier = arguments
    x_zero, w_zero = int(call.attrs["input_zero"]), int(call.attrs["weight_zero"])
    sums = (x.astype(np.int64) - x_zero) @ (weight.astype(np.int64) - w_zero) + bias
    to = _quantization(call, "output", call.attrs["out_dtype"])
    return _limited(call, _requantized(call, sums, multiplier, to))


def _matmul(call: relax.Call, arguments: list[Array]) -> Array:
    a, b = arguments
    a_zero, b_zero = int(call.attrs["a_zero"]), int(call.attrs["b_zero"])
    sums = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
    to = _quantization(call, "output", call.attrs["out_dtype"])
    multiplier = np.asarray(call.attrs["multiplier"], np.float32)
    return _limited(call, _requantized(call, sums, multiplier, to))


def _binary(operation: Callable[[Array, Array], Array]) -> Callable[[relax.Call, Any], Array]:
    def run(call: relax.Call, arguments: list[Array]) -> Array:
        a, b = arguments
        a_q, b_q = _quantization(call, "a", a.dtype), _quantization(call, "b", b.dtype)
        to = _quantization(call, "output", call.attrs["out_dtype"])
        return _limited(call, reference.binary(operation, a, a_q, b, b_q, to))

    return run


def _pool(call: relax.Call, arguments: list[Array]) -> Array:
    x = arguments[0]
    channels_last = call.attrs["data_layout"] == "NHWC"
    x = x.transpose(TO_NCHW) if channels_last else x
    kernel, strides = _ints(call.attrs["kernel"]), _ints(call.attrs["strides"])
    pads = _ints(call.attrs["padding"])
    if op_name(call) == "tilewright.max_pool2d":
        pooled = reference.max_pool(x, tuple(kernel), strides, pads)
    else:
        pooled = reference.average_pool(
            x,
            _quantization(call, "input", x.dtype),
            _quantization(call, "output", x.dtype),
            tuple(kernel),
            strides,
            pads,
            bool(call.attrs["count_include_pad"]),
        )
    return _limited(call, pooled.transpose(TO_NHWC) if channels_last else pooled)


def _softmax(call: relax.Call, arguments: list[Array]) -> Array:
    x_q = Quantization(np.asarray(call.attrs["input_scale"]), 0, str(arguments[0].dtype))
    to = _quantization(call, "output", call.attrs["out_dtype"])
    return _limited(call, reference.softmax(arguments[0], x_q, to, int(call.attrs["axis"])))


def _quantize(call: relax.Call, arguments: list[Array]) -> Array:
    value, scale, zero = arguments
    return reference.quantize(value, Quantization(scale, int(zero), str(call.attrs.out_dtype)))


def _dequantize(call: relax.Call, arguments: list[Array]) -> Array:
    values, scale, zero = arguments
    along = [1] * values.ndim
    if scale.size > 1:
        along[int(call.attrs.axis)] = -1
    steps = values.astype(np.int64) - zero.astype(np.int64).reshape(along if zero.size > 1 else ())
    return steps.astype(np.float32) * scale.reshape(along if scale.size > 1 else ())


def _slice(_call: relax.Call, arguments: list[Any]) -> Array:
    x, axes, begins, ends, *strides = arguments
    index = [slice(None)] * x.ndim
    for place, axis in enumerate(axes):
        step = int(strides[0][place]) if strides else 1
        index[int(axis)] = slice(int(begins[place]), int(ends[place]), step)
    return x[tuple(index)]


def _float_conv2d(call: relax.Call, arguments: list[Array]) -> Array:
    x, weight = arguments
    channels_last = call.attrs.data_layout == "NHWC"
    if channels_last:
        x, weight = x.transpose(TO_NCHW), weight.transpose(3, 2, 0, 1)
    groups, inputs, outputs = int(call.attrs.groups), weight.shape[1], weight.shape[0]
    image = reference.padded(x, _ints(call.attrs.padding), 0)
    taps = reference.windows(
        image, weight.shape[2:], _ints(call.attrs.strides), _ints(call.attrs.dilation)
    )
    taps = taps.reshape(taps.shape[0], groups, inputs, *taps.shape[2:])
    kernels = weight.reshape(groups, outputs // groups, *weight.shape[1:])
    result = np.einsum("ngchwij,gocij->ngohw", taps, kernels, optimize=True)
    result = result.reshape(x.shape[0], outputs, *result.shape[3:]).astype(x.dtype)
    return result.transpose(TO_NHWC) if channels_last else result


def _float_pool(call: relax.Call, arguments: list[Array]) -> Array:
    x = arguments[0]
    channels_last = call.attrs.layout == "NHWC"
    x = x.transpose(TO_NCHW) if channels_last else x
    image = reference.padded(x, _ints(call.attrs.padding), -np.inf)
    taps = reference.windows(image, tuple(_ints(call.attrs.pool_size)), call.attrs.strides, (1, 1))
    result = taps.max(axis=(4, 5))
    return result.transpose(TO_NHWC) if channels_last else result


def _float_softmax(call: relax.Call, arguments: list[Array]) -> Array:
    powers = np.exp(arguments[0] - arguments[0].max(axis=int(call.attrs.axis), keepdims=True))
    return powers / powers.sum(axis=int(call.attrs.axis), keepdims=True)


def _pad(call: relax.Call, arguments: list[Array]) -> Array:
    widths = np.array(_ints(call.attrs.pad_width)).reshape(-1, 2)
    return np.pad(arguments[0], widths, constant_values=call.attrs.pad_value)


def _permute(call: relax.Call, arguments: list[Array]) -> Array:
    axes = call.attrs.axes
    return arguments[0].transpose(None if axes is None else _ints(axes))


def _elementwise(function: Callable[..., Any]) -> Callable[[relax.Call, Any], Array]:
    def run(_call: relax.Call, arguments: list[Array]) -> Array:
        return np.asarray(function(*arguments)).astype(arguments[0].dtype)

    return run


OPERATORS: dict[str, Callable[[relax.Call, Any], Any]] = {
    "tilewright.conv2d": _conv2d,
    "tilewright.dense": _dense,
    "tilewright.matmul": _matmul,
    "tilewright.add": _binary(np.add),
    "tilewright.subtract": _binary(np.subtract),
    "tilewright.multiply": _binary(np.multiply),
    "tilewright.lookup": lambda call, arguments: reference.lookup(*arguments),
    "tilewright.max_pool2d": _pool,
    "tilewright.avg_pool2d": _pool,
    "tilewright.softmax": _softmax,
    "relax.add": _elementwise(np.add),
    "relax.clip": _elementwise(np.clip),
    "relax.concat": lambda call, arguments: np.concatenate(arguments[0], int(call.attrs.axis)),
    "relax.dequantize": _dequantize,
    "relax.divide": _elementwise(np.divide),
    "relax.erf": _elementwise(np.vectorize(math.erf)),
    "relax.exp": _elementwise(np.exp),
    "relax.matmul": _elementwise(np.matmul),
    "relax.multiply": _elementwise(np.multiply),
    "relax.negative": _elementwise(np.negative),
    "relax.nn.conv2d": _float_conv2d,
    "relax.nn.max_pool2d": _float_pool,
    "relax.nn.pad": _pad,
    "relax.nn.relu": _elementwise(lambda x: np.maximum(x, 0)),
    "relax.nn.softmax": _float_softmax,
    "relax.permute_dims": _permute,
    "relax.quantize": _quantize,
    "relax.reshape": lambda call, arguments: arguments[0].reshape(arguments[1]),
    "relax.sigmoid": _elementwise(lambda x: 1 / (1 + np.exp(-x))),
    "relax.strided_slice": _slice,
    "relax.subtract": _elementwise(np.subtract),
    "relax.tanh": _elementwise(np.tanh),
}
