"""Tell a malformed model from a fault of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import onnx
import onnx.checker
import onnx.numpy_helper

from tilewright.targets.errors import ModelError, TilewrightError


@contextlib.contextmanager
def blaming_malformed(model: onnx.ModelProto) -> Iterator[None]:
    """Turn an unforeseen failure into a ModelError when onnx's own checker refuses the model too.

    A failure on a model the checker accepts is a fault of ours and stays what it is.
    """
    try:
        yield
    except TilewrightError:
        raise
    except UnicodeDecodeError:
        raise ModelError(
            "the model is malformed: a name in it is no text; export it again"
        ) from None
    except Exception:
        complaint = _complaint(model)
        if complaint is None:
            raise
        raise ModelError(f"the model is malformed: {complaint}; export it again") from None


def _complaint(model: onnx.ModelProto) -> str | None:
    """The first line of what onnx's checker says against the model; None when it is content."""
    try:
        onnx.checker.check_model(model)
        for tensor in model.graph.initializer:  # the checker does not count their elements
            onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # ValidationError, and what binding code raises on odd bytes
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return None
