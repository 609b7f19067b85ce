"""Bring each idea to one form, so that later passes need to know only that one.

    permute_dims by the identity, reshape to the same shape      ->  dropped
    astype to the same type, broadcast_to the same shape         ->  dropped
    flatten, squeeze, expand_dims, reshape(reshape(x))           ->  reshape(x)
    reshape or permute_dims of a constant                        ->  the constant, rearranged
    where(isnan(c), d, c) of constants                           ->  the constant it is
    call_tir(maximum, x, c), maximum(x, c)                       ->  clip(x, c, inf)
    call_tir(minimum, x, c), minimum(x, c)                       ->  clip(x, -inf, c)
    split(x).1                                                   ->  strided_slice(x)
    relu6(x), clip(clip(x, a, b), c, d)                          ->  one clip
    clip(x, 0, inf)                                              ->  relu(x)

Run it right after import: batch norm folding and recognition match these forms. The importer
spells ONNX Clip as isnan, where and call_tir; a bound that is NaN means no bound there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tilewright.passes.base import module_pass
from tilewright.passes.constants import (
    array_of,
    constant,
    dtype_of,
    has_static_shape,
    op_name,
    scalar_of,
    shape_of,
)
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.rewriter import Rewriter

Bounds = tuple[float, float]


@module_pass
def canonicalise(module: tvm.IRModule) -> tvm.IRModule:
    updated = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function) and "Composite" not in (function.attrs or {}):
            updated[name] = _canonicalised(function)
    return without_unused_kernels(updated)


def _canonicalised(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(call: relax.Expr) -> relax.Expr | None:
        if isinstance(call, relax.TupleGetItem):
            return _split_part(call, rewriter)
        if not has_static_shape(call):
            return None
        if (bounds := clip_bounds(call, rewriter.definition)) is not None:
            return _one_clip(call, bounds, rewriter)
        rule = RULES.get(op_name(call))
        return rule(call, rewriter) if rule else None

    return rewriter.run(rewrite)


def _rearranged(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    """The reshapes: dropped, folded into the constant, or joined with the reshape before."""
    source, shape = call.args[0], shape_of(call)
    if not has_static_shape(source):
        return None
    if shape_of(source) == shape:
        return source
    value = array_of(rewriter.definition(source))
    if value is not None:
        return constant(value.reshape(shape))
    inner = rewriter.definition(source)
    if op_name(inner) == "relax.reshape":
        joined = relax.op.reshape(inner.args[0], shape)
        if shape_of(inner.args[0]) == shape:
            return inner.args[0]
        return with_names(joined, joined_names(call, inner))
    if op_name(call) == "relax.reshape":
        return None
    return relax.op.reshape(source, shape)


def _permuted(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    axes = permutation(call)
    if axes == list(range(len(axes))):
        return call.args[0]
    value = array_of(rewriter.definition(call.args[0]))
    return None if value is None else constant(value.transpose(axes))


def _split_part(item: relax.TupleGetItem, rewriter: Rewriter) -> relax.Expr | None:
    split = rewriter.definition(item.tuple_value)
    if op_name(split) != "relax.split" or not has_static_shape(split.args[0]):
        return None
    shape = shape_of(split.args[0])
    axis = int(split.attrs.axis) % len(shape)
    edges = split_edges(shape[axis], split.attrs.indices_or_sections)
    return relax.op.strided_slice(
        split.args[0], [axis], [edges[item.index]], [edges[item.index + 1]]
    )


def split_edges(extent: int, indices_or_sections: Any) -> list[int]:
    """Where the parts of a split begin and end: by a number of parts, or by the given indices."""
    if isinstance(indices_or_sections, tvm.tirx.IntImm):
        sections = int(indices_or_sections)
        size = math.ceil(extent / sections)
        return [min(part * size, extent) for part in range(sections + 1)]
    return [0, *(int(edge) for edge in indices_or_sections), extent]


def _chosen(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    """where(isnan(c), d, c) of constants."""
    condition = rewriter.definition(call.args[0])
    taken, other = array_of(call.args[1]), array_of(call.args[2])
    if op_name(condition) != "relax.isnan" or taken is None or other is None:
        return None
    tested = array_of(condition.args[0])
    return None if tested is None else constant(np.where(np.isnan(tested), taken, other))


def _cast(call: relax.Call, _rewriter: Rewriter) -> relax.Expr | None:
    return call.args[0] if dtype_of(call.args[0]) == dtype_of(call) else None


def _broadcast(call: relax.Call, _rewriter: Rewriter) -> relax.Expr | None:
    """A broadcast to the shape it has; that of a constant is a result of the graph and stays."""
    source = call.args[0]
    is_variable = isinstance(source, relax.Var)
    return source if is_variable and shape_of(source) == shape_of(call) else None


def _one_clip(call: relax.Call, bounds: Bounds, rewriter: Rewriter) -> relax.Expr | None:
    source, names = call.args[0], joined_names(call)
    inner = rewriter.definition(source)
    if op_name(call) == "relax.call_tir":
        source = call.args[1].fields[0]
        inner = rewriter.definition(source)
    inner_bounds = clip_bounds(inner, rewriter.definition)
    if inner_bounds is not None and rewriter.reader_count(source) <= 1:
        bounds = joined_bounds(inner_bounds, bounds)
        names = joined_names(inner, call)
        source = inner.args[0]
    if bounds == (0.0, math.inf):
        if op_name(call) == "relax.nn.relu" and source.same_as(call.args[0]):
            return None
        return with_names(relax.op.nn.relu(source), names)
    if op_name(call) == "relax.clip" and source.same_as(call.args[0]):
        return None
    return with_names(relax.op.clip(source, *bounds), names)


def clip_bounds(
    call: relax.Expr, definition: Callable[[relax.Expr], relax.Expr] = lambda expr: expr
) -> Bounds | None:
    """The (low, high) of an expression that limits a float tensor by constants, else None."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return 0.0, math.inf
    if name == "relax.nn.relu6":
        return 0.0, 6.0
    if name == "relax.clip":
        low, high = scalar_of(call.args[1]), scalar_of(call.args[2])
        return None if low is None or high is None else (low, high)
    if name == "relax.call_tir" and dtype_of(call).startswith("float"):
        kind = _limit_kind(call)
        operands = call.args[1].fields
    elif name in ("relax.maximum", "relax.minimum") and dtype_of(call).startswith("float"):
        kind, operands = name.removeprefix("relax."), call.args
    else:
        return None
    if kind is None or len(operands) != 2 or shape_of(operands[0]) != shape_of(call):
        return None
    limit = scalar_of(definition(operands[1]))
    if limit is None or math.isnan(limit):
        return None
    return (limit, math.inf) if kind == "maximum" else (-math.inf, limit)


