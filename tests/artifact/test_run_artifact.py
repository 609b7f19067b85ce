"""Arrays go in by name and come out by name; what does not fit is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright.compiler.artifact import Artifact


def test_run(artifact):
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    y = artifact.run({"x": x})["y"]
    assert np.array_equal(y, x.sum(axis=1) + np.arange(6))
