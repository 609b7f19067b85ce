"""Real networks, from the ONNX file to the bits that come out, on every kind of board."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.integer_form import convinteger_form, exposing, session
from tests.reference import run_reference
from tests.test_reference import ROUNDED_OTHERWISE, quantised_by, random_inputs
from tilewright.compiler import compile_model, load_artifact
from tilewright.compiler.artifact import Artifact
from tilewright.compiler.artifact.memory_use import measure_memory_use

MODELS = Path(__file__).parents[1] / "models"
QUANTISED = sorted(path.stem for path in MODELS.glob("*_int8.onnx"))
NPU_BOARDS = ("mcu-16", "edge-128")
SEEDS = range(20)
FLOAT_SHAPES = {
    "gesture_cnn_fp32": {},
    "mnist_conv_fp32": {},
    "espcn_subpixel_fp32": {"input": (1, 3, 48, 64)},
    "mtcnn_pnet_fp32": {"input_1": (1, 60, 80, 3)},
    "mtcnn_rnet_fp32": {"input_2": (2, 24, 24, 3)},
}


@functools.cache
def model(name: str) -> onnx.ModelProto:
    return onnx.load(MODELS / f"{name}.onnx")


@functools.cache
def compiled(name: str, target: str) -> Artifact:
    return compile_model(MODELS / f"{name}.onnx", target, FLOAT_SHAPES.get(name))


def digits(artifact: Artifact) -> list[str]:
    """A digest of every file, so that equal lists are equal artifacts."""
    files = sorted(path for path in artifact.directory.rglob("*") if path.is_file())
    return [
        f"{path.relative_to(artifact.directory)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
    ]


@pytest.mark.parametrize("name", QUANTISED)
def test_the_same_bits_on_every_board_and_in_numpy(name: str) -> None:
    boards = [compiled(name, target) for target in (*NPU_BOARDS, "host")]
    for seed in SEEDS:
        inputs = random_inputs(model(name), seed)
        expected = run_reference(model(name), inputs)
        for board in boards:
            for output, values in board.run(inputs).items():
                assert np.array_equal(values, expected[output].reshape(values.shape)), seed


@pytest.mark.parametrize("name", QUANTISED)
def test_the_same_bits_as_the_integer_form_in_onnxruntime(name: str) -> None:
    """Averages and softmax are fed: onnxruntime rounds them in float32."""
    network = model(name)
    fed = quantised_by(network, ROUNDED_OTHERWISE)
    names = [node.output[0] for node in network.graph.node if node.op_type == "QuantizeLinear"]
    compared = [value for value in names if value not in fed]
    judge = session(exposing(convinteger_form(network), compared, fed))
    last = compared[-1]
    artifact = compile_model(exposing(network, [last]), "mcu-16")
    for seed in SEEDS:
        inputs = random_inputs(network, seed)
        values = run_reference(network, inputs, every_value=True)
        (expected,) = judge.run([last], inputs | {name: values[name] for name in fed})
        assert np.array_equal(artifact.run(inputs)[last], expected.reshape(values[last].shape))


@pytest.mark.parametrize("name", QUANTISED)
def test_the_same_class_as_plain_qdq_in_onnxruntime(name: str) -> None:
    judge = session(model(name))
    for seed in SEEDS:
        inputs = random_inputs(model(name), seed)
        (expected,) = judge.run(None, inputs)
        (found,) = compiled(name, "mcu-16").run(inputs).values()
        if name.startswith("autoencoder"):  # gives a signal, not a class
            assert np.abs(found - expected).mean() < 0.01 * np.ptp(expected)
        else:
            assert np.argmax(found) == np.argmax(expected), seed


@pytest.mark.parametrize("target", NPU_BOARDS)
@pytest.mark.parametrize("name", QUANTISED)
def test_what_an_npu_is_for_runs_on_it(name: str, target: str) -> None:
    rows = compiled(name, target).report["operators"]
    products = {"Conv", "Gemm", "MatMul", "Add", "AveragePool", "MaxPool", "ReduceMean"}
    types = {node.name: node.op_type for node in model(name).graph.node}
    on_cpu = [row for row in rows if row["device"] == "cpu"]
    assert not [node for row in on_cpu for node in row["onnx_nodes"] if types.get(node) in products]
    assert all(row["reason"] for row in on_cpu)
    named = {node for row in rows for node in row["onnx_nodes"]}
    assert {node for node, kind in types.items() if kind in products} <= named


@pytest.mark.parametrize("target", NPU_BOARDS)
@pytest.mark.parametrize("name", QUANTISED)
def test_figures_stand_above_their_bounds(name: str, target: str) -> None:
    report = compiled(name, target).report
    totals, rows = report["totals"], report["operators"]
    assert totals["cycles"] >= totals["bound_cycles"] >= totals["roofline_cycles"] > 0
    assert totals["cycles"] == sum(row["cycles"] or 0 for row in rows)
    assert totals["arena_bytes"] == totals["arena_bound_bytes"]
    assert 0 < totals["mac_utilization"] <= 1


@pytest.mark.parametrize("target", (*NPU_BOARDS, "host"))
@pytest.mark.parametrize("name", QUANTISED)
def test_the_planned_arena_is_what_is_touched(name: str, target: str) -> None:
    artifact = compiled(name, target)
    assert measure_memory_use(artifact, random_inputs(model(name), 0)).is_as_planned


@pytest.mark.parametrize("target", ("host", "raspberry-pi-4"))
@pytest.mark.parametrize("name", FLOAT_SHAPES)
def test_float_networks_agree_with_onnxruntime(name: str, target: str) -> None:
    artifact = compiled(name, target)
    rng = np.random.default_rng(5)
    inputs = {
        port["name"]: rng.standard_normal(port["shape"]).astype(np.float32)
        for port in artifact.manifest["inputs"]
    }
    reference = onnx.ModelProto()
    reference.CopyFrom(model(name))
    for value in reference.graph.input:
        for dim, extent in zip(
            value.type.tensor_type.shape.dim, FLOAT_SHAPES[name].get(value.name, ()), strict=False
        ):
            dim.dim_value = extent
    del reference.graph.value_info[:]
    for value in reference.graph.output:
        value.type.tensor_type.ClearField("shape")
    judge = session(reference)
    names = [output.name for output in judge.get_outputs()]
    for output, expected in zip(names, judge.run(names, inputs), strict=True):
        found = artifact.run(inputs)[output]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("target", ("mcu-16", "host"))
def test_the_same_input_gives_the_same_bytes(target: str) -> None:
    again = compile_model(MODELS / "dscnn_kws_int8.onnx", target)
    assert digits(again) == digits(compiled("dscnn_kws_int8", target))


def test_a_saved_artifact_runs_as_the_fresh_one(tmp_path: Path) -> None:
    fresh = compiled("resnet8_cifar_int8", "mcu-16")
    fresh.save(tmp_path / "saved", tar=True)
    inputs = random_inputs(model("resnet8_cifar_int8"), 3)
    (expected,) = fresh.run(inputs).values()
    for path in (tmp_path / "saved", tmp_path / "saved.tar"):
        (found,) = load_artifact(path).run(inputs).values()
        assert np.array_equal(found, expected)
