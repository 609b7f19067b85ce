"""From a picture to a model's input, fixed to the bit: the same in calibration, Python and C.

A picture is uint8, height x width x 3, RGB. In order:

1. resize: the shorter side to `resize` (one number), or to `resize` = (height, width);
2. crop: the middle `crop` = (height, width);
3. channel order: RGB, BGR, or gray = (77 R + 150 G + 29 B + 128) >> 8;
4. (pixel - mean[c]) * scale[c], two float32 operations, for a float model; none for a uint8 one;
5. layout: NCHW or NHWC.

Resizing is bilinear between pixel centres, in whole numbers. Output i of n reads, of m inputs, at
p = floor((2 i + 1) m 1024 / n) - 1024 of 2048 parts of a pixel, held between the first and the
last; with q = p >> 11 and f = p & 2047 it is (2048 - f) * in[q] + f * in[q + 1], vertically the
same with the rows' results, and the sum is rounded by (v + 2^21) >> 22.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.targets.errors import ModelError

METADATA = "tilewright.preprocessing"
ORDERS = ("rgb", "bgr", "gray")
LAYOUTS = ("NCHW", "NHWC")
FRACTION_BITS = 11
ONE = 1 << FRACTION_BITS

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a picture; empty `resize` or `crop` leave its size alone.

    `resize` of one number is the shorter side's new length. `mean` and `scale` have one value for
    all channels or one each, for pixels of 0 to 255, in the order of the model's channels.
    """

    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    order: str = "rgb"
    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        channels = self.channels
        checks = [
            (self.order in ORDERS, f"order {self.order!r} is none of {', '.join(ORDERS)}"),
            (self.layout in LAYOUTS, f"layout {self.layout!r} is none of {', '.join(LAYOUTS)}"),
            (len(self.resize) in (0, 1, 2), "resize takes one length or height and width"),
            (len(self.crop) in (0, 2), "crop takes height and width"),
            (all(n > 0 for n in (*self.resize, *self.crop)), "sizes must be 1 or more"),
            (len(self.mean) in (1, channels), f"mean takes 1 or {channels} numbers"),
            (len(self.scale) in (1, channels), f"scale takes 1 or {channels} numbers"),
        ]
        for holds, message in checks:
            if not holds:
                raise ModelError(f"preprocessing: {message}")

    @property
    def channels(self) -> int:
        return 1 if self.order == "gray" else 3

    def means(self) -> NDArray[np.float32]:
        return np.broadcast_to(np.asarray(self.mean, np.float32), self.channels)

    def scales(self) -> NDArray[np.float32]:
        return np.broadcast_to(np.asarray(self.scale, np.float32), self.channels)

    def resized_shape(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after the first step; whole numbers, the longer side rounded down."""
        if not self.resize:
            return height, width
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        shorter = min(height, width)
        return height * self.resize[0] // shorter, width * self.resize[0] // shorter

    def text(self) -> str:
        """The description as it is stored: JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True)


def preprocess(picture: Pixels, how: Preprocessing, dtype: str = "float32") -> NDArray[Any]:
    """The model's input, of batch 1, from an RGB picture of uint8, height x width x 3."""
    if picture.ndim == 2:
        picture = np.repeat(picture[..., None], 3, axis=2)
    resized = resize(picture, *how.resized_shape(*picture.shape[:2]))
    cropped = _crop(resized, how.crop)
    ordered = _ordered(cropped, how.order)
    if dtype == "float32":
        values: NDArray[Any] = (ordered.astype(np.float32) - how.means()) * how.scales()
    else:
        values = ordered
    batch = values[None]
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2) if how.layout == "NCHW" else batch)


def resize(picture: Pixels, height: int, width: int) -> Pixels:
    """Bilinear, in whole numbers, as the head of this file defines it."""
    if picture.shape[:2] == (height, width):
        return picture
    rows, row_parts = _places(height, picture.shape[0])
    columns, column_parts = _places(width, picture.shape[1])
    wide = picture.astype(np.int64)
    last_row, last_column = picture.shape[0] - 1, picture.shape[1] - 1
    across = (ONE - column_parts)[None, :, None] * wide[:, columns]
    across += column_parts[None, :, None] * wide[:, np.minimum(columns + 1, last_column)]
    total = (ONE - row_parts)[:, None, None] * across[rows]
    total += row_parts[:, None, None] * across[np.minimum(rows + 1, last_row)]
    rounded = (total + (1 << (2 * FRACTION_BITS - 1))) >> (2 * FRACTION_BITS)
    return rounded.astype(np.uint8)


