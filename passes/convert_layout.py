"""Give every image operator channels-last data: NHWC, weights HWIO.

    conv2d(x, w), NCHW and OIHW
        -> permute(conv2d(permute(x, NHWC), permute(w, HWIO)), NCHW)

The permutes are named `NODE/transposed`: they are steps beside the node, not the node's work.

Each operator is converted on its own; `sink_permutes` then carries the permutes through the graph
until they meet and cancel. Constant weights are rearranged here and now. TVM's own ConvertLayout
does not know quantised operators and drops spans. Run it after recognise_quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.constants import array_of, constant, op_name
from tilewright.passes.layouts import OIHW_TO_HWIO, TO_NCHW, TO_NHWC
from tilewright.passes.names import beside, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter

TRANSPOSED = "transposed"  # the step beside a node that changes the layout of its data


@function_pass
def convert_layout(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        converter = CONVERTERS.get(op_name(expr))
        converted = converter(expr, rewriter) if converter else None
        if converted is None:
            return None
        names = onnx_nodes_of(expr)
        moved = beside(names, TRANSPOSED)
        arguments = [
            with_names(argument, moved) if op_name(argument) == "relax.permute_dims" else argument
            for argument in converted.args
        ]
        converted = relax.Call(converted.op, arguments, converted.attrs)
        return with_names(relax.op.permute_dims(with_names(converted, names), TO_NCHW), moved)

    return rewriter.run(rewrite)


def _channels_last(expr: relax.Expr) -> relax.Expr:
    return relax.op.permute_dims(expr, TO_NHWC)


def _hwio(weight: relax.Expr, rewriter: Rewriter) -> relax.Expr:
    value = array_of(rewriter.definition(weight))
    if value is None:
        return relax.op.permute_dims(weight, OIHW_TO_HWIO)
    return constant(value.transpose(OIHW_TO_HWIO))


def with_attributes(call: relax.Call, arguments: list[relax.Expr], **changed: Any) -> relax.Call:
    """The quantised operator `call` with other arguments and some attributes changed."""
    attributes = {str(key): call.attrs[key] for key in call.attrs.keys()}  # noqa: SIM118
    attrs = tvm.ir.make_node("ir.DictAttrs", **(attributes | changed))
    return relax.Call(call.op, arguments, attrs)


def _quantized_conv2d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    if call.attrs["data_layout"] != "NCHW":
        return None
    x, weight, *rest = call.args
    arguments = [_channels_last(x), _hwio(weight, rewriter), *rest]
    return with_attributes(call, arguments, data_layout="NHWC", kernel_layout="HWIO")


def _quantized_pool2d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    if call.attrs["data_layout"] != "NCHW":
        return None
    return with_attributes(call, [_channels_last(call.args[0])], data_layout="NHWC")


def _conv2d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        return None
    return relax.op.nn.conv2d(
        _channels_last(call.args[0]),
        _hwio(call.args[1], rewriter),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_layout="NHWC",
        out_dtype=attrs.out_dtype,
    )


def _pool2d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NCHW":
        return None
    pool = relax.op.nn.max_pool2d if "max" in op_name(call) else relax.op.nn.avg_pool2d
    return pool(
        _channels_last(call.args[0]),
        pool_size=list(attrs.pool_size),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
        layout="NHWC",
    )


def _resize2d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NCHW":
        return None
    return relax.op.image.resize2d(
        _channels_last(call.args[0]),
        call.args[1],
        roi=list(attrs.roi),
        layout="NHWC",
        method=attrs.method,
        coordinate_transformation_mode=attrs.coordinate_transformation_mode,
        rounding_method=attrs.rounding_method,
        cubic_alpha=attrs.cubic_alpha,
        cubic_exclude=attrs.cubic_exclude,
        extrapolation_value=attrs.extrapolation_value,
        out_dtype=attrs.out_dtype,
    )


CONVERTERS: dict[str, Callable[[relax.Call, Rewriter], relax.Expr | None]] = {
    "tilewright.conv2d": _quantized_conv2d,
    "tilewright.max_pool2d": _quantized_pool2d,
    "tilewright.avg_pool2d": _quantized_pool2d,
    "relax.nn.conv2d": _conv2d,
    "relax.nn.max_pool2d": _pool2d,
    "relax.nn.avg_pool2d": _pool2d,
    "relax.image.resize2d": _resize2d,
}
