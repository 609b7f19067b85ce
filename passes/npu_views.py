"""Operators that only say where data lies, in the terms of an image: height, width, channels.

An NPU's DMA addresses rows and pixels with any pitch but channels only side by side, so a slice
may skip rows and pixels and take any run of channels. Reshape and the like need dense data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import relax

from tilewright.passes.constants import dtype_of, shape_of
from tilewright.passes.npu_operators import tensors_of

RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")


@dataclass(frozen=True)
class Slice:
    """Where a slice begins, how many rows, columns, channels it has, and its row, column steps."""

    begins: tuple[int, int, int]
    extents: tuple[int, int, int]
    steps: tuple[int, int]


def is_view(value: relax.Expr, channels_multiple: int = 1) -> bool:
    """Whether an NPU region can express `value` without computing anything.

    `channels_multiple`: the NPU moves whole groups of so many channels.
    """
    if not isinstance(value, relax.Call) or not hasattr(value.op, "name"):
        return False
    if not isinstance(value.ty, relax.TensorType) or dtype_of(value) not in ("int8", "uint8"):
        return False
    if any(
        shape_of(tensor)[-1:] and shape_of(tensor)[-1] % channels_multiple
        for tensor in (*tensors_of(value), value)
    ):
        return False
    name = value.op.name
    if name == "relax.concat":
        parts = value.args[0]
        return (
            isinstance(parts, relax.Tuple)
            and all(isinstance(part, relax.Var) for part in parts.fields)
            and concat_axis(value) is not None
        )
    if not isinstance(value.args[0], relax.Var):
        return False
    if name == "relax.permute_dims":
        return is_reshape_in_disguise(value)
    window = slice_of(value)
    aligned = window is not None and window.begins[2] % channels_multiple == 0
    return name in RESHAPES or aligned


def is_reshape_in_disguise(call: relax.Call) -> bool:
    """Whether a permute moves only axes of extent one, so that no byte changes its place."""
    shape = shape_of(call.args[0])
    axes = call.attrs.axes
    order = reversed(range(len(shape))) if axes is None else [int(axis) for axis in axes]
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def concat_axis(call: relax.Call) -> str | None:
    """Which image axis a concat joins; None when it joins one that folds into the height."""
    shape = shape_of(call)
    axis = int(call.attrs.axis) % len(shape)
    from_the_right = len(shape) - axis
    if from_the_right <= 2:
        return ("channels", "width")[from_the_right - 1]
    return "height" if prod(shape[:axis]) == 1 else None


def slice_of(call: relax.Call) -> Slice | None:
    """A strided slice as a window on an image; None when it is no such window."""
    if call.op.name != "relax.strided_slice":
        return None
    shape = shape_of(call.args[0])
    starts, steps = [0] * len(shape), [1] * len(shape)
    axes, begins, _ends, *rest = ([int(v) for v in part.fields] for part in call.args[1:])
    for position, axis in enumerate(axes):
        extent = shape[axis]
        steps[axis] = rest[0][position] if rest else 1
        begin = begins[position]
        starts[axis] = min(max(begin + extent if begin < 0 else begin, 0), extent)
    return _window(shape, shape_of(call), starts, steps)


def _window(
    shape: tuple[int, ...], result: tuple[int, ...], starts: list[int], steps: list[int]
) -> Slice | None:
    pad = (0,) * max(0, 3 - len(shape))
    extents = (*(1 for _ in pad), *result)
    starts, steps = [*pad, *starts], [*(1 for _ in pad), *steps]
    whole = (*(1 for _ in pad), *shape)
    folded = range(len(whole) - 3)  # axes left of the height
    if any(extents[axis] != whole[axis] or steps[axis] != 1 for axis in folded):
        return None
    if prod(whole[: len(whole) - 3]) != 1 and extents[-3] != whole[-3]:
        return None
    if min(steps) < 1 or steps[-1] != 1 or min(extents) < 1:
        return None
    height = prod(extents[:-2])
    return Slice(
        (starts[-3], starts[-2], starts[-1]),
        (height, extents[-2], extents[-1]),
        (steps[-3], steps[-2]),
    )
