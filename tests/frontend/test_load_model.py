"""What can be wrong with a file, each said in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.helper
import onnx.numpy_helper
import pytest

from tilewright.compiler.frontend import load_model, prepare
from tilewright.compiler.frontend.faults import blaming_malformed
from tilewright.targets.errors import ModelError

MODEL = Path(__file__).parents[1] / "models" / "dscnn_kws_int8.onnx"


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_model(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.onnx")


def test_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model at all, only text\n", b"\x00" * 64])
def test_not_an_onnx_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert "not an ONNX file" in refusal(path)


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.99])
def test_truncated_file(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "model.onnx"
    content = MODEL.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    assert "truncated or damaged" in refusal(path)


def external_model(folder: Path) -> Path:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "external",
        [value("x", onnx.TensorProto.FLOAT, [1, 64])],
        [value("y", onnx.TensorProto.FLOAT, [1, 64])],
        [weight],
    )
    path = folder / "model.onnx"
    onnx.save(
        onnx.helper.make_model(graph), path, save_as_external_data=True, location="weights.bin"
    )
    return path


def test_external_weights_are_read(tmp_path: Path) -> None:
    model = load_model(external_model(tmp_path))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), 1)


def test_missing_external_weights(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    (tmp_path / "weights.bin").unlink()
    assert "weight w lies in weights.bin, which is missing" in refusal(path)


def test_a_good_file_loads(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "model.onnx")
    assert load_model(tmp_path / "model.onnx") == onnx.load(MODEL)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL.read_bytes().replace(b"conv_15", b"conv_\xff5"))
    with pytest.raises(ModelError) as error:
        prepare(load_model(path))
    assert str(error.value) == "the model is malformed: a name in it is no text; export it again"


def test_malformed_graph_is_told_from_a_fault_of_ours() -> None:
    model = onnx.load(MODEL)
    with pytest.raises(ZeroDivisionError), blaming_malformed(model):
        raise ZeroDivisionError
    model.graph.node[0].ClearField("input")
    with (
        pytest.raises(ModelError, match=r"^the model is malformed: .*; export it again$"),
        blaming_malformed(model),
    ):
        raise ZeroDivisionError
