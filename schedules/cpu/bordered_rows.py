"""A copy into a larger image, line by line: the border filled, the inside one contiguous run.

    for line in parallel(images * lines):
        a line of the border:   output = border
        any other:              border, value(input) over width * channels elements, border

Channels are few where this matters most (the first layer), so that vectors run across pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import tirx

from tilewright.schedules.cpu.nests import Nest, loads, substitute
from tilewright.schedules.cpu.statements import (
    coordinates,
    integer,
    sequence,
    serial,
    tasks,
    vectorized,
)
from tilewright.schedules.cpu.terms import Expr

VECTORS = 4  # vectors in one step of the inner loop


@dataclass(frozen=True)
class BorderedRows:
    """`begin` and `size` are the inside's first line and pixel, and its height and width."""

    nest: Nest
    begin: tuple[int, int]
    size: tuple[int, int]
    inside: Expr
    border: Expr
    lanes: int

    @staticmethod
    def of(nest: Nest, lanes: int) -> BorderedRows | None:
        """None where the nest is no such copy, or its inside is no contiguous run."""
        annotations = nest.annotations
        call = nest.value
        is_choice = isinstance(call, tvm.ir.Call) and call.op.name == "prim.if_then_else"
        if "border_top" not in annotations or not is_choice:
            return None
        top, left, height, width = (
            int(annotations[f"border_{name}"]) for name in ("top", "left", "height", "width")
        )
        _condition, inside, border = call.args
        whole = [nest.shape[0], height, width, nest.shape[3]]
        if not all(
            all(isinstance(index, tirx.IntImm) for index in load.indices)
            or [int(extent) for extent in load.source.shape] == whole
            for load in loads(inside)
        ):
            return None
        return BorderedRows(nest, (top, left), (height, width), inside, border, lanes)

    @property
    def index(self) -> str:
        return str(self.nest.spatial[0].variable.ty.dtype)

    def statement(self) -> tirx.Stmt:
        images, lines = self.nest.shape[:2]
        return tasks(images * lines, self.index, lambda task: self._line(task, [images, lines]))

    def _line(self, task: Expr, extents: list[int]) -> tirx.Stmt:
        image, line = coordinates(task, extents, self.index)
        width, channels = self.nest.shape[2:]
        begin, size = self.begin[1] * channels, self.size[1] * channels
        parts = [
            self._run(begin, lambda at: self._store(image, line, at, self.border)),
            self._run(size, lambda at: self._copy(image, line, at)),
            self._run(
                (width * channels) - begin - size,
                lambda at: self._store(
                    image, line, at + integer(begin + size, self.index), self.border
                ),
            ),
        ]
        inside = sequence([part for part in parts if part is not None])
        if self.size[0] == extents[1]:
            return inside
        outside = self._run(width * channels, lambda at: self._store(image, line, at, self.border))
        first, last = self.begin[0], self.begin[0] + self.size[0]
        is_inside = tirx.all(line >= integer(first, self.index), line < integer(last, self.index))
        return tirx.IfThenElse(is_inside, inside, outside)

    def _copy(self, image: Expr, line: Expr, at: Expr) -> tirx.Stmt:
        """Element `at` of the inside of a line."""
        n, h, w, c = (axis.variable for axis in self.nest.spatial)
        channels = integer(self.nest.shape[3], self.index)
        point = {
            n: image,
            h: line,
            w: tirx.floordiv(at, channels) + integer(self.begin[1], self.index),
            c: tirx.floormod(at, channels),
        }
        shift = integer(self.begin[1] * self.nest.shape[3], self.index)
        return self._store(image, line, at + shift, substitute(self.inside, point))

    def _store(self, image: Expr, line: Expr, at: Expr, value: Expr) -> tirx.Stmt:
        zero = integer(0, self.index)
        return tirx.BufferStore(self.nest.output, value, [image, line, zero, at])

    def _run(self, count: int, element: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt | None:
        """`element` for 0..count, in vectors as far as they go."""
        step = self.lanes * VECTORS
        whole = count // step
        parts = []
        if whole:
            parts.append(
                serial(
                    whole,
                    self.index,
                    lambda k: vectorized(
                        step,
                        self.index,
                        lambda lane: element(k * integer(step, self.index) + lane),
                    ),
                )
            )
        if count % step:
            done = integer(whole * step, self.index)
            parts.append(serial(count % step, self.index, lambda k: element(done + k)))
        return sequence(parts) if parts else None
