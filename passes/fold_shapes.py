"""Compute what only depends on shapes, which are all known.

    shape_to_tensor(shape_of(x))                       ->  constant
    take(constant, constant), strided_slice(constant)  ->  constant

The importer asks for shapes at run time where it wraps negative indices. Run it right after
import.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.constants import (
    Array,
    array_of,
    constant,
    has_static_shape,
    op_name,
    scalar_of,
    shape_of,
)
from tilewright.passes.rewriter import Rewriter


@function_pass
def fold_shapes(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        folded = _folded(expr, rewriter)
        return None if folded is None else constant(folded)

    return rewriter.run(rewrite)


def _folded(expr: relax.Expr, rewriter: Rewriter) -> Array | None:
    name = op_name(expr)
    if name == "relax.shape_to_tensor":
        shape = rewriter.definition(expr.args[0])
        if op_name(shape) == "relax.shape_of" and has_static_shape(shape.args[0]):
            return np.asarray(shape_of(shape.args[0]), np.int64)
        return None
    source = array_of(expr.args[0]) if name in ("relax.take", "relax.strided_slice") else None
    if source is None:
        return None
    if name == "relax.take":
        indices = array_of(expr.args[1])
        axis = None if expr.attrs.axis is None else int(expr.attrs.axis)
        return None if indices is None else np.asarray(np.take(source, indices, axis))
    parts = [[scalar_of(field) for field in part.fields] for part in expr.args[1:]]
    axes, begins, ends = parts[:3]
    steps = parts[3] if len(parts) > 3 else [1.0] * len(axes)
    index = [slice(None)] * source.ndim
    for where, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if where is None or begin is None or end is None or step is None:
            return None
        index[int(where)] = slice(int(begin), int(end), int(step))
    return np.asarray(source[tuple(index)])
