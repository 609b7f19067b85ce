"""`tilewright inspect`: what it says of real files and of small graphs made for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler import cli
from tilewright.compiler.inspect_model import inspect_model, inspect_placement
from tilewright.targets.description import load_target

MODELS = Path(__file__).parents[1] / "models"


def convolution(
    shape: list[int | str | None], nodes: list[onnx.NodeProto], reads: str
) -> onnx.ModelProto:
    """A convolution of three channels that reads `reads`, computed from the input x by `nodes`."""
    weight = numpy_helper.from_array(np.ones((8, 3, 1, 1), np.float32), "w")
    graph = helper.make_graph(
        [*nodes, helper.make_node("Conv", [reads, "w"], ["y"], "conv")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_picture_channel_first_has_no_warning() -> None:
    facts = inspect_model(convolution([1, 3, 8, 8], [], "x"))
    assert (facts.inputs[0].layout, facts.outputs[0].layout) == ("NCHW", "NCHW")
    assert facts.inputs[0].dtype == "float32"
    assert not facts.warnings and not facts.unusual and not facts.inputs[0].is_dynamic


def test_nhwc_data_for_an_nchw_graph() -> None:
    model = convolution(["batch", 3, None, None], [], "x")
    assert inspect_model(model).inputs[0].dynamic_axes == [0, 2, 3]
    facts = inspect_model(model, {"x": (1, 8, 8, 3)})
    assert facts.warnings == (
        "x: its shape looks like NHWC, but Conv conv reads it as NCHW; transpose it",
    )


def test_nhwc_data_that_the_file_transposes() -> None:
    turn = helper.make_node("Transpose", ["x"], ["t"], "turn", perm=[0, 3, 1, 2])
    facts = inspect_model(convolution([1, 8, 8, 3], [turn], "t"))
    assert facts.inputs[0].layout == "NHWC"
    assert facts.warnings == ("x: takes NHWC, which the file transposes to NCHW for Conv conv",)


def test_unusual_operators() -> None:
    gelu = helper.make_node("FastGelu", ["x"], ["g"], "gelu", domain="com.microsoft")
    found = helper.make_node("NonZero", ["x"], ["n"], "found")
    facts = inspect_model(convolution([1, 3, 8, 8], [gelu, found], "x"))
    assert facts.unusual == (
        ("gelu", "FastGelu: of the domain com.microsoft"),
        ("found", "NonZero: the shape of its result depends on the data"),
    )


def test_placement_is_what_the_report_says() -> None:
    from tilewright.compiler import compile_model

    file = MODELS / "resnet8_cifar_int8.onnx"
    placement = inspect_placement(onnx.load(file), load_target("edge-128"), {})
    rows = compile_model(file, target="edge-128").report["operators"]
    on_npu = {row["name"] for row in rows if row["device"] == "npu"}
    on_cpu = {(row["name"], row["reason"]) for row in rows if row["device"] == "cpu"}
    assert on_npu and on_npu <= set(placement.on_npu)
    assert on_cpu == {(name, reason) for name, _, reason in placement.on_cpu}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(MODELS / "espcn_subpixel_fp32.onnx")
    assert cli.main(["inspect", file, "--target", "edge-128"]) == 0
    printed = capsys.readouterr().out
    assert "input   input   [1, 3, 4, 4]    float32  NCHW?" in printed
    assert "operators  4 Conv, 1 DepthToSpace, 3 Relu" in printed
    assert "edge-128: 0 ONNX nodes on the NPU, 8 on the CPU" in printed
    assert "Conv_0          Conv          gives float32; the NPU computes in int8" in printed


def test_what_is_not_known_is_shown_before_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "open.onnx")
    onnx.save(convolution(["batch", 3, None, None], [], "x"), file)
    assert cli.main(["inspect", file, "--target", "host"]) == 2
    printed = capsys.readouterr()
    assert "dynamic    x: axes 0 (batch), 2 (?), 3 (?); bind them with --shape" in printed.out
    assert printed.err == (
        "tilewright: input shapes are not all known: x [batch, 3, ?, ?]; bind them, for example "
        "tilewright compile model.onnx --target host -o out --shape x=1,3,224,224\n"
    )
    assert cli.main(["inspect", file, "--target", "host", "--shape", "x=1,3,8,8"]) == 0
