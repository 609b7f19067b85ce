"""What a quantised model is made of: the float graph, its units, and a scale for every tensor."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.quantize.float_model import FloatGraph, attributes_of, output_axis
from tilewright.compiler.quantize.parameters import (
    Activation,
    Weight,
    activation_for,
    quantise_weight,
)
from tilewright.compiler.quantize.ranges import Range
from tilewright.compiler.quantize.units import Unit, Units


@dataclass
class Plan:
    """Change it with `replace`-like methods; `write_qdq` makes the file of it.

    `ranges` are those of leaders (units.py); `in_float` names the units that are not quantised;
    `bias_shift` is added to the biases of linear units, one value an output channel.
    """

    model: onnx.ModelProto
    units: Units
    ranges: dict[str, Range]
    per_channel: bool = True
    least_error_weights: bool = False
    in_float: frozenset[str] = frozenset()
    bias_shift: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = FloatGraph(self.model)

    def with_range(self, tensor: str, kept: Range) -> Plan:
        return replace(self, ranges={**self.ranges, tensor: kept})

    def keeping_in_float(self, names: frozenset[str]) -> Plan:
        return replace(self, in_float=names)

    @property
    def quantised_units(self) -> list[Unit]:
        return [unit for unit in self.units.units if unit.name not in self.in_float]

    def activation(self, tensor: str) -> Activation:
        """The scale of a tensor, by its leader's range."""
        return activation_for(self.ranges[self.units.leader(tensor)])

    def is_quantised(self, tensor: str) -> bool:
        """Whether some unit on int8 computes or reads the tensor, moved or not."""
        return self.units.leader(tensor) in self._quantised

    @property
    def _quantised(self) -> set[str]:
        return {
            self.units.leader(name)
            for unit in self.quantised_units
            for name in (*unit.inputs, unit.output)
            if name not in self.graph.constants
        }

    def bias_of(self, unit: Unit) -> NDArray[np.float64] | None:
        """The float bias of a linear unit with its shift; None where it has neither."""
        bias = self.graph.array(unit.bias) if unit.bias else None
        shift = self.bias_shift.get(unit.name)
        if bias is None:
            return shift
        wide = np.asarray(bias, np.float64)
        return wide if shift is None else wide + shift

    def weight_of(self, unit: Unit) -> Weight:
        """The int8 weight of a linear unit."""
        node = next(node for node in self.graph.graph.node if node.name == unit.name)
        weight = self.graph.array(unit.weight)
        assert weight is not None
        grouped = node.op_type == "ConvTranspose" and attributes_of(node).get("group", 1) > 1
        axis = output_axis(node) if node.op_type != "MatMul" else weight.ndim - 1
        return quantise_weight(
            weight,
            axis,
            per_channel=self.per_channel and not grouped and weight.ndim > 1,
            input_scale=self.activation(unit.inputs[0]).scale,
            bias=self.bias_of(unit),
            least_error=self.least_error_weights,
        )


def constant_range(values: NDArray[Any]) -> Range:
    """The range of a constant operand."""
    return Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
