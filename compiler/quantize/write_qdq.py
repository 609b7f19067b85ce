"""Write a plan as a standard ONNX model with QuantizeLinear and DequantizeLinear pairs.

A quantised tensor `t` keeps its name for its dequantised values, so that nothing that reads it
changes; its int8 form is `t/quantized` and what was computed before it is rounded `t/real`. A
quantised input of the model keeps its name and its float type, and is read as `t/dequantized`.
Biases are int32 on the scale input times weight, without a zero point.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.frontend.opset import opset_of
from tilewright.compiler.quantize.float_model import FloatGraph
from tilewright.compiler.quantize.parameters import Activation, activation_for, quantise_bias
from tilewright.compiler.quantize.plan import Plan, constant_range
from tilewright.compiler.quantize.units import MOVEMENTS, Unit

make = onnx.helper.make_node
QUANTISED, REAL, DEQUANTISED = "quantized", "real", "dequantized"


def write_qdq(plan: Plan) -> onnx.ModelProto:
    """The quantised model; the plan's own model stays as it is."""
    return _Writer(plan).write()


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = onnx.ModelProto()
        self.model.CopyFrom(plan.model)
        self.graph = FloatGraph(self.model)
        self.units = {name: unit for unit in plan.quantised_units for name in unit.nodes}
        self.renamed: dict[str, str] = {}  # inputs of the model, to what reads them now
        self.nodes: list[onnx.NodeProto] = []

    def write(self) -> onnx.ModelProto:
        graph = self.model.graph
        before = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        for value in graph.input:
            if value.name not in self.graph.constants and self.plan.is_quantised(value.name):
                if not self.graph.is_float(value.name):
                    continue
                self.renamed[value.name] = f"{value.name}/{DEQUANTISED}"
                self._quantise(value.name, value.name, self.renamed[value.name], value.name)
        for node in before:
            self._node(node)
        graph.ClearField("node")
        graph.node.extend(self.nodes)
        self._drop_unused_constants()
        del graph.value_info[:]
        _require_opset(self.model, 13)
        onnx.checker.check_model(self.model)
        return self.model

    def _node(self, node: onnx.NodeProto) -> None:
        unit = self.units.get(node.name)
        if unit is not None and unit.weight and node.name == unit.name:
            self._weights(unit, node)
        elif unit is not None and unit.kind == "linear" and unit.bias in node.input:
            place = list(node.input).index(unit.bias)
            node.input[place] = self._bias(unit)
        elif unit is not None and unit.kind == "binary":
            for place, name in enumerate(node.input):
                if name in self.graph.constants:
                    node.input[place] = self._constant(name, node.name)
        for place, name in enumerate(node.input):
            node.input[place] = self.renamed.get(name, name)
        shown = [name for name in node.output if name and self._rounds(node, name, unit)]
        for place, name in enumerate(node.output):
            if name in shown:
                node.output[place] = f"{name}/{REAL}"
        self.nodes.append(node)
        for name in shown:
            self._quantise(f"{name}/{REAL}", name, name, node.name)

    def _rounds(self, node: onnx.NodeProto, tensor: str, unit: Unit | None) -> bool:
        """Whether a tensor is quantised where `node` computes it."""
        if not self.graph.is_float(tensor) or not self.plan.is_quantised(tensor):
            return False
        if unit is not None:
            return tensor == unit.output or any(
                tensor in other.inputs and other is not unit for other in self.units.values()
            )
        return node.op_type in MOVEMENTS or self._is_read_quantised(tensor)

    def _is_read_quantised(self, tensor: str) -> bool:
        return any(
            tensor in (name, self.plan.units.leader(name))
            for unit in self.plan.quantised_units
            for name in unit.inputs
        )

    def _quantise(self, real: str, tensor: str, dequantised: str, owner: str) -> None:
        activation = self.plan.activation(tensor)
        scale, zero = self._activation_constants(tensor, activation)
        quantised = f"{tensor}/{QUANTISED}"
        self.nodes += [
            make("QuantizeLinear", [real, scale, zero], [quantised], f"{tensor}/QuantizeLinear"),
            make(
                "DequantizeLinear",
                [quantised, scale, zero],
                [dequantised],
                f"{tensor}/DequantizeLinear",
            ),
        ]

    def _activation_constants(self, tensor: str, activation: Activation) -> tuple[str, str]:
        return (
            self.graph.add_constant(f"{tensor}/scale", np.asarray(activation.scale, np.float32)),
            self.graph.add_constant(f"{tensor}/zero", np.asarray(activation.zero, np.int8)),
        )

    def _weights(self, unit: Unit, node: onnx.NodeProto) -> None:
        weight = self.plan.weight_of(unit)
        bias = self.plan.bias_of(unit)
        name = f"{unit.name}/weight"
        node.input[1] = self._dequantised_constant(name, weight.values, weight.scale, weight.axis)
        if bias is None:
            return
        own = node.op_type != "MatMul"
        if own:
            del node.input[2:]
            node.input.append(self._bias(unit))
        assert own or unit.bias, "only a MatMul with an Add has a bias to shift"

    def _bias(self, unit: Unit) -> str:
        bias = self.plan.bias_of(unit)
        assert bias is not None
        scale = self.plan.activation(unit.inputs[0]).scale
        values, scales = quantise_bias(bias, scale, self.plan.weight_of(unit))
        return self._dequantised_constant(f"{unit.name}/bias", values, scales, 0)

    def _constant(self, name: str, owner: str) -> str:
        values = self.graph.array(name)
        assert values is not None
        activation = activation_for(constant_range(values))
        return self._dequantised_constant(
            f"{owner}/{name}",
            activation.quantised(values),
            np.asarray(activation.scale),
            0,
            activation.zero,
        )

    def _dequantised_constant(
        self, name: str, values: NDArray[Any], scale: NDArray[Any], axis: int, zero: int = 0
    ) -> str:
        quantised = self.graph.add_constant(f"{name}/{QUANTISED}", values)
        inputs = [quantised, self.graph.add_constant(f"{name}/scale", scale.astype(np.float32))]
        if values.dtype == np.int8:
            zeros = np.full(scale.shape, zero, np.int8)
            inputs.append(self.graph.add_constant(f"{name}/zero", zeros))
        result = f"{name}/{DEQUANTISED}"
        attributes = {"axis": axis} if scale.ndim else {}
        self.nodes.append(
            make("DequantizeLinear", inputs, [result], f"{name}/DequantizeLinear", **attributes)
        )
        return result

    def _drop_unused_constants(self) -> None:
        read = _names_read(self.model.graph.node)
        kept = [tensor for tensor in self.model.graph.initializer if tensor.name in read]
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        self.model.graph.ClearField("initializer")
        self.model.graph.initializer.extend(copies)


def _names_read(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    from tilewright.compiler.frontend.tidy import names_read

    return {name for node in nodes for name in names_read(node)}


def _require_opset(model: onnx.ModelProto, version: int) -> None:
    """Scales by channel came with opset 13, which preparation raises models to where onnx can."""
    if opset_of(model) < version:
        from tilewright.targets.errors import ModelError

        raise ModelError(
            f"the model has opset {opset_of(model)} and onnx cannot raise it to {version}, "
            "which quantisation by channel needs; export it again with a newer opset"
        )
