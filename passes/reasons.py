"""Why an operator stayed as it was: text by ONNX node name, kept in the function's attributes.

A pass that declines to bring a node into the NPU's form says so here; partition and report read
it. The first reason given for a node stays, since later passes know less about the cause.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

ATTRIBUTE = "tilewright.reasons"


def reasons_of(function: relax.Function) -> dict[str, str]:
    """Reason by ONNX node name."""
    stored = (function.attrs or {}).get(ATTRIBUTE)
    return {} if stored is None else {str(name): str(text) for name, text in stored.items()}


def with_reasons(function: relax.Function, reasons: Mapping[str, str]) -> relax.Function:
    """The function that also remembers `reasons`."""
    if not reasons:
        return function
    return function.with_attr(ATTRIBUTE, {**reasons, **reasons_of(function)})
