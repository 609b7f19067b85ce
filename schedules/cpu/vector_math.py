"""exp, sigmoid and tanh of float32 as arithmetic that vectorises; libm takes one value at a time.

exp     x = n ln 2 + r, |r| <= ln 2 / 2: 2^n times a polynomial in r (coefficients: Cephes, expf);
        within 1 ulp of the true value, subnormal results and overflow as libm has them
sigmoid 1 / (1 + exp(-x)), within 3 ulp; 0 where that is subnormal
tanh    an odd polynomial up to 0.625 (Cephes, tanhf), beyond it 1 - 2 / (exp(2 |x|) + 1); 2 ulp

Not a number stays not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm import tirx

from tilewright.schedules.cpu.terms import Expr

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
        5.0000001201e-1)  # fmt: skip
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
         -3.33332819422e-1)  # fmt: skip
_LOG2_E = 1.44269504088896341
_LN_2_HIGH, _LN_2_LOW = 0.693359375, -2.12194440e-4  # n * high is exact
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond these exp is 0 and infinite


def with_vector_math(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """`function` with the calls that this file knows replaced, where they are of float32."""

    def replace(call: tvm.ir.Call) -> Expr:
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name not in _REPLACEMENTS or str(call.ty.dtype) != "float32":
            return call
        return _REPLACEMENTS[name](call.args[0])

    body = tvm_ffi.structural_map(function.body, (tvm.ir.Call, replace), order="post")
    return function.with_body(body)


def _number(value: float) -> Expr:
    return tirx.const(value, "float32")


def _named(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body` of a value that is computed once."""
    variable = tirx.Var("x", "float32")
    return tirx.Let(variable, value, body(variable))


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, the highest power first."""
    total = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + _number(coefficient)
    return total


def _exp(x: Expr) -> Expr:
    return _named(x, lambda x: tirx.Select(tirx.isnan(x), x, _exp_of_number(x)))


def _exp_of_number(x: Expr) -> Expr:
    limited = tirx.max(tirx.min(x, _number(_HIGHEST)), _number(_LOWEST))
    return _named(
        limited,
        lambda x: _named(tirx.nearbyint(x * _number(_LOG2_E)), lambda power: _scaled_exp(x, power)),
    )


def _scaled_exp(x: Expr, power: Expr) -> Expr:
    rest = (x - power * _number(_LN_2_HIGH)) - power * _number(_LN_2_LOW)
    value = _named(rest, lambda r: _polynomial(r, _EXP) * (r * r) + r + _number(1.0))
    whole = power.astype("int32")
    half = tirx.shift_right(whole, tirx.const(1, "int32"))
    # In two steps, for 2^128 and 2^-149 are no float32 of their own.
    return value * _power_of_two(half) * _power_of_two(whole - half)


def _power_of_two(exponent: Expr) -> Expr:
    biased = exponent + tirx.const(127, "int32")
    return tirx.reinterpret("float32", tirx.shift_left(biased, tirx.const(23, "int32")))


def _sigmoid(x: Expr) -> Expr:
    return _number(1.0) / (_number(1.0) + _exp(_number(0.0) - x))


def _tanh(x: Expr) -> Expr:
    def of(x: Expr) -> Expr:
        square = x * x
        near = _polynomial(square, _TANH) * square * x + x
        size = tirx.abs(x)
        far = _number(1.0) - _number(2.0) / (_exp(size + size) + _number(1.0))
        signed = _named(far, lambda far: tirx.Select(x < _number(0.0), _number(0.0) - far, far))
        return tirx.Select(size < _number(0.625), near, signed)

    return _named(x, of)


_REPLACEMENTS = {"tirx.exp": _exp, "tirx.sigmoid": _sigmoid, "tirx.tanh": _tanh}
