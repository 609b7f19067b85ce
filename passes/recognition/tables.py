"""Every function of one int8 value is a table of 256: activations, rescaling, whole expressions.

    quantize(sigmoid(dequantize(x)))                  ->  tilewright.lookup(x, table)
    quantize(v * sigmoid(v)), v = dequantize(x)       ->  tilewright.lookup(x, table)
    quantize(clip(dequantize(x)))                     ->  tilewright.lookup(x, table)

Activations are evaluated in float64, at the float32 numbers the steps stand for. Rescaling alone,
and rescaling with a clip, is float32, the two steps DequantizeLinear and QuantizeLinear themselves
take.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.constants import constant, op_name, scalar_of, shape_of
from tilewright.passes.names import onnx_nodes_of, with_names
from tilewright.passes.quantized_ops import call
from tilewright.passes.recognition.terms import (
    Declined,
    Goal,
    Quantized,
    dequantized,
    raw_bytes_in_order,
)
from tilewright.passes.rewriter import Rewriter

Values = NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Values) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: Values) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


UNARY: dict[str, Callable[[Values], Values]] = {
    "abs": np.abs,
    "atan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "negative": np.negative,
    "nn.gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "nn.gelu_tanh": _gelu_tanh,
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.relu6": lambda x: np.clip(x, 0, 6),
    "nn.silu": lambda x: x * _sigmoid(x),
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}
BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "power": np.power,
    "subtract": np.subtract,
}


def rescaled(source: Quantized, goal: Goal) -> relax.Expr:
    """`source` on the goal's scale: itself where that changes nothing, else a table."""
    limits = np.iinfo(goal.dtype)
    same = (source.scale, source.zero, source.dtype) == (goal.scale, goal.zero, goal.dtype)
    if same and (goal.low, goal.high) == (limits.min, limits.max):
        return source.value
    return with_names(
        call("lookup", [source.value, constant(rescaling_table(source, goal))], kind="rescale"),
        goal.names,
    )


def rescaling_table(source: Quantized, goal: Goal) -> NDArray[Any]:
    """Dequantise, clip and quantise every raw byte, in float32."""
    real = (raw_bytes_in_order(source.dtype) - source.zero).astype(np.float32) * source.scale
    steps = np.rint(real / goal.scale) + np.float32(goal.zero)
    return np.asarray(np.clip(steps, goal.low, goal.high).astype(goal.dtype))


def activation_table(values: Values, goal: Goal) -> NDArray[Any]:
    """Quantise the function's 256 values, in float64."""
    steps = np.rint(values / np.float64(goal.scale)) + goal.zero
    return np.asarray(np.clip(steps, goal.low, goal.high).astype(goal.dtype))


def recognise_table(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    """A lookup for any expression that is a function of one dequantised tensor."""
    evaluation = _Evaluation(rewriter)
    with np.errstate(all="ignore"):
        values = np.broadcast_to(evaluation.of(expr), 256)
    source = evaluation.source
    if source is None:
        raise Declined("it does not depend on a quantised tensor")
    if shape_of(source.value) != shape_of(expr):
        raise Declined("it is not element-wise")
    if np.isnan(values).any():
        raise Declined("the function has no value for some of the 256 inputs")
    table = constant(activation_table(values, goal))
    names = tuple(reversed(evaluation.names)) + goal.names
    kind = op_name(rewriter.definition(expr)).rsplit(".", 1)[-1]
    return with_names(call("lookup", [source.value, table], kind=kind), names)


class _Evaluation:
    """The value of an expression at each of the 256 inputs, indexed by raw byte."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.source: Quantized | None = None
        self.names: list[str] = []
        self._rewriter = rewriter
        self._known: dict[relax.Expr, Values] = {}

    def of(self, expr: relax.Expr) -> Values:
        core = self._rewriter.definition(expr)
        if core not in self._known:
            self._known[core] = self._computed(core)
        return self._known[core]

    def _computed(self, core: relax.Expr) -> Values:
        number = scalar_of(core)
        if number is not None:
            return np.float64(number)  # type: ignore[return-value]
        name = op_name(core).removeprefix("relax.")
        if name == "dequantize":
            return self._source_values(core)
        self.names += [node for node in onnx_nodes_of(core) if node not in self.names]
        if name in UNARY:
            return UNARY[name](self.of(core.args[0]))
        if name in BINARY:
            return BINARY[name](self.of(core.args[0]), self.of(core.args[1]))
        if name == "clip":
            low, high = scalar_of(core.args[1]), scalar_of(core.args[2])
            return np.clip(self.of(core.args[0]), low, high)
        if name in ("nn.leakyrelu", "nn.prelu"):
            x = self.of(core.args[0])
            slope = core.attrs.alpha if name == "nn.leakyrelu" else self.of(core.args[1])
            return np.where(x < 0, x * np.float64(slope), x)
        raise Declined(
            f"operator {name or 'input'} between its DequantizeLinear and QuantizeLinear"
            " has no int8 form"
        )

    def _source_values(self, core: relax.Expr) -> Values:
        source = dequantized(core, self._rewriter)
        if self.source is None:
            self.source = source
        elif not self.source.value.same_as(source.value):
            raise Declined("it mixes two quantised tensors without quantising in between")
        steps = (raw_bytes_in_order(source.dtype) - source.zero).astype(np.float32)
        # Dequantised numbers are float32 to everyone: 10 steps of 0.1 are 1, not a little more,
        # which decides what floor and its kind make of them.
        return np.asarray((steps * np.float32(source.scale)).astype(np.float64))
