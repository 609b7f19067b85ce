"""Join permutes that follow each other, drop what changes nothing, reshape where nothing moves.

    permute_dims(permute_dims(x, inner), outer)  ->  permute_dims(x, inner then outer)
                                                 ->  x, when the joined order is the identity
    permute_dims(x, order)                       ->  reshape(x), when only axes of extent 1 move
    reshape(reshape(x))                          ->  reshape(x)
    permute_dims(dequantize(x))                  ->  dequantize(permute_dims(x)): fewer bytes

Run it after sink_permutes; each permute that remains is a copy of the tensor.
"""

from __future__ import annotations

from tvm import relax

from tilewright.passes.base import function_pass
from tilewright.passes.canonicalise import permutation
from tilewright.passes.constants import array_of, constant, op_name, shape_of
from tilewright.passes.layouts import is_identity, join_orders, moves_no_element
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter


@function_pass
def cancel_permutes(function: relax.Function) -> relax.Function:
    rewriter = Rewriter(function)

    def rewrite(expr: relax.Expr) -> relax.Expr | None:
        if op_name(expr) == "relax.permute_dims":
            joined = joined_permute(expr, rewriter)
            return _cheapest(expr if joined is None else joined, rewriter)
        if op_name(expr) == "relax.reshape":
            return _joined_reshape(expr, rewriter)
        return None

    return rewriter.run(rewrite)


def joined_permute(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    """One permute, or none, for `call` and the permute before it; None when there is no such."""
    source, order, names = call.args[0], permutation(call), onnx_nodes_of(call)
    value = array_of(rewriter.definition(source))
    if value is not None:
        return constant(value.transpose(order))
    inner = rewriter.definition(source)
    if op_name(inner) == "relax.permute_dims":
        names = joined_names(inner, call)
        source, order = inner.args[0], join_orders(permutation(inner), order)
    elif not is_identity(order):
        return None
    if is_identity(order):
        return source
    return with_names(relax.op.permute_dims(source, order), names)


def _cheapest(expr: relax.Expr, rewriter: Rewriter) -> relax.Expr:
    """The permute as a reshape where nothing moves, or done on int8 where it can be."""
    if op_name(expr) != "relax.permute_dims":
        return expr
    source, order = expr.args[0], permutation(expr)
    names = onnx_nodes_of(expr)
    shape = shape_of(source)
    if moves_no_element(order, shape):
        reshaped = relax.op.reshape(source, [shape[axis] for axis in order])
        joined = _joined_reshape(reshaped, rewriter)
        return with_names(reshaped if joined is None else joined, names)
    inner = rewriter.definition(source)
    per_tensor = op_name(inner) == "relax.dequantize" and shape_of(inner.args[1]) == ()
    if per_tensor and rewriter.reader_count(source) <= 1:
        permuted = with_names(relax.op.permute_dims(inner.args[0], order), names)
        dequantized = relax.op.dequantize(permuted, *inner.args[1:], 0, inner.attrs.out_dtype)
        return with_names(dequantized, onnx_nodes_of(inner))
    return expr


def _joined_reshape(call: relax.Call, rewriter: Rewriter) -> relax.Expr | None:
    source = call.args[0]
    inner = rewriter.definition(source)
    target = [int(extent) for extent in call.args[1].values]
    if op_name(inner) == "relax.reshape":
        source = inner.args[0]
    if list(shape_of(source)) == target:
        return source
    if op_name(inner) != "relax.reshape":
        return None
    return with_names(relax.op.reshape(source, target), onnx_nodes_of(call))
