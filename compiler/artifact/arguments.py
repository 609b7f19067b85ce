"""Arrays that go into a model: checked against what it expects, in words a user can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.targets.errors import ArtifactError

Port = Mapping[str, Any]  # a row of the manifest's "inputs" or "outputs"
Array = NDArray[Any]


def check_inputs(manifest: Mapping[str, Any], inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Every input of the model as an array of its shape and dtype, byte order aside."""
    model, ports = manifest["name"], manifest["inputs"]
    if not isinstance(inputs, Mapping):
        raise ArtifactError(
            f"{model}: inputs must be given by name, as {{name: array}}; "
            f"it takes {describe_ports(ports)}"
        )
    expected = {port["name"] for port in ports}
    unknown = sorted(str(name) for name in inputs.keys() - expected)
    missing = sorted(expected - inputs.keys())
    if unknown:
        raise ArtifactError(
            f"{model}: has no input {', '.join(unknown)}; it takes {describe_ports(ports)}"
        )
    if missing:
        raise ArtifactError(
            f"{model}: input {', '.join(missing)} is missing; it takes {describe_ports(ports)}"
        )
    return {port["name"]: _check_array(model, port, inputs[port["name"]]) for port in ports}


def write_inputs(
    manifest: Mapping[str, Any], arena: NDArray[np.uint8], inputs: Mapping[str, ArrayLike]
) -> None:
    """Check the inputs and copy each to its place in the arena."""
    # An array that lies in the arena might be overwritten before its turn comes.
    arrays = {
        name: array.copy() if np.may_share_memory(array, arena) else array
        for name, array in check_inputs(manifest, inputs).items()
    }
    for port in manifest["inputs"]:
        np.copyto(port_view(arena, port), arrays[port["name"]], casting="equiv")


def describe_ports(ports: Sequence[Port]) -> str:
    """`x: float32 [1, 3, 224, 224], mask: bool [1, 8]`."""
    return ", ".join(f"{port['name']}: {port['dtype']} {list(port['shape'])}" for port in ports)


def port_view(arena: NDArray[np.uint8], port: Port) -> Array:
    """The tensor's place in the arena as an array."""
    flat = arena[port["offset"] : port["offset"] + port["bytes"]]
    return flat.view(port["dtype"]).reshape(port["shape"])


def _check_array(model: str, port: Port, value: ArrayLike) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArtifactError(
            f"{model}: input {port['name']} is no array; it takes {describe_ports([port])}"
        ) from error
    if array.dtype.newbyteorder("=") != np.dtype(port["dtype"]):
        raise ArtifactError(
            f"{model}: input {port['name']} is {array.dtype}, the model takes {port['dtype']}; "
            f"convert it, for instance with .astype({port['dtype']!r})"
        )
    if array.shape != tuple(port["shape"]):
        raise ArtifactError(
            f"{model}: input {port['name']} has shape {list(array.shape)}, "
            f"the model takes {list(port['shape'])}"
        )
    return array


def random_inputs(manifest: Mapping[str, Any], seed: int) -> dict[str, Array]:
    """The same arrays for the same seed: normal floats, small integers over their whole range.

    Wide integers are mostly indices and lengths in real models, so they are 0 or 1.
    """
    generator = np.random.default_rng(seed)
    return {port["name"]: _random_array(generator, port) for port in manifest["inputs"]}


def _random_array(generator: np.random.Generator, port: Port) -> Array:
    dtype, shape = np.dtype(port["dtype"]), tuple(port["shape"])
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    if dtype.kind == "b" or dtype.itemsize > 2:
        return generator.integers(0, 2, shape).astype(dtype)
    return np.frombuffer(generator.bytes(port["bytes"]), dtype).reshape(shape)
