"""Lay an artifact beside a model in onnxruntime, tensor by tensor.

Each tensor is held against two things: the reference's own value, which shows what has added up so
far, and what the reference's operators give on the artifact's own inputs to them, which shows what
this layer alone does. The first layer whose own error passes the threshold is the one to look at.

To see inner tensors the model is compiled again with them as outputs, a few at a time where they
are large, and the final outputs are checked to be those of the artifact. Values are dropped as
soon as no later layer reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tqdm import tqdm

from tilewright.compiler.artifact.arguments import check_inputs
from tilewright.compiler.artifact.layout import QUANTIZED, TARGET
from tilewright.compiler.artifact.load import Artifact, make_artifact
from tilewright.compiler.compare.mapping import Stand, stands, tensors_of
from tilewright.compiler.compare.measures import Measures, hint, measure, sqnr
from tilewright.compiler.compile import Options, compile_program
from tilewright.compiler.frontend import load_model, prepare
from tilewright.compiler.onnx_parts import (
    compute_nodes,
    part_that_computes,
    run_onnxruntime,
    show_inner_tensors,
)
from tilewright.compiler.quantize.quantize import EQUALISATION
from tilewright.targets.description import parse_target
from tilewright.targets.errors import ArtifactError, ModelError

Array = NDArray[Any]
THRESHOLD_DB = 20.0
SAME_DB = 60.0  # real numbers that agree so well are of one model: shown tensors stop some fusion
CHUNK_BYTES = 64 << 20  # of shown tensors that live at the same time


@dataclass(frozen=True)
class Row:
    """One tensor. `own_sqnr` is None where the reference is dumps, not a model."""

    tensor: str
    nodes: tuple[str, ...]
    measures: Measures
    own_sqnr: float | None
    hint: str

    @property
    def judged(self) -> float:
        return self.measures.sqnr if self.own_sqnr is None else self.own_sqnr


@dataclass(frozen=True)
class Wishes:
    """`tensors` is a folder of dumps `NAME.npy`; `passes_left_out` are named in pipeline.py."""

    threshold: float = THRESHOLD_DB
    tensors: Path | None = None
    unfused: bool = False
    passes_left_out: frozenset[str] = frozenset()
    progress: bool = False


def compiled_source(artifact: Artifact, model: Path) -> onnx.ModelProto:
    """The model the artifact was compiled from: its own copy, or else the user's file."""
    kept = artifact.directory / QUANTIZED
    return load_model(kept if kept.exists() else model)


def compare(
    reference: onnx.ModelProto,
    source: onnx.ModelProto,
    artifact: Artifact,
    inputs: Mapping[str, Array],
    wishes: Wishes,
) -> Iterator[Row]:
    """A row for each tensor that both have, in the order they are computed.

    `source` is what the artifact was compiled from. Raises ArtifactError where it was not.
    """
    comparison = _Comparison(reference, source, artifact, inputs, wishes)
    yield from comparison.rows()


def first_below(rows: Sequence[Row], threshold: float) -> Row | None:
    """The first layer whose own error passes the threshold."""
    return next((row for row in rows if row.judged < threshold), None)


def _are_of_one_model(values: Array, anew: Array) -> bool:
    """Integers are equal to the bit; real numbers may be summed in another order."""
    is_real = values.dtype.kind == "f"
    if np.array_equal(values, anew, equal_nan=is_real):
        return True
    return is_real and sqnr(values, anew) >= SAME_DB


