"""A partitioned Relax function as a Region: plain operators over tensors that are views of buffers.

Reshape, slice and concat move nothing where a view can stand for them: a slice is its source with
an offset, a concat's parts are written where the whole lies. Where none can, one Copy is made,
and it says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from tvm import relax

from tilewright.passes.constants import op_name, shape_of
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.npu_operators import (
    Site,
    constant,
    dense_image,
    image_shape,
    operators_of,
)
from tilewright.passes.npu_views import RESHAPES, Slice, concat_axis, slice_of
from tilewright.targets.operators import Conv2d, Copy, Operator, Region, Tensor

# What can be computed where it is asked for, because its sources can.
PLACEABLE = (*RESHAPES, "relax.permute_dims", "relax.concat")


@dataclass(frozen=True)
class MadeCopy:
    """A copy that no view could stand for: its bytes, why it was made and who needs it."""

    name: str
    bytes: int
    cause: str
    consumer: str


@dataclass
class RegionLowering:
    """Builds one Region; `copies` says what had to be moved and why."""

    function: relax.Function
    name: str
    operators: list[Operator] = field(default_factory=list)
    copies: list[MadeCopy] = field(default_factory=list)
    _tensors: dict[relax.Var, Tensor] = field(default_factory=dict)
    _composites: dict[relax.Var, relax.Function] = field(default_factory=dict)
    _buffer_bytes: dict[str, int] = field(default_factory=dict)
    _placed: dict[relax.Var, Tensor] = field(default_factory=dict)

    def lower(self) -> Region:
        """The Region; its inputs and outputs are named after parameters and results in order."""
        inputs = tuple(self._own_buffer(f"in{i}", p) for i, p in enumerate(self.function.params))
        bindings = [b for block in self.function.body.blocks for b in block.bindings]
        results = _results(self.function)
        outputs = tuple(f"out{i}" for i in range(len(results)))
        for index, result in enumerate(results):
            self._reserve(outputs[index], result)
        self._place_backwards(bindings)
        for binding in bindings:
            self._lower_binding(binding.var, binding.value)
        for index, result in enumerate(results):
            self._deliver(outputs[index], result)
        return Region(self.name, tuple(self.operators), inputs, outputs, self._buffer_bytes)

    def _own_buffer(self, buffer: str, var: relax.Var) -> str:
        image = replace(dense_image(buffer, var), name=buffer)
        self._tensors[var] = image
        self._buffer_bytes[buffer] = image.elements
        return buffer

    def _reserve(self, buffer: str, result: relax.Var) -> None:
        """Let `result` be computed straight into the region's output buffer."""
        image = dense_image(buffer, result)
        self._buffer_bytes[buffer] = image.elements
        self._placed.setdefault(result, image)

    def _place_backwards(self, bindings: list[relax.Binding]) -> None:
        """Let what is joined or renamed later be computed where it will lie, last use first."""
        computed = {
            b.var
            for b in bindings
            if isinstance(b.value, relax.Call)
            and (isinstance(b.value.op, relax.Var) or op_name(b.value) in PLACEABLE)
        }
        for binding in reversed(bindings):
            for source, place in self._places_of_sources(binding.var, binding.value):
                if source in computed and source not in self._placed:
                    self._placed[source] = place

    def _places_of_sources(
        self, var: relax.Var, value: relax.Expr
    ) -> list[tuple[relax.Var, Tensor]]:
        """Where the sources of a concat or reshape would have to lie to need no copy."""
        if op_name(value) == "relax.concat":
            return _concat_parts(value, self._place_of(var))
        if op_name(value) not in PLACEABLE or var not in self._placed:
            return []
        place = self._placed[var]
        if not _is_dense(place):
            return []
        image = dense_image(place.buffer, value.args[0])
        return [(value.args[0], replace(image, offset=place.offset))]

    def _place_of(self, var: relax.Var) -> Tensor:
        """Where `var` is to be computed: its reserved place, or a buffer of its own."""
        if var not in self._placed:
            name = f"t{len(self._buffer_bytes)}"
            self._placed[var] = dense_image(name, var)
            self._buffer_bytes[name] = self._placed[var].elements
        return self._placed[var]

    def _lower_binding(self, var: relax.Var, value: relax.Expr) -> None:
        if isinstance(value, relax.Function):
            self._composites[var] = value
        elif isinstance(value, relax.Var):
            self._tensors[var] = self._tensors[value]
        elif isinstance(value, relax.Call) and value.op in self._composites:
            self._lower_composite(var, self._composites[value.op], list(value.args))
        else:
            self._lower_view(var, value)

    def _lower_composite(
        self, var: relax.Var, composite: relax.Function, arguments: list[relax.Expr]
    ) -> None:
        inner = dict(zip(composite.params, arguments, strict=True))
        calls = [b.value for block in composite.body.blocks for b in block.bindings]
        calls = [call for call in calls if isinstance(call, relax.Call)]
        nodes = tuple(dict.fromkeys(n for call in calls for n in onnx_nodes_of(call)))
        output = self._place_of(var)
        site = Site(self._unique(nodes), nodes, lambda e: self._tensors[inner[e]], output)
        operators = operators_of(calls[0], site)
        if len(calls) == 2:
            table = constant(calls[1].args[1]).view(np.uint8)
            operators = [replace(op, lookup=table) for op in operators if isinstance(op, Conv2d)]
        self.operators.extend(operators)
        self._tensors[var] = output

    def _unique(self, nodes: tuple[str, ...]) -> str:
        base = nodes[0] if nodes else "operator"
        taken = {operator.name for operator in self.operators}
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}#{count}"
        return name

    def _lower_view(self, var: relax.Var, call: relax.Call) -> None:
        name = op_name(call)
        if name == "relax.concat":
            self._lower_concat(var, call)
            return
        source = self._tensors[call.args[0]]
        window = slice_of(call)
        if window is not None:
            self._tensors[var] = _sliced(source, window)
            return
        if not _is_dense(source):
            source = self._copy(source, var, f"{name} needs its input dense", onnx_nodes_of(call))
        height, width, channels = image_shape(shape_of(var))
        self._tensors[var] = Tensor(
            source.name, height, width, channels, source.dtype, source.buffer, source.offset
        )

    def _lower_concat(self, var: relax.Var, call: relax.Call) -> None:
        whole = self._place_of(var)
        for part, place in _concat_parts(call, whole):
            have = self._tensors[part]
            if (have.buffer, have.offset) != (place.buffer, place.offset):
                self._emit_copy(have, place, "a part of a concat lies elsewhere", call)
        self._tensors[var] = whole

    def _copy(self, source: Tensor, var: relax.Var, cause: str, nodes: tuple[str, ...]) -> Tensor:
        name = f"t{len(self._buffer_bytes)}"
        self._buffer_bytes[name] = source.elements
        dense = replace(source, name=name, buffer=name, offset=0, row_pitch=0, pixel_pitch=0)
        self._record_copy(source, dense, cause, nodes)
        return dense

    def _emit_copy(self, source: Tensor, place: Tensor, cause: str, call: relax.Call) -> None:
        self._record_copy(source, place, cause, onnx_nodes_of(call))

    def _record_copy(
        self, source: Tensor, place: Tensor, cause: str, nodes: tuple[str, ...]
    ) -> None:
        name = self._unique(tuple(f"{node}/copy" for node in nodes))
        self.operators.append(Copy(name, nodes, place, input=source))
        self.copies.append(MadeCopy(name, source.elements, cause, nodes[0] if nodes else name))

    def _deliver(self, buffer: str, result: relax.Var) -> None:
        """Copy a result that could not be computed in the output buffer into it."""
        have = self._tensors[result]
        want = dense_image(buffer, result)
        if (have.buffer, have.offset, have.pitch_y) == (want.buffer, want.offset, want.pitch_y):
            return
        image = replace(want, height=have.height, width=have.width, channels=have.channels)
        self._record_copy(have, image, "the region hands it over dense", (result.name,))


