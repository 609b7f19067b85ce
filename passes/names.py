"""Which ONNX nodes an expression came from, kept where every TVM pass keeps it.

A call carries the names of its ONNX nodes in its span; the variable bound to it is named after
the first of them. Spans survive TVM's canonicalisation, folding, FuseOpsByPattern and
MergeCompositeFunctions; variable names survive ConvertLayout. Own rewrites go through
`passes/rewriter.py`, which keeps both. The names stand as the user wrote them, unsanitised.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

# TFLite converters join names with ';' and others with '/', so neither can separate them here.
SEPARATOR = "\x1f"


def derived_name(name: str, number: int) -> str:
    """A name of its own for one of several nodes that the node `name` was rewritten into."""
    return f"{name}{SEPARATOR}{number}" if number else name


def original_name(name: str) -> str:
    """The name the user knows, of a node that may have been derived from theirs."""
    return name.partition(SEPARATOR)[0]


def onnx_nodes_of(expr: relax.Expr) -> tuple[str, ...]:
    """The ONNX nodes `expr` computes, most telling first; empty when it came from none."""
    if expr.span is None or not expr.span.source_name.name:
        return ()
    return tuple(expr.span.source_name.name.split(SEPARATOR))


def with_names(expr: relax.Expr, names: Iterable[str]) -> relax.Expr:
    """`expr` saying that it computes the ONNX nodes `names`; only calls and items carry names."""
    joined = SEPARATOR.join(dict.fromkeys(names))
    if not joined:
        return expr
    span = tvm.ir.Span(tvm.ir.SourceName(joined), 0, 0, 0, 0)
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span, expr.ty)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(expr.tuple_value, expr.index, span)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple(expr.fields, span)
    return expr


def beside(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The name of a step of ours that the user's node `names[0]` does not know of."""
    return tuple(f"{name}/{what}" for name in names[:1])


def joined_names(*expressions: relax.Expr) -> tuple[str, ...]:
    """The names of several expressions that become one, in the order given, each once."""
    return tuple(dict.fromkeys(name for expr in expressions for name in onnx_nodes_of(expr)))