def _places(outputs: int, inputs: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each output the input before it and the part of a pixel beyond that one's centre."""
    index = np.arange(outputs, dtype=np.int64)
    place = (2 * index + 1) * inputs * (ONE // 2) // outputs - ONE // 2
    place = np.clip(place, 0, (inputs - 1) * ONE)
    return place >> FRACTION_BITS, place & (ONE - 1)


def _crop(picture: Pixels, crop: Sequence[int]) -> Pixels:
    if not crop:
        return picture
    height, width = crop
    if picture.shape[0] < height or picture.shape[1] < width:
        raise ModelError(
            f"preprocessing: a picture of {picture.shape[0]}x{picture.shape[1]} is too small to "
            f"crop {height}x{width} from; add a resize"
        )
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


def _ordered(picture: Pixels, order: str) -> Pixels:
    if order == "rgb":
        return picture
    if order == "bgr":
        return picture[..., ::-1]
    red, green, blue = (picture[..., channel].astype(np.int32) for channel in range(3))
    gray = (77 * red + 150 * green + 29 * blue + 128) >> 8
    return gray[..., None].astype(np.uint8)


def read_picture(path: Path) -> Pixels:
    """A picture file as RGB; ModelError where it is none."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"), np.uint8)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give a picture") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: cannot be read as a picture: {reason}") from error


def parse_preprocessing(text: str) -> Preprocessing:
    """From `resize=256,crop=224x224,mean=124:116:104,scale=0.017,order=bgr,layout=NHWC`, or JSON.

    `text` may also be the path of a JSON file. ModelError names the part that is wrong.
    """
    if text.lstrip().startswith("{"):
        return preprocessing_of(_json(text, "preprocessing"))
    if text.endswith(".json"):
        try:
            return preprocessing_of(_json(Path(text).read_text(encoding="utf-8"), text))
        except OSError as error:
            raise ModelError(f"{text}: cannot be read: {error.strerror}") from error
    given: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ModelError(f"preprocessing: {part!r} is no KEY=VALUE, such as crop=224x224")
        given[key.strip()] = _value(key.strip(), value.strip())
    return preprocessing_of(given)


def stored_preprocessing(model: onnx.ModelProto) -> Preprocessing | None:
    """The description in the model's metadata, where quantisation put it."""
    for entry in model.metadata_props:
        if entry.key == METADATA:
            return parse_preprocessing(entry.value)
    return None


def store_preprocessing(model: onnx.ModelProto, how: Preprocessing) -> None:
    """Write the description into the model's metadata, in place of an older one."""
    kept = [entry for entry in model.metadata_props if entry.key != METADATA]
    copies = [(entry.key, entry.value) for entry in kept]
    model.ClearField("metadata_props")
    for key, value in [*copies, (METADATA, how.text())]:
        model.metadata_props.add(key=key, value=value)


def _value(key: str, text: str) -> Any:
    try:
        if key in ("resize", "crop"):
            return [int(number) for number in text.split("x")]
        if key in ("mean", "scale"):
            return [float(number) for number in text.split(":")]
    except ValueError:
        raise ModelError(f"preprocessing: {key}={text} holds no numbers") from None
    return text


def _json(text: str, place: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ModelError(f"{place}: is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ModelError(f"{place}: is no JSON object")
    return given


def preprocessing_of(given: Mapping[str, Any]) -> Preprocessing:
    """The description a mapping holds; ModelError for a key that there is not."""
    known = {field.name for field in fields(Preprocessing)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ModelError(
            f"preprocessing: there is no {unknown[0]}; there are {', '.join(sorted(known))}"
        )
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
    }
    return Preprocessing(**values)
