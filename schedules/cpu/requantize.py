"""The element-wise ends of quantised operators, exact to the bit (see targets/operators.py).

LLVM may contract a float multiplication and an addition into one rounding; `rounded` stops that
where a product is added to another. Division stays IEEE division; rounding is half to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from tilewright.schedules.cpu.terms import Expr

_FLOAT_MAX = float(np.finfo(np.float32).max)


def float32(value: float) -> Expr:
    return tirx.const(float(np.float32(value)), "float32")


def rounded(product: Expr) -> Expr:
    """`product` as a float32 of its own: no compiler fuses through a minimum."""
    return tirx.min(product, tirx.const(_FLOAT_MAX, "float32"))


def saturate(value: Expr, zero: int, low: int, high: int, dtype: str) -> Expr:
    """rint(value) + zero limited to [low, high]; not a number becomes `low`.

    Limits are applied before the conversion to an integer, which is undefined beyond int32.
    """
    kind = str(value.ty.dtype)
    limited = tirx.max(value, tirx.const(float(low - zero), kind))
    limited = tirx.min(limited, tirx.const(float(high - zero), kind))
    return (tirx.nearbyint(limited).astype("int32") + tirx.const(zero, "int32")).astype(dtype)


def requantize(
    accumulator: Expr, multiplier: Expr, attributes: Any, output_scale: float | None
) -> Expr:
    """int32 to the output's dtype: one float32 step where `output_scale` is None, else two."""
    value = accumulator.astype("float32") * multiplier
    if output_scale is not None:
        value = value / float32(output_scale)
    return saturate(
        value,
        int(attributes["output_zero"]),
        int(attributes["clip_low"]),
        int(attributes["clip_high"]),
        str(attributes["out_dtype"]),
    )


def dequantize(value: Expr, scale: float, zero: int) -> Expr:
    centred = value.astype("int32") - tirx.const(zero, "int32")
    return rounded(centred.astype("float32") * float32(scale))


def round_quotient(numerator: Expr, denominator: Expr) -> Expr:
    """numerator / denominator, denominator > 0, rounded half to even, in their integer type."""
    kind = str(numerator.ty.dtype)
    one, two = tirx.const(1, kind), tirx.const(2, kind)
    doubled = two * numerator + denominator
    quotient = tirx.floordiv(doubled, two * denominator)
    tie = tirx.floormod(doubled, two * denominator).equal(tirx.const(0, kind))
    odd = tirx.floormod(quotient, two).equal(one)
    return tirx.Select(tirx.all(tie, odd), quotient - one, quotient)
