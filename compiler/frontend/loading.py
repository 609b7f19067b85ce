"""Read an ONNX file, or say in one line why it cannot be read."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model

from tilewright.compiler.frontend.faults import blaming_malformed
from tilewright.targets.errors import ModelError


def load_model(path: str | Path) -> onnx.ModelProto:
    """The model at `path`, external weights included; ModelError names what is wrong with it."""
    path = Path(path)
    model = _parsed(path, _bytes_of(path))
    with blaming_malformed(model):
        _require_external_data(model, path)
    try:
        load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: its external weights cannot be read: {reason}") from None
    return model


def _bytes_of(path: Path) -> bytes:
    if path.is_dir():
        raise ModelError(f"{path}: is a directory; give the .onnx file inside it")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of an ONNX model") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None


def _parsed(path: Path, content: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # protobuf's DecodeError, whose module is not ours to depend on
        if _looks_like_onnx(content):
            message = "truncated or damaged ONNX file; export or download it again"
        else:
            message = "not an ONNX file; export the model to .onnx first"
        raise ModelError(f"{path}: {message}") from None
    if not model.ir_version or not (model.graph.node or model.graph.output):
        raise ModelError(f"{path}: not an ONNX file; export the model to .onnx first")
    return model


def _looks_like_onnx(content: bytes) -> bool:
    """ONNX files begin with field 1, the IR version, a small number."""
    return len(content) > 2 and content[0] == 0x08 and 0 < content[1] < 64


def _require_external_data(model: onnx.ModelProto, path: Path) -> None:
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        location = ExternalDataInfo(tensor).location
        if not (path.parent / location).is_file():
            raise ModelError(
                f"{path}: weight {tensor.name} lies in {location}, which is missing; "
                f"put that file beside the model"
            )
