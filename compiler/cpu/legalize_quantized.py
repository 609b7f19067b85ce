"""`tilewright.*` operators as kernels, bit for bit what targets/operators.py states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import (
    ANCHOR,
    ELEMENTWISE,
    INJECTIVE,
    Legalize,
    auxiliary,
    call_kernel,
    image_operator,
    integers,
    layout_order,
    pack,
    permuted,
    product_shape,
)
from tilewright.compiler.cpu.packed_convolution import Operand, pack_convolution
from tilewright.passes.constants import array_of, constant, dtype_of, shape_of
from tilewright.passes.names import onnx_nodes_of
from tilewright.schedules.cpu.computations import (
    Window,
    depthwise,
    extents,
    matrix_product,
    pool,
    product,
)
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.requantize import (
    dequantize,
    float32,
    requantize,
    round_quotient,
    saturate,
)
from tilewright.schedules.cpu.terms import Expr
from tilewright.targets.errors import ModelError

LARGEST = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def quantized_legalizations(cpu: CpuFacts) -> dict[str, Legalize]:
    """For LegalizeOps: one function a `tilewright.*` operator."""
    return {
        "tilewright.conv2d": lambda builder, call: _convolution(builder, call, cpu),
        "tilewright.dense": lambda builder, call: _dense(builder, call, cpu),
        "tilewright.matmul": _matmul,
        "tilewright.add": _binary,
        "tilewright.subtract": _binary,
        "tilewright.multiply": _binary,
        "tilewright.lookup": _lookup,
        "tilewright.max_pool2d": _max_pool,
        "tilewright.avg_pool2d": _average_pool,
        "tilewright.softmax": _softmax,
    }


def _centred(zero: int, dtype: str) -> Any:
    """Maps a quantised value to value - zero in `dtype`."""
    return lambda value: value.astype(dtype) - tirx.const(zero, dtype)


def _centred_weight(call: relax.Call) -> relax.Expr:
    """The operator's constant weight less its zero point, in int16."""
    array = array_of(call.args[1])
    if array is None:
        raise ModelError(
            f"{' '.join(onnx_nodes_of(call)) or call.op.name}: its int8 weights are computed at "
            "run time, the CPU needs constants; fold them into the model"
        )
    return constant(array.astype(np.int16) - np.int16(int(call.attrs["weight_zero"])))


def _second_step(attributes: Any) -> float | None:
    two_step = str(attributes["requantize"]) == "two_step"
    return float(attributes["output_scale"]) if two_step else None


def _requantized(
    accumulators: te.Tensor, bias: te.Tensor, multiplier: te.Tensor, attributes: Any
) -> te.Tensor:
    scale = _second_step(attributes)

    def element(*at: Expr) -> Expr:
        total = accumulators[at] + bias[at[-1]]
        return requantize(total, multiplier[at[-1]], attributes, scale)

    return te.compute(accumulators.shape, element, name="requantized")


def _convolution(builder: relax.BlockBuilder, call: relax.Call, cpu: CpuFacts) -> relax.Expr:
    attributes = call.attrs
    order = layout_order(str(attributes["kernel_layout"]), "HWIO")
    weight = permuted(builder, _centred_weight(call), order, call)
    kernel = shape_of(weight)
    window = Window(
        (kernel[0], kernel[1]),
        integers(attributes["strides"]),  # type: ignore[arg-type]
        integers(attributes["dilation"]),  # type: ignore[arg-type]
        integers(attributes["padding"]),  # type: ignore[arg-type]
    )

    def compute(x: relax.Expr) -> relax.Expr:
        groups = int(attributes["groups"])
        operands = [x, weight, *call.args[2:]]
        if groups > 1 and groups == shape_of(x)[3]:
            return _depthwise_call(builder, operands, window, attributes)
        return _convolution_call(builder, call, operands, window, cpu)

    return image_operator(builder, str(attributes["data_layout"]), call, compute)


def _convolution_call(
    builder: relax.BlockBuilder,
    call: relax.Call,
    operands: Sequence[relax.Expr],
    window: Window,
    cpu: CpuFacts,
) -> relax.Expr:
    """Two kernels: the image widened to int16, centred and padded; then the product."""
    x, weight, bias, multiplier = operands
    attributes = call.attrs
    centred = Operand(
        "int16",
        "int32",
        image=_centred(int(attributes["input_zero"]), "int16"),
        changes_values=True,
    )
    groups = int(attributes["groups"])
    product = pack_convolution(builder, call, (x, weight), window, groups, centred, cpu)

    def compute(x: te.Tensor, w: te.Tensor, b: te.Tensor, m: te.Tensor) -> te.Tensor:
        return _requantized(product.accumulate(x, w), b, m, attributes)

    inputs = [product.image, product.packed, bias, multiplier]
    return call_kernel(builder, compute, inputs, "conv2d", ANCHOR)


