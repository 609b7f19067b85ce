"""Real pictures that scikit-image ships, cut into many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALIBRATION = ("astronaut.png", "coffee.png", "motorcycle_left.png", "ihc.png", "rocket.jpg")
TEST = ("chelsea.png", "motorcycle_right.png", "hubble_deep_field.jpg", "retina.jpg", "color.png")
Crops = list[NDArray[np.float32]]


def picture_crops(size: int, calibration: int, test: int) -> tuple[Crops, Crops]:
    """1x3xSxS crops with values 0..255, of other pictures for calibration than for test."""
    return _crops(CALIBRATION, size, calibration, 0), _crops(TEST, size, test, 1)


def gray_patches(count: int) -> Crops:
    """1x1x28x28 pieces of photographs with values 0..1: nothing like a digit."""
    return [crop.mean(axis=1, keepdims=True) / 255 for crop in _crops(CALIBRATION, 28, count, 2)]


def _crops(names: tuple[str, ...], size: int, count: int, seed: int) -> Crops:
    """Squares of random extent and place, scaled to `size`."""
    from PIL import Image

    generator = np.random.default_rng(seed)
    pictures = [_picture(name) for name in names]
    crops = []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        extent = int(generator.uniform(0.4, 1.0) * min(picture.shape[:2]))
        top = int(generator.integers(0, picture.shape[0] - extent + 1))
        left = int(generator.integers(0, picture.shape[1] - extent + 1))
        square = Image.fromarray(picture[top : top + extent, left : left + extent])
        scaled = np.asarray(square.resize((size, size), Image.Resampling.BILINEAR), np.float32)
        crops.append(np.ascontiguousarray(scaled.transpose(2, 0, 1)[None]))
    return crops


def _picture(name: str) -> NDArray[Any]:
    import skimage
    from PIL import Image

    with Image.open(Path(skimage.__file__).parent / "data" / name) as image:
        return np.asarray(image.convert("RGB"))