def _limit_kind(call: relax.Call) -> str | None:
    """`maximum` or `minimum` for a call of the kernel the importer makes of topi's."""
    match = re.fullmatch(r"(maximum|minimum)\d*", str(call.args[0].name_hint))
    return match.group(1) if match else None


def joined_bounds(first: Bounds, then: Bounds) -> Bounds:
    """The one clip that does `first`, then `then`."""
    low, high = (min(max(bound, then[0]), then[1]) for bound in first)
    return low, high


def permutation(call: relax.Call) -> list[int]:
    """The axes of a permute_dims call, the reversed order spelled out."""
    rank = len(shape_of(call))
    axes = call.attrs.axes
    return [int(axis) % rank for axis in axes] if axes is not None else list(range(rank))[::-1]


def without_unused_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """The module without PrimFuncs that no Relax function calls any more."""
    used = set()
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(
                function,
                lambda e: used.add(e.name_hint) if isinstance(e, tvm.ir.GlobalVar) else None,
            )
    kept = {
        name: function
        for name, function in module.functions.items()
        if not isinstance(function, tvm.tirx.PrimFunc) or name.name_hint in used
    }
    return tvm.IRModule(kept, attrs=module.attrs)


RULES: dict[str, Callable[[relax.Call, Rewriter], relax.Expr | None]] = {
    "relax.reshape": _rearranged,
    "relax.flatten": _rearranged,
    "relax.squeeze": _rearranged,
    "relax.expand_dims": _rearranged,
    "relax.permute_dims": _permuted,
    "relax.astype": _cast,
    "relax.broadcast_to": _broadcast,
    "relax.where": _chosen,
}
