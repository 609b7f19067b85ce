"""Artifacts: the files a compiled model is made of, and the means to write, load and run them."""

from tilewright.compiler.artifact.build import build_artifact
from tilewright.compiler.artifact.load import Artifact, load_artifact, make_artifact
from tilewright.compiler.artifact.write import check_destination, write_artifact

__all__ = [
    "Artifact",
    "build_artifact",
    "check_destination",
    "load_artifact",
    "make_artifact",
    "write_artifact",
]
