"""What an ONNX file asks for, before anything is compiled: ports, unusual operators, placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
import tvm
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax

from tilewright.compiler.compile import Options, place_operators
from tilewright.compiler.frontend.onnx_graph import attributes_of
from tilewright.compiler.frontend.relax_import import importable_operators
from tilewright.compiler.frontend.shapes import Dimensions, dimensions_of, real_inputs
from tilewright.compiler.onnx_facts import CONVOLUTIONS, node_facts
from tilewright.compiler.report import NO_NPU, NOT_QUANTISED
from tilewright.passes.layouts import TO_NCHW, TO_NHWC
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.npu_views import may_be_in_region
from tilewright.passes.partition import CODEGEN, bindings_of, composite_nodes
from tilewright.targets.description import Target

IMAGE_OPERATORS = (*CONVOLUTIONS, "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool")
KEEP_LAYOUT = frozenset(
    {"Add", "Cast", "Clip", "DequantizeLinear", "Div", "Identity", "Mul", "Pad", "QuantizeLinear"}
    | {"Relu", "Sub"}
)
PICTURE_CHANNELS = (1, 3, 4)
UNUSUAL = {
    "Compress": "the shape of its result depends on the data",
    "If": "control flow",
    "Loop": "control flow",
    "NonMaxSuppression": "the shape of its result depends on the data",
    "NonZero": "the shape of its result depends on the data",
    "Scan": "control flow",
    "Unique": "the shape of its result depends on the data",
}


@dataclass(frozen=True)
class PortFacts:
    """An input or output; `dimensions` is None where the file does not tell the rank."""

    name: str
    dimensions: Dimensions
    dtype: str
    layout: str | None

    @property
    def dynamic_axes(self) -> list[int]:
        """The axes whose extent is not known."""
        return [i for i, extent in enumerate(self.dimensions or ()) if not _is_known(extent)]

    @property
    def is_dynamic(self) -> bool:
        return self.dimensions is None or bool(self.dynamic_axes)


@dataclass(frozen=True)
class Inspection:
    """`unusual` pairs node names with what is unusual about them."""

    inputs: tuple[PortFacts, ...]
    outputs: tuple[PortFacts, ...]
    operators: Mapping[str, int]
    unusual: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """ONNX operator types by node on the NPU, and (node, type, reason) of those on the CPU."""

    on_npu: Mapping[str, str]
    on_cpu: tuple[tuple[str, str, str], ...]


def inspect_model(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> Inspection:
    """The facts of a file; `shapes` replace those of its inputs."""
    graph = model.graph
    given = shapes or {}
    inputs, warnings = [], []
    for value in real_inputs(graph):
        reader, transposed = _image_reader(graph, value.name)
        shape: Dimensions = dimensions_of(value)
        if value.name in given:
            shape = [*given[value.name]]
        layout = _layout(shape, reader is not None, transposed)
        inputs.append(PortFacts(value.name, shape, _dtype(value), layout))
        warnings += _layout_warnings(graph, inputs[-1], reader, transposed)
    outputs = [
        PortFacts(value.name, shape, _dtype(value), _layout(shape, *_writer(graph, value.name)))
        for value in graph.output
        for shape in [dimensions_of(value)]
    ]
    counts = Counter(node.op_type for node in graph.node)
    return Inspection(
        tuple(inputs), tuple(outputs), dict(sorted(counts.items())), _unusual(model),
        tuple(warnings),
    )  # fmt: skip


def inspect_placement(
    model: onnx.ModelProto, target: Target, shapes: Mapping[str, Sequence[int]]
) -> Placement:
    """What `target` takes and refuses; raises a TilewrightError where it cannot be compiled."""
    placed = place_operators(model, target, Options(shapes=shapes))
    types = {name: facts.op_type for name, facts in node_facts(placed.prepared).items()}
    on_npu: dict[str, str] = {}
    on_cpu: dict[str, tuple[str, str, str]] = {}
    default = NO_NPU if target.npu is None else NOT_QUANTISED
    for binding in bindings_of(placed.module["main"]):
        value = binding.value
        region = _region(placed.module, value)
        if region is not None:
            nodes = _region_nodes(region)
            on_npu |= {node: types[node] for node in nodes if node in types}
        elif isinstance(value, relax.Call) and not may_be_in_region(value):
            for node in [node for node in onnx_nodes_of(value) if node in types][:1]:
                reason = placed.reasons.of(onnx_nodes_of(value)) or default
                on_cpu.setdefault(node, (node, types[node], reason.text))
    return Placement(on_npu, tuple(on_cpu.values()))


def _region(module: tvm.IRModule, value: relax.Expr) -> relax.Function | None:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
        return None
    function = module[value.op]
    return function if (function.attrs or {}).get("Codegen") == CODEGEN else None


def _region_nodes(region: relax.Function) -> list[str]:
    """Each operator of a region is a function that the region binds and calls."""
    nodes: list[str] = []
    for value in (binding.value for binding in bindings_of(region)):
        nodes += composite_nodes(value) if isinstance(value, relax.Function) else ()
        nodes += onnx_nodes_of(value) if isinstance(value, relax.Call) else ()
    return nodes


def _image_reader(graph: onnx.GraphProto, name: str) -> tuple[onnx.NodeProto | None, bool]:
    """The first image operator that reads `name`, and whether it is transposed to NCHW before."""
    todo, transposed, seen = [name], False, {name}
    while todo:
        tensor = todo.pop(0)
        for node in graph.node:
            if tensor not in node.input[:1]:
                continue
            if node.op_type in IMAGE_OPERATORS:
                return node, transposed
            turned = node.op_type == "Transpose" and attributes_of(node).get("perm") == TO_NCHW
            if (turned or node.op_type in KEEP_LAYOUT) and node.output[0] not in seen:
                transposed |= turned
                seen.add(node.output[0])
                todo.append(node.output[0])
    return None, False


def _writer(graph: onnx.GraphProto, name: str) -> tuple[bool, bool]:
    """Whether an image operator computes `name`, and whether it is transposed to NHWC after."""
    writers = {output: node for node in graph.node for output in node.output}
    transposed, seen = False, set()
    while name in writers and name not in seen:
        seen.add(name)
        node = writers[name]
        if node.op_type in IMAGE_OPERATORS:
            return True, transposed
        turned = node.op_type == "Transpose" and attributes_of(node).get("perm") == TO_NHWC
        if not node.input or not (turned or node.op_type in KEEP_LAYOUT):
            break
        transposed |= turned
        name = node.input[0]
    return False, False


def _layout(dimensions: Dimensions, of_image: bool, transposed: bool) -> str | None:
    """By how the graph uses it, else by the place of an extent that channels of pictures have."""
    if dimensions is None or len(dimensions) != 4:
        return None
    if of_image:
        return "NHWC" if transposed else "NCHW"
    first, last = (dimensions[axis] in PICTURE_CHANNELS for axis in (1, 3))
    if first == last:
        return None
    return "NCHW" if first else "NHWC"


def _layout_warnings(
    graph: onnx.GraphProto, port: PortFacts, reader: onnx.NodeProto | None, transposed: bool
) -> list[str]:
    if reader is None or port.layout is None or port.dimensions is None:
        return []
    what = f"{reader.op_type} {reader.name or reader.output[0]}"
    if transposed:
        return [f"{port.name}: takes NHWC, which the file transposes to NCHW for {what}"]
    channels = _channels(graph, reader)
    first, last = port.dimensions[1], port.dimensions[3]
    looks_last = last in PICTURE_CHANNELS if channels is None else last == channels
    takes_first = first in (channels, *PICTURE_CHANNELS) or not _is_known(first)
    if takes_first or not looks_last:
        return []
    return [f"{port.name}: its shape looks like NHWC, but {what} reads it as NCHW; transpose it"]


def _channels(graph: onnx.GraphProto, node: onnx.NodeProto) -> int | None:
    """Input channels of a convolution whose weight is a constant of the file."""
    if node.op_type not in CONVOLUTIONS:
        return None
    weight = node.input[3 if node.op_type == "QLinearConv" else 1]
    shapes = {tensor.name: tensor.dims for tensor in graph.initializer}
    groups = int(attributes_of(node).get("group", 1))
    return int(shapes[weight][1]) * groups if weight in shapes else None


def _unusual(model: onnx.ModelProto) -> tuple[tuple[str, str], ...]:
    local = {(function.domain, function.name) for function in model.functions}
    known = importable_operators()
    found = []
    for node in model.graph.node:
        standard = node.domain in ("", "ai.onnx")
        what = UNUSUAL.get(node.op_type) if standard else f"of the domain {node.domain}"
        if (node.domain, node.op_type) in local:
            what = "a function of the file"
        elif what is None and node.op_type not in known:
            what = "has no converter; it compiles only where it can be spelled out or folded"
        if what is not None:
            found.append((node.name or node.output[0], f"{node.op_type}: {what}"))
    return tuple(found)


def _dtype(value: onnx.ValueInfoProto) -> str:
    if not value.type.HasField("tensor_type"):
        return "no tensor"
    kind = value.type.tensor_type.elem_type
    return "unknown" if kind == TensorProto.UNDEFINED else str(tensor_dtype_to_np_dtype(kind))


def _is_known(extent: int | str) -> bool:
    return isinstance(extent, int) and extent >= 0
