"""From one fused PrimFunc, as TE describes it, to kernels with one outermost parallel loop each.

Blocks that only feed others are inlined, a reduction takes the element-wise nest behind it as its
epilogue, and nests that share rows become one row program. What remains between kernels is too big
for the stack and becomes an argument, so that the memory planner places it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import tvm
from tvm import s_tir, tirx

from tilewright.schedules.cpu.bordered_rows import BorderedRows
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.grouping import (
    AnyNest,
    bits_of,
    contains,
    epilogue_of,
    flattened,
    outputs_of,
    row_run,
    with_flat_rows,
)
from tilewright.schedules.cpu.handmade import in_one_task, is_handmade
from tilewright.schedules.cpu.inline import inline_blocks
from tilewright.schedules.cpu.nests import REDUCED, Nest, Opaque, parse, read, written
from tilewright.schedules.cpu.row_program import RowProgram
from tilewright.schedules.cpu.statements import tasks
from tilewright.schedules.cpu.tile import ProductShape, Tile, choose_tile, choose_window
from tilewright.schedules.cpu.tile_columns import ColumnTile
from tilewright.schedules.cpu.vector_math import with_vector_math


@dataclass(frozen=True)
class Kernel:
    """One kernel of a fused function.

    `inputs` and `outputs` are its arguments in order: parameters of the fused function, or
    intermediates, which have the same identity in the kernel that writes and those that read.
    """

    function: tirx.PrimFunc
    inputs: tuple[tirx.Var, ...]
    outputs: tuple[tirx.Var, ...]


def schedule(function: tirx.PrimFunc, cpu: CpuFacts) -> list[Kernel]:
    """The kernels that compute `function`, in the order they must run."""
    if is_handmade(function):
        return [Kernel(*in_one_task(function))]
    inlined = with_vector_math(inline_blocks(function))
    nests = parse(inlined)
    parameters = list(inlined.params)
    kernels = []
    position = 0
    while position < len(nests):
        taken, kernel = _next_kernel(nests, position, parameters, cpu)
        kernels.append(kernel)
        position += taken
    return kernels


def _next_kernel(
    nests: list[AnyNest], position: int, parameters: list[tirx.Var], cpu: CpuFacts
) -> tuple[int, Kernel]:
    """How many nests the next kernel takes, and the kernel."""
    first = nests[position]
    if isinstance(first, Nest) and 0 in first.shape:
        return 1, _kernel_of_nothing(first)
    length, leading = row_run(nests, position, parameters)
    if length:
        run = [one for one in nests[position : position + length] if isinstance(one, Nest)]
        lanes = cpu.lanes(_widest_bits(run))
        return length, _kernel(run, RowProgram(run, leading, lanes).statement())
    nest = nests[position]
    if isinstance(nest, Opaque):
        return 1, parallel_opaque(_kernel([nest], nest.statement))
    epilogue = epilogue_of(nests, position, parameters)
    group = [nest, epilogue] if epilogue else [nest]
    return len(group), _kernel(group, _columns(nest, epilogue, cpu))


def _kernel_of_nothing(nest: Nest) -> Kernel:
    """A tensor without elements takes no work, only its place among the arguments."""
    idle = tasks(1, "int32", lambda _task: tirx.Evaluate(tirx.const(0, "int32")))
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", idle))
    function = tirx.PrimFunc([nest.output], root)
    function = function.with_attr("s_tir", True).with_attr("tirx.noalias", True)
    return Kernel(function, (), (nest.output,))


def _columns(nest: Nest, epilogue: Nest | None, cpu: CpuFacts) -> tirx.Stmt:
    bordered = BorderedRows.of(nest, cpu.lanes(32)) if epilogue is None else None
    if bordered is not None:
        return bordered.statement()
    nest, epilogue = with_flat_rows(flattened(nest), epilogue)
    outer = int(nest.annotations.get("outer_axes", 0))
    rows = prod(axis.extent for axis in nest.spatial[outer:-1])
    columns = nest.spatial[-1].extent
    bits = _widest_bits([nest, epilogue] if epilogue else [nest])
    if "tile_rows" in nest.annotations:
        rows, columns, lanes = (
            int(nest.annotations[f"tile_{name}"]) for name in ("rows", "columns", "lanes")
        )
        tile = Tile(rows, columns, lanes)
    elif int(nest.annotations.get("product", 0)):
        depth = prod(axis.extent for axis in nest.reduced)
        tile = choose_tile(ProductShape(columns, depth, rows), cpu, bits)
    else:
        tile = choose_window(rows, columns, cpu, bits)
    return ColumnTile(nest, epilogue, tile).statement()


def _widest_bits(nests: Sequence[Nest]) -> int:
    """Bits of the widest element that the nests write; int8 is computed in 32 bits."""
    return max(32, *(bits_of(nest.output) for nest in nests))


def _kernel(group: Sequence[AnyNest], statement: tirx.Stmt) -> Kernel:
    produced = written(statement)
    outputs = [one for nest in group for one in outputs_of(nest) if contains(produced, one)]
    inputs = [
        one
        for one in read(statement)
        if not contains(outputs, one) and one.ty.storage_scope != "local"
    ]
    root = s_tir.SBlock([], [], [], "root", statement)
    body = s_tir.SBlockRealize([], True, root)
    function = tirx.PrimFunc([*inputs, *outputs], body)
    function = function.with_attr("s_tir", True).with_attr("tirx.noalias", True)
    return Kernel(function, tuple(inputs), tuple(outputs))


def parallel_opaque(kernel: Kernel) -> Kernel:
    """The kernel with its spatial loops fused and parallel: for nests that no template takes."""
    program = s_tir.Schedule(tvm.IRModule({"main": kernel.function}), error_render_level="none")
    (block,) = program.get_child_blocks(program.get_sblock("root"))
    loops = program.get_loops(block)
    kinds = [int(one.iter_type) for one in program.get(block).iter_vars]
    spatial = next((at for at, kind in enumerate(kinds) if kind == REDUCED), len(kinds))
    if loops[:spatial]:
        program.parallel(program.fuse(*loops[:spatial]))
    return replace(kernel, function=program.mod["main"])
