"""Make images of sequences: convolutions and pools over one axis become those over two.

    conv1d(x, w)               ->  reshape(conv2d(reshape(x), reshape(w))), height 1
    reshape(conv2d(x)) + bias  ->  reshape(conv2d(x) + reshape(bias))
    relu(reshape(conv2d(x)))   ->  reshape(relu(conv2d(x))); so for every unary operator

Then everything later knows two dimensions only, and the reshapes between two such operators meet
and vanish in canonicalise. Run it after batch norm folding and before recognition.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.canonicalise import clip_bounds
from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.names import onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter

UNARY = ("relax.sigmoid", "relax.tanh", "relax.nn.leakyrelu", "relax.quantize", "relax.dequantize")


@function_pass
def widen_conv1d(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        name = op_name(expr)
        if name in RULES:
            return RULES[name](expr, rewriter)
        if not name:
            return None
        if name == "relax.reshape":
            return _joined(expr, rewriter)
        image = _image_behind(expr.args[0], rewriter) if len(expr.args) else None
        if image is None:
            return None
        if name == "relax.add" and shape_of(expr.args[1]) == (1, shape_of(image)[1], 1):
            bias = _with_height(expr.args[1], rewriter)
            return _flattened(relax.op.add(image, bias), expr)
        if clip_bounds(expr) is not None or (name in UNARY and _is_per_tensor(expr)):
            wide = relax.Call(expr.op, [image, *expr.args[1:]], expr.attrs, expr.ty_args)
            return _flattened(wide, expr)
        return None

    return rewriter.run(rewrite)


def _image_behind(expr: relax.Expr, rewriter: Rewriter) -> relax.Expr | None:
    """The N x C x 1 x W image that `expr`, N x C x W, is a reshape of."""
    reshape = rewriter.definition(expr)
    if op_name(reshape) != "relax.reshape":
        return None
    image, shape = reshape.args[0], shape_of(reshape)
    wide = shape_of(image)
    return image if len(shape) == 3 and wide == (*shape[:2], 1, shape[2]) else None


def _is_per_tensor(call: relax.Call) -> bool:
    scale = call.args[1] if len(call.args) > 1 else None
    return scale is None or int(np.prod(shape_of(scale))) == 1


def _joined(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    """A reshape of a reshape that gives the first one's source back."""
    inner = rewriter.definition(call.args[0])
    if op_name(inner) == "relax.reshape" and shape_of(inner.args[0]) == shape_of(call):
        return inner.args[0]
    return None


def _with_height(expr: relax.Expr, rewriter: Rewriter) -> relax.Expr:
    first, second, width = shape_of(expr)
    value = array_of(rewriter.definition(expr))
    if value is not None:
        return constant(value.reshape(first, second, 1, width))
    image = _image_behind(expr, rewriter)
    return image if image is not None else relax.op.reshape(expr, (first, second, 1, width))


def _flattened(wide: relax.Expr, call: relax.Call) -> relax.Expr:
    names = onnx_nodes_of(call)
    return with_names(relax.op.reshape(with_names(wide, names), shape_of(call)), names)


def _conv1d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.data_layout != "NCW" or attrs.kernel_layout != "OIW":
        return None
    before, after = (int(pad) for pad in attrs.padding)
    wide = relax.op.nn.conv2d(
        _with_height(call.args[0], rewriter),
        _with_height(call.args[1], rewriter),
        strides=[1, *attrs.strides],
        padding=[0, before, 0, after],
        dilation=[1, *attrs.dilation],
        groups=int(attrs.groups),
    )
    return _flattened(wide, call)


def _pool1d(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NCW":
        return None
    before, after = (int(pad) for pad in attrs.padding)
    pool = relax.op.nn.max_pool2d if "max" in op_name(call) else relax.op.nn.avg_pool2d
    wide = pool(
        _with_height(call.args[0], rewriter),
        pool_size=[1, *attrs.pool_size],
        strides=[1, *attrs.strides],
        padding=[0, before, 0, after],
        dilation=[1, *attrs.dilation],
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return _flattened(wide, call)


RULES: dict[str, Callable[[relax.Call, Rewriter], relax.Expr | None]] = {
    "relax.nn.conv1d": _conv1d,
    "relax.nn.max_pool1d": _pool1d,
    "relax.nn.avg_pool1d": _pool1d,
}
