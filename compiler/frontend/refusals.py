"""Say why an operator cannot be compiled, before the importer stumbles over it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto

from tilewright.compiler.frontend.onnx_graph import Graph, attributes_of
from tilewright.compiler.frontend.opset import opset_of
from tilewright.passes.names import original_name
from tilewright.targets.errors import ModelError

Reason = Callable[[onnx.NodeProto, Graph], str | None]
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
CUT = "cut the model before it and leave the rest to the application"
OPTIONAL = f"optional values are not supported; {CUT}"
DATA_DEPENDENT = f"the shape of its result depends on the data; {CUT}"


def refuse_operators(model: onnx.ModelProto, *, rewritten: bool) -> None:
    """ModelError for the first node that is known to be out of reach, before or after rewrites."""
    graph = Graph(model)
    reasons = REASONS if rewritten else REASONS_BEFORE
    for node in model.graph.node:
        _refuse_missing_inputs(node, opset_of(model))
        reason = reasons.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        text = reason(node, graph) if reason else None
        if text is not None:
            raise ModelError(f"{original_name(node.name)}: {text}")


def _refuse_missing_inputs(node: onnx.NodeProto, opset: int) -> None:
    """The importer reads operands that the standard promises without looking."""
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
        return
    try:
        needed = onnx.defs.get_schema(node.op_type, opset).min_input
    except onnx.defs.SchemaError:  # not of this operator set
        return
    if len(node.input) < needed:
        raise ModelError(
            f"{original_name(node.name)}: {node.op_type} has {len(node.input)} inputs, it needs "
            f"{needed}; repair or export the model anew"
        )


def _always(text: str) -> Reason:
    return lambda _node, _graph: text


def _needs_constant(place: int, what: str) -> Reason:
    """The operand at `place` decides the result's shape and must be constant."""

    def reason(node: onnx.NodeProto, graph: Graph) -> str | None:
        given = node.input[place] if place < len(node.input) else ""
        if not given or graph.array(given) is not None:
            return None
        return (
            f"the {what} of {node.op_type} is computed at run time, so the shape of its result "
            f"is not known; make it a constant of the model"
        )

    return reason


def _resize(node: onnx.NodeProto, graph: Graph) -> str | None:
    """Where the standard and its most used implementation disagree, or the importer errs."""
    given = attributes_of(node)
    if given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return "Resize that keeps the aspect ratio is not supported; give the sizes it comes to"
    scales = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    shape = graph.shapes.get(node.input[0])
    if given.get("coordinate_transformation_mode") != b"align_corners" or scales is None:
        return None
    if shape is None or len(shape) != scales.size or not scales.size:
        return None
    extents = scales.astype(np.float64) * np.asarray(shape)
    if np.allclose(extents, np.rint(extents), atol=1e-4):
        return None
    return (
        "Resize with aligned corners and scales that give no whole extents has no agreed meaning; "
        "give sizes instead of scales"
    )


def _integer_power(node: onnx.NodeProto, graph: Graph) -> str | None:
    if graph.element_type(node.input[0]) not in (TensorProto.INT32, TensorProto.INT64):
        return None
    return "Pow of integers is not supported; convert its base to float"


def _empty_extremum(node: onnx.NodeProto, graph: Graph) -> str | None:
    shape = graph.shapes.get(node.input[0])
    if shape is None or 0 not in shape:
        return None
    return f"{node.op_type} of no elements is not supported; leave it out"


def _rms_normalisation(node: onnx.NodeProto, graph: Graph) -> str | None:
    rank = len(graph.shapes.get(node.input[0], ()))
    if not rank or attributes_of(node).get("axis", -1) % rank:
        return None
    return "RMSNormalization over all axes is not supported; add an axis of one before them"


def _modulo(node: onnx.NodeProto, graph: Graph) -> str | None:
    if attributes_of(node).get("fmod", 0) or graph.element_type(node.input[0]) not in FLOATS:
        return None
    return "Mod of floats without fmod is wrong at infinities and zeros; export it with fmod=1"


def _roi_align(node: onnx.NodeProto, _graph: Graph) -> str | None:
    if attributes_of(node).get("mode", b"avg") != b"max":
        return None
    return "RoiAlign by maxima has no agreed meaning; use the mode avg"


def _max_pool(node: onnx.NodeProto, _graph: Graph) -> str | None:
    if len(node.output) < 2 or not node.output[1]:
        return None
    return "the indices of this MaxPool are not supported; compute them outside the model"


# Of operators that the rewrites would take for something else.
REASONS_BEFORE: dict[str, Reason] = {
    "ReduceMax": _empty_extremum,
    "ReduceMin": _empty_extremum,
    "Resize": _resize,
}

REASONS: dict[str, Reason] = {
    "Compress": _always(DATA_DEPENDENT),
    "MaxPool": _max_pool,
    "Mod": _modulo,
    "NonMaxSuppression": _always(DATA_DEPENDENT),
    "NonZero": _always(DATA_DEPENDENT),
    "Optional": _always(OPTIONAL),
    "OptionalGetElement": _always(OPTIONAL),
    "OptionalHasElement": _always(OPTIONAL),
    "Pad": _needs_constant(1, "padding"),
    "Pow": _integer_power,
    "ReduceLogSumExp": _empty_extremum,
    "RMSNormalization": _rms_normalisation,
    "Reshape": _needs_constant(1, "shape"),
    "Tile": _needs_constant(1, "number of repeats"),
    "RoiAlign": _roi_align,
    "ScatterND": _always(f"ScatterND is not supported; {CUT}"),
    "TopK": _needs_constant(1, "number of results"),
    "Unique": _always(DATA_DEPENDENT),
}
