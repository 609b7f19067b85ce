"""One Relax call as the plain NPU operator it stands for, or the reason why there is none.

A Relax tensor of any rank is an image of height x width x channels: the last axis is the
channels, the one before it the width, and all others fold into the height, so that
(1, h, w, c) -> h x w x c, (n, c) -> 1 x n x c and (1, c) -> 1 x 1 x c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.constants import RESHAPES, array_of, dtype_of, op_name, shape_of
from tilewright.targets.operators import (
    Conv2d,
    Elementwise,
    Lookup,
    MatMul,
    Operator,
    Pad2d,
    Pool2d,
    Tensor,
)

# What an NPU region expresses by addresses alone, where its DMA can (passes/npu_views.py).
VIEWS = (*RESHAPES, "relax.permute_dims", "relax.strided_slice", "relax.concat")
NPU_DTYPES = ("int8", "uint8")


@dataclass
class NotOnNpuError(Exception):
    """Why a call has no NPU operator: a stable code and a sentence."""

    code: str
    text: str


@dataclass(frozen=True)
class Site:
    """Where an operator stands: its name, the user's names, and the images it touches."""

    name: str
    onnx_nodes: tuple[str, ...]
    image: Callable[[relax.Expr], Tensor]
    output: Tensor


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Height, width and channels of a tensor of any rank."""
    padded = (1,) * max(0, 3 - len(shape)) + tuple(shape)
    return prod(padded[:-2]), padded[-2], padded[-1]


def dense_image(name: str, expr: relax.Expr) -> Tensor:
    """A tensor that owns its buffer and lies densely in it."""
    height, width, channels = image_shape(shape_of(expr))
    dtype = dtype_of(expr)
    if dtype not in NPU_DTYPES:
        raise NotOnNpuError("dtype", f"gives {dtype}; the NPU computes in int8")
    return Tensor(name, height, width, channels, dtype, buffer=name)  # type: ignore[arg-type]


def tensors_of(call: relax.Call) -> list[relax.Expr]:
    """The tensors among a call's arguments, those in tuples included, constants left out."""
    arguments = [
        field
        for argument in call.args
        for field in (argument.fields if isinstance(argument, relax.Tuple) else [argument])
    ]
    return [a for a in arguments if isinstance(a.ty, relax.TensorType) and array_of(a) is None]


def constant(expr: relax.Expr) -> NDArray[Any]:
    """The array behind a Relax constant; NotOnNpuError when it is computed at run time."""
    array = array_of(expr)
    if array is None:
        raise NotOnNpuError("runtime-parameter", "its weights or tables are computed at run time")
    return array


def images_of(tensor: Tensor, batch: int) -> list[Tensor]:
    """The images of a batch folded into the height, as one view each."""
    if batch == 1:
        return [tensor]
    rows = tensor.height // batch
    return [
        replace(
            tensor,
            name=f"{tensor.name}[{index}]",
            height=rows,
            offset=tensor.offset + index * rows * tensor.pitch_y,
            row_pitch=tensor.pitch_y,
            pixel_pitch=tensor.pitch_x,
        )
        for index in range(batch)
    ]


