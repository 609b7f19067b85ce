"""Write the IR to numbered files, one for each pass that changed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm.ir.instrument import pass_instrument


@pass_instrument
class DumpPasses:
    """`DIR/007_convert_layout.py` holds the module as convert_layout left it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.last: tvm.IRModule | None = None

    def enter_pass_ctx(self) -> None:
        """Called by TVM when the pass context opens."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Called by TVM after each pass; writes the module if it is not as it was."""
        if info.name == "sequential" or (self.last is not None and module.same_as(self.last)):
            return
        self.last = module
        self.count += 1
        path = self.directory / f"{self.count:03d}_{info.name}.py"
        path.write_text(module.script(show_meta=False))
