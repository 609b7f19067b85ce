"""Which pass changed the result: leave passes out, one at a time, and look at the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.artifact.layout import TARGET
from tilewright.compiler.artifact.load import Artifact, make_artifact
from tilewright.compiler.compare.measures import sqnr
from tilewright.compiler.compile import Options, compile_program
from tilewright.compiler.onnx_parts import run_onnxruntime
from tilewright.compiler.pipeline import OPTIONAL_PASSES
from tilewright.targets.description import parse_target

Array = NDArray[Any]


@dataclass(frozen=True)
class Without:
    """The outputs' agreement with the reference, in dB, without `left_out`; None: with all."""

    left_out: str | None
    sqnr: float | None  # None where the model does not compile without it
    changes: bool  # whether the outputs are others than with all passes


def bisect(
    reference: onnx.ModelProto,
    source: onnx.ModelProto,
    artifact: Artifact,
    inputs: Mapping[str, Array],
) -> Iterator[Without]:
    """With all passes first, then without each of those that can be left out."""
    target = parse_target((artifact.directory / TARGET).read_text("utf-8"), TARGET)
    outputs = [port["name"] for port in artifact.manifest["outputs"]]
    expected = run_onnxruntime(reference, inputs, outputs)
    whole = artifact.run(inputs)
    yield Without(None, _agreement(whole, expected), False)
    shapes = {port["name"]: tuple(port["shape"]) for port in artifact.manifest["inputs"]}
    for name in OPTIONAL_PASSES:
        options = Options(shapes=shapes, passes_left_out=frozenset({name}))
        try:
            with make_artifact(compile_program(source, target, options)) as other:
                found = other.run(inputs)
        except Exception:  # a pass that others build on; TVM raises a dozen classes
            yield Without(name, None, False)
            continue
        changes = any(not np.array_equal(found[key], whole[key]) for key in whole)
        yield Without(name, _agreement(found, expected), changes)


def _agreement(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    return min(sqnr(found[name].reshape(expected[name].shape), expected[name]) for name in found)
