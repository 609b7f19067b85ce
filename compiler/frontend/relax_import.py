"""Import a prepared ONNX model into Relax, each binding named after its ONNX node."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from tilewright.compiler.frontend.converters import CONVERTERS
from tilewright.compiler.frontend.faults import blaming_malformed
from tilewright.compiler.frontend.opset import opset_of
from tilewright.compiler.frontend.shapes import input_shapes
from tilewright.passes.constants import has_static_type, shape_of
from tilewright.passes.fold_shapes import fold_shapes
from tilewright.passes.names import onnx_nodes_of, original_name, with_names
from tilewright.passes.rewriter import Rewriter
from tilewright.targets.errors import ModelError

# The importer takes these for operators of other domains; the standard's are functions.
MISUNDERSTOOD = frozenset({"Attention"})

UNKNOWN_NUMBERS = ("bfloat16", "float8_", "float6_", "float4_")

# The importer looks operators up by name alone; in these it means the contributed operator.
CONTRIBUTED = frozenset(
    {"BiasGelu", "FastGelu", "Gelu", "EmbedLayerNormalization", "SkipLayerNormalization"}
    | {"QGemm", "QLinearAdd", "QLinearMul"}
)


def import_to_relax(model: onnx.ModelProto) -> tvm.IRModule:
    """The model as a module whose `main` takes the graph's inputs and returns its outputs.

    One output is returned as it is, several as a tuple. Raises ModelError naming the node that
    cannot be imported.
    """
    with blaming_malformed(model):
        return _imported(model)


def _imported(model: onnx.ModelProto) -> tvm.IRModule:
    _refuse_unknown_operators(model.graph)
    importer = NamingImporter(input_shapes(model.graph))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            module = importer.from_onnx(model.graph, opset_of(model))
        except ModelError:
            importer.abandon()
            raise
        except Exception as error:  # the importer raises whatever its converters ran into
            importer.abandon()
            raise ModelError(importer.refusal(error)) from None
    module = fold_shapes(importer.with_names_set(module))
    _refuse_unknown_shapes(module["main"])
    _refuse_unknown_numbers(module["main"])
    return module


def importable_operators() -> frozenset[str]:
    """The standard operators that can be imported."""
    return frozenset({*_get_convert_map(), *CONVERTERS}) - MISUNDERSTOOD


def _refuse_unknown_operators(graph: onnx.GraphProto) -> None:
    known = importable_operators()
    for node in graph.node:
        standard = node.domain in ("", "ai.onnx")
        if node.op_type in known and (standard or node.op_type in CONTRIBUTED):
            continue
        operator = node.op_type if standard else f"{node.domain}.{node.op_type}"
        raise ModelError(
            f"{original_name(node.name)}: operator {operator} is not supported; "
            f"express it in other operators or cut the model before it"
        )


def _refuse_unknown_shapes(function: relax.Function) -> None:
    """Every value must be a tensor of known shape: kernels and memory are planned for it."""
    for block in function.body.blocks:
        for place, binding in enumerate(block.bindings):
            if not has_static_type(binding.var):
                named = (onnx_nodes_of(later.value) for later in block.bindings[place:])
                node = next((names[0] for names in named if names), binding.var.name)
                raise ModelError(
                    f"{node}: the shape of its result depends on the data; "
                    f"cut the model before it and leave the rest to the application"
                )


def _refuse_unknown_numbers(function: relax.Function) -> None:
    """Numbers that the code generator has no arithmetic for, or a wrong one."""
    inputs = [(one, [one.name]) for one in function.params]
    computed = [
        (binding.var, onnx_nodes_of(binding.value) or [binding.var.name])
        for block in function.body.blocks
        for binding in block.bindings
    ]
    for var, names in [*inputs, *computed]:
        types = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
        for kind in (str(one.dtype.dtype) for one in types if isinstance(one, relax.TensorType)):
            if kind.startswith(UNKNOWN_NUMBERS):
                raise ModelError(
                    f"{names[0]}: no code can be made for numbers of type {kind}; "
                    f"convert the model to float32 or float16"
                )


def _bound_constants(binding: relax.Binding) -> Iterator[relax.Binding]:
    """The tuple of results with a variable for each constant in it: results have places."""
    fields = []
    for field in binding.value.fields:
        if isinstance(field, tvm.ir.Constant):
            var = relax.Var("constant", field.ty)
            yield relax.VarBinding(var, _copy(field))
            fields.append(var)
        else:
            fields.append(field)
    yield relax.VarBinding(binding.var, relax.Tuple(fields))


def _copy(constant: relax.Expr) -> relax.Expr:
    """The constant as something computed, which TVM's passes do not put in its readers' place."""
    copied = relax.op.broadcast_to(constant, shape_of(constant))
    return relax.BlockBuilder().normalize(copied)


class NamingImporter(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, remembering which bindings each ONNX node made.

    Every node's result is bound as soon as it is converted, so the bindings between two results
    belong to the later one's node.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(shape_dict=dict(shapes), dtype_dict="float32", sanitize=False)
        self._node_of: dict[relax.Var, str] = {}
        self._node = ""
        self._operator = ""

    def refusal(self, error: Exception) -> str:
        """One line about why the node being converted cannot be imported."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        where = f"{self._node}: operator {self._operator}" if self._node else "the graph"
        return (
            f"{where} cannot be imported: {reason}; "
            f"rewrite it with other operators or cut the model before it"
        )

    def abandon(self) -> None:
        """Close the blocks a failed import left open, or TVM warns about them."""
        with contextlib.suppress(Exception):
            while True:
                self.bb._end_block()

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Done before, by `_refuse_unknown_operators`, which knows our own converters too."""

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        self._node, self._operator = original_name(attrs["tvm_custom"]["name"]), op_name
        own = CONVERTERS.get(op_name)
        result = own(inputs, attrs, opset) if own else None
        if result is None:
            result = super()._convert_operator(op_name, inputs, attrs, opset)
        else:
            result = self.bb.normalize(result)
        return self._bound(result)

    def _bound(self, result: relax.Expr) -> relax.Expr:
        if isinstance(result, relax.Tuple):
            return relax.Tuple([self._bound(field) for field in result.fields])
        if isinstance(result, relax.Call) and not isinstance(result.ty, relax.ShapeType):
            result = self.bb.emit(result)
        if isinstance(result, relax.Var):
            self._node_of.setdefault(result, self._node)
        return result

    def with_names_set(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with variables and spans named after ONNX nodes, and no alias bindings."""
        function = module["main"]
        named = relax.Function(
            function.params,
            relax.SeqExpr(
                [self._named_block(block) for block in function.body.blocks], function.body.body
            ),
            function.ret_ty,
            function.is_pure,
            function.attrs,
        )
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        updated["main"] = Rewriter(named).run(lambda value: None)
        return updated

    def _named_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        bindings = list(self._named_bindings(list(block.bindings)))
        return type(block)(bindings, block.span)

    def _named_bindings(self, bindings: list[relax.Binding]) -> Iterator[relax.Binding]:
        names = self._names_of(bindings)
        for binding, name in zip(bindings, names, strict=True):
            if isinstance(binding.value, relax.Tuple):
                yield from _bound_constants(binding)
            elif isinstance(binding.value, tvm.ir.Constant):
                yield relax.VarBinding(binding.var, _copy(binding.value))
            elif not name:
                yield binding
            elif isinstance(binding, relax.MatchCast):
                value = with_names(binding.value, [name])
                yield relax.MatchCast(binding.var, value, binding.ty)
            else:
                yield relax.VarBinding(binding.var, with_names(binding.value, [name]))

    def _names_of(self, bindings: list[relax.Binding]) -> list[str]:
        """The node of each binding: its own, or else that of the next result."""
        names: list[str] = []
        following = ""
        for binding in reversed(bindings):
            following = self._node_of.get(binding.var, following)
            names.append(following)
        names.reverse()
        by_var = dict(zip((binding.var for binding in bindings), names, strict=True))
        for index, binding in enumerate(bindings):
            if isinstance(binding.value, relax.TupleGetItem):
                names[index] = by_var.get(binding.value.tuple_value, names[index])
        return names
