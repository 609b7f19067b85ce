"""Which nests share a kernel: a reduction with its epilogue, or a run that shares its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

import tvm
import tvm_ffi
from tvm import tirx

from tilewright.schedules.cpu.nests import Axis, Nest, Opaque, loads, read
from tilewright.schedules.cpu.row_program import local_shape

AnyNest = Nest | Opaque
LOCAL_BYTES = 8192  # what a run may keep on the stack


def bits_of(buffer: tirx.Var) -> int:
    """Bits of one element."""
    return int(tvm.DataType(str(buffer.dtype)).bits)


def contains(buffers: Iterable[tirx.Var], buffer: tirx.Var) -> bool:
    return any(buffer.same_as(other) for other in buffers)


def outputs_of(nest: AnyNest) -> tuple[tirx.Var, ...]:
    return (nest.output,) if isinstance(nest, Nest) else nest.outputs


def epilogue_of(
    nests: Sequence[AnyNest], position: int, parameters: Sequence[tirx.Var]
) -> Nest | None:
    """The next nest, where it is element-wise and alone reads the result of this one."""
    nest, following = nests[position], nests[position + 1 : position + 2]
    if not following or not isinstance(nest, Nest) or not isinstance(following[0], Nest):
        return None
    after = following[0]
    private = not contains(parameters, nest.output) and not any(
        contains(read(other.statement), nest.output) for other in nests[position + 2 :]
    )
    fits = private and not after.reduced and after.shape == nest.shape
    return after if fits and _reads_in_place(after, nest.output, len(after.spatial)) else None


def row_run(
    nests: Sequence[AnyNest], position: int, parameters: Sequence[tirx.Var]
) -> tuple[int, int]:
    """Length of the longest run from `position` that works row by row, and its leading axes.

    (0, 0) where the first nest needs no rows: it is no reduction along the last axis and none
    follows that uses it.
    """
    first = next(
        (one for one in nests[position:] if not isinstance(one, Nest) or one.reduced), None
    )
    if not isinstance(first, Nest) or (is_columnar(first) and first.spatial):
        scalar = isinstance(nests[position], Nest) and not _spatial(nests[position])
        return (1, 0) if scalar else (0, 0)
    leading = len(first.spatial)
    run: list[Nest] = []
    best = 0
    for nest in nests[position:]:
        if not isinstance(nest, Nest) or not _joins(nest, run, first, leading):
            break
        run.append(nest)
        rest = nests[position + len(run) :]
        if _is_closed(run, rest, parameters) and (len(run) == 1 or first in run):
            best = len(run)
    if best == 1 and nests[position] is not first:
        return 0, 0
    return best, leading


def _spatial(nest: AnyNest) -> tuple[Axis, ...]:
    return nest.spatial if isinstance(nest, Nest) else ()


def _joins(nest: Nest, run: Sequence[Nest], first: Nest, leading: int) -> bool:
    """Whether `nest` has the rows of the run and reads of it only what belongs to its own row."""
    kept = sum(_local_bytes(one, leading) for one in run)
    return (
        nest.shape[:leading] == first.shape[:leading]
        and kept <= LOCAL_BYTES
        and all(_reads_in_place(nest, one.output, leading) for one in run)
    )


def _is_closed(
    run: Sequence[Nest], rest: Sequence[AnyNest], parameters: Sequence[tirx.Var]
) -> bool:
    """Whether nothing outside needs what the run keeps in local buffers."""
    return not any(
        contains(parameters, nest.output)
        or any(contains(read(other.statement), nest.output) for other in rest)
        for nest in run[:-1]
    )


def _local_bytes(nest: Nest, leading: int) -> int:
    return prod(local_shape(nest, leading)) * ((bits_of(nest.output) + 7) // 8)


def _reads_in_place(nest: Nest, buffer: tirx.Var, axes: int) -> bool:
    """Whether each load of `buffer` in `nest` has the nest's own first `axes` as first indices."""
    return all(
        _is_at(index, axis)
        for load in loads(nest.value)
        if load.source.same_as(buffer)
        for index, axis in zip(list(load.indices)[:axes], nest.spatial[:axes], strict=True)
    )


