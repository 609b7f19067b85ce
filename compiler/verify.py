"""Hold an artifact against onnxruntime: its outputs, and the first operator that goes astray.

Operators are compared on our own inputs to them: onnxruntime runs only the nodes between tensors
whose values we have, so a difference belongs to those nodes and to none before. To have the values,
the model is compiled once more with its inner tensors as outputs.

A float model agrees within 1e-4. onnxruntime runs a quantised model's convolutions in float32, so
values that lie within 1e-4 of a tie may go one step the other way; what grows out of that along a
network is limited by its mean (docs/artifact.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.artifact.load import Artifact, make_artifact
from tilewright.compiler.onnx_parts import (
    Array,
    Arrays,
    compute_nodes,
    is_quantised,
    part_that_computes,
    roundings,
    run_onnxruntime,
    show_inner_tensors,
)
from tilewright.compiler.tensor_agreement import Agreement, agree
from tilewright.targets.errors import VerificationError

if TYPE_CHECKING:
    from tilewright.compiler.compile import Options
    from tilewright.targets.description import Target

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Verification:
    """What agreed with onnxruntime: whole networks, and operators on our own inputs to them."""

    runs: int
    outputs: list[Agreement]
    operators: list[Agreement]

    def __str__(self) -> str:
        differing, elements = _totals(self.outputs)
        text = (
            f"verified   outputs agree with onnxruntime's on {self.runs} seeded inputs: "
            f"{differing:,} of {elements:,} elements differ, all within the limits"
        )
        if not self.operators:
            return text
        differing, elements = _totals(self.operators)
        tensors = len({agreement.tensor for agreement in self.operators})
        return (
            f"{text}\noperators  {tensors} tensors compared one by one: {differing:,} of "
            f"{elements:,} elements differ, all within the limits"
        )


def _totals(agreements: Sequence[Agreement]) -> tuple[int, int]:
    """Elements that differ, and all."""
    return (
        sum(agreement.differing for agreement in agreements),
        sum(agreement.elements for agreement in agreements),
    )


def verify_artifact(
    artifact: Artifact,
    source: Path | onnx.ModelProto,
    target: str | Path | Target,
    options: Options,
    seeds: Sequence[int] = SEEDS,
) -> Verification:
    """Run seeded inputs through artifact and onnxruntime; returns what was compared.

    Raises VerificationError that names the first operator that differs. A float model's operators
    are looked at only when its outputs differ.
    """
    from tilewright.compiler.compile import compile_program
    from tilewright.compiler.frontend import load_model

    model = source if isinstance(source, onnx.ModelProto) else load_model(source)
    quiet = dataclasses.replace(options, dump=None, time_passes=False)

    def compile_again(shown: onnx.ModelProto) -> Artifact:
        return make_artifact(compile_program(shown, target, quiet))

    return check_against_onnxruntime(artifact, model, compile_again, seeds)


def check_against_onnxruntime(
    artifact: Artifact,
    model: onnx.ModelProto,
    compile_again: Callable[[onnx.ModelProto], Artifact],
    seeds: Sequence[int] = SEEDS,
) -> Verification:
    """What `verify_artifact` does, with the compiler as a function."""
    operators: list[Agreement] = []
    feeds = {seed: random_inputs(artifact.manifest, seed) for seed in seeds}
    outputs = [
        (seed, agreement)
        for seed, inputs in feeds.items()
        for agreement in compare_outputs(model, inputs, artifact.run(inputs))
    ]
    if is_quantised(model) or not all(agreement.holds for _, agreement in outputs):
        with compile_again(show_inner_tensors(model)) as showing:
            for seed, inputs in feeds.items():
                for agreement in compare_operators(model, inputs, showing.run(inputs)):
                    _demand(agreement, seed)
                    operators.append(agreement)
    for seed, agreement in outputs:
        _demand(agreement, seed)
    return Verification(len(seeds), [agreement for _, agreement in outputs], operators)


def compare_outputs(model: onnx.ModelProto, inputs: Arrays, found: Arrays) -> list[Agreement]:
    """The whole network, end to end."""
    expected = run_onnxruntime(model, inputs, list(found))
    steps = roundings(model) if is_quantised(model) else None
    return [agree(name, (), found[name], expected[name], steps) for name in found]


def compare_operators(model: onnx.ModelProto, inputs: Arrays, found: Arrays) -> Iterator[Agreement]:
    """Each tensor of `found`, which stand in the order they are computed."""
    known = dict(inputs)
    quantised = is_quantised(model)
    for name, values in found.items():
        part = part_that_computes(model, name, known)
        feeds = {info.name: known[info.name] for info in part.graph.input}
        expected = run_onnxruntime(part, feeds, [name])[name]
        steps = roundings(part) if quantised else None
        yield agree(name, compute_nodes(part), values, expected, steps)
        known[name] = values


def intermediates(artifact: Artifact, inputs: Arrays) -> dict[str, Array]:
    """The ONNX tensors that can be seen in the arena, in the order they are computed.

    Each is read right after the step that writes it, before its memory is reused.
    """
    found = {}
    for tensor in artifact.manifest["intermediates"]:
        for name, array in inputs.items():
            artifact.input(name)[...] = array
        artifact.run_until(tensor["steps"])
        view = artifact.tensor(tensor["offset"], tensor["shape"], tensor["dtype"])
        found[tensor["name"]] = view.transpose(tensor["axes"]).copy()
    return found


def _demand(agreement: Agreement, seed: int) -> None:
    if agreement.holds:
        return
    nodes = agreement.nodes
    where = " to ".join(dict.fromkeys((nodes[0], nodes[-1]))) if nodes else "the model"
    raise VerificationError(
        f"{where} disagrees with onnxruntime on inputs of seed {seed}: {agreement}"
    )