def _depthwise_call(
    builder: relax.BlockBuilder, operands: Sequence[relax.Expr], window: Window, attributes: Any
) -> relax.Expr:
    x, weight, bias, multiplier = operands
    left = _centred(int(attributes["input_zero"]), "int32")
    array = array_of(weight)
    assert array is not None, "_centred_weight gives a constant"
    flat = constant(array.reshape(*array.shape[:2], -1))

    def compute(x: te.Tensor, w: te.Tensor, b: te.Tensor, m: te.Tensor) -> te.Tensor:
        sums = depthwise(x, w, window, left, lambda value: value.astype("int32"), "int32")
        return _requantized(sums, b, m, attributes)

    return call_kernel(builder, compute, [x, flat, bias, multiplier], "depthwise", ANCHOR)


def _dense(builder: relax.BlockBuilder, call: relax.Call, cpu: CpuFacts) -> relax.Expr:
    x, _weight, bias, multiplier = call.args
    attributes = call.attrs
    *leading, depth = shape_of(x)
    weight = _centred_weight(call)
    packed, packing = pack(weight, product_shape(x, weight, 2), 1, cpu, wants_pairs=True)
    padded = depth + (depth % 2 if packing.pairs else 0)
    centred = _centred(int(attributes["input_zero"]), "int16")

    def widen(x: te.Tensor) -> te.Tensor:
        def element(*at: Expr) -> Expr:
            if padded == depth:
                return centred(x[at])
            return tirx.if_then_else(at[-1] < depth, centred(x[at]), tirx.const(0, "int16"))

        return te.compute((*leading, padded), element, name="widened")

    widened = call_kernel(builder, widen, [x], "widen", INJECTIVE)
    wide = auxiliary(builder, widened, call, "widened")

    def compute(x: te.Tensor, w: te.Tensor, b: te.Tensor, m: te.Tensor) -> te.Tensor:
        return _requantized(product(x, w, packing, "int32"), b, m, attributes)

    return call_kernel(builder, compute, [wide, packed, bias, multiplier], "dense", ANCHOR)


def _matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attributes = call.attrs
    left = _centred(int(attributes["a_zero"]), "int32")
    right = _centred(int(attributes["b_zero"]), "int32")
    multiplier = float32(float(attributes["multiplier"]))
    scale = _second_step(attributes)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        sums = matrix_product(a, b, left, right)
        return te.compute(
            sums.shape,
            lambda *at: requantize(sums[at], multiplier, attributes, scale),
            name="requantized",
        )

    return call_kernel(builder, compute, list(call.args), "matmul", ANCHOR)


