"""LSTM, GRU and RNN of known length as the matrix products and activations they are.

The input's part of every gate is one MatMul over the whole sequence; each step adds the hidden
state's part. Both directions, peepholes, clipping, coupled forget gates, linear_before_reset,
initial states, batch-first layout and sequence lengths mean what the standard says. Where a
sequence has ended its state stays and its outputs are zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray

from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Whether each of a node's directions runs backwards.
DIRECTIONS = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}
LONGEST_SEQUENCE = 256  # each step is a dozen operators
DEFAULT_ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
# Those that are ONNX operators themselves, with the names of their alpha and beta.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}


def unroll_recurrence(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """The nodes that compute a recurrent layer; None where it cannot be unrolled."""
    layer = _Layer(node, graph)
    if not layer.is_supported:
        return None
    layer.unroll()
    return layer.nodes


class _Layer:
    """One recurrent node; `nodes` grows as values are asked for by `op`."""

    def __init__(self, node: onnx.NodeProto, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.nodes: Nodes = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.kind, self.given = node.op_type, attributes_of(node)
        self.inputs = [*node.input, *([""] * (8 - len(node.input)))]
        self.hidden = int(self.given["hidden_size"])
        direction = self.given.get("direction", b"forward")
        self.reversed = DIRECTIONS[direction]
        self.batch_first = bool(self.given.get("layout", 0))
        names = [name.decode() for name in self.given.get("activations", [])]
        self.activations = names or DEFAULT_ACTIVATIONS[self.kind] * len(self.reversed)
        self.arrays = [graph.array(name) if name else None for name in self.inputs]
        self.shape = graph.shapes.get(node.input[0])

    @property
    def is_supported(self) -> bool:
        constant = self.arrays[1] is not None and self.arrays[2] is not None
        bias = not self.inputs[3] or self.arrays[3] is not None
        peepholes = self.kind != "LSTM" or not self.inputs[7] or self.arrays[7] is not None
        known = self.shape is not None and self.graph.is_float(self.node.input[0])
        short = known and self.length <= LONGEST_SEQUENCE
        plain = all(name in ACTIVATIONS for name in self.activations)
        return bool(constant and bias and peepholes and short and plain)

    @property
    def length(self) -> int:
        assert self.shape is not None
        return self.shape[1 if self.batch_first else 0]

    @property
    def batch(self) -> int:
        assert self.shape is not None
        return self.shape[0 if self.batch_first else 1]

    def op(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{self.node.output[0] or self.node.name}/{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array: NDArray[Any]) -> str:
        """The constant's name; equal constants, such as the weights of each step, are one."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.constants:
            name = f"{self.node.name}/constant_{len(self.constants)}"
            self.constants[key] = self.graph.constant(name, array)
        return self.constants[key]

    def real(self, array: NDArray[Any]) -> str:
        return self.constant(array.astype(self.graph.real_type(self.node.input[0])))

    def unroll(self) -> None:
        x = self.node.input[0]
        if self.batch_first:
            x = self.op("Transpose", [x], perm=[1, 0, 2])
        runs = [self._direction(x, place) for place in range(len(self.reversed))]
        self._name_outputs(runs)

    def _name_outputs(self, runs: list[tuple[list[str], str, str | None]]) -> None:
        """Y [T, D, B, H], Y_h and Y_c [D, B, H]; batch comes first where the layout says so."""
        one = self.constant(np.asarray([1], np.int64))
        zero = self.constant(np.asarray([0], np.int64))
        outputs = [*self.node.output, "", ""]
        if outputs[0]:
            steps = []
            for time in range(self.length):
                parts = [self.op("Unsqueeze", [run[0][time], zero]) for run in runs]
                steps.append(self.op("Concat", parts, axis=0))
            stacked = self.op("Concat", [self.op("Unsqueeze", [s, zero]) for s in steps], axis=0)
            order = [2, 0, 1, 3] if self.batch_first else [0, 1, 2, 3]
            self._output("Transpose", [stacked], outputs[0], perm=order)
        for place, output in ((1, outputs[1]), (2, outputs[2])):
            if output:
                finals = [str(run[place]) for run in runs]
                where = one if self.batch_first else zero
                parts = [self.op("Unsqueeze", [final, where]) for final in finals]
                self._output("Concat", parts, output, axis=1 if self.batch_first else 0)

    def _output(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> None:
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **attributes))

    def _direction(self, x: str, place: int) -> tuple[list[str], str, str | None]:
        """(output of every step, last hidden state, last cell state) of one direction."""
        w, r = self.arrays[1], self.arrays[2]
        assert w is not None and r is not None
        count = GATES[self.kind] * self.hidden
        both = self.arrays[3]
        bias = np.zeros(2 * count) if both is None else both[place]
        w_bias, r_bias = bias[:count], bias[count:]
        fed = self.op("Add", [self.op("MatMul", [x, self.real(w[place].T)]), self.real(w_bias)])
        step = _Step(self, place, r[place], r_bias)
        hidden = self._initial(5, place)
        cell = self._initial(6, place) if self.kind == "LSTM" else None
        outputs = [""] * self.length
        order = range(self.length)[::-1] if self.reversed[place] else range(self.length)
        for time in order:
            now = self.op("Gather", [fed, self.constant(np.asarray(time, np.int64))], axis=0)
            new_hidden, new_cell = step.states(now, hidden, cell)
            outputs[time], hidden, cell = self._kept(time, new_hidden, hidden, new_cell, cell)
        return outputs, hidden, cell

    def _initial(self, position: int, place: int) -> str:
        name = self.inputs[position]
        if not name:
            return self.real(np.zeros((self.batch, self.hidden)))
        axis = 1 if self.batch_first else 0
        return self.op("Gather", [name, self.constant(np.asarray(place, np.int64))], axis=axis)

    def _kept(
        self, time: int, new_hidden: str, hidden: str, new_cell: str | None, cell: str | None
    ) -> tuple[str, str, str | None]:
        """(output, hidden, cell) where sequences that have ended keep their state."""
        if not self.inputs[4]:
            return new_hidden, new_hidden, new_cell
        column = self.constant(np.asarray([1], np.int64))
        now = self.constant(np.asarray(time, np.int32))
        lengths = self.op("Unsqueeze", [self.inputs[4], column])
        running = self.op("Greater", [lengths, now])
        output = self.op("Where", [running, new_hidden, self.real(np.zeros(1))])
        hidden = self.op("Where", [running, new_hidden, hidden])
        if new_cell is not None and cell is not None:
            new_cell = self.op("Where", [running, new_cell, cell])
        return output, hidden, new_cell


