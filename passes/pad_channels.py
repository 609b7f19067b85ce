"""Pad channels to the whole groups that an NPU moves between DRAM and SRAM.

    conv2d(x, w, b, m)  ->  strided_slice(conv2d(pad(x), w', b', m'), channels of y)

for every quantised operator that the NPU takes once its channels are padded. Added weights are
the weight's zero point and added biases zero, so that what stands in added channels never
reaches a real one; a slice that meets a pad of the same width disappears with it, and tensors
stay padded from one operator to the next. What the NPU takes as it is, is left as it is: an NPU
whose DMA gathers single channels (`dram_channels_multiple = 1`) needs none of this.
Run it when layouts are final and before `fuse_npu_operators`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes import quantized_ops
from tilewright.passes.base import function_pass
from tilewright.passes.constants import array_of, constant, op_name, scalar_of, shape_of
from tilewright.passes.fuse_npu_operators import refusal
from tilewright.passes.names import beside, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter
from tilewright.targets.description import Npu
from tilewright.targets.groups import round_up

Array = NDArray[Any]


def pad_channels(npu: Npu) -> tvm.transform.Pass:
    """The pass for one NPU."""
    group = npu.layout.dram_channels_multiple

    def rewrite(function: relax.Function) -> relax.Function:
        rewriter = Rewriter(function)

        def pad(value: relax.Expr) -> relax.Expr | None:
            build = BUILDERS.get(op_name(value))
            channels = shape_of(value)[-1] if build else 0
            if build is None or refusal(npu, [value]) is None:
                return None
            padded = rewriter.typed(
                build(value, group, rewriter), beside(onnx_nodes_of(value), "padded")
            )
            if refusal(npu, [padded]) is not None:
                return None
            names = onnx_nodes_of(value)
            whole = rewriter.emit(with_names(padded, names), names)
            return with_names(_first_channels(whole, channels), beside(names, "channels"))

        return rewriter.run(pad)

    rewrite.__name__ = "pad_channels"
    return function_pass(rewrite)


def pad_weight(weight: Array, inputs: int, outputs: int, zero: int) -> Array:
    """HWIO (or [K, N]) weights with `zero` in the added input and output channels."""
    widths = [(0, 0)] * (weight.ndim - 2)
    widths += [(0, inputs - weight.shape[-2]), (0, outputs - weight.shape[-1])]
    return np.pad(weight, widths, constant_values=zero)


def _first_channels(padded: relax.Expr, channels: int) -> relax.Expr:
    axis = len(shape_of(padded)) - 1
    if shape_of(padded)[axis] == channels:
        return padded
    return relax.op.strided_slice(padded, [axis], [0], [channels])


def _padded(expr: relax.Expr, group: int, rewriter: Rewriter) -> relax.Expr:
    """`expr` with whole groups of channels; what a slice of it was taken from, where that fits."""
    shape = shape_of(expr)
    wanted = round_up(shape[-1], group)
    if wanted == shape[-1]:
        return expr
    definition = rewriter.definition(expr)
    if op_name(definition) == "relax.strided_slice":
        source = definition.args[0]
        if shape_of(source) == (*shape[:-1], wanted) and _starts_at_zero(definition):
            return source
    widths = [0] * (2 * len(shape) - 1) + [wanted - shape[-1]]
    return relax.op.nn.pad(expr, widths, pad_value=0)


def _starts_at_zero(slice_: relax.Call) -> bool:
    return all(scalar_of(begin) == 0 for begin in slice_.args[2].fields)


def _conv2d(call: relax.Call, group: int, rewriter: Rewriter) -> relax.Expr:
    weight = array_of(call.args[1])
    groups = int(call.attrs["groups"])
    channels = shape_of(call.args[0])[-1]
    if weight is None or groups not in (1, channels) or weight.shape[3] % groups:
        return call
    depthwise = groups > 1
    multiplier = weight.shape[3] // groups
    inputs = round_up(channels, group)
    outputs = inputs * multiplier if depthwise else round_up(weight.shape[3], group)
    taken = 1 if depthwise else inputs
    attributes = dict(call.attrs.items()) | ({"groups": inputs} if depthwise else {})
    return _product("conv2d", call, (taken, outputs), attributes, group, rewriter)


def _dense(call: relax.Call, group: int, rewriter: Rewriter) -> relax.Expr:
    inputs, outputs = (round_up(extent, group) for extent in shape_of(call.args[1]))
    return _product("dense", call, (inputs, outputs), dict(call.attrs.items()), group, rewriter)


def _product(
    op: str,
    call: relax.Call,
    extents: tuple[int, int],
    attributes: dict[str, Any],
    group: int,
    rewriter: Rewriter,
) -> relax.Expr:
    weight, bias, multiplier = (array_of(argument) for argument in call.args[1:])
    if weight is None or bias is None or multiplier is None:
        return call
    more = (0, extents[1] - bias.size)
    arguments = [
        _padded(call.args[0], group, rewriter),
        constant(pad_weight(weight, *extents, int(call.attrs["weight_zero"]))),
        constant(np.pad(bias, more)),
        constant(np.pad(multiplier, more, constant_values=1)),
    ]
    return quantized_ops.call(op, arguments, **attributes)


def _channelwise(call: relax.Call, group: int, rewriter: Rewriter) -> relax.Expr:
    """Element-wise, pooling and look-up: each channel on its own."""
    arguments = [
        argument if array_of(argument) is not None else _padded(argument, group, rewriter)
        for argument in call.args
    ]
    op = op_name(call).removeprefix("tilewright.")
    return quantized_ops.call(op, arguments, **dict(call.attrs.items()))


BUILDERS: dict[str, Callable[[relax.Call, int, Rewriter], relax.Expr]] = {
    "tilewright.conv2d": _conv2d,
    "tilewright.dense": _dense,
    "tilewright.add": _channelwise,
    "tilewright.subtract": _channelwise,
    "tilewright.multiply": _channelwise,
    "tilewright.lookup": _channelwise,
    "tilewright.max_pool2d": _channelwise,
    "tilewright.avg_pool2d": _channelwise,
}
