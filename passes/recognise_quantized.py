"""Gather DequantizeLinear, an operator and QuantizeLinear into one quantised operator.

    quantize(relu(conv2d(dequantize(x), dequantize(w)) + dequantize(b)))
        -> tilewright.conv2d(x, w, b, multiplier), clipped at the zero point

`passes/quantized_ops.py` lists the operators and their arithmetic; `passes/recognition/` has a
file for each family. Run it after canonicalise and batch norm folding and before any layout
changes: a graph of quantised operators has a third of the nodes to lay out. Each group that stays
in float is left as it was, and the reason is recorded under its nodes' names (passes/reasons.py).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Container

from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.canonicalise import clip_bounds, joined_bounds
from tilewright.passes.constants import array_of, dtype_of, has_static_shape, op_name
from tilewright.passes.names import joined_names, onnx_nodes_of
from tilewright.passes.reasons import with_reasons
from tilewright.passes.recognition.elementwise import (
    is_binary,
    recognise_binary,
    recognise_softmax,
)
from tilewright.passes.recognition.linear import is_linear, recognise_linear
from tilewright.passes.recognition.movement import (
    is_movement,
    moved_on_int8,
    recognise_movement,
)
from tilewright.passes.recognition.pooling import max_pool, recognise_average
from tilewright.passes.recognition.tables import recognise_table, rescaled
from tilewright.passes.recognition.terms import (
    QUANTIZED_DTYPES,
    Declined,
    Goal,
    dequantized,
    is_dequantized,
    scale_and_zero,
)
from tilewright.passes.rewriter import Rewriter, variables_in

AVERAGES = ("relax.nn.avg_pool2d", "relax.mean")


@function_pass
def recognise_quantized(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)
    reasons: dict[str, str] = {}

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        moved = moved_on_int8(expr, rewriter)
        if moved is not None:
            return moved
        if op_name(expr) == "relax.nn.max_pool2d" and dtype_of(expr) in QUANTIZED_DTYPES:
            return _max_pool(expr)
        if op_name(expr) != "relax.quantize" or array_of(expr.args[0]) is not None:
            return None
        source = expr.args[0]
        try:
            return recognise(source, _goal_of(expr), rewriter)
        except Declined as declined:
            for name in _float_nodes(source, rewriter, reasons):
                reasons.setdefault(name, str(declined))
            return None

    rewritten = rewriter.run(rewrite)
    return with_reasons(rewritten, {**_unquantised(rewritten), **reasons})


def _max_pool(call: relax.Call) -> relax.Expr | None:
    """A max pool that is int8 already."""
    with contextlib.suppress(Declined):
        return max_pool(call, call.args[0])
    return None


def recognise(source: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    """The int8 expression that quantising the float `source` to `goal` gives; or Declined."""
    core = rewriter.definition(source)
    bounds = clip_bounds(core) if has_static_shape(core) else None
    if bounds is not None and not _is_table(core.args[0], rewriter):
        inner = Goal(
            goal.scale,
            goal.zero,
            goal.dtype,
            joined_names(core) + goal.names,
            joined_bounds(bounds, goal.bounds),
        )
        if rewriter.reader_count(source) > 1 and not is_dequantized(core.args[0], rewriter):
            raise Declined("its float result is also read by another node")
        return recognise(core.args[0], inner, rewriter)
    if is_dequantized(source, rewriter):
        return rescaled(dequantized(source, rewriter), goal)
    if is_linear(source, rewriter):
        return recognise_linear(source, goal, rewriter)
    if is_binary(source, rewriter):
        return recognise_binary(source, goal, rewriter)
    if is_movement(source, rewriter):
        return recognise_movement(recognise)(source, goal, rewriter)
    if op_name(core) in AVERAGES:
        return recognise_average(source, goal, rewriter)
    if op_name(core) == "relax.nn.softmax":
        return recognise_softmax(source, goal, rewriter)
    return recognise_table(source, goal, rewriter)


def _float_nodes(source: relax.Expr, rewriter: Rewriter, known: Container[str]) -> list[str]:
    """The nodes of the float operators between `source` and what was dequantised before it."""
    names: dict[str, None] = {}
    seen: set[relax.Expr] = set()
    pending = [source]
    while pending:
        value = rewriter.definition(pending.pop())
        if op_name(value) in ("", "relax.dequantize", "relax.quantize") or value in seen:
            continue
        seen.add(value)
        own = onnx_nodes_of(value)
        if not any(name in known for name in own):
            names.update(dict.fromkeys(own))
            pending += variables_in(value)
    return list(names)


def _is_table(source: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether a clip of `source` belongs to an activation, such as hard sigmoid's own."""
    core = rewriter.definition(source)
    known = (*AVERAGES, "relax.nn.softmax", "relax.dequantize")
    return not (
        op_name(core) in known
        or clip_bounds(core) is not None
        or is_linear(source, rewriter)
        or is_binary(source, rewriter)
        or is_movement(source, rewriter)
    )


def _goal_of(quantize: relax.Call) -> Goal:
    dtype = str(quantize.attrs.out_dtype)
    if dtype not in QUANTIZED_DTYPES:
        raise Declined(f"quantising to {dtype} is not supported")
    scale, zero = scale_and_zero(quantize)
    return Goal(scale, zero, dtype, onnx_nodes_of(quantize), (-math.inf, math.inf))


def _unquantised(function: relax.Function) -> dict[str, str]:
    """A reason for each float operator that reads a dequantised tensor and was not recognised."""
    definitions = {
        binding.var: binding.value for block in function.body.blocks for binding in block.bindings
    }
    reasons = {}
    for value in definitions.values():
        if op_name(value) in ("", "relax.dequantize", "relax.quantize"):
            continue
        sources = [definitions.get(var) for var in variables_in(value)]
        if any(source is not None and op_name(source) == "relax.dequantize" for source in sources):
            for name in onnx_nodes_of(value):
                reasons[name] = "its result is not quantised (no QuantizeLinear after it)"
    return reasons