def _results(function: relax.Function) -> list[relax.Var]:
    body = function.body.body
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]


def _concat_parts(call: relax.Call, whole: Tensor) -> list[tuple[relax.Var, Tensor]]:
    """Each part of a concat with its view of the whole."""
    parts = list(call.args[0].fields)
    axis = concat_axis(call)
    assert axis is not None
    views, start = [], 0
    for part in parts:
        height, width, channels = image_shape(shape_of(part))
        pitch, extent = {
            "height": (whole.pitch_y, height),
            "width": (whole.pitch_x, width),
            "channels": (1, channels),
        }[axis]
        view = replace(
            whole,
            name=f"{whole.name}+{start}",
            height=height,
            width=width,
            channels=channels,
            offset=whole.offset + start * pitch,
            row_pitch=whole.pitch_y,
            pixel_pitch=whole.pitch_x,
        )
        views.append((part, view))
        start += extent
    return views


def _sliced(source: Tensor, window: Slice) -> Tensor:
    height, width, channels = window.extents
    top, left, first = window.begins
    step_y, step_x = window.steps
    return replace(
        source,
        name=f"{source.name}[{top},{left},{first}]",
        height=height,
        width=width,
        channels=channels,
        offset=source.offset + top * source.pitch_y + left * source.pitch_x + first,
        row_pitch=source.pitch_y * step_y,
        pixel_pitch=source.pitch_x * step_x,
    )


def _is_dense(tensor: Tensor) -> bool:
    dense = (tensor.channels, tensor.width * tensor.channels)
    return prod((tensor.height, tensor.width)) == 1 or (tensor.pitch_x, tensor.pitch_y) == dense
