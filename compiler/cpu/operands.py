"""What the legalisations share: reading operands, turning layouts, packing, emitting a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax, te, topi

from tilewright.passes.constants import array_of, constant, shape_of
from tilewright.passes.names import onnx_nodes_of, with_names
from tilewright.schedules.cpu.computations import Packing, RightSide, Unpacked
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.packing import pack_panels
from tilewright.schedules.cpu.pair_product import INTRINSICS
from tilewright.schedules.cpu.tile import ProductShape, choose_tile
from tilewright.targets.errors import ModelError

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
Array = NDArray[Any]

# TVM's classes of operators for fusion.
ELEMENTWISE, INJECTIVE, REDUCTION, ANCHOR = 0, 2, 3, 4


def integers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def stock(name: str) -> Legalize:
    """TVM's own legalisation of an operator; ModelError where it has none."""
    legalize = tvm.ir.Op.get(name).get_attr("FLegalize")
    if legalize is None:
        raise ModelError(f"{name}: the CPU has no kernel for this operator; rewrite the model")
    return legalize  # type: ignore[no-any-return]


def call_kernel(
    builder: relax.BlockBuilder,
    compute: Callable[..., te.Tensor],
    operands: Sequence[relax.Expr],
    name: str,
    pattern: int,
) -> relax.Expr:
    """A call of the PrimFunc that computes `compute(operands)`, with its class for fusion."""
    return builder.call_te(
        compute,
        *operands,
        primfunc_name_hint=name,
        primfunc_attrs={"op_pattern": pattern},
    )


def auxiliary(
    builder: relax.BlockBuilder, value: relax.Expr, served: relax.Call, what: str
) -> relax.Expr:
    """Bind a kernel that only serves the operator `served`; reports call it `<operator>/<what>`."""
    names = onnx_nodes_of(served)
    return builder.emit(with_names(value, [f"{names[0]}/{what}"] if names else []), what)


def permuted(
    builder: relax.BlockBuilder, value: relax.Expr, order: Sequence[int], served: relax.Call
) -> relax.Expr:
    """`value` with its axes in `order`: at once where it is a constant."""
    if list(order) == sorted(order):
        return value
    array = array_of(value)
    if array is not None:
        return constant(array.transpose(order))
    return auxiliary(builder, _transpose(builder, value, order), served, "permuted")


def _transpose(builder: relax.BlockBuilder, value: relax.Expr, order: Sequence[int]) -> relax.Expr:
    def compute(x: te.Tensor) -> te.Tensor:
        return topi.transpose(x, list(order))

    return call_kernel(builder, compute, [value], "transpose", INJECTIVE)


def layout_order(layout: str, wanted: str) -> list[int]:
    """The permutation that brings axes named `layout` into the order `wanted`."""
    return [layout.index(axis) for axis in wanted]


def product_shape(x: relax.Expr, weight: relax.Expr, itemsize: int) -> ProductShape:
    """x [..., K], of `itemsize` bytes an element, times weight [K, columns]."""
    depth, columns = shape_of(weight)
    return ProductShape(columns, depth, prod(shape_of(x)[:-1]), row_bytes=depth * itemsize)


def pack(
    weight: relax.Expr,
    shape: ProductShape,
    groups: int,
    cpu: CpuFacts,
    prepare: Callable[[Array], Array] = lambda values: values,
    wants_pairs: bool = False,
) -> tuple[relax.Expr, RightSide]:
    """`weight` [reduced..., K, columns] packed for the tile that suits `shape`.

    A constant is mapped by `prepare` and packed at compile time; what is computed at run time
    stays as it is. Pairs are used where they are wanted and the CPU multiplies them.
    """
    columns = shape_of(weight)[-1]
    array = array_of(weight)
    if array is None:
        return weight, Unpacked(columns, groups)
    tile = choose_tile(shape, cpu)
    pairs = wants_pairs and cpu.multiplies_pairs and tile.lanes in INTRINSICS
    packed = pack_panels(prepare(array), groups, tile, pairs)
    return constant(packed), Packing(tile, columns, groups, pairs)


def image_operator(
    builder: relax.BlockBuilder,
    layout: str,
    call: relax.Call,
    compute: Callable[[relax.Expr], relax.Expr],
) -> relax.Expr:
    """`compute` on the NHWC form of the call's first operand, its result back in `layout`."""
    result = compute(permuted(builder, call.args[0], layout_order(layout, "NHWC"), call))
    order = layout_order("NHWC", layout)
    if order == sorted(order):
        return result
    inner = builder.emit(with_names(result, onnx_nodes_of(call)))
    names = onnx_nodes_of(call)
    back = _transpose(builder, inner, order)
    return with_names(back, [f"{names[0]}/permuted"]) if names else back
