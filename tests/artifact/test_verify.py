"""The first operator that goes astray is named, and one that does not is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.handmade_program import KERNELS
from tilewright.compiler.artifact import Artifact, make_artifact
from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.onnx_parts import run_onnxruntime, show_inner_tensors
from tilewright.compiler.program import Intermediate, Port, Program
from tilewright.compiler.verify import (
    check_against_onnxruntime,
    compare_operators,
    compare_outputs,
    intermediates,
)
from tilewright.targets.errors import VerificationError

Array = np.ndarray[Any, Any]
MODELS = Path(__file__).parent.parent / "models"


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """What the hand-made program computes."""
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["sums"], "add up", keepdims=0),
            helper.make_node("Add", ["sums", "bias"], ["y"], "shift"),
        ],
        "row-sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (6, 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (6,))],
        [
            numpy_helper.from_array(np.array([1]), "axes"),
            numpy_helper.from_array(np.arange(6, dtype=np.float32), "bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_kernels(
    program: Program, compile_kernels: Callable[[str], bytes], old: str, new: str
) -> Program:
    """The program with a mistake in its kernels, and its inner sums to be seen in the arena."""
    code = compile_kernels(KERNELS.replace(old, new))
    sums = Intermediate("sums", (6,), "float32", 128, 1, (0,))
    y = Intermediate("y", (6,), "float32", 192, 2, (0,))
    return replace(program, host=replace(program.host, code=code), intermediates=(sums, y))


def test_right_outputs_agree(artifact: Artifact, model: onnx.ModelProto, x: Array) -> None:
    (y,) = compare_outputs(model, {"x": x}, artifact.run({"x": x}))
    assert (y.tensor, y.holds, y.elements) == ("y", True, 6)


def test_only_the_wrong_operator_is_blamed(
    program: Program, model: onnx.ModelProto, compile_kernels: Callable[[str], bytes], x: Array
) -> None:
    """The second operator gets the first one's wrong sums, and is right about them."""
    wrong = with_kernels(
        program, compile_kernels, "sums[row] = 0;", "sums[row] = row == 2 ? 0.5f : 0;"
    )
    with make_artifact(wrong) as artifact:
        found = intermediates(artifact, {"x": x})
        end = compare_outputs(model, {"x": x}, artifact.run({"x": x}))
    sums, y = compare_operators(model, {"x": x}, found)
    assert (sums.nodes, sums.holds) == (("add up",), False)
    assert (y.nodes, y.holds) == (("shift",), True)
    assert not end[0].holds


def test_nan_agrees_with_nan_only(artifact: Artifact, model: onnx.ModelProto) -> None:
    for value in (np.nan, np.inf):
        inputs = {"x": np.full((6, 5), value, np.float32)}
        found = artifact.run(inputs)
        assert compare_outputs(model, inputs, found)[0].holds
        found["y"][3] = 0
        (y,) = compare_outputs(model, inputs, found)
        assert (y.holds, y.differing, y.distance) == (False, 1, np.inf)


@pytest.mark.parametrize(
    "name", ["resnet8_cifar_int8", "dscnn_kws_int8", "autoencoder_ad_int8", "gesture_cnn_fp32"]
)
def test_every_operator_of_a_real_model_is_looked_at(name: str) -> None:
    """onnxruntime agrees with itself, and one element off by two steps is found where it is."""
    model = onnx.load(MODELS / f"{name}.onnx")
    shown = show_inner_tensors(model)
    inputs = {info.name: random_array(info) for info in model.graph.input}
    found = run_onnxruntime(shown, inputs, [info.name for info in shown.graph.output])
    agreements = list(compare_operators(model, inputs, found))
    assert all(agreement.holds for agreement in agreements)
    assert len(agreements) >= sum(node.op_type in ("Conv", "Gemm") for node in model.graph.node)
    culprit = agreements[len(agreements) // 2].tensor
    flat = found[culprit].reshape(-1)
    flat[0] += 2 if flat[0] < 0 else -2
    wrong = [one for one in compare_operators(model, inputs, found) if not one.holds]
    assert wrong[0].tensor == culprit
    assert len(wrong[0].nodes) <= 3


def random_array(info: onnx.ValueInfoProto) -> Array:
    kind = info.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    shape = [dimension.dim_value or 1 for dimension in kind.shape.dim]
    port = Port(info.name, tuple(shape), dtype.name, 0)
    row = {"name": port.name, "shape": shape, "dtype": port.dtype, "bytes": port.bytes}
    return random_inputs({"inputs": [row]}, 3)[info.name]


def verify(program: Program, model: onnx.ModelProto, showing: Program) -> None:
    """With `showing` for what compiling the model with all its tensors as outputs gives."""
    with make_artifact(program) as artifact:
        check_against_onnxruntime(artifact, model, lambda _shown: make_artifact(showing))


def test_the_first_wrong_operator_is_named(
    program: Program, model: onnx.ModelProto, compile_kernels: Callable[[str], bytes]
) -> None:
    verify(program, model, program)
    wrong = with_kernels(program, compile_kernels, "+ bias[row]", "- bias[row]")
    showing = replace(wrong, outputs=(Port("sums", (6,), "float32", 128), *wrong.outputs))
    with pytest.raises(VerificationError) as error:
        verify(wrong, model, showing)
    assert str(error.value).startswith(
        "shift disagrees with onnxruntime on inputs of seed 0: y: 5 of 6 elements differ, 10 where "
    )


def test_wrong_outputs_are_told_even_if_every_operator_is_right(
    program: Program, model: onnx.ModelProto, compile_kernels: Callable[[str], bytes]
) -> None:
    wrong = with_kernels(program, compile_kernels, "+ bias[row]", "- bias[row]")
    with pytest.raises(VerificationError) as error:
        verify(wrong, model, program)
    assert str(error.value).startswith(
        "the model disagrees with onnxruntime on inputs of seed 0: y: 5 of 6 elements differ, 10 "
    )


@pytest.mark.parametrize(("shift", "holds"), [(0, True), (1, True), (2, False)])
def test_one_quantised_operator_may_be_one_step_away(shift: int, holds: bool) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
            helper.make_node("Add", ["real", "real"], ["sum"], "twice"),
            helper.make_node("Relu", ["sum"], ["positive"], "relu"),
            helper.make_node("QuantizeLinear", ["positive", "scale", "zero"], ["y"]),
        ],
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (6,))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (6,))],
        [
            numpy_helper.from_array(np.array(1, np.float32), "scale"),
            numpy_helper.from_array(np.array(0, np.int8), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.arange(6, dtype=np.int8)
    (agreement,) = compare_operators(model, {"x": x}, {"y": 2 * x + np.int8(shift)})
    assert (agreement.distance, agreement.nodes, agreement.holds) == (
        shift,
        ("twice", "relu"),
        holds,
    )


def test_axes_of_the_arena_are_brought_back(
    program: Program, compile_kernels: Callable[[str], bytes], x: Array
) -> None:
    """The sums as a 1x2x3 image, channels last in the arena."""
    image = Intermediate("sums", (1, 2, 3), "float32", 128, 1, (0, 2, 1))
    with make_artifact(replace(program, intermediates=(image,))) as artifact:
        found = intermediates(artifact, {"x": x})["sums"]
    assert found.shape == (1, 3, 2)
    assert np.allclose(found[0].T.reshape(-1), x.sum(axis=1))
