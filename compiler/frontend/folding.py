"""Compute what does not depend on the inputs: constants and shape arithmetic.

onnxruntime evaluates the foldable nodes, all of a round in one run and without optimisation, so
that a folded value is the value the model would have had. DequantizeLinear stays: it marks where
a quantised weight enters. Names of nodes that remain do not change, which is why onnxruntime's own
optimiser, which renames and duplicates nodes, does not do this.
"""

from __future__ import annotations

import contextlib
import io
import math

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference
import onnxruntime
from numpy.typing import NDArray

from tilewright.compiler.frontend.tidy import names_read

KEPT = frozenset({"DequantizeLinear", "If", "Loop", "Scan"})
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}
    | {"Multinomial", "Dropout"}
)
# A folded value above this is cheaper computed on the board than carried in its weights.
LARGEST_FOLDED_BYTES = 64 << 20
GROWING = frozenset({"ConstantOfShape", "Expand", "Tile", "Range", "EyeLike"})
ROUNDS = 32

Array = NDArray[np.generic]


def fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with constant nodes and known shapes replaced by initialisers."""
    for _ in range(ROUNDS):
        model = with_inferred_shapes(model)
        shapes = known_shapes(model.graph)
        changed = _fold_shape_queries(model.graph, shapes)
        changed |= _fold_empty_values(model.graph, shapes)
        changed |= _fold_constant_nodes(model, shapes)
        if not changed:
            break
    return model


def with_inferred_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes onnx can infer; as it was where inference gives up."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # malformed corners; the importer infers for itself and will name them
        return model


def known_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Every value whose shape is all numbers."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in [*graph.value_info, *graph.input, *graph.output]:
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            dims = tensor.shape.dim
            if all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
                shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _fold_shape_queries(graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Replace Shape and Size of values with known shapes."""
    folded: dict[str, Array] = {}
    for node in graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type in ("Shape", "Size"):
            shape = shapes.get(node.input[0])
            if shape is None:
                continue
            if node.op_type == "Size":
                folded[node.output[0]] = np.asarray(math.prod(shape), np.int64)
            else:
                bounds = {attribute.name: attribute.i for attribute in node.attribute}
                part = shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
                folded[node.output[0]] = np.asarray(part, np.int64)
    return _replace(graph, folded)


def _fold_empty_values(graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    """A value without elements is the constant it is, whatever computes it."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    types |= {value.name: value.type.tensor_type.elem_type for value in graph.output}
    empty = {
        name: np.zeros(shapes[name], onnx.helper.tensor_dtype_to_np_dtype(types[name]))
        for node in graph.node
        for name in node.output
        if types.get(name) and 0 in shapes.get(name, ())
    }
    return _replace(graph, empty)


def _fold_constant_nodes(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    foldable = []
    for node in graph.node:
        if _is_foldable(node, shapes) and all(name in constants for name in names_read(node)):
            foldable.append(node)
            constants.update(name for name in node.output if name)
    if not foldable:
        return False
    values = _evaluate(model, foldable)
    if values is None:  # some node cannot be evaluated: find out which, one by one
        values = {}
        for node in foldable:
            values |= _evaluate(model, [node]) or {}
    return _replace(graph, values)


def _is_foldable(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    if node.op_type in KEPT or node.op_type in RANDOM or "Sequence" in node.op_type:
        return False
    if node.op_type in GROWING:
        size = math.prod(shapes.get(node.output[0], (LARGEST_FOLDED_BYTES,)))
        return size * 8 <= LARGEST_FOLDED_BYTES
    return True


def _evaluate(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> dict[str, Array] | None:
    """What the nodes compute from the model's initialisers; None when onnxruntime refuses."""
    read = {name for node in nodes for name in names_read(node)}
    outputs = [name for node in nodes for name in node.output if name]
    initializers = [tensor for tensor in model.graph.initializer if tensor.name in read]
    if not {name for node in nodes for name in node.input if name} <= {
        *(tensor.name for tensor in initializers),
        *outputs,
    }:
        return None
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "constants", [], results, initializers)
    part = onnx.helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=min(model.ir_version, 10)
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints before it raises
            session = onnxruntime.InferenceSession(
                part.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        values = session.run(outputs, {})
    except Exception:  # onnxruntime raises a dozen unrelated classes
        return None
    if not all(isinstance(value, np.ndarray) for value in values):
        return None
    return dict(zip(outputs, values, strict=True))


def _replace(graph: onnx.GraphProto, values: dict[str, Array]) -> bool:
    """Turn the outputs in `values` into initialisers and remove the nodes that made them."""
    if not values:
        return False
    kept = [
        onnx.NodeProto.FromString(node.SerializeToString())
        for node in graph.node
        if not all(name in values or not name for name in node.output)
    ]
    removed = len(graph.node) - len(kept)
    graph.ClearField("node")
    graph.node.extend(kept)
    present = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in values.items()
        if name not in present
    )
    return removed > 0
