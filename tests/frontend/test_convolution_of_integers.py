"""ConvInteger is exact, zero points, padding and groups included."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime

from tilewright.compiler import compile_model


def test_as_onnxruntime_has_it() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (2, 8, 9, 7), dtype=np.uint8)
    constants = {
        "w": random.integers(0, 256, (6, 4, 3, 3), dtype=np.uint8),
        "xz": np.uint8(11),
        "wz": np.uint8(120),
    }
    make = onnx.helper
    node = make.make_node(
        "ConvInteger", ["x", *constants], ["y"], pads=[1, 1, 1, 0], strides=[2, 1], group=2
    )
    graph = make.make_graph(
        [node],
        "graph",
        [make.make_tensor_value_info("x", onnx.TensorProto.UINT8, x.shape)],
        [make.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
        [
            onnx.numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
        ],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    result = compile_model(model, "host").run({"x": x})["y"]
    np.testing.assert_array_equal(result, session.run(None, {"x": x})[0])
