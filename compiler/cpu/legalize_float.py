"""Floating-point operators as kernels: those that have a template of their own."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from tilewright.compiler.cpu.legalize_transposed import legalize_transposed
from tilewright.compiler.cpu.operands import (
    ANCHOR,
    INJECTIVE,
    Legalize,
    call_kernel,
    image_operator,
    integers,
    layout_order,
    pack,
    permuted,
    product_shape,
    stock,
)
from tilewright.compiler.cpu.packed_convolution import Operand, pack_convolution
from tilewright.passes.constants import array_of, constant, dtype_of, shape_of
from tilewright.schedules.cpu.computations import (
    Window,
    depthwise,
    matrix_product,
    product,
)
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.terms import Expr


def float_legalizations(cpu: CpuFacts) -> dict[str, Legalize]:
    """For LegalizeOps: one function an operator that TVM's own legalisation serves badly."""
    return {
        "relax.nn.conv2d": lambda builder, call: _convolution(builder, call, cpu),
        "relax.matmul": lambda builder, call: _matmul(builder, call, cpu),
        "relax.nn.conv2d_transpose": legalize_transposed(cpu),
        "relax.take": _take,
    }


def _convolution(builder: relax.BlockBuilder, call: relax.Call, cpu: CpuFacts) -> relax.Expr:
    attributes = call.attrs
    weight = permuted(
        builder, call.args[1], layout_order(str(attributes.kernel_layout), "HWIO"), call
    )
    kernel = shape_of(weight)
    window = Window(
        (kernel[0], kernel[1]),
        integers(attributes.strides),  # type: ignore[arg-type]
        integers(attributes.dilation),  # type: ignore[arg-type]
        integers(attributes.padding),  # type: ignore[arg-type]
    )
    groups = int(attributes.groups)

    def compute(x: relax.Expr) -> relax.Expr:
        if groups > 1 and groups == shape_of(x)[3]:
            return _depthwise_call(builder, call, x, weight, window)
        return _convolution_call(builder, call, x, weight, window, cpu)

    return image_operator(builder, str(attributes.data_layout), call, compute)


def _convolution_call(
    builder: relax.BlockBuilder,
    call: relax.Call,
    x: relax.Expr,
    weight: relax.Expr,
    window: Window,
    cpu: CpuFacts,
) -> relax.Expr:
    """The image with its border, where it has one, then the product."""
    dtype = dtype_of(call)
    groups = int(call.attrs.groups)
    product = pack_convolution(
        builder, call, (x, weight), window, groups, Operand(dtype, dtype), cpu
    )
    inputs = [product.image, product.packed]
    return call_kernel(builder, product.accumulate, inputs, "conv2d", ANCHOR)


def _depthwise_call(
    builder: relax.BlockBuilder,
    call: relax.Call,
    x: relax.Expr,
    weight: relax.Expr,
    window: Window,
) -> relax.Expr:
    dtype = dtype_of(call)
    array = array_of(weight)
    kernel = shape_of(weight)
    if array is not None:
        weight = constant(array.reshape(kernel[0], kernel[1], -1))

    def compute(image: te.Tensor, w: te.Tensor) -> te.Tensor:
        if array is None:
            w = te.compute(
                (kernel[0], kernel[1], kernel[3]), lambda i, j, c: w[i, j, 0, c], name="taps"
            )
        return depthwise(image, w, window, lambda value: value, lambda value: value, dtype)

    return call_kernel(builder, compute, [x, weight], "depthwise", ANCHOR)


def _matmul(builder: relax.BlockBuilder, call: relax.Call, cpu: CpuFacts) -> relax.Expr:
    a, b = call.args
    dtype = dtype_of(call)
    if len(shape_of(b)) == 2 and len(shape_of(a)) >= 2 and array_of(b) is not None:
        packed, packing = pack(b, product_shape(a, b, np.dtype(dtype).itemsize), 1, cpu)

        def dense(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return product(x, w, packing, dtype)

        return call_kernel(builder, dense, [a, packed], "dense", ANCHOR)
    if len(shape_of(a)) < 2 or len(shape_of(b)) < 2:
        return stock("relax.matmul")(builder, call)

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return matrix_product(
            x, y, lambda value: value.astype(dtype), lambda value: value.astype(dtype)
        )

    return call_kernel(builder, compute, [a, b], "matmul", ANCHOR)


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A negative index counts from the end; one outside is held at the edge.

    No index may read another tensor's memory.
    """
    shape = shape_of(call.args[0])
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(shape)
    rank = len(shape_of(call.args[1]))
    extent = shape[axis]

    def compute(x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(*at: Expr) -> Expr:
            index = indices[at[axis : axis + rank]] if rank else indices()
            index = tirx.Select(index < 0, index + extent, index)
            held = tirx.max(tirx.min(index, extent - 1), 0)
            return x[(*at[:axis], held, *at[axis + rank :])]

        return te.compute(shape_of(call), element, name="take")

    return call_kernel(builder, compute, list(call.args), "take", INJECTIVE)
