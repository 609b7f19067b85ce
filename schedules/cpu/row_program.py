"""Nests that share their leading axes, run row by row: softmax, normalisation, row reductions.

    for row in parallel(rows):
        for each nest: reduce or compute over what is left of its axes

What one nest leaves for the next stays in a row-sized local buffer. A reduction over the last,
contiguous axis runs in lanes that are combined at the end, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import tirx

from tilewright.schedules.cpu.nests import Axis, Nest, loads, replace_loads, substitute
from tilewright.schedules.cpu.statements import (
    coordinates,
    integer,
    local,
    sequence,
    serial,
    tasks,
    vectorized,
)
from tilewright.schedules.cpu.terms import Expr, Point

VECTORS = 4  # vectors of partial results, so that additions need not wait for each other
_COMBINES = (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)


class RowProgram:
    """`leading` axes are the rows; all nests but the last leave their output in local buffers."""

    def __init__(self, nests: Sequence[Nest], leading: int, lanes: int) -> None:
        self.nests, self.leading, self.lanes = nests, leading, lanes
        first = nests[0]
        self.index = str((*first.spatial, *first.reduced)[0].variable.ty.dtype)
        self.locals = {
            nest.output: self._local(nest.output.name, local_shape(nest, leading), nest)
            for nest in nests[:-1]
        }

    def _local(self, name: str, shape: Sequence[int], nest: Nest) -> tirx.Var:
        return local(name, [prod(shape)], str(nest.output.dtype), self.index)

    def statement(self) -> tirx.Stmt:
        extents = [axis.extent for axis in self.nests[-1].spatial[: self.leading]]
        return tasks(prod(extents), self.index, lambda task: self._program(task, extents))

    def _program(self, task: Expr, extents: list[int]) -> tirx.Stmt:
        row = coordinates(task, extents, self.index)
        body: list[tirx.Stmt] = [tirx.AllocBuffer(buffer) for buffer in self.locals.values()]
        for nest in self.nests:
            axes = nest.spatial[: self.leading]
            point = {axis.variable: at for axis, at in zip(axes, row, strict=True)}
            body.append(self._nest(nest, point))
        return sequence(body)

    def _nest(self, nest: Nest, point: Point) -> tirx.Stmt:
        rest = nest.spatial[self.leading :]
        if not nest.reduced:
            return self._over(rest, point, lambda at: self._store(nest, nest.value, at))
        in_lanes = not rest and not int(nest.annotations.get("sequential", 0))
        if in_lanes and combined(nest) is not None:
            return self._reduce_in_lanes(nest, point)
        return self._nested(rest, point, lambda at: self._reduce_plainly(nest, at))

    def _over(
        self, axes: Sequence[Axis], point: Point, body: Callable[[Point], tirx.Stmt]
    ) -> tirx.Stmt:
        """`body` at every place of `axes`, the last axis in vectors and then what remains."""
        if not axes:
            return body(point)
        *outside, last = axes
        return self._nested(outside, point, lambda at: self._in_lanes(last, at, body, self.lanes))

    def _in_lanes(
        self, axis: Axis, point: Point, body: Callable[[Point], tirx.Stmt], lanes: int
    ) -> tirx.Stmt:
        whole = axis.extent // lanes
        statements = []
        if whole:
            width = integer(lanes, self.index)

            def chunk(k: Expr) -> tirx.Stmt:
                return vectorized(
                    lanes, self.index, lambda lane: body({**point, axis.variable: k * width + lane})
                )

            statements.append(serial(whole, self.index, chunk))
        if axis.extent % lanes:
            done = integer(whole * lanes, self.index)
            statements.append(
                serial(
                    axis.extent % lanes,
                    self.index,
                    lambda k: body({**point, axis.variable: done + k}),
                )
            )
        return sequence(statements)

    def _nested(
        self, axes: Sequence[Axis], point: Point, body: Callable[[Point], tirx.Stmt]
    ) -> tirx.Stmt:
        if not axes:
            return body(point)
        axis, *rest = axes
        return serial(
            axis.extent,
            self.index,
            lambda k: self._nested(rest, {**point, axis.variable: k}, body),
        )

    def _reduce_plainly(self, nest: Nest, point: Point) -> tirx.Stmt:
        total = self._local("total", [1], nest)
        zero = integer(0, self.index)

        def step(at: Point) -> tirx.Stmt:
            value = replace_loads(nest.value, nest.output, lambda _load: total[zero])
            return tirx.BufferStore(total, self._localised(value, at), [zero])

        return sequence(
            [
                tirx.AllocBuffer(total),
                tirx.BufferStore(total, nest.init, [zero]),
                self._nested(nest.reduced, point, step),
                self._store(nest, total[zero], point),
            ]
        )

    def _reduce_in_lanes(self, nest: Nest, point: Point) -> tirx.Stmt:
        """Partial results a lane, then the remainder, then the lanes in order."""
        combine, term = combined(nest) or (None, None)
        assert combine is not None
        *outside, last = nest.reduced
        lanes = self.lanes * min(max(last.extent // self.lanes, 1), VECTORS)
        if last.extent < 2 * lanes:
            return self._reduce_plainly(nest, point)
        partial, total = self._local("partial", [lanes], nest), self._local("total", [1], nest)
        zero = integer(0, self.index)
        width = integer(lanes, self.index)
        done = last.extent // lanes * lanes

        def into(buffer: tirx.Var, slot: Expr, at: Point) -> tirx.Stmt:
            return tirx.BufferStore(
                buffer, combine(buffer[slot], self._localised(term, at)), [slot]
            )

        def chunks(at: Point) -> tirx.Stmt:
            return serial(
                last.extent // lanes,
                self.index,
                lambda k: vectorized(
                    lanes,
                    self.index,
                    lambda lane: into(partial, lane, {**at, last.variable: k * width + lane}),
                ),
            )

        def remainder(at: Point) -> tirx.Stmt:
            return serial(
                last.extent - done,
                self.index,
                lambda k: into(total, zero, {**at, last.variable: integer(done, self.index) + k}),
            )

        statements = [
            tirx.AllocBuffer(partial),
            tirx.AllocBuffer(total),
            vectorized(
                lanes, self.index, lambda lane: tirx.BufferStore(partial, nest.init, [lane])
            ),
            tirx.BufferStore(total, nest.init, [zero]),
            self._nested(outside, point, chunks),
        ]
        if done < last.extent:
            statements.append(self._nested(outside, point, remainder))
        statements.append(
            serial(
                lanes,
                self.index,
                lambda lane: tirx.BufferStore(total, combine(total[zero], partial[lane]), [zero]),
            )
        )
        statements.append(self._store(nest, total[zero], point))
        return sequence(statements)

    def _store(self, nest: Nest, value: Expr, point: Point) -> tirx.Stmt:
        value = self._localised(value, point)
        where = [point[axis.variable] for axis in nest.spatial]
        if nest is self.nests[-1]:
            return tirx.BufferStore(nest.output, value, where)
        return tirx.BufferStore(self.locals[nest.output], value, [self._flat(nest, where)])

    def _localised(self, value: Expr, point: Point) -> Expr:
        """`value` at `point`, reading the local buffers in place of the earlier nests' outputs."""
        value = substitute(value, point)
        for nest in self.nests[:-1]:
            value = self._from_local(nest, value)
        return value

    def _from_local(self, nest: Nest, value: Expr) -> Expr:
        kept = self.locals[nest.output]
        return replace_loads(
            value, nest.output, lambda load: kept[self._flat(nest, list(load.indices))]
        )

    def _flat(self, nest: Nest, where: list[Expr]) -> Expr:
        """The place of `where` in the row that the nest leaves."""
        flat = integer(0, self.index)
        for axis, at in zip(nest.spatial[self.leading :], where[self.leading :], strict=True):
            flat = flat * integer(axis.extent, self.index) + at
        return flat


def local_shape(nest: Nest, leading: int) -> list[int]:
    """What a nest leaves for the row that is being computed."""
    return [axis.extent for axis in nest.spatial[leading:]] or [1]


def combined(nest: Nest) -> tuple[Callable[[Expr, Expr], Expr], Expr] | None:
    """The operation and the new term of an update `output = output op term`, where it is one."""
    value = nest.value
    if not isinstance(value, _COMBINES):
        return None
    first = loads(value.a)
    if len(first) == 1 and first[0].same_as(value.a) and first[0].source.same_as(nest.output):
        return type(value), value.b
    return None
