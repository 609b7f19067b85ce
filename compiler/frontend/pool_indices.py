"""MaxPool that also tells where each maximum lay, by comparing the taps of its window.

    y, at = MaxPool(x)  ->  y  = MaxPool(x)
                            at = Gather(tap offsets, ArgMax(the taps of x, one slice each)) + origin

A slice of the padded image for each tap holds that tap of every window. Positions are counted in
the image without its border, so the border, at minus infinity, is never one of them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx
import onnx.helper

from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of

MOST_TAPS = 64


def pool_with_indices(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """The nodes for both outputs; None where there is one, or the window is too large."""
    given = attributes_of(node)
    image, pooled = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    kernel = given["kernel_shape"]
    known = image is not None and pooled is not None and graph.is_float(node.input[0])
    if len(node.output) < 2 or not node.output[1] or not known or math.prod(kernel) > MOST_TAPS:
        return None
    if given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    assert image is not None and pooled is not None
    rank, prefix = len(kernel), node.output[1]
    strides, dilations = (given.get(key, [1] * rank) for key in ("strides", "dilations"))
    before = given.get("pads", [0] * 2 * rank)[:rank]
    reach = [
        (pooled[2 + axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        for axis in range(rank)
    ]
    after = [max(reach[a] - before[a] - image[2 + a], 0) for a in range(rank)]
    column_major = bool(given.pop("storage_order", 0))
    weights = _weights(image[2:], column_major)
    make = onnx.helper.make_node

    def integers(name: str, values: object) -> str:
        return graph.constant(f"{prefix}/{name}", np.asarray(values, np.int64))

    lowest = np.asarray(-np.inf, graph.real_type(node.input[0]))
    border = [
        integers("border", [0, 0, *before, 0, 0, *after]),
        graph.constant(f"{prefix}/lowest", lowest),
    ]
    padded = f"{prefix}/padded"
    nodes = [
        make("MaxPool", node.input, node.output[:1], **given),
        make("Pad", [node.input[0], *border], [padded]),
    ]
    axes, steps = integers("axes", list(range(2, 2 + rank))), integers("steps", strides)
    last = integers("last", [-1])
    taps, offsets = [], []
    for number, tap in enumerate(itertools.product(*map(range, kernel))):
        begin = [tap[a] * dilations[a] for a in range(rank)]
        end = [begin[a] + (pooled[2 + a] - 1) * strides[a] + 1 for a in range(rank)]
        bounds = [integers(f"begin_{number}", begin), integers(f"end_{number}", end)]
        nodes.append(make("Slice", [padded, *bounds, axes, steps], [f"{prefix}/tap_{number}"]))
        taps.append(f"{prefix}/column_{number}")
        nodes.append(make("Unsqueeze", [f"{prefix}/tap_{number}", last], [taps[-1]]))
        offsets.append(int(np.dot(begin, weights)))
    origin = integers("origin", _origin(image, pooled, strides, before, weights))
    return [
        *nodes,
        make("Concat", taps, [f"{prefix}/taps"], axis=-1),
        make("ArgMax", [f"{prefix}/taps"], [f"{prefix}/tap"], axis=-1, keepdims=0),
        make("Gather", [integers("offsets", offsets), f"{prefix}/tap"], [f"{prefix}/offset"]),
        make("Add", [f"{prefix}/offset", origin], [prefix]),
    ]


def _weights(image: tuple[int, ...], column_major: bool) -> list[int]:
    """Elements between neighbours along each axis of one channel."""
    order = image[::-1] if column_major else image
    steps = [math.prod(order[axis + 1 :]) for axis in range(len(order))]
    return steps[::-1] if column_major else steps


def _origin(
    image: tuple[int, ...],
    pooled: tuple[int, ...],
    strides: list[int],
    before: list[int],
    weights: list[int],
) -> np.ndarray:
    """The position of each window's first tap in the whole tensor, as if the border were image."""
    channels = np.arange(image[0] * image[1]) * math.prod(image[2:])
    total = channels.reshape(image[0], image[1], *[1] * len(weights))
    for axis, weight in enumerate(weights):
        places = (np.arange(pooled[2 + axis]) * strides[axis] - before[axis]) * weight
        total = total + places.reshape([-1 if at == axis else 1 for at in range(len(weights))])
    return total
