"""Operators imported in a form better than TVM's own converter gives.

A converter takes the block builder, the inputs, the attributes and the opset, and returns the
Relax expression, or None where TVM's converter should do it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from tilewright.compiler.frontend.qlinear import QLINEAR
from tilewright.passes.constants import (
    array_of,
    constant,
    dtype_of,
    has_static_shape,
    scalar_of,
    shape_of,
)

Attributes = dict[str, Any]
Converter = Callable[[list[relax.Expr | None], Attributes, int], relax.Expr | None]


def _input(inputs: list[relax.Expr | None], position: int) -> relax.Expr | None:
    return inputs[position] if position < len(inputs) else None


def _pad(inputs: list[relax.Expr | None], attrs: Attributes, opset: int) -> relax.Expr | None:
    """Constant padding by non-negative amounts as relax.nn.pad, which later passes can move."""
    source, widths = inputs[0], _input(inputs, 1)
    if opset < 11 or source is None or widths is None or not has_static_shape(source):
        return None
    amounts, axes = array_of(widths), _pad_axes(inputs, len(shape_of(source)))
    value = 0.0 if _input(inputs, 2) is None else scalar_of(inputs[2])
    mode = attrs.get("mode", b"constant")
    if amounts is None or axes is None or value is None or mode != b"constant":
        return None
    if (amounts < 0).any() or not np.isfinite(value):
        return None
    before, after = np.split(amounts.astype(int), 2)
    pairs = np.zeros((len(shape_of(source)), 2), int)
    pairs[axes, 0], pairs[axes, 1] = before, after
    return relax.op.nn.pad(source, [int(width) for width in pairs.reshape(-1)], "constant", value)


def _pad_axes(inputs: list[relax.Expr | None], rank: int) -> list[int] | None:
    given = _input(inputs, 3)
    if given is None:
        return list(range(rank))
    axes = array_of(given)
    return None if axes is None else [int(axis) % rank for axis in axes]


def _gather(inputs: list[relax.Expr | None], attrs: Attributes, opset: int) -> relax.Expr | None:
    """Gather with negative indices wrapped, when they are constants at once."""
    source, indices = inputs[0], inputs[1]
    if source is None or indices is None or not has_static_shape(source):
        return None
    shape = shape_of(source)
    axis = int(attrs.get("axis", 0)) % len(shape)
    value = array_of(indices)
    if value is not None:
        if (value < -shape[axis]).any() or (value >= shape[axis]).any():
            raise ValueError(f"an index is outside the {shape[axis]} elements of axis {axis}")
        return relax.op.take(source, constant(value % shape[axis]), axis, mode="clip")
    extent = relax.const(shape[axis], dtype_of(indices))
    negative = relax.op.less(indices, relax.const(0, dtype_of(indices)))
    wrapped = relax.op.where(negative, relax.op.add(indices, extent), indices)
    return relax.op.take(source, wrapped, axis, mode="clip")


def _extremum(
    operation: Callable[[relax.Expr, relax.Expr], relax.Expr],
) -> Converter:
    """Min and Max pairwise; the importer would stack the operands and reduce them."""

    def convert(
        inputs: list[relax.Expr | None], _attrs: Attributes, _opset: int
    ) -> relax.Expr | None:
        # A constant comes second, where canonicalise looks for the bound of a clip.
        ordered = sorted(inputs, key=lambda operand: array_of(operand) is not None)
        return functools.reduce(operation, ordered)

    return convert


CONVERTERS: dict[str, Converter] = {
    "Gather": _gather,
    "Max": _extremum(relax.op.maximum),
    "Min": _extremum(relax.op.minimum),
    "Pad": _pad,
    **QLINEAR,
}
