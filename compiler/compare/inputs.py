"""Inputs for a comparison where the user has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.compare.mapping import quantised_readers


def draw_inputs(
    source: onnx.ModelProto, manifest: Mapping[str, Any], seed: int
) -> dict[str, NDArray[Any]]:
    """The same arrays for the same seed.

    A float input that is quantised at once is drawn evenly from the range it was calibrated for:
    values outside would saturate, and that would be all a comparison shows.
    """
    drawn = random_inputs(manifest, seed)
    generator = np.random.default_rng(seed)
    for name, levels in quantised_readers(source).items():
        if name in drawn and drawn[name].dtype == np.float32:
            drawn[name] = generator.uniform(*levels, drawn[name].shape).astype(np.float32)
    return drawn
