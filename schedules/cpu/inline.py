"""Inline what only feeds others, where that does not repeat much work.

A cheap block is inlined wherever each of its elements is read about once by a reduction, or any
number of times by element-wise consumers; one with a transcendental function only where each
element is read once. What stays is a nest of its own.
"""

from __future__ import annotations

from math import prod

import tvm
import tvm_ffi
from tvm import s_tir, tirx

_EXPENSIVE = {"prim.log2"} | {
    f"tirx.{name}"
    for name in (
        "exp", "exp2", "exp10", "log", "log1p", "pow", "sqrt", "rsqrt", "tanh", "sigmoid",
        "erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2",
    )
}  # fmt: skip


def inline_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """`function` with every block inlined that is worth it."""
    program = s_tir.Schedule(tvm.IRModule({"main": function}), error_render_level="none")
    outputs = list(function.params)
    for block in program.get_child_blocks(program.get_sblock("root")):
        if _worth_inlining(program, block, outputs):
            _try_inline(program, block)
    return program.mod["main"]


def _try_inline(program: s_tir.Schedule, block: s_tir.schedule.SBlockRV) -> None:
    """TVM alone knows whether a block can be inlined; a refusal leaves it where it is."""
    try:
        program.compute_inline(block)
    except s_tir.ScheduleError:
        return


def _worth_inlining(
    program: s_tir.Schedule, block: s_tir.schedule.SBlockRV, outputs: list[tirx.Var]
) -> bool:
    statement = program.get(block)
    if any(region.source.same_as(one) for region in statement.writes for one in outputs):
        return False
    if _is_reduction(statement):
        return False
    consumers = [program.get(one) for one in program.get_consumers(block)]
    once = all(_iterations(one) <= _iterations(statement) for one in consumers)
    if _is_expensive(statement):
        return once and len(consumers) == 1
    return once or not any(_is_reduction(one) for one in consumers)


def _is_reduction(block: s_tir.SBlock) -> bool:
    return block.init is not None


def _iterations(block: s_tir.SBlock) -> int:
    return prod(int(one.dom.extent) for one in block.iter_vars)


def _is_expensive(block: s_tir.SBlock) -> bool:
    found: list[str] = []

    def visit(call: tvm.ir.Call) -> None:
        if isinstance(call.op, tvm.ir.Op) and call.op.name in _EXPENSIVE:
            found.append(call.op.name)

    tvm_ffi.structural_walk(block.body, (tvm.ir.Call, visit))
    return bool(found)
