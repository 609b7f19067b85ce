"""One walk over a Relax function's bindings that rebuilds it and keeps ONNX names.

    rewriter = Rewriter(function)
    return rewriter.run(lambda value: replacement or None)

`rewrite` sees every call and every item taken of a tuple in order, its arguments already
rewritten, and returns the expression
that takes its place (nested calls are welcome: each is bound on its own) or None to leave it.
What it returns without names inherits those of the call it replaces. Bindings nobody reads any
more are dropped. A function with control flow is returned as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import tvm
import tvm_ffi
from tvm import relax

from tilewright.passes.names import onnx_nodes_of, with_names

Rewrite = Callable[[relax.Expr], relax.Expr | None]


class Rewriter:
    """The state of one walk; `definition`, `reader_count`, `emit` and `typed` serve it."""

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self._builder = relax.BlockBuilder()
        self._replaced: dict[relax.Var, relax.Expr] = {}
        self._definitions: dict[relax.Var, relax.Expr] = {}
        self._readers = count_readers(function)
        self._bindings: list[relax.Binding] = []
        self._in_dataflow = True

    def definition(self, expr: relax.Expr) -> relax.Expr:
        """The expression `expr` is bound to; itself where it is no bound variable."""
        while isinstance(expr, relax.Var) and expr in self._definitions:
            expr = self._definitions[expr]
        return expr

    def reader_count(self, expr: relax.Expr) -> int:
        """How many bindings read the variable, the function's result counted as one."""
        return self._readers[expr]

    def emit(self, value: relax.Expr, names: tuple[str, ...] = ()) -> relax.Expr:
        """Bind `value` ahead of the call being rewritten and return the variable."""
        value = self.typed(value, names)
        if isinstance(value, relax.Var | tvm.ir.Constant | relax.Tuple):
            return value
        var = self._new_var(value, dataflow=self._in_dataflow)
        self._add(var, value)
        return var

    def run(self, rewrite: Rewrite) -> relax.Function:
        if has_control_flow(self.function):
            return self.function
        blocks = []
        for block in self.function.body.blocks:
            self._bindings = []
            self._in_dataflow = isinstance(block, relax.DataflowBlock)
            for binding in block.bindings:
                self._rewrite_binding(binding, rewrite)
            blocks.append((self._bindings, self._in_dataflow))
        body = self._substituted(self.function.body.body)
        return _rebuilt(self.function, blocks, body)

    def _rewrite_binding(self, binding: relax.Binding, rewrite: Rewrite) -> None:
        value = self._substituted(binding.value)
        if isinstance(binding, relax.MatchCast):
            self._bindings.append(relax.MatchCast(binding.var, value, binding.ty))
            return
        names = onnx_nodes_of(value)
        if isinstance(value, relax.Call | relax.TupleGetItem):
            replacement = rewrite(value)
            value = value if replacement is None else replacement
        value = self.typed(value, names)
        internal = isinstance(binding.var, relax.DataflowVar)
        if isinstance(value, relax.Var | tvm.ir.Constant) and internal:
            self._replaced[binding.var] = value
            self._readers[value] += self._readers[binding.var]
            return
        var = binding.var
        named = onnx_nodes_of(value)
        if (named and named[0] != var.name) or not _same_type(var, value):
            var = self._new_var(value, dataflow=internal, fallback=var.name)
            self._replaced[binding.var] = var
            self._readers[var] = self._readers[binding.var]
        self._add(var, value)

    def _add(self, var: relax.Var, value: relax.Expr) -> None:
        self._bindings.append(relax.VarBinding(var, value))
        self._definitions[var] = value

    def _new_var(self, value: relax.Expr, *, dataflow: bool, fallback: str = "value") -> relax.Var:
        name = next(iter(onnx_nodes_of(value)), fallback)
        return (relax.DataflowVar if dataflow else relax.Var)(name, value.ty)

    def typed(self, value: relax.Expr, names: tuple[str, ...] = ()) -> relax.Expr:
        """`value`, still unbound, with nested calls bound, its type known and its names set."""
        if isinstance(value, relax.Call):
            names = onnx_nodes_of(value) or names
            arguments = [self._bound_argument(argument, names) for argument in value.args]
            value = relax.Call(value.op, arguments, value.attrs, value.ty_args)
            return with_names(self._builder.normalize(value), names)
        if isinstance(value, relax.TupleGetItem):
            names = onnx_nodes_of(value) or names
            value = relax.TupleGetItem(self.emit(value.tuple_value, names), value.index)
            return with_names(self._builder.normalize(value), names)
        if isinstance(value, relax.Tuple):
            return self._bound_argument(value, names)
        return value

    def _bound_argument(self, argument: relax.Expr, names: tuple[str, ...]) -> relax.Expr:
        if isinstance(argument, relax.Tuple):
            fields = [self._bound_argument(field, names) for field in argument.fields]
            return self._builder.normalize(relax.Tuple(fields, argument.span))
        if isinstance(argument, relax.Call | relax.TupleGetItem):
            return self.emit(argument, names)
        return argument

    def _substituted(self, expr: relax.Expr) -> relax.Expr:
        return substitute(expr, self._replaced) if self._replaced else expr


