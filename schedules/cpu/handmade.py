"""PrimFuncs that were written as loops (TE's extern), not as computations: one kernel, one task.

Their parallel loops become serial, for nothing says that two of them may run at the same time, and
their buffers start where the caller says.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tilewright.schedules.cpu.nests import written


def is_handmade(function: tirx.PrimFunc) -> bool:
    """Whether the function has other than blocks of TE computations under its root."""
    return str(function.body.block.name_hint) != "root"


def in_one_task(
    function: tirx.PrimFunc,
) -> tuple[tirx.PrimFunc, tuple[tirx.Var, ...], tuple[tirx.Var, ...]]:
    """The function as a kernel, and which of its parameters are inputs and outputs."""
    plain = {buffer: _plain(buffer) for buffer in function.params}
    body = tvm_ffi.structural_map(
        function.body.block.body,
        [
            (tirx.For, _serial),
            (tirx.AttrStmt, lambda hint: hint.body),
            (tvm.ir.Var, lambda one: plain.get(one, one)),
        ],
        order="post",
    )
    allocations = list(function.body.block.alloc_buffers)
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=allocations)
    changed = written(function.body)
    outputs = tuple(one for one in function.params if any(one.same_as(two) for two in changed))
    inputs = tuple(one for one in function.params if not any(one.same_as(two) for two in outputs))
    kernel = tirx.PrimFunc(
        [plain[one] for one in (*inputs, *outputs)], s_tir.SBlockRealize([], True, root)
    )
    return kernel.with_attr("s_tir", True).with_attr("tirx.noalias", True), inputs, outputs


def _plain(buffer: tirx.Var) -> tirx.Var:
    return tirx.decl_buffer(list(buffer.shape), str(buffer.dtype), buffer.name, layout=None)


def _serial(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
