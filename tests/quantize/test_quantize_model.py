"""Whole models made int8: what they lose, what runs where, and that all runtimes agree."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantized_digits import (
    MODELS,
    digit_arrays,
    digit_network,
    samples,
    with_uneven_channels,
)
from tilewright.compiler import compile_model
from tilewright.compiler.quantize import QuantizeOptions, quantize_model
from tilewright.compiler.quantize.evaluate import accuracy
from tilewright.compiler.quantize.observe import Runner
from tilewright.targets.errors import ModelError

PLAIN = QuantizeOptions(method="minmax", equalise=False, correct_bias=False)


def lost(model: onnx.ModelProto, options: QuantizeOptions) -> float:
    """Percentage points of accuracy on the test digits."""
    digits = digit_arrays()
    made = quantize_model(model, digits["calibration"], options)
    test, labels = samples(digits["test"]), digits["labels"]
    return accuracy(model, test, labels) - accuracy(made.model, test, labels)


@pytest.mark.parametrize("network", ["resnet", "mobilenetv2"])
def test_a_trained_network_keeps_its_accuracy(network: str) -> None:
    assert lost(digit_network(network), QuantizeOptions()) < 0.3


def test_folded_batch_norms_hurt_by_tensor_and_not_by_choice() -> None:
    uneven = with_uneven_channels(digit_network("resnet"))
    by_tensor = QuantizeOptions(
        method="minmax", equalise=False, correct_bias=False, per_channel=False
    )
    assert lost(uneven, by_tensor) >= 2.0
    assert lost(uneven, QuantizeOptions()) < 0.3


def test_equalisation_alone_repairs_uneven_channels() -> None:
    uneven = with_uneven_channels(digit_network("resnet"))
    repaired = QuantizeOptions(method="minmax", equalise=True, per_channel=False)
    assert lost(uneven, repaired) < 0.5


@pytest.mark.parametrize("name", ["mnist_conv", "gesture_cnn"])
def test_all_but_the_float_edges_run_on_the_npu_and_agree_with_onnxruntime(name: str) -> None:
    model = onnx.load(MODELS / f"{name}_fp32.onnx")
    entry = model.graph.input[0]
    shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    data = np.random.default_rng(0).random((8, *shape[1:]), np.float32)
    made = quantize_model(model, data, PLAIN).model
    output = made.graph.output[0].name
    runner = Runner(made, [output])
    with compile_model(made, "mcu-16") as artifact:
        for image in data[:3]:
            sample = {entry.name: image[None]}
            assert np.array_equal(artifact.run(sample)[output], runner.run(sample)[output])
        on_cpu = {row["op"] for row in artifact.report["operators"] if row["device"] == "cpu"}
    assert on_cpu <= {"QuantizeLinear", "DequantizeLinear", "Softmax"}


def test_calibration_and_compilation_in_one_go() -> None:
    digits = digit_arrays()
    with compile_model(
        digit_network("resnet"), "mcu-16", calibration=digits["calibration"][:8], quantize=PLAIN
    ) as artifact:
        made = onnx.load(artifact.directory / "quantized.onnx")
        sample = {"image": digits["test"][:1]}
        expected = Runner(made, ["logits"]).run(sample)["logits"]
        assert np.abs(artifact.run(sample)["logits"] - expected).max() <= 0.3


def test_tensors_keep_their_names_and_inputs_their_types() -> None:
    model = digit_network("resnet")
    made = quantize_model(model, digit_arrays()["calibration"][:8], PLAIN).model
    assert [value.name for value in made.graph.input] == ["image"]
    assert made.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    computed = {name for node in made.graph.node for name in node.output}
    assert {"/2/Relu_output_0", "/3/Relu_output_0", "logits"} <= computed


def test_the_same_data_makes_the_same_bytes() -> None:
    model, data = digit_network("mobilenetv2"), digit_arrays()["calibration"][:16]
    one, two = (quantize_model(model, data, QuantizeOptions()).model for _ in range(2))
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_sensitivity_ranks_the_broken_layer_first_and_max_drop_frees_it() -> None:
    model = with_uneven_channels(digit_network("resnet"), widest=7)
    digits = digit_arrays()
    options = QuantizeOptions(
        method="minmax",
        equalise=False,
        correct_bias=False,
        per_channel=False,
        max_drop=1.0,
        labels=[int(label) for label in digits["labels"]],
    )
    made = quantize_model(model, digits["test"][:128], options)
    assert made.drop is not None and made.drop <= 1.0
    assert 0 < len(made.in_float) < len(made.sensitivity)
    assert made.sensitivity[0].decibels < made.sensitivity[-1].decibels
    assert set(made.in_float) <= {harm.unit for harm in made.sensitivity[:8]}


def test_a_layer_can_be_kept_in_float() -> None:
    data = digit_arrays()["calibration"][:8]
    made = quantize_model(
        digit_network("resnet"),
        data,
        QuantizeOptions(method="minmax", in_float=["/3/body/body.0/Conv"]),
    ).model
    conv = next(node for node in made.graph.node if node.name == "/3/body/body.0/Conv")
    stored = {tensor.name: tensor for tensor in made.graph.initializer}
    assert stored[conv.input[1]].data_type == onnx.TensorProto.FLOAT


def test_ranges_that_settle_end_calibration_early() -> None:
    data = np.concatenate([digit_arrays()["calibration"]] * 4)
    made = quantize_model(
        digit_network("resnet"), data, QuantizeOptions(method="minmax", samples="auto")
    )
    assert made.samples < len(data)
    assert f"ranges settled after {made.samples} samples" in made.choices


def test_a_second_set_that_leaves_the_ranges_is_reported() -> None:
    data = digit_arrays()["calibration"][:32]
    options = QuantizeOptions(method="minmax", check_data=list(3 * data[:4]))
    departures = quantize_model(digit_network("resnet"), data, options).departures
    image = next(departure for departure in departures if departure.tensor == "image")
    assert image.beyond == pytest.approx(2.0, rel=0.1)
    assert "where 0 to 1 was calibrated" in str(image)


def test_suspicious_data_is_warned_about() -> None:
    options = QuantizeOptions(method="minmax", input_ranges={"image": (0.0, 255.0)})
    constant = np.full((4, 1, 28, 28), 0.5, np.float32)
    warnings = quantize_model(digit_network("resnet"), constant, options).warnings
    assert any("4 samples" in warning for warning in warnings)
    assert any("every value is 0.5" in warning for warning in warnings)
    assert any("use little of the declared range 0 to 255" in warning for warning in warnings)


def test_a_quantised_model_is_refused() -> None:
    model = onnx.load(MODELS / "resnet8_cifar_int8.onnx")
    with pytest.raises(ModelError, match="quantised already"):
        quantize_model(model, np.zeros((1, 32, 32, 3), np.int8), PLAIN)
