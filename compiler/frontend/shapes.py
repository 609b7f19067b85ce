"""Give every input of a model a shape of plain numbers."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tilewright.targets.errors import ModelError

Shape = tuple[int, ...]
Dimensions = list[int | str] | None


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are fed, without the initialisers old files repeat among them."""
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def bind_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape] | None) -> None:
    """Write `shapes` into the model's inputs, in place; ModelError when one stays unknown."""
    inputs = {value.name: value for value in real_inputs(model.graph)}
    for name, shape in (shapes or {}).items():
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            raise ModelError(f"--shape {name}: the model has no such input; its inputs are {known}")
        _bind(inputs[name], shape)
    if any(_is_unbound(value) for value in inputs.values()):
        raise ModelError(_unbound_message(inputs))
    if shapes:
        _forget_derived_shapes(model.graph)


def input_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    """The shapes of the real inputs, all of which `bind_shapes` has made plain numbers."""
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in real_inputs(graph)
        if value.type.HasField("tensor_type")
    }


def _bind(value: onnx.ValueInfoProto, shape: Shape) -> None:
    tensor = value.type.tensor_type
    if tensor.HasField("shape") and len(tensor.shape.dim) != len(shape):
        raise ModelError(
            f"--shape {value.name}: {len(shape)} dimensions given, "
            f"the model has {len(tensor.shape.dim)}: {spelled(dimensions_of(value))}"
        )
    if any(extent < 0 for extent in shape):
        raise ModelError(f"--shape {value.name}: dimensions must not be negative")
    tensor.shape.ClearField("dim")
    for extent in shape:
        tensor.shape.dim.add().dim_value = extent


def dimensions_of(value: onnx.ValueInfoProto) -> Dimensions:
    """Extents, and names or '?' for unknown ones; None where the rank is unknown too."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or "?")
        for dim in tensor.shape.dim
    ]


def _is_unbound(value: onnx.ValueInfoProto) -> bool:
    if not value.type.HasField("tensor_type"):
        return False
    dimensions = dimensions_of(value)
    return dimensions is None or any(not isinstance(d, int) or d < 0 for d in dimensions)


def spelled(dimensions: Dimensions) -> str:
    if dimensions is None:
        return "of unknown rank"
    return "[" + ", ".join(str(dimension) for dimension in dimensions) + "]"


def _unbound_message(inputs: Mapping[str, onnx.ValueInfoProto]) -> str:
    """All inputs, and a command line for those that are not known."""
    dimensions = {name: dimensions_of(value) for name, value in inputs.items()}
    listed = "; ".join(f"{name} {spelled(dims)}" for name, dims in dimensions.items())
    example = " ".join(
        f"--shape {name}={_example(dimensions[name])}"
        for name, value in inputs.items()
        if _is_unbound(value)
    )
    return (
        f"input shapes are not all known: {listed}; bind them, for example "
        f"tilewright compile model.onnx --target host -o out {example}"
    )


def _example(dimensions: Dimensions) -> str:
    """A plausible shape: unknown batch 1, unknown image sides 224, other unknowns 1."""
    if dimensions is None:
        return "1,3,224,224"
    known = [isinstance(extent, int) and extent >= 0 for extent in dimensions]
    sides: tuple[int, ...] = ()
    if len(dimensions) == 4:
        sides = (1, 2) if known[3] and not known[1] else (2, 3)
    return ",".join(
        str(extent) if is_known else ("224" if axis in sides else "1")
        for axis, (extent, is_known) in enumerate(zip(dimensions, known, strict=True))
    )


def _forget_derived_shapes(graph: onnx.GraphProto) -> None:
    """Shapes stored for intermediate values and outputs were true for other inputs."""
    graph.ClearField("value_info")
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
