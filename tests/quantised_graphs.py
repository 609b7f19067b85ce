"""Small quantised Relax graphs for tests, NHWC, seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from tilewright.passes import quantized_ops
from tilewright.passes.names import with_names

Emit = Callable[[relax.Expr], relax.Var]


def conv(x: relax.Expr, channels: int, name: str, **changes: object) -> relax.Call:
    """A 3x3 convolution that keeps height and width."""
    rng = np.random.default_rng(len(name) + channels)
    inputs = int(x.ty.shape.values[3])
    weight = rng.integers(-128, 128, (3, 3, inputs, channels)).astype(np.int8)
    attributes = {
        "data_layout": "NHWC",
        "kernel_layout": "HWIO",
        "strides": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "input_zero": 3,
        "weight_zero": 0,
        "output_scale": 0.5,
        "output_zero": -4,
        "clip_low": -128,
        "clip_high": 127,
        "requantize": "two_step",
        "out_dtype": "int8",
    } | changes
    arguments = [
        x,
        relax.const(weight),
        relax.const(rng.integers(-1000, 1000, channels).astype(np.int32)),
        relax.const(rng.uniform(1e-4, 1e-2, channels).astype(np.float32)),
    ]
    return with_names(quantized_ops.call("conv2d", arguments, **attributes), [name])


def add(a: relax.Expr, b: relax.Expr, name: str) -> relax.Call:
    """A residual addition with three scales."""
    attributes = {
        "a_scale": 0.5, "a_zero": -4, "b_scale": 0.25, "b_zero": 1, "output_scale": 0.75,
        "output_zero": 2, "clip_low": -128, "clip_high": 127, "out_dtype": "int8",
    }  # fmt: skip
    return with_names(quantized_ops.call("add", [a, b], **attributes), [name])


def lookup(x: relax.Expr, name: str) -> relax.Call:
    """A table that reverses the byte order of values."""
    table = np.arange(256)[::-1].astype(np.uint8).view(np.int8)
    call = quantized_ops.call("lookup", [x, relax.const(table)], kind="reverse")
    return with_names(call, [name])


def dequantize(x: relax.Expr, name: str) -> relax.Call:
    """A real-valued step, which only the CPU can take."""
    scale, zero = relax.const(np.float32(0.5)), relax.const(np.int8(0))
    return with_names(relax.op.dequantize(x, scale, zero, axis=-1), [name])


def graph(
    shape: tuple[int, ...], body: Callable[[Emit, relax.Var], relax.Expr | list[relax.Expr]]
) -> tvm.IRModule:
    """A module whose main is `body` over an int8 input `x`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = body(builder.emit, x)
            several = isinstance(result, list)
            outputs = [builder.emit_output(r) for r in (result if several else [result])]
        builder.emit_func_output(relax.Tuple(outputs) if several else outputs[0])
    return builder.get()
