"""Products of int16 pairs, added to int32 in one x86 instruction (vpmaddwd, or VNNI's vpdpwssd).

    accumulators[c] += x[k] * w[c, k] + x[k + 1] * w[c, k + 1]

The right side is packed [panel, reduced..., K / 2, column, 2]. int16 holds an int8 or uint8 value
minus its zero point, and no sum of two such products overflows int32: the arithmetic is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx

from tilewright.schedules.cpu.nests import Nest, loads, substitute
from tilewright.schedules.cpu.statements import integer, sequence
from tilewright.schedules.cpu.terms import Expr, Point
from tilewright.schedules.cpu.tile import Tile

# int32 lanes -> LLVM's intrinsic.
INTRINSICS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


@dataclass(frozen=True)
class PairProduct:
    """`left` is the load of x in the update; `packed` the buffer of the right side."""

    nest: Nest
    tile: Tile
    left: tvm.ir.TensorLoad
    packed: tirx.Var

    @staticmethod
    def of(nest: Nest, tile: Tile) -> PairProduct | None:
        """None where the nest was not packed in pairs."""
        if not int(nest.annotations.get("pairs", 0)):
            return None
        _accumulator, left, right = loads(nest.value)
        return PairProduct(nest, tile, left, right.source)

    def step(
        self, accumulators: tirx.Var, rows: list[Point], panel: Expr, steps: Point
    ) -> tirx.Stmt:
        """One pair of the reduction for every row and vector of the tile."""
        index = str(self.nest.spatial[-1].variable.ty.dtype)
        lanes = self.tile.lanes
        *outside, innermost = self.nest.reduced
        halves = tirx.floordiv(steps[innermost.variable], integer(2, index))
        where = [panel, *(steps[axis.variable] for axis in outside), halves]
        zero = integer(0, index)
        statements = []
        for number, row in enumerate(rows):
            indices = [substitute(one, {**row, **steps}) for one in self.left.indices]
            pair = tirx.reinterpret("int32", self.left.source.vload(indices, "int16x2"))
            spread = tirx.reinterpret(f"int16x{2 * lanes}", tirx.Broadcast(pair, lanes))
            for vector in range(self.tile.vectors):
                column = integer(vector * lanes, index)
                weights = self.packed.vload([*where, column, zero], f"int16x{2 * lanes}")
                slot = tirx.Ramp(
                    integer(number * self.tile.columns + vector * lanes, index),
                    integer(1, index),
                    lanes,
                )
                product = tirx.call_llvm_pure_intrin(
                    f"int32x{lanes}", INTRINSICS[lanes], spread, weights
                )
                statements.append(
                    tirx.BufferStore(accumulators, accumulators[slot] + product, [slot])
                )
        return sequence(statements)
