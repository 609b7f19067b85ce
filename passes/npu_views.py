"""Which views an NPU region may hold: those that its DMA can address as images.

Rows and pixels may lie at any pitch, channels side by side, so a slice may skip rows and pixels
and take any run of channels. `views.plan_views` says which of them then need a copy after all.
"""

from __future__ import annotations

from math import prod

from tvm import relax

from tilewright.passes.constants import RESHAPES, dtype_of, op_name, shape_of
from tilewright.passes.npu_operators import NPU_DTYPES, tensors_of
from tilewright.passes.views import window_of


def may_be_in_region(value: relax.Expr, channels_multiple: int = 1) -> bool:
    """Whether an NPU region can express `value` by addresses, copies at most.

    `channels_multiple`: the NPU moves whole groups of so many channels.
    """
    name = op_name(value)
    if not name or not isinstance(value.ty, relax.TensorType):
        return False
    tensors = [*tensors_of(value), value]
    if any(dtype_of(tensor) not in NPU_DTYPES for tensor in tensors):
        return False
    if any(
        shape_of(tensor)[-1:] and shape_of(tensor)[-1] % channels_multiple for tensor in tensors
    ):
        return False
    if name == "relax.concat":
        return len(tensors) - 1 == len(value.args[0].fields) and _joins_images(value)
    if not isinstance(value.args[0], relax.Var):
        return False
    if name == "relax.permute_dims":
        return is_reshape_in_disguise(value)
    return name in RESHAPES or _is_image_window(value, channels_multiple)


def is_reshape_in_disguise(call: relax.Call) -> bool:
    """Whether a permute moves only axes of extent one, so that no byte changes its place."""
    shape = shape_of(call.args[0])
    axes = call.attrs.axes
    order = reversed(range(len(shape))) if axes is None else [int(axis) for axis in axes]
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _joins_images(concat: relax.Call) -> bool:
    """Whether the parts are images of one pitch: axes left of the height must not be joined."""
    shape = shape_of(concat)
    axis = int(concat.attrs.axis) % len(shape)
    return len(shape) - axis <= 2 or prod(shape[:axis]) == 1


def _is_image_window(call: relax.Call, channels_multiple: int) -> bool:
    """A slice whose rows keep one pitch and whose channels lie side by side."""
    window = window_of(call)
    if window is None:
        return False
    begins, steps = window
    source, result = shape_of(call.args[0]), shape_of(call)
    if steps[-1:] not in ([], [1]) or min(result, default=1) < 1:
        return False
    if begins[-1:] and begins[-1] % channels_multiple:
        return False
    outer = range(len(source) - 3)
    folded = any(source[axis] != result[axis] or steps[axis] != 1 for axis in outer)
    whole_height = len(source) < 3 or (source[-3] == result[-3] and steps[-3] == 1)
    return not folded and (whole_height or prod(source[:-3]) == 1)
