"""A partitioned Relax function as a Region: plain operators over tensors that are views of buffers.

Reshape, slice and concat move nothing where a view can stand for them (passes/views.py decides).
Where none can, one Copy is made, and it says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

import numpy as np
from tvm import relax

from tilewright.passes.constants import dtype_of, op_name, shape_of
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.npu_operators import Site, constant, operators_of
from tilewright.passes.rewriter import variables_in
from tilewright.passes.strides import Address, dense, sliced
from tilewright.passes.views import is_view, plan_views, viewed
from tilewright.targets.operators import Conv2d, Copy, Operator, Region, Tensor

HANDED_OVER = "the region hands it over dense"
JOINED = "a part of a concat lies elsewhere"


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
    _composites: dict[relax.Var, relax.Function] = field(default_factory=dict)
    _buffers: dict[relax.Var, str] = field(default_factory=dict)
    _buffer_bytes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._plan = plan_views(self.function, lambda _: True)

    def lower(self) -> Region:
        """The Region; its inputs and outputs are named after parameters and results in order."""
        inputs = [self._name_buffer(p, f"in{i}") for i, p in enumerate(self.function.params)]
        results = list(variables_in(self.function.body.body))
        outputs = [self._name_output(result, f"out{i}") for i, result in enumerate(results)]
        for block in self.function.body.blocks:
            for binding in block.bindings:
                self._lower_binding(binding.var, binding.value)
        for buffer, result in zip(outputs, results, strict=True):
            self._deliver(buffer, result)
        return Region(
            self.name, tuple(self.operators), tuple(inputs), tuple(outputs), self._buffer_bytes
        )

    def _name_buffer(self, base: relax.Var, name: str) -> str:
        self._buffers[base] = name
        self._buffer_bytes[name] = _own(base).bytes
        return name

    def _name_output(self, result: relax.Var, name: str) -> str:
        """Let `result` be computed straight into the output, where it owns its buffer alone."""
        base, address = self._plan.places[result].base, self._plan.places[result].address
        is_whole = address.offset == 0 and address.bytes == _own(base).bytes
        if is_whole and base not in self._buffers:
            return self._name_buffer(base, name)
        self._buffer_bytes[name] = _own(result).bytes
        return name

    def _tensor(self, var: relax.Var) -> Tensor:
        place = self._plan.places[var]
        return self._image(place.base, place.address, dtype_of(var))

    def _image(self, base: relax.Var, address: Address, dtype: str) -> Tensor:
        if base not in self._buffers:
            self._name_buffer(base, f"t{len(self._buffers)}")
        return image_at(self._buffers[base], address, dtype)

    def _lower_binding(self, var: relax.Var, value: relax.Expr) -> None:
        if isinstance(value, relax.Function):
            self._composites[var] = value
        elif op_name(value) == "relax.concat":
            self._lower_concat(var, value)
        elif is_view(value):
            self._lower_view(var, value)
        else:
            self._lower_composite(var, self._composites[value.op], list(value.args))

    def _lower_composite(
        self, var: relax.Var, composite: relax.Function, arguments: list[relax.Expr]
    ) -> None:
        inner = dict(zip(composite.params, arguments, strict=True))
        calls = [b.value for block in composite.body.blocks for b in block.bindings]
        calls = [call for call in calls if isinstance(call, relax.Call)]
        nodes = tuple(dict.fromkeys(n for call in calls for n in onnx_nodes_of(call)))
        site = Site(self._unique(nodes), nodes, lambda e: self._tensor(inner[e]), self._tensor(var))
        operators = operators_of(calls[0], site)
        if len(calls) == 2:
            table = constant(calls[1].args[1]).view(np.uint8)
            operators = [replace(op, lookup=table) for op in operators if isinstance(op, Conv2d)]
        self.operators.extend(operators)

    def _lower_view(self, var: relax.Var, call: relax.Call) -> None:
        """Nothing to do where the plan found a view; else its one copy."""
        if var not in self._plan.copies:
            return
        source = self._plan.places[call.args[0]]
        address = viewed(call, source.address)
        moved = source.address if address is None else address
        self._copy(
            self._image(source.base, moved, dtype_of(var)),
            self._image(var, dense(moved.shape, moved.itemsize), dtype_of(var)),
            self._plan.copies[var].cause,
            onnx_nodes_of(call),
        )

    def _lower_concat(self, var: relax.Var, call: relax.Call) -> None:
        whole = self._plan.places[var]
        axis = int(call.attrs.axis) % len(shape_of(var))
        begins = [0] * len(shape_of(var))
        for part in call.args[0].fields:
            address = sliced(whole.address, begins, shape_of(part), [1] * len(begins))
            begins[axis] += shape_of(part)[axis]
            place = self._image(whole.base, address, dtype_of(var))
            have = self._tensor(part)
            if (have.buffer, have.offset) != (place.buffer, place.offset):
                planned = self._plan.copies.get(part)
                cause = planned.cause if planned else JOINED
                self._copy(have, place, cause, onnx_nodes_of(call))

    def _deliver(self, buffer: str, result: relax.Var) -> None:
        """Copy a result that could not be computed in the output buffer into it."""
        have = self._tensor(result)
        if have.buffer != buffer:
            want = image_at(buffer, _own(result), dtype_of(result))
            self._copy(have, want, HANDED_OVER, (result.name,))

    def _copy(self, source: Tensor, target: Tensor, cause: str, nodes: tuple[str, ...]) -> None:
        name = self._unique(tuple(f"{node}/copy" for node in nodes))
        self.operators.append(Copy(name, nodes, target, input=source))
        self.copies.append(MadeCopy(name, source.elements, cause, nodes[0] if nodes else name))

    def _unique(self, nodes: tuple[str, ...]) -> str:
        base = nodes[0] if nodes else "operator"
        taken = {operator.name for operator in self.operators}
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}#{count}"
        return name


def image_at(buffer: str, address: Address, dtype: str) -> Tensor:
    """The image of height x width x channels at `address`; axes left of the width are its height.

    ValueError where those axes do not follow each other at one pitch.
    """
    pad = (1,) * max(0, 3 - len(address.shape))
    shape, strides = (*pad, *address.shape), (*(0 for _ in pad), *address.strides)
    rows = [(n, s) for n, s in zip(shape[:-2], strides[:-2], strict=True) if n != 1]
    for (_, outer), (extent, inner) in pairwise(rows):
        if outer != extent * inner:
            raise ValueError(f"{buffer}: rows of {address} have no one pitch")
    height, width, channels = prod(shape[:-2]), shape[-2], shape[-1]
    pixel = strides[-2] if width > 1 else channels
    row = rows[-1][1] if rows else width * pixel
    is_dense = (pixel, row) == (channels, width * channels)
    return Tensor(
        buffer if address.offset == 0 else f"{buffer}+{address.offset}",
        height,
        width,
        channels,
        dtype,  # type: ignore[arg-type]
        buffer,
        address.offset,
        row_pitch=0 if is_dense else row,
        pixel_pitch=0 if is_dense else pixel,
    )


def _own(var: relax.Var) -> Address:
    return dense(shape_of(var), 1)
