"""Operators that move values without changing them are done on int8.

    reshape(dequantize(x))            ->  dequantize(reshape(x))
    pad(dequantize(x), 0.0)           ->  dequantize(pad(x, zero point))
    quantize(reshape(y))              ->  reshape(quantize(y)), for what `y` may be recognised as
    quantize(concat(y, z))            ->  concat(quantize(y), quantize(z))

The first two need no QuantizeLinear after them, so a model that quantises only its arithmetic
loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from tilewright.passes.constants import dtype_of, op_name
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.recognition.pooling import max_pool
from tilewright.passes.recognition.terms import (
    Declined,
    Goal,
    Quantized,
    Recogniser,
    dequantized,
    is_constant_weight,
    is_dequantized,
    quantized_number,
)
from tilewright.passes.rewriter import Rewriter

# These commute with any element-wise function.
REARRANGING = frozenset(
    {"reshape", "permute_dims", "strided_slice", "squeeze", "expand_dims", "flatten"}
    | {"broadcast_to", "tile", "repeat", "flip", "take"}
)
MAXIMA = ("relax.nn.max_pool2d", "relax.max")


def moved_on_int8(expr: relax.Expr, rewriter: Rewriter) -> relax.Expr | None:
    """dequantize(move(x)) for a move of dequantize(x); None when `expr` is no such thing."""
    move = _move_of(expr)
    if move is None:
        return None
    source_expr, rebuild = move
    if not is_dequantized(source_expr, rewriter) or is_constant_weight(source_expr, rewriter):
        return None
    try:
        source = dequantized(source_expr, rewriter)
        moved = rebuild(source)
    except Declined:
        return None
    dequantize = rewriter.definition(source_expr)
    attrs = dequantize.attrs
    result = relax.op.dequantize(
        with_names(moved, joined_names(expr)), *dequantize.args[1:], 0, attrs.out_dtype
    )
    return with_names(result, joined_names(expr))


def _move_of(
    expr: relax.Expr,
) -> tuple[relax.Expr, Callable[[Quantized], relax.Expr]] | None:
    """What `expr` moves, and how to move the quantised tensor instead."""
    name = op_name(expr)
    if name.removeprefix("relax.") in REARRANGING:
        return expr.args[0], lambda source: _same_call(expr, source.value)
    if name == "relax.nn.pad":
        return expr.args[0], lambda source: _padded(expr, source)
    if name in MAXIMA:
        return expr.args[0], lambda source: max_pool(expr, source.value)
    return None


def _same_call(move: relax.Call, source: relax.Expr) -> relax.Expr:
    return relax.Call(move.op, [source, *move.args[1:]], move.attrs, move.ty_args)


def _padded(move: relax.Call, source: Quantized) -> relax.Expr:
    if move.attrs.pad_mode != "constant":
        return _same_call(move, source.value)
    value = float(move.attrs.pad_value)
    filler = quantized_number(value, source.scale, source.zero, source.dtype)
    if np.float32(filler - source.zero) * source.scale != np.float32(value):
        raise Declined("the padding value is not one of the quantised values")
    widths = [int(width) for width in move.attrs.pad_width]
    return relax.op.nn.pad(source.value, widths, "constant", filler)


def recognise_movement(recognise: Recogniser) -> Recogniser:
    """The recogniser that quantises what a move reads, by `recognise`, and moves the result."""

    def recognise_move(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
        core = rewriter.definition(expr)
        names = joined_names(core) + goal.names
        if op_name(core) == "relax.concat":
            fields = core.args[0].fields
            parts = [recognise(field, goal.after(core), rewriter) for field in fields]
            return with_names(relax.op.concat(parts, int(core.attrs.axis)), names)
        inner = recognise(core.args[0], goal, rewriter)
        return with_names(_same_call(core, inner), names)

    return recognise_move


def is_movement(expr: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether quantising after `expr` is quantising before it."""
    core = rewriter.definition(expr)
    name = op_name(core).removeprefix("relax.")
    return (name in REARRANGING or name == "concat") and dtype_of(core).startswith("float")
