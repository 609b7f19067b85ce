"""A temporary directory that lives as long as somebody holds it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """Removed by `remove`, with the last reference to it, or when the interpreter ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tilewright-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        self._finalizer()