def substitute(expr: relax.Expr, replaced: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """`expr` with its variables replaced; one level of call, tuples inside it included."""
    if isinstance(expr, relax.Var):
        while isinstance(expr, relax.Var) and expr in replaced:
            expr = replaced[expr]
        return expr
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(field, replaced) for field in expr.fields], expr.span)
    if isinstance(expr, relax.TupleGetItem):
        tuple_value = substitute(expr.tuple_value, replaced)
        return relax.TupleGetItem(tuple_value, expr.index, expr.span)
    if isinstance(expr, relax.Call):
        arguments = [substitute(argument, replaced) for argument in expr.args]
        return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args, expr.span, expr.ty)
    return expr


def variables_in(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables `expr` reads directly, as often as it reads them."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from variables_in(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from variables_in(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for argument in expr.args:
            yield from variables_in(argument)


def count_readers(function: relax.Function) -> Counter[relax.Var]:
    """How often each variable of the function is read, results included."""
    readers: Counter[relax.Var] = Counter(variables_in(function.body.body))
    for block in function.body.blocks:
        for binding in block.bindings:
            readers.update(variables_in(binding.value))
    return readers


def has_control_flow(function: relax.Function) -> bool:
    """Whether the function branches; the walks here take straight-line functions only."""
    return any(
        isinstance(binding.value, relax.If)
        for block in function.body.blocks
        for binding in block.bindings
    )


def _same_type(var: relax.Var, value: relax.Expr) -> bool:
    return bool(tvm_ffi.structural_equal(var.ty, value.ty))


def _rebuilt(
    function: relax.Function,
    blocks: list[tuple[list[relax.Binding], bool]],
    body: relax.Expr,
) -> relax.Function:
    """The function made of `blocks` (bindings, whether dataflow), without what nobody reads."""
    tidy_blocks = []
    for bindings, dataflow in blocks:
        tidy, stands_for = _without_output_aliases(bindings)
        body = substitute(body, stands_for)
        tidy_blocks.append((tidy, dataflow))
    live = set(variables_in(body))
    kept_blocks: list[relax.BindingBlock] = []
    for bindings, dataflow in reversed(tidy_blocks):
        kept = _live_bindings(bindings, live, dataflow)
        if kept:
            kept_blocks.append((relax.DataflowBlock if dataflow else relax.BindingBlock)(kept))
    builder = relax.BlockBuilder()
    sequence = relax.SeqExpr(kept_blocks[::-1], builder.normalize(body))
    return builder.normalize(
        relax.Function(
            function.params,
            sequence,
            sequence.body.ty,
            function.is_pure,
            function.attrs,
            function.span,
        )
    )


def _live_bindings(
    bindings: list[relax.Binding], live: set[relax.Var], dataflow: bool
) -> list[relax.Binding]:
    """The bindings someone reads, from the last to the first; `live` grows by what they read."""
    kept = []
    for binding in reversed(bindings):
        if binding.var in live or not dataflow or isinstance(binding, relax.MatchCast):
            live.update(variables_in(binding.value))
            kept.append(binding)
    return kept[::-1]


def _without_output_aliases(
    bindings: list[relax.Binding],
) -> tuple[list[relax.Binding], dict[relax.Var, relax.Expr]]:
    """`y = call; out = y` becomes one output named y; also which variables it stands for."""
    stands_for: dict[relax.Var, relax.Expr] = {}
    for binding in bindings:
        value = binding.value
        is_output = not isinstance(binding.var, relax.DataflowVar)
        if is_output and isinstance(value, relax.DataflowVar):
            output = stands_for.setdefault(value, relax.Var(value.name, value.ty))
            stands_for[binding.var] = output
    tidy = []
    for binding in bindings:
        if isinstance(binding.value, relax.DataflowVar) and binding.var in stands_for:
            continue
        value = substitute(binding.value, stands_for)
        var = stands_for.get(binding.var, binding.var)
        if isinstance(binding, relax.MatchCast):
            tidy.append(relax.MatchCast(var, value, binding.ty))
        else:
            tidy.append(relax.VarBinding(var, value))
    return tidy, stands_for
