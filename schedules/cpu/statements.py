"""Loops, local buffers and task coordinates: the few words the CPU templates are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import tirx

from tilewright.schedules.cpu.terms import Expr

Body = Callable[[Expr], tirx.Stmt]


def integer(value: int, dtype: str) -> Expr:
    return tirx.IntImm(dtype, value)


def serial(extent: int, dtype: str, body: Body, name: str = "k") -> tirx.Stmt:
    return _loop(extent, dtype, body, name, tirx.ForKind.SERIAL)


def unrolled(extent: int, dtype: str, body: Body, name: str = "u") -> tirx.Stmt:
    return _loop(extent, dtype, body, name, tirx.ForKind.UNROLLED)


def vectorized(extent: int, dtype: str, body: Body, name: str = "lane") -> tirx.Stmt:
    return _loop(extent, dtype, body, name, tirx.ForKind.VECTORIZED)


def tasks(extent: int, dtype: str, body: Body) -> tirx.Stmt:
    """The one outermost parallel loop of a kernel."""
    variable = tirx.Var("task", dtype)
    zero = integer(0, dtype)
    return tirx.For(variable, zero, integer(extent, dtype), tirx.ForKind.PARALLEL, body(variable))


def _loop(extent: int, dtype: str, body: Body, name: str, kind: tirx.ForKind) -> tirx.Stmt:
    if extent == 1:
        return body(integer(0, dtype))
    variable = tirx.Var(name, dtype)
    return tirx.For(variable, integer(0, dtype), integer(extent, dtype), kind, body(variable))


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def local(name: str, shape: Sequence[int], dtype: str, index: str) -> tirx.Var:
    """A buffer in registers or on the stack; allocate it with `tirx.AllocBuffer`."""
    extents = [integer(extent, index) for extent in shape]
    return tirx.decl_buffer(extents, dtype, name, scope="local", layout=None)


def coordinates(flat: Expr, extents: Sequence[int], dtype: str) -> list[Expr]:
    """Row-major coordinates of `flat`; axes of extent 1 cost nothing."""
    found: list[Expr] = []
    for position, extent in enumerate(extents):
        below = prod(extents[position + 1 :])
        above = prod(extents[:position])
        if extent == 1:
            found.append(integer(0, dtype))
            continue
        quotient = flat if below == 1 else tirx.floordiv(flat, integer(below, dtype))
        found.append(quotient if above == 1 else tirx.floormod(quotient, integer(extent, dtype)))
    return found


def bind(name: str, value: Expr, into: list[tirx.Stmt]) -> Expr:
    """`value` computed once, before what follows in `into`; constants stay constants."""
    if isinstance(value, tirx.IntImm | tirx.Var):
        return value
    variable = tirx.Var(name, str(value.ty.dtype))
    into.append(tirx.Bind(variable, value))
    return variable


def last_tile(tile: Expr, size: int, extent: int, dtype: str) -> Expr:
    """Where a tile of `size` begins: the last one overlaps its neighbour instead of overhanging."""
    begin = tile * integer(size, dtype)
    if extent % size == 0:
        return begin
    return tirx.min(begin, integer(extent - size, dtype))
