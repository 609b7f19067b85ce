"""Lower a scheduled PrimFunc to a plain C function over raw pointers and a range of tasks.

    f(x: Buffer, y: Buffer): for i in parallel(n): ...
    ->  int32_t f(T *x, T *y, int32_t task_begin, int32_t task_end): for i in task_begin..task_end

TVM's own calling convention packs arguments into DLTensors and starts threads through a process
global; a kernel of ours needs neither, so that it runs anywhere and the caller owns the threads.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType
from tvm.tirx import transform as tir

_LOWER = tvm.ir.transform.Sequential(
    [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tir.FlattenBuffer(),
        tir.BF16ComputeLegalize(),
        tir.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        # An expression used twice holds its names twice, which vectors of them may not.
        tir.ConvertSSA(),
        tir.VectorizeLoop(True),
        tir.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tir.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tir.StmtSimplify(),
        tir.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tir.CommonSubexprElim(),
    ]
)


def lower_to_statements(functions: tvm.IRModule) -> tvm.IRModule:
    """Loops, loads and stores only: no blocks, flat buffers, vectors in place of their loops."""
    with tvm.transform.PassContext(
        config={"tirx.UnrollLoop": {"auto_max_step": 0, "explicit_unroll": True}}
    ):
        return _LOWER(functions)


def task_count(function: tirx.PrimFunc) -> int:
    """Iterations of the outermost parallel loop of a lowered or scheduled kernel; 1 without one."""
    loop = _parallel_loop(_statements(_body(function)))
    return int(loop.extent) if loop is not None else 1


def to_plain_function(
    function: tirx.PrimFunc, symbol: str, target: tvm.target.Target
) -> tirx.PrimFunc:
    """The C form of a lowered kernel; see the top of this file."""
    begin, end = tirx.Var("task_begin", "int32"), tirx.Var("task_end", "int32")
    pointers = {buffer: _pointer(buffer) for buffer in function.params}
    views, statements = [], []
    for statement in _statements(function.body):
        parameter = _viewed(statement)
        if parameter in pointers:
            views.append(tirx.DeclBuffer(statement.buffer, data=pointers[parameter]))
        else:
            statements.append(statement)
    if _parallel_loop(statements) is None:
        task = tirx.Var("task", "int32")
        once = _serial(task, begin, end, _sequence(statements))
        statements = [once]
    else:
        statements = [_over_tasks(one, begin, end) for one in statements]
    statements = [*views, *statements]
    statements.append(tirx.Return(tirx.IntImm("int32", 0)))
    body = tvm_ffi.structural_map(
        tirx.SeqStmt(statements), (tirx.AllocBuffer, _on_stack), order="post"
    )
    plain = tirx.PrimFunc(
        [*(pointers[buffer] for buffer in function.params), begin, end],
        body,
        ret_type=tvm.ir.PrimType("int32"),
    )
    plain = plain.with_attr("global_symbol", symbol).with_attr("target", target)
    return plain.with_attr("tirx.noalias", True)


def _on_stack(allocation: tirx.AllocBuffer) -> tirx.AllocBuffer:
    """Without the mark, LowerTVMBuiltin turns more than 1 KiB into a call of TVM's allocator."""
    mark = {**dict(allocation.annotations), "disable_lower_builtin": tirx.IntImm("bool", 1)}
    return tirx.AllocBuffer(allocation.buffer, mark)


def _pointer(buffer: tirx.Var) -> tirx.Var:
    return tirx.Var(buffer.name, PointerType(tvm.ir.PrimType(str(buffer.dtype))))


def _viewed(statement: tirx.Stmt) -> tirx.Var | None:
    """The buffer that a declaration is a view of, None for other statements."""
    return statement.data.args[0] if isinstance(statement, tirx.DeclBuffer) else None


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def _body(function: tirx.PrimFunc) -> tirx.Stmt:
    body = function.body
    while isinstance(body, s_tir.SBlockRealize):
        body = body.block.body
    return body


def _statements(body: tirx.Stmt) -> list[tirx.Stmt]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _parallel_loop(statements: list[tirx.Stmt]) -> tirx.For | None:
    loops = [one for one in statements if isinstance(one, tirx.For)]
    parallel = [loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL]
    assert len(parallel) <= 1, "a kernel has one outermost parallel loop"
    assert not parallel or len(loops) == 1, "nothing runs beside a kernel's parallel loop"
    return parallel[0] if parallel else None


def _over_tasks(statement: tirx.Stmt, begin: tirx.Var, end: tirx.Var) -> tirx.Stmt:
    """The parallel loop over begin..end; its variable may be wider than the caller's int32."""
    if not isinstance(statement, tirx.For):
        return statement
    variable = tirx.Var("task", "int32")
    value = variable.astype(str(statement.loop_var.ty.dtype))
    body = tvm_ffi.structural_map(
        statement.body,
        (tvm.ir.Var, lambda one: value if one.same_as(statement.loop_var) else one),
        order="post",
    )
    return _serial(variable, begin, end, body)


def _serial(task: tirx.Var, begin: tirx.Var, end: tirx.Var, body: tirx.Stmt) -> tirx.For:
    """The loop, in a form that shows that no task is negative.

    Divisions by constants then need no correction of signs. LLVM 22 makes vectors of bits of those
    corrections where it has AVX-512, and leaves some of the bits undefined.
    """
    first = tirx.max(begin, tirx.IntImm("int32", 0))
    return tirx.For(task, first, end - first, tirx.ForKind.SERIAL, body)
