"""Relu, clip, sign, minimum and maximum of floats: not a number stays not a number.

TIR's own min and max return their second operand where the first is no number, and so would lose
it silently. A choice by comparison keeps whatever the comparison is false for:

    relu(x)       0 > x ? 0 : x
    maximum(a, b) a > b or a is no number ? a : b

Reductions start from infinity, not from the largest number, or those of nothing but infinities
would give that number. They lose what is no number: the frontend looks for it beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax, te, tirx, topi

from tilewright.compiler.cpu.operands import (
    ELEMENTWISE,
    INJECTIVE,
    REDUCTION,
    Legalize,
    call_kernel,
    stock,
)
from tilewright.passes.constants import dtype_of, shape_of
from tilewright.schedules.cpu.terms import Expr


def extreme_legalizations() -> dict[str, Legalize]:
    """For LegalizeOps; integers keep TVM's own kernels."""
    own = {
        "relax.nn.relu": _elementwise("relu", lambda x, _call: at_least(x, 0.0)),
        "relax.clip": _elementwise("clip", _clipped),
        "relax.sign": _elementwise("sign", lambda x, _call: _sign(x)),
        "relax.maximum": _pairwise("maximum", larger),
        "relax.minimum": _pairwise("minimum", smaller),
        "relax.max": _reduction("max", tirx.max, -math.inf),
        "relax.min": _reduction("min", tirx.min, math.inf),
    }
    return {name: _floats_only(name, legalize) for name, legalize in own.items()}


def at_least(x: Expr, low: float) -> Expr:
    bound = tirx.const(low, str(x.ty.dtype))
    return tirx.Select(bound > x, bound, x)


def at_most(x: Expr, high: float) -> Expr:
    bound = tirx.const(high, str(x.ty.dtype))
    return tirx.Select(bound < x, bound, x)


def larger(a: Expr, b: Expr) -> Expr:
    return tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b)


def smaller(a: Expr, b: Expr) -> Expr:
    return tirx.Select(tirx.any(a < b, tirx.isnan(a)), a, b)


def _sign(x: Expr) -> Expr:
    one = tirx.const(1.0, str(x.ty.dtype))
    zero = tirx.const(0.0, str(x.ty.dtype))
    return tirx.Select(x > zero, one, tirx.Select(x < zero, zero - one, x))


def _clipped(x: Expr, call: relax.Call) -> Expr:
    low, high = (float(bound.value) for bound in call.args[1:])
    if low > -math.inf:
        x = at_least(x, low)
    return at_most(x, high) if high < math.inf else x


def _floats_only(name: str, legalize: Legalize) -> Legalize:
    def choose(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        own = dtype_of(call).startswith("float")
        return (legalize if own else stock(name))(builder, call)

    return choose


def _elementwise(name: str, value: Callable[[Expr, relax.Call], Expr]) -> Legalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        def compute(x: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda *at: value(tirx.convert(x[at]), call), name=name)

        return call_kernel(builder, compute, [call.args[0]], name, ELEMENTWISE)

    return legalize


def _pairwise(name: str, value: Callable[[Expr, Expr], Expr]) -> Legalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape = shape_of(call)

        def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            wide_a, wide_b = (topi.broadcast_to(operand, shape) for operand in (a, b))
            return te.compute(
                shape,
                lambda *at: value(*(tirx.convert(wide[at]) for wide in (wide_a, wide_b))),
                name=name,
            )

        return call_kernel(builder, compute, list(call.args), name, INJECTIVE)

    return legalize


def reducer(name: str, combine: Callable[[Expr, Expr], Expr], start: float) -> Callable[..., Expr]:
    """A reduction of floats that begins at `start`."""
    made = te.comm_reducer(
        lambda a, b: combine(a, b), lambda dtype: tirx.const(start, dtype), name=name
    )
    return made  # type: ignore[no-any-return]


def _reduction(name: str, combine: Callable[[Expr, Expr], Expr], start: float) -> Legalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, result = shape_of(call.args[0]), shape_of(call)
        given = call.attrs.axis
        axes = range(len(shape)) if given is None else {int(axis) % len(shape) for axis in given}
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        keeps_rank = bool(call.attrs.keepdims)

        def compute(x: te.Tensor) -> te.Tensor:
            reduced = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in sorted(axes)}

            def element(*at: Expr) -> Expr:
                places = [at[axis] for axis in kept] if keeps_rank else list(at)
                own = dict(zip(kept, places, strict=True)) | reduced
                value = x[tuple(own[axis] for axis in range(len(shape)))]
                return reducer(name, combine, start)(value, axis=list(reduced.values()))

            return te.compute(result, element, name=name)

        return call_kernel(builder, compute, [call.args[0]], name, REDUCTION)

    return legalize
