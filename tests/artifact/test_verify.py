"""The first operator that goes astray is named, and one that does not is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.handmade_program import KERNELS
from tilewright.compiler.artifact import Artifact, make_artifact
from tilewright.compiler.program import Intermediate, KernelCall, Objects, Port, Program, Reference
from tilewright.compiler.verify import compare_operators, compare_outputs, verify
from tilewright.targets.errors import VerificationError

SUMS = Intermediate("sums", (6,), "float32", 128, 1, (0,))


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


def test_a_right_artifact_passes(program: Program, model: onnx.ModelProto) -> None:
    with make_artifact(replace(program, intermediates=(SUMS,))) as artifact:
        verify(artifact, model)
        inputs = {"x": np.ones((6, 5), np.float32)}
        (sums,) = compare_operators(artifact, model, inputs)
        assert (sums.tensor, sums.nodes, sums.elements) == ("sums", ("add up",), 6)


def test_the_first_wrong_operator_is_named(
    program: Program, model: onnx.ModelProto, compile_kernels: Callable[[str], bytes]
) -> None:
    """The second operator gets the first one's wrong sums, and is right about them."""
    kernels = compile_kernels(KERNELS.replace("sums[row] = 0;", "sums[row] = row == 2 ? 0.5 : 0;"))
    wrong = replace(
        program,
        host=replace(program.host, code=kernels),
        intermediates=(SUMS, Intermediate("y", (6,), "float32", 192, 2, (0,))),
    )
    with make_artifact(wrong) as artifact:
        with pytest.raises(VerificationError) as error:
            verify(artifact, model)
        sums, y = compare_operators(artifact, model, {"x": np.zeros((6, 5), np.float32)})
        assert (sums.holds, y.holds) == (False, True)
        (end,) = compare_outputs(artifact, model, {"x": np.zeros((6, 5), np.float32)})
        assert not end.holds
    assert str(error.value).startswith(
        "add up disagrees with onnxruntime on inputs of seed 0: sums: "
    )
    assert "elements differ, 0.5 where 0.000" in str(error.value)


def test_without_intermediates_the_outputs_are_compared(
    program: Program, model: onnx.ModelProto, compile_kernels: Callable[[str], bytes]
) -> None:
    kernels = compile_kernels(KERNELS.replace("+ bias[row]", "- bias[row]"))
    wrong = replace(program, host=replace(program.host, code=kernels))
    with make_artifact(wrong) as artifact, pytest.raises(VerificationError) as error:
        verify(artifact, model)
    assert str(error.value).startswith(
        "the model disagrees with onnxruntime on inputs of seed 0: y: 5 of 6 elements differ, 10 "
    )


@pytest.mark.parametrize(("shift", "holds"), [(0, True), (1, True), (2, False)])
def test_one_quantised_operator_may_be_one_step_away(
    program: Program, compile_kernels: Callable[[str], bytes], shift: int, holds: bool
) -> None:
    """y = x + x in int8 of scale 1, computed `shift` steps too high; arena NHWC, ONNX NCHW."""
    kernels = compile_kernels(
        "#include <stdint.h>\nint32_t twice(const int8_t *x, int8_t *y, int32_t b, int32_t e) {"
        "for (int channel = 0; channel < 3; ++channel) for (int pixel = 0; pixel < 2; ++pixel)"
        f"y[pixel * 3 + channel] = 2 * x[channel * 2 + pixel] + {shift}; return 0; }}"
    )
    scale, zero = np.float32(1), np.int8(0)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
            helper.make_node("Add", ["real", "real"], ["sum"], "twice"),
            helper.make_node("QuantizeLinear", ["sum", "scale", "zero"], ["y"]),
        ],
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (1, 3, 1, 2))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (1, 3, 1, 2))],
        [numpy_helper.from_array(np.array(scale), "scale")]
        + [numpy_helper.from_array(np.array(zero), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    step = KernelCall((), "twice", (Reference("arena", 0), Reference("arena", 64)), 1)
    twice = replace(
        program,
        name="twice",
        inputs=(Port("x", (1, 3, 1, 2), "int8", 0),),
        outputs=(),
        steps=(step,),
        host=Objects("x86_64-linux-gnu", "", "", kernels),
        intermediates=(Intermediate("y", (1, 1, 2, 3), "int8", 64, 1, (0, 3, 1, 2)),),
    )
    inputs = {"x": np.arange(6, dtype=np.int8).reshape(1, 3, 1, 2)}
    with make_artifact(twice) as artifact:
        (agreement,) = compare_operators(artifact, model, inputs)
    assert (agreement.distance, agreement.nodes, agreement.holds) == (shift, ("twice",), holds)


def test_nan_agrees_with_nan_only(artifact: Artifact, model: onnx.ModelProto) -> None:
    inputs = {"x": np.full((6, 5), np.nan, np.float32)}
    assert compare_outputs(artifact, model, inputs)[0].holds
    inputs["x"][:] = np.inf
    assert compare_outputs(artifact, model, inputs)[0].holds
