"""From a loaded model to one the importer takes: static shapes, recent operators, no leftovers."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tilewright.compiler.frontend.control_flow import flatten_control_flow, refuse_control_flow
from tilewright.compiler.frontend.faults import blaming_malformed
from tilewright.compiler.frontend.folding import fold_constants
from tilewright.compiler.frontend.functions import inline_functions
from tilewright.compiler.frontend.opset import raise_opset
from tilewright.compiler.frontend.refusals import refuse_operators
from tilewright.compiler.frontend.relax_import import importable_operators
from tilewright.compiler.frontend.rewrites import rewrite_operators
from tilewright.compiler.frontend.sequences import flatten_sequences
from tilewright.compiler.frontend.shapes import Shape, bind_shapes
from tilewright.compiler.frontend.tidy import drop_unused, name_nodes, sort_nodes


def prepare(model: onnx.ModelProto, shapes: Mapping[str, Shape] | None = None) -> onnx.ModelProto:
    """A copy of `model` ready for `import_to_relax`; `shapes` gives inputs by name.

    Nodes keep their names, nameless ones get one. Where a node is rewritten into several, their
    names derive from its own (passes/names.py). Raises ModelError for a model that cannot be
    prepared, be it malformed or only unsupported.
    """
    with blaming_malformed(model):
        return _prepared(model, shapes)


def _prepared(model: onnx.ModelProto, shapes: Mapping[str, Shape] | None) -> onnx.ModelProto:
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    bind_shapes(prepared, shapes)
    sort_nodes(prepared.graph)
    name_nodes(prepared.graph)
    prepared = raise_opset(prepared)
    prepared = inline_functions(prepared, importable_operators())
    drop_unused(prepared.graph)
    prepared = fold_constants(prepared)
    while flatten_control_flow(prepared):
        prepared = fold_constants(prepared)
    refuse_control_flow(prepared)
    flatten_sequences(prepared)
    refuse_operators(prepared, rewritten=False)
    rewrite_operators(prepared)
    prepared = fold_constants(prepared)
    refuse_operators(prepared, rewritten=True)
    drop_unused(prepared.graph)
    name_nodes(prepared.graph, only_nameless=True)
    return prepared
