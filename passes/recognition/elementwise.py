"""Add, subtract and multiply of two quantised tensors, and softmax.

quantize(clip(dequantize(a) + dequantize(b)))  ->  tilewright.add(a, b)
quantize(softmax(dequantize(x)))               ->  tilewright.softmax(x)
"""

from __future__ import annotations

from tvm import relax

from tilewright.passes.constants import op_name, shape_of
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.quantized_ops import call
from tilewright.passes.recognition.terms import (
    Goal,
    dequantized,
    is_dequantized,
    require_only_reader,
)
from tilewright.passes.rewriter import Rewriter

BINARY = {"relax.add": "add", "relax.subtract": "subtract", "relax.multiply": "multiply"}


def is_binary(expr: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether `expr` combines two dequantised tensors."""
    core = rewriter.definition(expr)
    return op_name(core) in BINARY and all(is_dequantized(a, rewriter) for a in core.args)


def recognise_binary(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    core = rewriter.definition(expr)
    require_only_reader(expr, rewriter)
    a, b = (dequantized(argument, rewriter) for argument in core.args)
    result = call(
        BINARY[op_name(core)],
        [a.value, b.value],
        a_scale=float(a.scale),
        a_zero=a.zero,
        b_scale=float(b.scale),
        b_zero=b.zero,
        **goal.output,
    )
    return with_names(result, joined_names(core) + goal.names)


def recognise_softmax(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    core = rewriter.definition(expr)
    require_only_reader(expr, rewriter)
    source = dequantized(core.args[0], rewriter)
    result = call(
        "softmax",
        [source.value],
        axis=int(core.attrs.axis) % len(shape_of(core)),
        input_scale=float(source.scale),
        **goal.output,
    )
    return with_names(result, joined_names(core) + goal.names)
