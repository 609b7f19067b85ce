"""Recompute `roofline_cycles` and `bound_cycles` of an int8 network without the compiler.

    python benchmarks/recompute_bounds.py MODEL.onnx BOARD.toml

Only the ONNX file and the board's TOML are read; the formulas stand in schedules/npu/bounds.py and
are written out here once more. The whole network is taken to run on the NPU. QDQ models with
Conv, Gemm, MatMul by constants, pooling, Add and Mul; ReLU and Clip belong to what they follow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_VIEWS = {"QuantizeLinear", "DequantizeLinear", "Relu", "Clip", "Reshape", "Flatten", "Squeeze",
          "Unsqueeze", "Transpose", "Identity", "Constant"}  # fmt: skip


def recompute(model: onnx.ModelProto, npu: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Roofline and bound of the network in cycles, and the ONNX types that were not counted."""
    graph = shape_inference.infer_shapes(model).graph
    known = (*graph.value_info, *graph.input, *graph.output)
    shapes = {one.name: [d.dim_value or 1 for d in one.type.tensor_type.shape.dim] for one in known}
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    macs, mac_cycles, vector, weight_bytes = 0, 0.0, 0, 0
    left_out = []
    for node in graph.node:
        elements = math.prod(shapes.get(node.output[0], [0]))
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            weight = _constant(node.input[1], constants, makers).shape
            groups = 1
            if node.op_type == "Conv":
                groups = next((a.i for a in node.attribute if a.name == "group"), 1)
                outputs, inner, taps = weight[0], weight[1], math.prod(weight[2:])
            else:
                turned = any(a.name == "transB" and a.i for a in node.attribute)
                inner, outputs = (weight[1], weight[0]) if turned else weight
                taps = 1
            macs += elements * inner * taps
            weight_bytes += math.prod(weight) + 4 * outputs
            pixels = elements // outputs
            mac_cycles += _mac_cycles(npu, pixels, taps, inner, outputs, groups)
            vector += elements
        elif node.op_type in ("AveragePool", "MaxPool"):
            kernel = next(list(a.ints) for a in node.attribute if a.name == "kernel_shape")
            vector += elements * math.prod(kernel)
        elif node.op_type in ("GlobalAveragePool", "ReduceMean"):
            vector += math.prod(shapes[node.input[0]])
        elif node.op_type in ("Add", "Mul"):
            vector += elements
        elif node.op_type not in _VIEWS:
            left_out.append(node.op_type)
    moved_in = weight_bytes + sum(
        math.prod(shapes[one.name]) for one in graph.input if one.name not in constants
    )
    moved_out = sum(math.prod(shapes[one.name]) for one in graph.output)
    array, memory = npu["array"], npu["memory"]
    dram = memory["dram_gb_per_s"] * 1000 / npu["clock_mhz"]
    port = memory["dma_bytes_per_cycle"]
    roofline = math.ceil(max(macs / (array["rows"] * array["columns"]),
                             (moved_in + moved_out) / dram))  # fmt: skip
    engines = (mac_cycles, vector / npu["vector"]["lanes"], moved_in / port, moved_out / port)
    return roofline, max(roofline, math.ceil(max(engines) - 1e-9)), sorted(set(left_out))


def _constant(
    name: str, constants: Mapping[str, np.ndarray[Any, Any]], makers: Mapping[str, onnx.NodeProto]
) -> np.ndarray[Any, Any]:
    while name not in constants:
        name = makers[name].input[0]
    return constants[name]


def _mac_cycles(
    npu: Mapping[str, Any], pixels: int, taps: int, inner: int, outputs: int, groups: int
) -> float:
    if groups == outputs and inner == 1 and groups > 1:
        return _depthwise(npu, pixels, taps, outputs)
    each = outputs // groups
    return min(
        groups // bundle * _convolution(npu, pixels, taps, inner * bundle, each * bundle)
        for bundle in range(1, groups + 1)
        if groups % bundle == 0
    )


def _convolution(npu: Mapping[str, Any], pixels: int, taps: int, inner: int, outputs: int) -> float:
    array = npu["array"]
    parts = array.get("subarrays", 1)
    rows = array["rows"] // parts
    flattened = array["reduction"] == "flattened"
    depth, turns = (taps * inner, 1) if flattened else (inner, taps)
    columns = math.ceil(outputs / array["columns"])
    if array["weight_double_buffer"]:
        port = depth / array["weight_rows_per_cycle"]
        return columns * turns * max(math.ceil(depth / rows) * pixels / parts, port)

    def one_pass(used: int, shared: float) -> float:
        load = math.ceil(used / array["weight_rows_per_cycle"])
        return load + used + array["columns"] - 3 + shared

    return columns * turns * min(
        whole * one_pass(array["rows"], pixels)
        + max(math.ceil((depth - whole * array["rows"]) / rows), 0) * one_pass(rows, pixels / parts)
        for whole in range(math.ceil(depth / array["rows"]) + 1)
    )  # fmt: skip


def _depthwise(npu: Mapping[str, Any], pixels: int, taps: int, outputs: int) -> float:
    array, how = npu["array"], npu["depthwise"]
    if how["mode"] == "unit":
        return pixels * taps * outputs / how["macs_per_cycle"]
    if how["mode"] == "vector":
        return pixels * taps * outputs / npu["vector"]["lanes"]
    passes = taps * math.ceil(outputs / min(array["rows"], array["columns"]))
    if array["weight_double_buffer"]:
        return max(passes * pixels, taps * outputs / array["weight_rows_per_cycle"])
    load = math.ceil(array["rows"] / array["weight_rows_per_cycle"])
    return passes * (load + array["rows"] + array["columns"] - 3 + pixels)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: recompute_bounds.py MODEL.onnx BOARD.toml")
    npu = tomllib.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))["npu"]
    roofline, bound, left_out = recompute(onnx.load(sys.argv[1]), npu)
    print(f"roofline_cycles {roofline}\nbound_cycles    {bound}")
    if left_out:
        print(f"not counted: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
