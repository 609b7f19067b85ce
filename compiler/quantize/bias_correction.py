"""Take back, in the bias, what rounding a layer's weights shifts its results by.

Rounded weights give each output channel a mean error of sum((w' - w) * mean of the input), which
does not average out over a picture. The inputs' channel means are known from calibration; at
padded borders, where the input is zero, the correction is slightly too large.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.quantize.float_model import attributes_of
from tilewright.compiler.quantize.observe import Observations
from tilewright.compiler.quantize.plan import Plan
from tilewright.compiler.quantize.units import Unit

Vector = NDArray[np.float64]


def bias_shifts(plan: Plan, observations: Observations) -> dict[str, Vector]:
    """What to add to the bias of every convolution and Gemm that has one."""
    nodes = {node.name: node for node in plan.graph.graph.node}
    shifts = {}
    for unit in plan.quantised_units:
        node = nodes[unit.name]
        if unit.kind != "linear" or node.op_type not in ("Conv", "Gemm") or not unit.bias:
            continue
        means = observations[unit.inputs[0]].channel_means
        if means is not None:
            shift = _shift(plan, unit, node, means)
            if shift is not None:
                shifts[unit.name] = shift
    return shifts


def _shift(plan: Plan, unit: Unit, node: onnx.NodeProto, means: Vector) -> Vector | None:
    weight = np.asarray(plan.graph.array(unit.weight), np.float64)
    error = plan.weight_of(unit).dequantised.astype(np.float64) - weight
    if node.op_type == "Gemm":
        columns = error if attributes_of(node).get("transB", 0) else error.T
        return -(columns @ means) if columns.shape[1] == len(means) else None
    groups = attributes_of(node).get("group", 1)
    by_input = error.reshape(*error.shape[:2], -1).sum(axis=2)
    if by_input.shape[1] * groups != len(means):
        return None
    rows = np.repeat(means.reshape(groups, -1), by_input.shape[0] // groups, axis=0)
    return np.asarray(-(by_input * rows).sum(axis=1))
