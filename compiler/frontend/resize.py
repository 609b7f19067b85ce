"""Resize along one axis is a matrix; nearest neighbour is a choice of indices.

    Resize(x, linear or cubic)  ->  MatMul by a constant matrix, an axis at a time
    Resize(x, nearest)          ->  Gather of constant indices, an axis at a time

The matrix is what onnxruntime makes of the identity, so every coordinate mode, antialiasing,
cubic coefficient and rounding is the standard's. Plain enlargements, which the importer gets
right and kernels do faster, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


def resize_by_matrices(
    node: onnx.NodeProto,
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    array: Callable[[str], Array | None],
    constant: Callable[[str, Array], str],
) -> list[onnx.NodeProto] | None:
    """The nodes that replace a Resize; None where the importer may have it."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    source, target = shapes.get(node.input[0]), shapes.get(node.output[0])
    if source is None or target is None or len(source) != len(target):
        return None
    if given.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        return None
    scales, sizes = _requests(node, array, given, len(source))
    changed = [axis for axis in range(len(source)) if scales[axis] != 1 or sizes[axis] is not None]
    changed = [axis for axis in changed if sizes[axis] != source[axis]]
    if _importer_is_right(given, source, target, changed, scales):
        return None
    nearest = given.get("mode", b"nearest") == b"nearest"
    if not changed or not (nearest or all(axis >= len(source) - 2 for axis in changed)):
        return None
    nodes, running = [], node.input[0]
    for place, axis in enumerate(changed):
        last = place == len(changed) - 1
        result = node.output[0] if last else f"{node.output[0]}/{axis}"
        matrix = _along_axis(model, given, source[axis], scales[axis], sizes[axis], nearest)
        if matrix is None:
            return None
        is_last_axis = axis == len(source) - 1
        kept = matrix if nearest or is_last_axis else matrix.T
        name = constant(f"{node.output[0]}/resize_{axis}", kept)
        operands = [running, name] if nearest or is_last_axis else [name, running]
        if nearest:
            nodes.append(onnx.helper.make_node("Gather", operands, [result], axis=axis))
        else:
            nodes.append(onnx.helper.make_node("MatMul", operands, [result]))
        running = result
    return nodes


def _requests(
    node: onnx.NodeProto, array: Callable[[str], Array | None], given: dict[str, Any], rank: int
) -> tuple[list[float], list[int | None]]:
    """What the node asks for along each axis: a scale, or else a size."""
    axes = [int(axis) % rank for axis in given.get("axes", range(rank))]
    scales: list[float] = [1.0] * rank
    sizes: list[int | None] = [None] * rank
    names = list(node.input) + [""] * 4
    asked = array(names[2]) if names[2] else None
    if asked is not None and asked.size:
        for axis, scale in zip(axes, asked, strict=True):
            scales[axis] = float(scale)
    elif names[3] and (asked := array(names[3])) is not None:
        for axis, size in zip(axes, asked, strict=True):
            sizes[axis] = int(size)
    return scales, sizes


def _importer_is_right(
    given: dict[str, Any],
    source: tuple[int, ...],
    target: tuple[int, ...],
    changed: list[int],
    scales: list[float],
) -> bool:
    """Whether the node enlarges height and width of a 4-D image by whole numbers, plainly."""
    whole = all(target[axis] % source[axis] == 0 for axis in changed)
    as_asked = all(scales[axis] in (1.0, target[axis] / source[axis]) for axis in changed)
    image = len(source) == 4 and all(axis >= 2 for axis in changed)
    mode = given.get("mode", b"nearest")
    transform = given.get("coordinate_transformation_mode", b"half_pixel")
    rounding = given.get("nearest_mode", b"round_prefer_floor")
    plain = {
        b"nearest": (transform, rounding)
        in ((b"asymmetric", b"floor"), (b"half_pixel", b"round_prefer_floor")),
        b"linear": transform in (b"half_pixel", b"asymmetric", b"align_corners"),
        b"cubic": False,
    }
    return whole and as_asked and image and not given.get("antialias") and plain.get(mode, False)


def _along_axis(
    model: onnx.ModelProto,
    given: dict[str, Any],
    extent: int,
    scale: float,
    size: int | None,
    nearest: bool,
) -> Array | None:
    """The indices of a nearest resize, or the [input, output] matrix of an interpolating one."""
    attributes = {key: value for key, value in given.items() if key != "axes"}
    attributes.pop("keep_aspect_ratio_policy", None)
    if size is None:
        request = np.array([1, 1, scale, 1], np.float32)
        names = ["x", "", "request"]
    else:
        request = np.array([1, extent, size, 1], np.int64)
        names = ["x", "", "", "request"]
    # x[0, channel, position, 0]: the position itself, or one where channel is position.
    x = np.eye(extent, dtype=np.float32)
    if nearest:
        x = np.tile(np.arange(extent, dtype=np.float32), (extent, 1))
    x = x[None, :, :, None]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Resize", names, ["y"], **attributes)],
        "resize",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(request, "request")],
    )
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    try:
        session = onnxruntime.InferenceSession(
            single.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        (y,) = session.run(None, {"x": x})
    except Exception:  # onnxruntime refuses; then the importer may try
        return None
    if nearest:
        return np.asarray(np.rint(y[0, 0, :, 0]), np.int64)
    return np.asarray(y[0, :, :, 0])
