"""Calibration data: pictures in a folder, .npy and .npz files, or a generator of the user's.

Every source gives samples: `{input: array}` of the model's own input shapes. Arrays may hold many
samples along their first axis.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.frontend.shapes import input_shapes, real_inputs
from tilewright.compiler.preprocessing import Preprocessing, preprocess, read_picture
from tilewright.targets.errors import ModelError

Array = NDArray[Any]
Sample = dict[str, Array]
Data = str | os.PathLike[str] | Iterable[Any]
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class Inputs:
    """What a model takes, and how pictures become it."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    how: Preprocessing | None = None

    @property
    def single(self) -> str:
        """The name of the only input."""
        if len(self.shapes) != 1:
            raise ModelError(
                f"the model takes {', '.join(self.shapes)}; give arrays by name, in .npz files "
                "or from a generator"
            )
        return next(iter(self.shapes))


def inputs_of(model: onnx.ModelProto, how: Preprocessing | None = None) -> Inputs:
    """The inputs of a model with fixed shapes."""
    kinds = {
        value.name: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in real_inputs(model.graph)
    }
    return Inputs(input_shapes(model.graph), kinds, how)


def read_samples(data: Data, inputs: Inputs) -> Iterator[Sample]:
    """Samples one by one, none of them kept; ModelError names the file that does not fit."""
    if isinstance(data, str | os.PathLike):
        yield from _from_path(os.fspath(data), inputs)
    else:
        yield from _from_items(data, inputs, "the calibration data")


def _from_path(place: str, inputs: Inputs) -> Iterator[Sample]:
    file, colon, function = place.rpartition(":")
    if colon and file.endswith(".py"):
        yield from _from_items(_call(Path(file), function), inputs, place)
        return
    path = Path(place)
    if path.is_dir():
        known = (*PICTURES, ".npy", ".npz")
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in known)
        if not files:
            raise ModelError(f"{place}: holds no pictures, .npy or .npz files")
        for found in files:
            yield from _from_file(found, inputs)
    elif path.exists():
        yield from _from_file(path, inputs)
    else:
        raise ModelError(
            f"{place}: no such file or folder; give pictures, .npy, .npz or FILE.py:FUNCTION"
        )


def _from_file(path: Path, inputs: Inputs) -> Iterator[Sample]:
    if path.suffix.lower() in PICTURES:
        yield {inputs.single: _from_picture(read_picture(path), inputs, str(path))}
        return
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ModelError(f"{path}: is no .npy or .npz file; write one with numpy.save") from error
    if isinstance(loaded, np.ndarray):
        yield from _split({inputs.single: loaded}, inputs, str(path))
        return
    with loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    if len(arrays) == 1 and len(inputs.shapes) == 1:
        arrays = {inputs.single: next(iter(arrays.values()))}
    yield from _split(arrays, inputs, str(path))


def _from_items(items: Iterable[Any], inputs: Inputs, place: str) -> Iterator[Sample]:
    for item in items:
        named = item if isinstance(item, Mapping) else {inputs.single: np.asarray(item)}
        yield from _split({name: np.asarray(a) for name, a in named.items()}, inputs, place)


def _split(arrays: Mapping[str, Array], inputs: Inputs, place: str) -> Iterator[Sample]:
    """One sample, or those along the first axis."""
    missing = sorted(inputs.shapes.keys() - arrays.keys())
    if missing:
        raise ModelError(f"{place}: holds no {missing[0]}, which the model takes")
    parts = {name: _samples(arrays[name], name, inputs, place) for name in inputs.shapes}
    counts = {len(part) for part in parts.values()}
    if len(counts) != 1:
        raise ModelError(f"{place}: its arrays hold different numbers of samples")
    for number in range(counts.pop()):
        yield {name: part[number] for name, part in parts.items()}


def _samples(array: Array, name: str, inputs: Inputs, place: str) -> list[Array]:
    shape, dtype = inputs.shapes[name], inputs.dtypes[name]
    if inputs.how is not None and array.dtype == np.uint8 and array.shape != shape:
        is_one = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)
        pictures = [array] if is_one else array
        return [_from_picture(picture, inputs, place) for picture in pictures]
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ModelError(f"{place}: {name} holds NaN or infinity; calibrate with real inputs")
    if array.dtype != dtype and not (array.dtype.kind == dtype.kind == "f"):
        raise ModelError(
            f"{place}: {name} is {array.dtype}, the model takes {dtype}; convert it or describe "
            "the preprocessing"
        )
    if array.shape == shape:
        return [array.astype(dtype, copy=False)]
    if array.shape[1:] == shape[1:] and shape[:1] == (1,):
        return [row[None].astype(dtype, copy=False) for row in array]
    if array.shape[1:] == shape:
        return [row.astype(dtype, copy=False) for row in array]
    if array.shape == shape[1:] and shape[:1] == (1,):
        return [array[None].astype(dtype, copy=False)]
    raise ModelError(
        f"{place}: {name} has shape {list(array.shape)}, the model takes {list(shape)}"
    )


def _from_picture(picture: NDArray[np.uint8], inputs: Inputs, place: str) -> Array:
    name = inputs.single
    if inputs.how is None:
        raise ModelError(
            f"{place}: is a picture, and nothing says how it becomes the input {name} "
            f"{list(inputs.shapes[name])}; describe the preprocessing"
        )
    made = preprocess(picture, inputs.how, str(inputs.dtypes[name]))
    if made.shape != tuple(inputs.shapes[name]):
        raise ModelError(
            f"{place}: becomes {list(made.shape)} by the preprocessing, the model takes "
            f"{list(inputs.shapes[name])}; give it a resize or crop to that size"
        )
    return made


def _call(file: Path, function: str) -> Iterable[Any]:
    """What FUNCTION of FILE.py gives."""
    specification = importlib.util.spec_from_file_location(file.stem, file)
    if not file.is_file() or specification is None or specification.loader is None:
        raise ModelError(f"{file}: no such file; give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    maker = getattr(module, function, None)
    if not callable(maker):
        raise ModelError(f"{file}: has no function {function}")
    items: Iterable[Any] = maker()
    return items
