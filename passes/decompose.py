"""Rewrite operators into ones an NPU has, where the result is the same to the bit.

    dense(x[..., K])            ->  reshape(dense(reshape(x)[rows, K]))
    add(a, b), b the larger     ->  add(b, a); so for multiply: only the second operand broadcasts
    conv2d(pad(x, zero point))  ->  conv2d(x) that pads itself

Run it after recognition; it knows quantised operators only. What is left whole goes to the CPU
as one operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.constants import op_name, shape_of
from tilewright.passes.convert_layout import with_attributes
from tilewright.passes.layouts import SPATIAL_AXES
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter


@function_pass
def decompose(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        rule = RULES.get(op_name(expr))
        return rule(expr, rewriter) if rule else None

    return rewriter.run(rewrite)


def _flat_dense(call: relax.Call, _rewriter: Rewriter) -> relax.Expr | None:
    shape = shape_of(call.args[0])
    if len(shape) == 2:
        return None
    names = onnx_nodes_of(call)
    rows = relax.op.reshape(call.args[0], (math.prod(shape[:-1]), shape[-1]))
    flat = relax.Call(call.op, [with_names(rows, names), *call.args[1:]], call.attrs)
    return with_names(relax.op.reshape(with_names(flat, names), shape_of(call)), names)


def _larger_first(call: relax.Call, _rewriter: Rewriter) -> relax.Expr | None:
    a, b = call.args
    if math.prod(shape_of(a)) >= math.prod(shape_of(b)):
        return None
    attrs = call.attrs
    return with_names(
        with_attributes(
            call,
            [b, a],
            a_scale=attrs["b_scale"],
            a_zero=attrs["b_zero"],
            b_scale=attrs["a_scale"],
            b_zero=attrs["a_zero"],
        ),
        onnx_nodes_of(call),
    )


def _own_padding(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    pad = rewriter.definition(call.args[0])
    if op_name(pad) != "relax.nn.pad" or pad.attrs.pad_mode != "constant":
        return None
    if int(pad.attrs.pad_value) != int(call.attrs["input_zero"]):
        return None
    widths = np.array([int(width) for width in pad.attrs.pad_width]).reshape(-1, 2)
    spatial = list(SPATIAL_AXES[str(call.attrs["data_layout"])])
    if np.delete(widths, spatial, axis=0).any():
        return None
    before_then_after = [int(width) for width in widths[spatial].T.reshape(-1)]
    own = [int(width) for width in call.attrs["padding"]]
    padding = [a + b for a, b in zip(own, before_then_after, strict=True)]
    padded = with_attributes(call, [pad.args[0], *call.args[1:]], padding=padding)
    return with_names(padded, joined_names(call, pad))


RULES: dict[str, Callable[[relax.Call, Rewriter], relax.Expr | None]] = {
    "tilewright.dense": _flat_dense,
    "tilewright.add": _larger_first,
    "tilewright.multiply": _larger_first,
    "tilewright.conv2d": _own_padding,
}