def _binary(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attributes = call.attrs
    kind = call.op.name.removeprefix("tilewright.")
    shape = shape_of(call)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def element(*at: Expr) -> Expr:
            one, other = (
                dequantize(
                    side[_broadcast(side, at)],
                    float(attributes[f"{name}_scale"]),
                    int(attributes[f"{name}_zero"]),
                )
                for name, side in (("a", a), ("b", b))
            )
            total = {"add": one + other, "subtract": one - other, "multiply": one * other}[kind]
            return _saturated(total / float32(float(attributes["output_scale"])), attributes)

        return te.compute(shape, element, name=kind)

    equal = all(shape_of(side) == shape for side in call.args)
    pattern = ELEMENTWISE if equal else INJECTIVE
    return call_kernel(builder, compute, list(call.args), kind, pattern)


def _broadcast(side: te.Tensor, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The place in `side`, of fewer axes or extents of 1, that numpy would broadcast to `at`."""
    shape = extents(side)
    own = at[len(at) - len(shape) :]
    return tuple(
        index if extent > 1 else tirx.const(0, str(index.ty.dtype))
        for index, extent in zip(own, shape, strict=True)
    )


def _saturated(value: Expr, attributes: Any) -> Expr:
    return saturate(
        value,
        int(attributes["output_zero"]),
        int(attributes["clip_low"]),
        int(attributes["clip_high"]),
        str(attributes["out_dtype"]),
    )


def _lookup(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def compute(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        return te.compute(
            x.shape,
            lambda *at: table[x[at].astype("uint8").astype("int32")],
            name="lookup",
        )

    return call_kernel(builder, compute, list(call.args), "lookup", ELEMENTWISE)


def _pool_window(attributes: Any) -> Window:
    return Window(
        kernel=integers(attributes["kernel"]),  # type: ignore[arg-type]
        strides=integers(attributes["strides"]),  # type: ignore[arg-type]
        pads=integers(attributes["padding"]),  # type: ignore[arg-type]
    )


def _max_pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attributes = call.attrs
    window, dtype = _pool_window(attributes), dtype_of(call)
    low, high = (tirx.const(int(attributes[f"clip_{end}"]), dtype) for end in ("low", "high"))

    def compute(x: te.Tensor) -> te.Tensor:
        largest = pool(x, window, "max", dtype, lambda value: value)
        return te.compute(
            largest.shape, lambda *at: tirx.max(tirx.min(largest[at], high), low), name="clipped"
        )

    return image_operator(
        builder,
        str(attributes["data_layout"]),
        call,
        lambda x: call_kernel(builder, compute, [x], "max_pool", ANCHOR),
    )


def _average_pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """sum * p / (count * q), p / q being the ratio of the scales, in integers."""
    attributes = call.attrs
    window, dtype = _pool_window(attributes), dtype_of(call)
    ratio = Fraction(float(np.float32(attributes["input_scale"]))) / Fraction(
        float(np.float32(attributes["output_scale"]))
    )
    taps = math.prod(window.kernel)
    largest = 2 * 255 * taps * ratio.numerator + 2 * taps * ratio.denominator
    kind = "int32" if largest <= LARGEST["int32"] else "int64"
    if largest > LARGEST[kind]:
        raise ModelError(
            f"average pool over {taps} taps: its scales differ by a factor of {float(ratio):.3g}, "
            "beyond exact arithmetic; requantise the model with closer scales"
        )
    zero = int(attributes["output_zero"])
    low, high = int(attributes["clip_low"]), int(attributes["clip_high"])

    def compute(x: te.Tensor) -> te.Tensor:
        centred = _centred(int(attributes["input_zero"]), "int32")
        sums = pool(x, window, "sum", "int32", centred)

        def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
            if bool(attributes["count_include_pad"]):
                count = tirx.const(taps, kind)
            else:
                count = _taps_inside(window, extents(x), h, w).astype(kind)
            quotient = round_quotient(
                sums[n, h, w, c].astype(kind) * tirx.const(ratio.numerator, kind),
                count * tirx.const(ratio.denominator, kind),
            )
            value = quotient + tirx.const(zero, kind)
            limited = tirx.max(tirx.min(value, tirx.const(high, kind)), tirx.const(low, kind))
            return limited.astype(dtype)

        return te.compute(sums.shape, element, name="averaged")

    return image_operator(
        builder,
        str(attributes["data_layout"]),
        call,
        lambda x: call_kernel(builder, compute, [x], "average_pool", ANCHOR),
    )


def _taps_inside(window: Window, shape: list[int], h: Expr, w: Expr) -> Expr:
    """How many taps of the window at (h, w) lie in the image; at least 1."""
    if not any(window.pads):
        return tirx.const(math.prod(window.kernel), "int32")
    counts = []
    for axis, at in enumerate((h, w)):
        begin = at * window.strides[axis] - window.pads[axis]
        end = tirx.min(begin + window.kernel[axis], shape[1 + axis])
        counts.append(tirx.max(end - tirx.max(begin, 0), 1))
    return counts[0] * counts[1]


def _softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """In float64: exp from a table of 256, indexed by the distance to the largest value.

    e[d] = exp(-input_scale * d), d = largest - q;  s = e summed in index order;
    y = rint((e[d] / s) / output_scale) + output_zero, saturated.
    """
    attributes = call.attrs
    shape = shape_of(call)
    axis = int(attributes["axis"]) % len(shape)
    input_scale = float(np.float32(attributes["input_scale"]))
    output_scale = tirx.const(float(np.float32(attributes["output_scale"])), "float64")
    table = np.array([math.exp(-input_scale * distance) for distance in range(256)])

    def compute(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        others = shape[:axis] + shape[axis + 1 :]
        k, j = (te.reduce_axis((0, shape[axis]), name) for name in ("k", "j"))

        def at_axis(at: Sequence[Expr], position: Expr) -> tuple[Expr, ...]:
            return (*at[:axis], position, *at[axis:])

        def without_axis(at: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*at[:axis], *at[axis + 1 :])

        largest = te.compute(
            others,
            lambda *at: te.max(x[at_axis(at, k)].astype("int32"), axis=k),
            name="largest",
        )
        sums = te.compute(
            others,
            lambda *at: te.sum(table[largest[at] - x[at_axis(at, j)].astype("int32")], axis=j),
            name="sums",
            attrs={"sequential": 1},
        )

        def element(*at: Expr) -> Expr:
            row = without_axis(at)
            share = table[largest[row] - x[at].astype("int32")] / sums[row]
            return _saturated(share / output_scale, attributes)

        return te.compute(shape, element, name="softmax")

    return call_kernel(builder, compute, [call.args[0], constant(table)], "softmax", ANCHOR)
