"""A register tile of rows x columns for any nest that is vectorised over its last axis.

    for task in parallel(outer * panels * row tiles):
        accumulators[rows, columns] = init
        for reduced axes: accumulators[r, c] = update(accumulators[r, c], ...)
        output[row r, column c] = epilogue(accumulators[r, c])

Convolution, depthwise, dense, matmul, pooling, column reductions and element-wise groups are all
this one form. The last tile of either direction overlaps its neighbour, so there is no remainder
code; a kernel's output must therefore not share memory with its inputs.

Annotations of a nest that say more than its expression does:
    packed        the last load of the update is [panel, reduced..., column in panel]
    groups        panels never cross a group of columns
    crosses       0: a tile stays in one line of the last row axis
    outer_axes    leading axes that a tile never crosses, since the right side depends on them
    neutral_padding  where the update's if_then_else is false, the update changes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod

import tvm
import tvm_ffi
from tvm import tirx

from tilewright.schedules.cpu.nests import Axis, Nest, loads, replace_loads, substitute
from tilewright.schedules.cpu.pair_product import PairProduct
from tilewright.schedules.cpu.statements import (
    bind,
    coordinates,
    integer,
    last_tile,
    local,
    sequence,
    serial,
    tasks,
    unrolled,
    vectorized,
)
from tilewright.schedules.cpu.terms import Expr, Point
from tilewright.schedules.cpu.tile import Tile

UNROLL = 4  # steps of the innermost reduction unrolled, where they divide it


@dataclass(frozen=True)
class Cell:
    """One accumulator of a tile: where it lies in the output, in the tile and in its panel."""

    row: Point
    column: Expr
    slot: Expr
    inside: Expr


class ColumnTile:
    """Emits the kernel of one nest with its epilogue; see the top of this file."""

    def __init__(self, nest: Nest, epilogue: Nest | None, tile: Tile) -> None:
        self.nest, self.epilogue, self.tile = nest, epilogue, tile
        self.index = str(nest.spatial[-1].variable.ty.dtype)
        self.groups = int(nest.annotations.get("groups", 1))
        crosses = int(nest.annotations.get("crosses", 1))
        outer = int(nest.annotations.get("outer_axes", 0)) if crosses else len(nest.spatial) - 2
        self.outer = nest.spatial[:outer]
        self.row_axes = nest.spatial[len(self.outer) : -1]
        self.height = prod(axis.extent for axis in self.row_axes)
        self.width = nest.spatial[-1].extent // self.groups
        self.panels = ceil(self.width / tile.columns) * self.groups
        size, dtype = [tile.rows * tile.columns], str(nest.output.dtype)
        self.accumulators = local("accumulators", size, dtype, self.index)
        self.results = local("results", size, dtype, self.index)

    def statement(self) -> tirx.Stmt:
        outer = prod(axis.extent for axis in self.outer)
        extents = [outer, self.panels, ceil(self.height / self.tile.rows)]
        return tasks(prod(extents), self.index, lambda task: self._task(task, extents))

    def _task(self, task: Expr, extents: list[int]) -> tirx.Stmt:
        body: list[tirx.Stmt] = []
        outer, panel, row_tile = (
            bind(name, value, body)
            for name, value in zip(
                ("outer", "panel", "row_tile"),
                coordinates(task, extents, self.index),
                strict=True,
            )
        )
        column = bind("column", self._first_column(panel), body)
        first_row = last_tile(row_tile, self.tile.rows, self.height, self.index)
        fixed = self._point(self.outer, outer, body)
        if self.nest.reduced:
            rows: list[Point] = []
            for offset in range(self.tile.rows):
                row = bind("row", first_row + integer(offset, self.index), body)
                rows.append({**fixed, **self._point(self.row_axes, row, body)})
            body.append(tirx.AllocBuffer(self.accumulators))
            body.append(self._tile(rows, column, self._clear))
            body.append(self._reduce(rows, panel, column))
            body.append(tirx.AllocBuffer(self.results))
            body.append(self._tile(rows, column, self._keep))
        body.append(self._write_back(fixed, first_row, column))
        return sequence(body)

    def _write_back(self, fixed: Point, first_row: Expr, column: Expr) -> tirx.Stmt:
        """Row by row in a loop: unrolled, an epilogue would be most of the code.

        The loop reads a copy, for a buffer with a variable index cannot stay in registers.
        """

        def row_statement(number: Expr) -> tirx.Stmt:
            body: list[tirx.Stmt] = []
            row = bind("row", first_row + number, body)
            point = {**fixed, **self._point(self.row_axes, row, body)}
            body.append(self._row(number, point, column, self._write))
            return sequence(body)

        return serial(self.tile.rows, self.index, row_statement, "row_in_tile")

    def _first_column(self, panel: Expr) -> Expr:
        if self.groups == 1:
            return last_tile(panel, self.tile.columns, self.width, self.index)
        extents = [self.groups, self.panels // self.groups]
        group, inside = coordinates(panel, extents, self.index)
        begin = last_tile(inside, self.tile.columns, self.width, self.index)
        return group * integer(self.width, self.index) + begin

    def _point(self, axes: Sequence[Axis], flat: Expr, into: list[tirx.Stmt]) -> Point:
        found = coordinates(flat, [axis.extent for axis in axes], self.index)
        return {
            axis.variable: bind(axis.variable.name, value, into)
            for axis, value in zip(axes, found, strict=True)
        }

    def _tile(
        self, rows: list[Point], column: Expr, statement: Callable[[Cell], tirx.Stmt]
    ) -> tirx.Stmt:
        """`statement` for every cell: rows written out, vectors unrolled, lanes vectorised."""
        return sequence(
            [
                self._row(integer(number, self.index), row, column, statement)
                for number, row in enumerate(rows)
            ]
        )

    def _row(
        self, number: Expr, row: Point, column: Expr, statement: Callable[[Cell], tirx.Stmt]
    ) -> tirx.Stmt:
        begin = number * integer(self.tile.columns, self.index)

        def vector(part: Expr) -> tirx.Stmt:
            first = part * integer(self.tile.lanes, self.index)
            return vectorized(
                self.tile.lanes,
                self.index,
                lambda lane: statement(
                    Cell(row, column + (first + lane), begin + (first + lane), first + lane)
                ),
            )

        return unrolled(self.tile.vectors, self.index, vector)

    def _clear(self, cell: Cell) -> tirx.Stmt:
        assert self.nest.init is not None
        return tirx.BufferStore(self.accumulators, self.nest.init, [cell.slot])

    def _keep(self, cell: Cell) -> tirx.Stmt:
        return tirx.BufferStore(self.results, self.accumulators[cell.slot], [cell.slot])

    def _write(self, cell: Cell) -> tirx.Stmt:
        last = self.epilogue or self.nest
        if self.epilogue:
            value = replace_loads(last.value, self.nest.output, lambda _load: self._result(cell))
        else:
            value = self._result(cell)
        point = self._renamed(last, cell)
        indices = [point[axis.variable] for axis in last.spatial]
        return tirx.BufferStore(last.output, substitute(value, point), indices)

    def _result(self, cell: Cell) -> Expr:
        """The nest's own value: its accumulator, or its expression where nothing is reduced."""
        if self.nest.reduced:
            return self.results[cell.slot]
        return substitute(self.nest.value, self._renamed(self.nest, cell))

    def _renamed(self, nest: Nest, cell: Cell) -> Point:
        """The cell's place in terms of `nest`'s own axes."""
        *leading, last = nest.spatial
        values = [cell.row[axis.variable] for axis in self.nest.spatial[:-1]]
        names = [axis.variable for axis in leading]
        return {**dict(zip(names, values, strict=True)), last.variable: cell.column}

    def _reduce(self, rows: list[Point], panel: Expr, column: Expr) -> tirx.Stmt:
        """The loops over the reduced axes around one step of the tile."""
        *outside, innermost = self.nest.reduced
        pairs = PairProduct.of(self.nest, self.tile)
        stride = 2 if pairs else 1
        count = innermost.extent // stride
        unroll = next(u for u in range(min(UNROLL, count), 0, -1) if count % u == 0)

        def step(k: Expr, steps: Point) -> tirx.Stmt:
            point = {**steps, innermost.variable: k * integer(stride, self.index)}
            if pairs:
                return pairs.step(self.accumulators, rows, panel, point)
            return self._update(rows, panel, column, point)

        def nested(position: int, steps: Point) -> tirx.Stmt:
            if position < len(outside):
                axis = outside[position]
                return serial(
                    axis.extent,
                    self.index,
                    lambda k: nested(position + 1, {**steps, axis.variable: k}),
                )
            return serial(
                count // unroll,
                self.index,
                lambda k: unrolled(
                    unroll,
                    self.index,
                    lambda u: step(k * integer(unroll, self.index) + u, steps),
                ),
            )

        return nested(0, {})

    def _update(self, rows: list[Point], panel: Expr, column: Expr, steps: Point) -> tirx.Stmt:
        """One step of the reduction for all cells; a row in the padding is skipped whole."""
        condition, update = self._guard()
        packed = loads(update)[-1] if int(self.nest.annotations.get("packed", 0)) else None

        def store(cell: Cell) -> tirx.Stmt:
            value = replace_loads(
                update, self.nest.output, lambda _load: self.accumulators[cell.slot]
            )
            if packed is not None:
                indices = [panel, *(steps[axis.variable] for axis in self.nest.reduced)]
                panel_load = packed.source[(*indices, cell.inside)]
                value = replace_loads(value, packed.source, lambda _load: panel_load)
            point = {**self._renamed(self.nest, cell), **steps}
            return tirx.BufferStore(self.accumulators, substitute(value, point), [cell.slot])

        statements = []
        for number, row in enumerate(rows):
            statement = self._row(integer(number, self.index), row, column, store)
            if condition is not None:
                taken = substitute(condition, {**row, **steps})
                statement = tirx.IfThenElse(taken, statement, None)
            statements.append(statement)
        return sequence(statements)

    def _guard(self) -> tuple[Expr | None, Expr]:
        """The condition under which the update does anything, and the update without it."""
        if not int(self.nest.annotations.get("neutral_padding", 0)):
            return None, self.nest.value
        found: list[Expr] = []

        def strip(call: tvm.ir.Call) -> Expr:
            if call.op.name != "prim.if_then_else":
                return call
            found.append(call.args[0])
            return call.args[1]

        update = tvm_ffi.structural_map(self.nest.value, (tvm.ir.Call, strip), order="post")
        return (found[0] if found else None), update