class _Step:
    """The gates of one step of one direction."""

    def __init__(self, layer: _Layer, place: int, r: NDArray[Any], r_bias: NDArray[Any]) -> None:
        self.layer, self.size = layer, layer.hidden
        count = len(DEFAULT_ACTIVATIONS[layer.kind])
        self.first = place * count
        self.r, self.r_bias = r, r_bias
        self.weights = layer.real(r.T)
        self.bias = layer.real(r_bias)
        peepholes = layer.arrays[7] if layer.kind == "LSTM" else None
        self.peepholes = (
            None if peepholes is None else [layer.real(p) for p in np.split(peepholes[place], 3)]
        )
        self.one = layer.real(np.ones(1))

    def states(self, now: str, hidden: str, cell: str | None) -> tuple[str, str | None]:
        """The next hidden and cell state."""
        op = self.layer.op
        if self.layer.kind == "GRU":
            return self._gru(now, hidden), None
        gates = op("Add", [now, op("Add", [op("MatMul", [hidden, self.weights]), self.bias])])
        if self.layer.kind == "RNN" or cell is None:
            return self._activated(0, gates), None
        return self._lstm(gates, cell)

    def _lstm(self, gates: str, cell: str) -> tuple[str, str]:
        """i, o, f, c in the standard's order; peepholes p_i, p_o, p_f likewise."""
        op = self.layer.op
        i, o, f, c = (self._part(gates, place) for place in range(4))
        i = self._activated(0, self._peeped(i, 0, cell))
        if self.layer.given.get("input_forget", 0):
            f = op("Sub", [self.one, i])
        else:
            f = self._activated(0, self._peeped(f, 2, cell))
        c = self._activated(1, c)
        new_cell = op("Add", [op("Mul", [f, cell]), op("Mul", [i, c])])
        o = self._activated(0, self._peeped(o, 1, new_cell))
        return op("Mul", [o, self._activated(2, new_cell)]), new_cell

    def _gru(self, now: str, hidden: str) -> str:
        """z, r, h in the standard's order."""
        op, size, layer = self.layer.op, self.size, self.layer
        zr = layer.real(self.r[: 2 * size].T)
        zr_bias = layer.real(self.r_bias[: 2 * size])
        gates = op("Add", [op("MatMul", [hidden, zr]), zr_bias])
        z = self._activated(0, op("Add", [self._part(now, 0), self._part(gates, 0)]))
        r = self._activated(0, op("Add", [self._part(now, 1), self._part(gates, 1)]))
        weight, bias = layer.real(self.r[2 * size :].T), layer.real(self.r_bias[2 * size :])
        if layer.given.get("linear_before_reset", 0):
            inner = op("Mul", [r, op("Add", [op("MatMul", [hidden, weight]), bias])])
        else:
            inner = op("Add", [op("MatMul", [op("Mul", [r, hidden]), weight]), bias])
        h = self._activated(1, op("Add", [self._part(now, 2), inner]))
        kept = op("Mul", [z, hidden])
        return op("Add", [op("Mul", [op("Sub", [self.one, z]), h]), kept])

    def _part(self, gates: str, place: int) -> str:
        bounds = [place * self.size, (place + 1) * self.size, 1]
        names = [self.layer.constant(np.asarray([bound], np.int64)) for bound in bounds]
        return self.layer.op("Slice", [gates, *names])

    def _peeped(self, gate: str, place: int, cell: str) -> str:
        if self.peepholes is None:
            return gate
        op = self.layer.op
        return op("Add", [gate, op("Mul", [self.peepholes[place], cell])])

    def _activated(self, place: int, value: str) -> str:
        """The activation at `place` of this direction's list, after clipping."""
        layer, index = self.layer, self.first + place
        if "clip" in layer.given:
            bound = layer.given["clip"]
            limits = [layer.real(np.asarray(-bound)), layer.real(np.asarray(bound))]
            value = layer.op("Clip", [value, *limits])
        name = layer.activations[index]
        chosen = {}
        for parameter in ACTIVATIONS[name]:
            values = layer.given.get(f"activation_{parameter}", [])
            users = [n for n in layer.activations[:index] if parameter in ACTIVATIONS[n]]
            if len(users) < len(values):
                chosen[parameter] = values[len(users)]
        return layer.op(name, [value], **chosen)
