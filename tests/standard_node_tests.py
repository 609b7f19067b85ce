"""The ONNX standard's own operator tests, as cases for `tests/onnx_judge.py`.

A test may feed a shape, an axis or a count as an input. A compiler needs those when it compiles,
so they are fixed to the test's values (compiler/frontend/fixed_inputs.py).
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import load_model_tests

from tests.onnx_judge import Case
from tilewright.compiler.frontend.fixed_inputs import fix_inputs, shaping_inputs

# Words and training steps are nothing an inference compiler for boards meets.
OUTSIDE_DOMAINS = ("ai.onnx.preview.training", "ai.onnx.ml")
OUTSIDE_OPERATORS = frozenset(
    {"ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"}
    | {"TfIdfVectorizer"}
)


@dataclass(frozen=True)
class NodeTest:
    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]

    @property
    def is_outside(self) -> bool:
        """Whether it tests training, strings or classic machine learning."""
        nodes = self.model.graph.node
        values = [*self.model.graph.input, *self.model.graph.output]
        return (
            any(
                node.domain in OUTSIDE_DOMAINS or node.op_type in OUTSIDE_OPERATORS
                for node in nodes
            )
            or any(v.type.tensor_type.elem_type == onnx.TensorProto.STRING for v in values)
            or "_training_" in self.name
            or "_train_" in self.name
        )

    def case(self) -> Case:
        """The test with the inputs that decide shapes fixed."""
        names = [value.name for value in self.model.graph.input]
        fed = {name: _array(value) for name, value in zip(names, self.inputs, strict=False)}
        tensors = {name: value for name, value in fed.items() if isinstance(value, np.ndarray)}
        fixed = {name: fed[name] for name in shaping_inputs(self.model) if name in tensors}
        run_time = {name: value for name, value in tensors.items() if name not in fixed}
        # A sequence is no array, so no array is equal to what stands for it here.
        expected = [
            np.empty(len(value), object) if isinstance(value, list) else np.asarray(_array(value))
            for value in self.outputs
        ]
        model = fix_inputs(self.model, fixed)
        return Case(self.name, model, run_time, expected, self.rtol, self.atol)


def _array(value: Any) -> Any:
    """Tensors and numbers as arrays; sequences and the like as they are."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


@functools.cache
def node_tests() -> dict[str, NodeTest]:
    """By name, in the order of the alphabet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    tests = [
        NodeTest(
            case.name, case.model, tuple(case.data_sets[0][0]), tuple(case.data_sets[0][1]),
            case.rtol, case.atol,
        )
        for case in loaded
    ]  # fmt: skip
    return {test.name: test for test in sorted(tests, key=lambda test: test.name)}
