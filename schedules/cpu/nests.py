"""A fused PrimFunc as a list of loop nests: each one block, one store, spatial and reduced axes.

What a template needs to know of a computation is all here, so that templates emit new loops from
it and never have to undo old ones. A block of another shape (several stores, a predicate) becomes
an `Opaque` nest, which is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tilewright.schedules.cpu.terms import Expr

REDUCED = 2  # tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Axis:
    variable: tirx.Var
    extent: int


@dataclass(frozen=True)
class Nest:
    """`output[spatial...] = value`, or `init` and then `value` over the `reduced` axes.

    Where axes are reduced, `value` is the update: an expression that reads output[spatial...].
    """

    output: tirx.Var
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    init: Expr | None
    value: Expr
    annotations: Mapping[str, Any]
    statement: tirx.Stmt

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.spatial)


@dataclass(frozen=True)
class Opaque:
    """A nest that no template understands, as the statement it was."""

    outputs: tuple[tirx.Var, ...]
    statement: tirx.Stmt


def parse(function: tirx.PrimFunc) -> list[Nest | Opaque]:
    """The nests of a PrimFunc that TE built (one root block), in the order they run."""
    body = function.body.block.body
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return [_nest(statement) for statement in statements]


def _nest(statement: tirx.Stmt) -> Nest | Opaque:
    loops = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops.append(inner.loop_var)
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize):
        return Opaque(written(statement), statement)
    block = inner.block
    plain_loops = len(inner.iter_values) == len(loops) and all(
        value.same_as(loop) for value, loop in zip(inner.iter_values, loops, strict=True)
    )
    store = block.body
    if not (
        plain_loops
        and isinstance(store, tirx.BufferStore)
        and _is_true(inner.predicate)
        and not block.alloc_buffers
    ):
        return Opaque(written(statement), statement)
    axes = [(Axis(one.var, int(one.dom.extent)), int(one.iter_type)) for one in block.iter_vars]
    spatial = tuple(axis for axis, kind in axes if kind != REDUCED)
    direct = len(store.indices) == len(spatial) and all(
        index.same_as(axis.variable) for index, axis in zip(store.indices, spatial, strict=True)
    )
    if not direct:
        return Opaque(written(statement), statement)
    return Nest(
        output=store.buffer,
        spatial=spatial,
        reduced=tuple(axis for axis, kind in axes if kind == REDUCED),
        init=block.init.value if block.init is not None else None,
        value=store.value,
        annotations=dict(block.annotations),
        statement=statement,
    )


def _is_true(predicate: Any) -> bool:
    return bool(isinstance(predicate, tirx.IntImm) and predicate.value == 1)


def substitute(expr: Expr, replacement: Mapping[tirx.Var, Expr]) -> Expr:
    return tvm_ffi.structural_map(
        expr, (tvm.ir.Var, lambda one: replacement.get(one, one)), order="post"
    )


def replace_loads(expr: Expr, buffer: tirx.Var, load: Callable[[tvm.ir.TensorLoad], Expr]) -> Expr:
    """`expr` with every load of `buffer` replaced."""

    def visit(one: tvm.ir.TensorLoad) -> Expr:
        return load(one) if loaded_buffer(one).same_as(buffer) else one

    return tvm_ffi.structural_map(expr, (tvm.ir.TensorLoad, visit), order="post")


def loads(node: Any) -> list[tvm.ir.TensorLoad]:
    """Every load under a statement or an expression."""
    found: list[tvm.ir.TensorLoad] = []
    tvm_ffi.structural_walk(node, (tvm.ir.TensorLoad, found.append))
    return found


def loaded_buffer(load: tvm.ir.TensorLoad) -> tirx.Var:
    return load.source


def read(node: Any) -> list[tirx.Var]:
    """The buffers that `node` loads from, each once, in order."""
    return _unique(loaded_buffer(load) for load in loads(node))


def written(statement: tirx.Stmt) -> tuple[tirx.Var, ...]:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(statement, (tirx.BufferStore, lambda one: found.append(one.buffer)))
    return tuple(_unique(found))


def _unique(buffers: Iterable[tirx.Var]) -> list[tirx.Var]:
    kept: list[tirx.Var] = []
    for buffer in buffers:
        if not any(buffer.same_as(other) for other in kept):
            kept.append(buffer)
    return kept
