"""Raise a model to an operator set the importer knows well."""

from __future__ import annotations

import onnx
import onnx.version_converter

OLDEST = 13  # where Squeeze, ReduceSum and friends take their axes as inputs


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set the model was written for."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return max(versions, default=1)


def raise_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model at opset 13 or later; as it was where onnx cannot convert it.

    The importer reads older operator sets too, only less of them, so a failed conversion is no
    error: what then cannot be imported is refused by name later.
    """
    if opset_of(model) >= OLDEST:
        return model
    try:
        raised = onnx.version_converter.convert_version(model, OLDEST)
        onnx.checker.check_model(raised)
    except Exception:  # onnx raises bare RuntimeError and its own ConvertError alike
        return model
    return raised
