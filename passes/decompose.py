"""Rewrite operators into ones an NPU has, where the result is the same to the bit.

    dense(x[..., K])            ->  reshape(dense(reshape(x)[rows, K]))
    add(a, b), b the larger     ->  add(b, a); so for multiply: only the second operand broadcasts
    add(a, one number)          ->  lookup(a, table of the sum); so for subtract and multiply
    conv2d(pad(x, zero point))  ->  conv2d(x) that pads itself

Run it after recognition; it knows quantised operators only. What is left whole goes to the CPU
as one operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.constants import array_of, constant, dtype_of, op_name, shape_of
from tilewright.passes.convert_layout import with_attributes
from tilewright.passes.layouts import SPATIAL_AXES
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.passes.quantized_ops import call as quantized_call
from tilewright.passes.recognition.terms import raw_bytes_in_order
from tilewright.passes.rewriter import Rewriter

Array = NDArray[Any]
OPERATIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}


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


def binary_table(kind: str, number: int, number_first: bool, dtype: str, attrs: Any) -> Array:
    """What an element-wise operator gives for every raw byte of its other operand.

    The float32 steps of `targets.operators.Elementwise`: dequantise both, operate, quantise.
    """
    own, other = ("b", "a") if number_first else ("a", "b")
    values = raw_bytes_in_order(dtype)
    real = (values - int(attrs[f"{own}_zero"])).astype(np.float32) * np.float32(
        attrs[f"{own}_scale"]
    )
    fixed = np.float32(number - int(attrs[f"{other}_zero"])) * np.float32(attrs[f"{other}_scale"])
    operands = (fixed, real) if number_first else (real, fixed)
    result = OPERATIONS[kind](*operands) / np.float32(attrs["output_scale"])
    out = str(attrs["out_dtype"])
    limits = np.iinfo(out)
    rounded = np.clip(np.rint(result) + int(attrs["output_zero"]), limits.min, limits.max)
    limited: Array = np.clip(rounded, int(attrs["clip_low"]), int(attrs["clip_high"]))
    return limited.astype(out)


def _one_number(call: relax.Call) -> relax.Expr | None:
    """A look-up where one operand is a single constant and the other has the result's shape."""
    for position, argument in enumerate(call.args):
        other, array = call.args[1 - position], array_of(argument)
        if array is None or array.size != 1 or shape_of(other) != shape_of(call):
            continue
        kind = op_name(call).removeprefix("tilewright.")
        number = int(array.reshape(-1)[0])
        table = binary_table(kind, number, position == 0, dtype_of(other), call.attrs)
        names = onnx_nodes_of(call)
        return with_names(quantized_call("lookup", [other, constant(table)], kind=kind), names)
    return None


def _binary(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    found = _one_number(call)
    if found is None and op_name(call) != "tilewright.subtract":
        return _larger_first(call, rewriter)
    return found


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
    "tilewright.add": _binary,
    "tilewright.subtract": _binary,
    "tilewright.multiply": _binary,
    "tilewright.conv2d": _own_padding,
}