def _is_at(index: tvm.ir.Expr, axis: Axis) -> bool:
    """Whether `index` is the axis itself; along an extent of one, TVM writes 0."""
    if axis.extent == 1 and isinstance(index, tirx.IntImm):
        return int(index.value) == 0
    return bool(index.same_as(axis.variable))


def is_columnar(nest: Nest) -> bool:
    """Whether neighbours along the last spatial axis, not along a reduced one, lie together."""
    if not nest.reduced or int(nest.annotations.get("packed", 0)):
        return True
    if not nest.spatial:
        return False
    ends = [
        list(load.indices)[-1]
        for load in loads(nest.value)
        if load.indices and not load.source.same_as(nest.output)
    ]
    reduced = [axis.variable for axis in nest.reduced]
    along_reduced = any(_uses(end, reduced) for end in ends)
    along_spatial = any(_uses(end, [nest.spatial[-1].variable]) for end in ends)
    return along_spatial or not along_reduced


def _uses(expr: tvm.ir.Expr, variables: Sequence[tirx.Var]) -> bool:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(expr, (tvm.ir.Var, found.append))
    return any(contains(variables, one) for one in found)


def flattened(nest: Nest) -> Nest:
    """An element-wise nest over equal shapes as one long axis: vectors then cross its rows."""
    in_place = not nest.reduced and all(
        all(isinstance(index, tirx.IntImm) for index in load.indices)
        or (
            tuple(int(extent) for extent in load.source.shape) == nest.shape
            and all(map(_is_at, load.indices, nest.spatial))
        )
        for load in loads(nest.value)
    )
    if not in_place or _depends_on_place(nest, nest.spatial):
        return nest
    return _with_extents(nest, [*[1] * (len(nest.spatial) - 1), prod(nest.shape)])


def with_flat_rows(nest: Nest, epilogue: Nest | None) -> tuple[Nest, Nest | None]:
    """Both with their row axes as one, where all rows follow each other evenly in every buffer.

    The rows' numbers then go into the last row axis, beyond its extent; the other indices are 0.
    """
    group = [nest, *([epilogue] if epilogue else [])]
    rows = len(nest.spatial) - 1
    even = rows > 1 and "outer_axes" not in nest.annotations
    even = even and int(nest.annotations.get("crosses", 1)) == 1
    if not even or not all(_has_even_rows(one, rows) for one in group):
        return nest, epilogue
    total = prod(nest.shape[:-1])
    flat = [_with_extents(one, [*[1] * (rows - 1), total, one.shape[-1]]) for one in group]
    return flat[0], flat[1] if epilogue else None


def _has_even_rows(nest: Nest, rows: int) -> bool:
    """Whether each load reads a buffer of these rows in place, or depends on no row at all."""
    axes = nest.spatial[:rows]
    variables = [axis.variable for axis in axes]

    def is_even(load: tvm.ir.TensorLoad) -> bool:
        indices = list(load.indices)
        if not any(_uses(index, variables) for index in indices):
            return True
        shape = [int(extent) for extent in load.source.shape]
        return (
            shape[:rows] == [axis.extent for axis in axes]
            and all(map(_is_at, indices[:rows], axes))
            and not any(_uses(index, variables) for index in indices[rows:])
        )

    return all(is_even(load) for load in loads(nest.value)) and not _depends_on_place(nest, axes)


def _with_extents(nest: Nest, extents: Sequence[int]) -> Nest:
    axes = zip(nest.spatial, extents, strict=True)
    return replace(nest, spatial=tuple(Axis(axis.variable, extent) for axis, extent in axes))


def _depends_on_place(nest: Nest, axes: Sequence[Axis]) -> bool:
    """Whether the value depends on `axes` other than through what it loads."""
    blind = tvm_ffi.structural_map(
        nest.value,
        (tvm.ir.TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))),
        order="post",
    )
    return _uses(blind, [axis.variable for axis in axes])
