"""Plain numbers out of Relax expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

Array = NDArray[Any]

# What keeps every element in its order and only names other axes.
RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")


def array_of(expr: relax.Expr) -> Array | None:
    """The value of a tensor constant; None when `expr` is anything else."""
    if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
        return np.asarray(expr.value.numpy())
    return None


def scalar_of(expr: relax.Expr) -> float | None:
    """The value of a constant of one element, tensor or immediate; None for anything else."""
    array = array_of(expr)
    if array is not None:
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    value = getattr(expr, "value", None)
    return float(value) if isinstance(value, int | float) else None


def constant(array: Array) -> relax.Expr:
    """A tensor constant with the array's own dtype."""
    return relax.const(np.asarray(array, order="C"), str(array.dtype))


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """The static shape of a tensor expression."""
    return tuple(int(extent) for extent in expr.ty.shape.values)


def has_static_shape(expr: relax.Expr) -> bool:
    """Whether the expression is a tensor with every dimension known."""
    return _is_static(expr.ty) and isinstance(expr.ty, relax.TensorType)


def has_static_type(expr: relax.Expr) -> bool:
    """Whether the expression is a tensor, or a tuple of tensors, with every dimension known."""
    return _is_static(expr.ty)


def _is_static(ty: relax.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(_is_static(field) for field in ty.fields)
    shape = getattr(ty, "shape", None) if isinstance(ty, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr) and all(
        isinstance(extent, tvm.tirx.IntImm) and int(extent) >= 0 for extent in shape.values
    )


def dtype_of(expr: relax.Expr) -> str:
    """numpy's name of a tensor expression's element type."""
    return str(expr.ty.dtype.dtype)


def op_name(expr: relax.Expr) -> str:
    """The operator a call applies, `relax.nn.conv2d` say; empty for what is no such call."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""
