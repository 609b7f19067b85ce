"""Let a constant weight take over the permute of a flattened image.

    dense(reshape(permute(x, NCHW)), w)  ->  dense(reshape(x), w with its rows reordered)

A network that flattens an NCHW image before its first dense layer ends, in NHWC, with this one
permute. Only the order of the terms of a sum changes: exact for integers, and for floats as exact
as any summation order. Run it after cancel_permutes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.canonicalise import permutation
from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.layouts import inverse_order
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.rewriter import Rewriter


@function_pass
def fold_permute_into_weights(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        if op_name(expr) not in ("relax.matmul", "tilewright.dense"):
            return None
        weight = array_of(rewriter.definition(expr.args[1]))
        flat = rewriter.definition(expr.args[0])
        if weight is None or weight.ndim != 2 or op_name(flat) != "relax.reshape":
            return None
        permute = rewriter.definition(flat.args[0])
        if op_name(permute) != "relax.permute_dims" or rewriter.reader_count(expr.args[0]) > 1:
            return None
        order, shape = permutation(permute), shape_of(permute)
        if order[0] != 0 or shape_of(flat) != (shape[0], math.prod(shape[1:])):
            return None
        reshaped = relax.op.reshape(permute.args[0], shape_of(flat))
        arguments = [
            with_names(reshaped, joined_names(flat, permute)),
            constant(weight[row_order(shape[1:], [axis - 1 for axis in order[1:]])]),
            *expr.args[2:],
        ]
        return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args, expr.span)

    return rewriter.run(rewrite)


def row_order(permuted_shape: Sequence[int], order: Sequence[int]) -> NDArray[np.int64]:
    """For each element of the unpermuted tensor, in memory order, its place once permuted."""
    places = np.arange(math.prod(permuted_shape)).reshape(permuted_shape)
    return places.transpose(inverse_order(order)).reshape(-1)