class _Comparison:
    def __init__(
        self,
        reference: onnx.ModelProto,
        source: onnx.ModelProto,
        artifact: Artifact,
        inputs: Mapping[str, Array],
        wishes: Wishes,
    ) -> None:
        self.shapes = {p["name"]: tuple(p["shape"]) for p in artifact.manifest["inputs"]}
        self.inputs = check_inputs(artifact.manifest, inputs)
        self.reference = prepare(reference, self.shapes)
        self.source = prepare(source, self.shapes)
        self.artifact = artifact
        self.wishes = wishes
        self.target = parse_target((artifact.directory / TARGET).read_text("utf-8"), TARGET)
        self.factors = _factors(source) if reference is not source else {}
        self.known: dict[str, Array] = dict(self.inputs)

    def rows(self) -> Iterator[Row]:
        shown = show_inner_tensors(self.source, floats=self.wishes.unfused)
        pairs = stands(shown, self._reference_tensors())
        if not pairs:
            raise ModelError(
                "the two models share no tensor names; give the float model that the quantised "
                "one was made from, or the quantised one itself"
            )
        last_use = self._last_uses([pair.tensor for pair in pairs])
        chunks = list(_chunks(pairs, shown))
        hidden = None if self.wishes.progress else True
        place = 0
        for chunk in tqdm(chunks, desc="compare", disable=hidden, leave=False):
            found = self._run(shown, chunk)
            expected = self._expected([pair.tensor for pair in chunk])
            for pair in chunk:
                yield self._row(pair, found.pop(pair.shown), expected.pop(pair.tensor))
                for name in [n for n, end in last_use.items() if end <= place]:
                    self.known.pop(name, None)
                    del last_use[name]
                place += 1

    def _reference_tensors(self) -> set[str]:
        names = tensors_of(self.reference)
        folder = self.wishes.tensors
        if folder is None:
            return names
        if not folder.is_dir():
            raise ModelError(f"{folder}: no such folder; give one of dumps NAME.npy")
        every = names | tensors_of(self.source)
        return {name for name in every if (folder / f"{dump_name(name)}.npy").exists()}

    def _run(self, shown: onnx.ModelProto, chunk: Sequence[Stand]) -> dict[str, Array]:
        """What the compiled model computes for the tensors of a chunk."""
        asked = [pair.shown for pair in chunk]
        own = [p["name"] for p in self.artifact.manifest["outputs"]]
        part = onnx.ModelProto()
        part.CopyFrom(shown)
        kept = [value for value in shown.graph.output if value.name in {*asked, *own}]
        copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
        del part.graph.output[:]
        part.graph.output.extend(copies)
        options = Options(passes_left_out=self.wishes.passes_left_out)
        with make_artifact(compile_program(part, self.target, options)) as showing:
            found = showing.run(self.inputs)
        if not self.wishes.unfused and not self.wishes.passes_left_out:
            self._check_source(found)
        return {name: found[name] for name in asked}

    def _check_source(self, found: Mapping[str, Array]) -> None:
        for name, values in self.artifact.run(self.inputs).items():
            if not _are_of_one_model(values, found[name]):
                raise ArtifactError(
                    f"{name}: the artifact computes other values than the model compiled anew; "
                    "it was made from another model, give that one with --compiled"
                )

    def _expected(self, tensors: Sequence[str]) -> dict[str, Array]:
        folder = self.wishes.tensors
        if folder is None:
            given = {n: self.inputs[n] for n in tensors if n in self.inputs}
            asked = [name for name in tensors if name not in given]
            return given | run_onnxruntime(_showing(self.reference, asked), self.inputs, asked)
        return {name: np.load(folder / f"{dump_name(name)}.npy") for name in tensors}

    def _row(self, pair: Stand, stored: Array, expected: Array) -> Row:
        found = pair.real(stored)
        if pair.tensor in self.factors:
            found = found * _along(self.factors[pair.tensor], found.ndim)
        if found.size != expected.size:
            raise ModelError(
                f"{pair.tensor}: the reference has shape {list(expected.shape)}, the compiled "
                f"model {list(found.shape)}; give dumps of the same batch and layout"
            )
        found = found.reshape(expected.shape)
        nodes: tuple[str, ...] = (pair.tensor,)
        own: float | None = None
        target = expected
        if self.wishes.tensors is None and pair.tensor not in self.inputs:
            part = part_that_computes(self.reference, pair.tensor, self.known)
            feeds = {info.name: self.known[info.name] for info in part.graph.input}
            target = run_onnxruntime(part, feeds, [pair.tensor])[pair.tensor]
            nodes, own = compute_nodes(part), sqnr(found, target)
        self.known[pair.tensor] = found
        measures = measure(found, expected)
        judged = measures.sqnr if own is None else own
        text = hint(found, target, pair.levels) if judged < self.wishes.threshold else ""
        return Row(pair.tensor, nodes, measures, own, text)

    def _last_uses(self, tensors: Sequence[str]) -> dict[str, int]:
        """The place in `tensors` of the last one that is computed from each of them."""
        producers = {name: node for node in self.reference.graph.node for name in node.output}
        known = set(self.inputs)
        last: dict[str, int] = {}
        for place, tensor in enumerate(tensors):
            for name in _nearest(tensor, producers, known):
                last[name] = place
            last.setdefault(tensor, place)
            known.add(tensor)
        return last


def _nearest(tensor: str, producers: Mapping[str, onnx.NodeProto], known: set[str]) -> set[str]:
    found, waiting, seen = set[str](), [tensor], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in known and name != tensor:
            found.add(name)
        elif name in producers:
            waiting += [read for read in producers[name].input if read]
    return found


def _chunks(pairs: Sequence[Stand], shown: onnx.ModelProto) -> Iterator[list[Stand]]:
    """Tensors whose sizes add up to CHUNK_BYTES at most."""
    sizes = {value.name: _bytes(value) for value in shown.graph.output}
    chunk: list[Stand] = []
    total = 0
    for pair in pairs:
        if chunk and total + sizes[pair.shown] > CHUNK_BYTES:
            yield chunk
            chunk, total = [], 0
        chunk.append(pair)
        total += sizes[pair.shown]
    if chunk:
        yield chunk


def _bytes(value: onnx.ValueInfoProto) -> int:
    kind = value.type.tensor_type
    size = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
    return int(np.prod([dim.dim_value for dim in kind.shape.dim], dtype=np.int64)) * int(size)


def _showing(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors)
    return shown


def _factors(model: onnx.ModelProto) -> dict[str, list[float]]:
    """What equalisation divided the channels of tensors by."""
    for entry in model.metadata_props:
        if entry.key == EQUALISATION:
            return dict(json.loads(entry.value))
    return {}


def _along(values: Sequence[float], rank: int) -> Array:
    return np.asarray(values, np.float32).reshape(-1, *(1,) * (rank - 2))


def dump_name(tensor: str) -> str:
    """The file name, without .npy, of a tensor's dump: what is no letter or digit becomes _."""
    return "".join(c if (c.isalnum() and c.isascii()) or c in "_.-" else "_" for c in tensor)