def _ints(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _output_arithmetic(attrs: Any) -> dict[str, Any]:
    return {
        "output_scale": float(attrs["output_scale"]),
        "output_zero": int(attrs["output_zero"]),
        **_clip(attrs),
    }


def _clip(attrs: Any) -> dict[str, Any]:
    return {"clip_low": int(attrs["clip_low"]), "clip_high": int(attrs["clip_high"])}


def _per_image(
    site: Site, batch: int, *arguments: relax.Expr
) -> Iterator[tuple[str, Tensor, tuple[Tensor, ...]]]:
    """Name, output and inputs of the operator that does each image of a batch."""
    outputs = images_of(site.output, batch)
    inputs = zip(*(images_of(site.image(a), batch) for a in arguments), strict=True)
    for index, (output, images) in enumerate(zip(outputs, inputs, strict=True)):
        yield (site.name if batch == 1 else f"{site.name}[{index}]"), output, images


def _strides(call: relax.Call) -> tuple[int, int]:
    """Row and column stride; 1 where there is one window only, which never moves."""
    rows, columns = shape_of(call)[1:3]
    down, right = _ints(call.attrs["strides"])
    return (1 if rows == 1 else down), (1 if columns == 1 else right)


def _require_nhwc(call: relax.Call) -> None:
    if call.attrs["data_layout"] != "NHWC":
        raise NotOnNpuError("layout", "is laid out NCHW; the NPU reads NHWC")


def _conv2d(call: relax.Call, site: Site) -> list[Operator]:
    _require_nhwc(call)
    attrs = call.attrs
    if attrs["kernel_layout"] != "HWIO":
        raise NotOnNpuError("layout", f"has {attrs['kernel_layout']} weights; the NPU reads HWIO")
    batch = shape_of(call.args[0])[0]
    return [
        Conv2d(
            name,
            site.onnx_nodes,
            output,
            input=image,
            weight=constant(call.args[1]),
            weight_zero=int(attrs["weight_zero"]),
            bias=constant(call.args[2]),
            multiplier=constant(call.args[3]),
            requantize=str(attrs["requantize"]),  # type: ignore[arg-type]
            input_zero=int(attrs["input_zero"]),
            strides=_strides(call),
            dilations=_ints(attrs["dilation"]),  # type: ignore[arg-type]
            pads=_ints(attrs["padding"]),  # type: ignore[arg-type]
            groups=int(attrs["groups"]),
            **_output_arithmetic(attrs),
        )
        for name, output, (image,) in _per_image(site, batch, call.args[0])
    ]


def _dense(call: relax.Call, site: Site) -> list[Operator]:
    attrs = call.attrs
    weight = constant(call.args[1])
    return [
        Conv2d(
            site.name,
            site.onnx_nodes,
            site.output,
            input=site.image(call.args[0]),
            weight=weight[None, None],
            weight_zero=int(attrs["weight_zero"]),
            bias=constant(call.args[2]),
            multiplier=constant(call.args[3]),
            requantize=str(attrs["requantize"]),  # type: ignore[arg-type]
            input_zero=int(attrs["input_zero"]),
            **_output_arithmetic(attrs),
        )
    ]


def _matmul(call: relax.Call, site: Site) -> list[Operator]:
    a, b = shape_of(call.args[0]), shape_of(call.args[1])
    batch = prod(a[:-2])
    if a[:-2] != b[:-2]:
        raise NotOnNpuError("broadcast", "broadcasts one matrix over a batch")
    attrs = call.attrs
    if str(attrs["requantize"]) != "two_step":
        raise NotOnNpuError("arithmetic", "uses one premultiplied scale between run-time matrices")
    return [
        MatMul(
            name,
            site.onnx_nodes,
            output,
            a=left,
            b=right,
            a_zero=int(attrs["a_zero"]),
            b_zero=int(attrs["b_zero"]),
            multiplier=float(attrs["multiplier"]),
            **_output_arithmetic(attrs),
        )
        for name, output, (left, right) in _per_image(site, batch, *call.args)
    ]


def _elementwise(kind: str) -> Callable[[relax.Call, Site], list[Operator]]:
    def build(call: relax.Call, site: Site) -> list[Operator]:
        if any(array_of(argument) is not None for argument in call.args):
            raise NotOnNpuError("constant-operand", "has a constant operand")
        a, b = site.image(call.args[0]), site.image(call.args[1])
        swapped = a.elements < b.elements
        if swapped and kind == "sub":
            raise NotOnNpuError("broadcast", "subtracts a larger tensor from a broadcast one")
        first, second = ("b", "a") if swapped else ("a", "b")
        if swapped:
            a, b = b, a
        same = (a.height, a.width, a.channels) == (b.height, b.width, b.channels)
        if not same and (b.height, b.width, b.channels) != (1, 1, a.channels):
            raise NotOnNpuError(
                "broadcast",
                f"broadcasts {b.height}x{b.width}x{b.channels} over "
                f"{a.height}x{a.width}x{a.channels}; the NPU broadcasts single pixels",
            )
        attrs = call.attrs
        return [
            Elementwise(
                site.name,
                site.onnx_nodes,
                site.output,
                kind=kind,  # type: ignore[arg-type]
                a=a,
                b=b,
                a_scale=float(attrs[f"{first}_scale"]),
                a_zero=int(attrs[f"{first}_zero"]),
                b_scale=float(attrs[f"{second}_scale"]),
                b_zero=int(attrs[f"{second}_zero"]),
                **_output_arithmetic(attrs),
            )
        ]

    return build


def _lookup(call: relax.Call, site: Site) -> list[Operator]:
    table = constant(call.args[1]).view(np.uint8)
    source = site.image(call.args[0])
    return [Lookup(site.name, site.onnx_nodes, site.output, input=source, table=table)]


def _pool(kind: str) -> Callable[[relax.Call, Site], list[Operator]]:
    def build(call: relax.Call, site: Site) -> list[Operator]:
        _require_nhwc(call)
        attrs = call.attrs
        batch = shape_of(call.args[0])[0]
        scales: dict[str, Any] = _clip(attrs)
        if kind == "average":
            scales |= {
                "count_include_pad": bool(attrs["count_include_pad"]),
                "input_scale": float(attrs["input_scale"]),
                "input_zero": int(attrs["input_zero"]),
                "output_scale": float(attrs["output_scale"]),
                "output_zero": int(attrs["output_zero"]),
            }
        return [
            Pool2d(
                name,
                site.onnx_nodes,
                output,
                kind=kind,  # type: ignore[arg-type]
                input=image,
                kernel=_ints(attrs["kernel"]),  # type: ignore[arg-type]
                strides=_strides(call),
                pads=_ints(attrs["padding"]),  # type: ignore[arg-type]
                **scales,
            )
            for name, output, (image,) in _per_image(site, batch, call.args[0])
        ]

    return build


def _pad(call: relax.Call, site: Site) -> list[Operator]:
    shape = shape_of(call.args[0])
    if str(call.attrs.pad_mode) != "constant":
        raise NotOnNpuError("pad-mode", f"pads by {call.attrs.pad_mode}; the NPU pads a constant")
    widths = _ints(call.attrs.pad_width)
    if len(shape) != 4 or shape[0] != 1 or any(widths[:2]):
        raise NotOnNpuError("pad-axes", "pads a batch, or a tensor that is not an image")
    if min(widths) < 0:
        raise NotOnNpuError("pad-negative", "crops by negative padding")
    top, bottom, left, right, first, last = widths[2:]
    return [
        Pad2d(
            site.name,
            site.onnx_nodes,
            site.output,
            input=site.image(call.args[0]),
            pads=(top, left, bottom, right),
            channel_pads=(first, last),
            value=int(call.attrs.pad_value),
        )
    ]


BUILDERS: dict[str, Callable[[relax.Call, Site], list[Operator]]] = {
    "tilewright.conv2d": _conv2d,
    "tilewright.dense": _dense,
    "tilewright.matmul": _matmul,
    "tilewright.add": _elementwise("add"),
    "tilewright.subtract": _elementwise("sub"),
    "tilewright.multiply": _elementwise("mul"),
    "tilewright.lookup": _lookup,
    "tilewright.max_pool2d": _pool("max"),
    "tilewright.avg_pool2d": _pool("average"),
    "relax.nn.pad": _pad,
}


def operators_of(call: relax.Call, site: Site) -> list[Operator]:
    """The NPU operators that compute `call`, one an image; NotOnNpuError says why not."""
    name = op_name(call)
    if name not in BUILDERS:
        if any(dtype_of(argument) not in NPU_DTYPES for argument in tensors_of(call)):
            raise NotOnNpuError("dtype", "reads real numbers; the NPU computes in int8")
        if name in VIEWS:
            raise NotOnNpuError("no-view", "gives a view that the NPU's DMA cannot address")
        raise NotOnNpuError("unknown-operator", f"the NPU has no {name.split('.')[-1]}")
    return BUILDERS[name](call, site)
