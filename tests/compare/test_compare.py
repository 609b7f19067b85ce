"""Layers broken on purpose are found and named, with the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from numpy.typing import NDArray

from tests.quantized_digits import MODELS, digit_arrays, digit_network
from tilewright.compiler import compile_model
from tilewright.compiler.compare import Row, Wishes, compare, first_below
from tilewright.compiler.compare.bisect import bisect
from tilewright.compiler.compare.compare import dump_name
from tilewright.compiler.onnx_parts import run_onnxruntime
from tilewright.compiler.pipeline import OPTIONAL_PASSES, graph_passes
from tilewright.compiler.quantize import QuantizeOptions, quantize_model
from tilewright.targets.errors import ArtifactError

LAYER = "/4/body/body.2/Relu_output_0"  # the tensor in which the broken layer ends
CONV = "/4/body/body.0/Conv"
Break = Callable[[dict[str, onnx.TensorProto]], None]


@pytest.fixture(scope="module")
def quantised() -> onnx.ModelProto:
    options = QuantizeOptions(method="minmax", equalise=False, correct_bias=False)
    return quantize_model(
        digit_network("resnet"), digit_arrays()["calibration"][:64], options
    ).model


@pytest.fixture(scope="module")
def inputs() -> dict[str, NDArray[Any]]:
    return {"image": digit_arrays()["test"][:1]}


def rows_of(model: onnx.ModelProto, inputs: dict[str, Any], wishes: Wishes) -> list[Row]:
    with compile_model(model, "host") as artifact:
        return list(compare(digit_network("resnet"), model, artifact, inputs, wishes))


def broken(model: onnx.ModelProto, breaks: Break) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    breaks({tensor.name: tensor for tensor in copy.graph.initializer})
    return copy


def change(tensor: onnx.TensorProto, how: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    values = np.ascontiguousarray(how(onnx.numpy_helper.to_array(tensor)))
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def wrong_scale(tensors: dict[str, onnx.TensorProto]) -> None:
    for part in ("weight", "bias"):
        change(tensors[f"{CONV}/{part}/scale"], lambda scale: scale * np.float32(0.5))


def swapped_layout(tensors: dict[str, onnx.TensorProto]) -> None:
    change(tensors[f"{CONV}/weight/quantized"], lambda weight: weight.transpose(0, 1, 3, 2))


def permuted_channels(tensors: dict[str, onnx.TensorProto]) -> None:
    for part in ("weight/quantized", "weight/scale", "bias/quantized", "bias/scale"):
        change(tensors[f"{CONV}/{part}"], lambda values: np.roll(values, 1, axis=0))


def saturated(tensors: dict[str, onnx.TensorProto]) -> None:
    change(tensors[f"{LAYER}/scale"], lambda scale: scale * np.float32(0.1))


def test_a_good_artifact_has_no_layer_below(
    quantised: onnx.ModelProto, inputs: dict[str, Any]
) -> None:
    rows = rows_of(quantised, inputs, Wishes())
    assert first_below(rows, 25.0) is None
    assert [row.tensor for row in rows][-1] == "logits"
    fused = next(row for row in rows if row.tensor == LAYER)
    assert fused.nodes == (CONV, "/4/body/body.1/BatchNormalization", "/4/body/body.2/Relu")
    assert fused.measures.cosine > 0.999


@pytest.mark.parametrize(
    ("breaks", "cause"),
    [
        (wrong_scale, "scale: the values are 0.5"),
        (permuted_channels, "channels permuted: 24 of them, channel 0 holds 23's"),
        (saturated, "saturation"),
        (swapped_layout, "no single cause"),
    ],
)
def test_a_broken_layer_is_named(
    quantised: onnx.ModelProto, inputs: dict[str, Any], breaks: Break, cause: str
) -> None:
    first = first_below(rows_of(broken(quantised, breaks), inputs, Wishes()), 20.0)
    assert first is not None
    assert first.tensor == LAYER
    assert first.nodes[0] == CONV
    assert first.hint.startswith(cause)
    assert first.measures.channels


@pytest.fixture(scope="module")
def small() -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A float model, its quantised form and inputs."""
    model = onnx.load(MODELS / "mnist_conv_fp32.onnx")
    digits = 255 * digit_arrays()["calibration"][:8]
    made = quantize_model(model, digits, QuantizeOptions(method="minmax", equalise=False))
    return model, made.model, {"Input3": digits[:1]}


def test_unfused_shows_what_is_inside_an_operator(small: tuple[Any, Any, Any]) -> None:
    model, made, inputs = small
    with compile_model(made, "host") as artifact:
        fused = {row.tensor for row in compare(model, made, artifact, inputs, Wishes())}
        rows = list(compare(model, made, artifact, inputs, Wishes(unfused=True)))
    assert "Plus30_Output_0" in {row.tensor for row in rows} - fused
    assert first_below(rows, 20.0) is None


def test_dumps_stand_in_for_onnxruntime(
    quantised: onnx.ModelProto, inputs: dict[str, Any], tmp_path: Path
) -> None:
    names = ["/2/Relu_output_0", LAYER]
    model = digit_network("resnet")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    for name, values in run_onnxruntime(shown, inputs, names).items():
        np.save(tmp_path / f"{dump_name(name)}.npy", values)
    rows = rows_of(broken(quantised, wrong_scale), inputs, Wishes(tensors=tmp_path))
    assert [row.tensor for row in rows] == names
    assert all(row.own_sqnr is None for row in rows)
    first = first_below(rows, 20.0)
    assert first is not None and first.tensor == LAYER


def test_another_models_artifact_is_refused(
    quantised: onnx.ModelProto, inputs: dict[str, Any]
) -> None:
    other = broken(quantised, wrong_scale)
    with (
        compile_model(other, "host") as artifact,
        pytest.raises(ArtifactError, match="made from another model"),
    ):
        list(compare(digit_network("resnet"), quantised, artifact, inputs, Wishes()))


def test_a_float_model_whose_shown_tensors_stop_fusion(inputs: dict[str, Any]) -> None:
    rows = rows_of(digit_network("resnet"), inputs, Wishes())
    assert rows and first_below(rows, 80.0) is None


def test_another_float_models_artifact_is_refused(inputs: dict[str, Any]) -> None:
    model = digit_network("resnet")
    weights = {one.name for one in model.graph.initializer}
    other = broken(model, lambda tensors: change(tensors[min(weights)], lambda array: array * 1.01))
    with (
        compile_model(other, "host") as artifact,
        pytest.raises(ArtifactError, match="made from another model"),
    ):
        list(compare(model, model, artifact, inputs, Wishes()))


@pytest.mark.long
def test_leaving_passes_out_changes_nothing(small: tuple[Any, Any, Any]) -> None:
    model, made, inputs = small
    with compile_model(made, "mcu-16") as artifact:
        steps = list(bisect(model, made, artifact, inputs))
    assert [step.left_out for step in steps] == [None, *OPTIONAL_PASSES]
    assert all(step.sqnr is not None and step.sqnr > 25 for step in steps)


def test_optional_passes_are_passes() -> None:
    names: Iterator[str] = (one.info.name for one in graph_passes())
    assert set(OPTIONAL_PASSES) - {"pad_channels"} <= set(names)
