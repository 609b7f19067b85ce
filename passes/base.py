"""The typed adapter every pass goes through, and our errors made known to TVM."""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import relax

from tilewright.targets import errors

Pass = Callable[[tvm.IRModule], tvm.IRModule]

# Without this TVM hands an error raised inside a pass back as RuntimeError. Only the message
# survives the crossing, so every fact stands in it.
for _error in (
    errors.TilewrightError,
    errors.TargetError,
    errors.ModelError,
    errors.PlacementError,
    errors.MemoryLimitError,
    errors.ArtifactError,
):
    tvm_ffi.register_error(_error)


def function_pass(rewrite: Callable[[relax.Function], relax.Function]) -> tvm.transform.Pass:
    """A tvm.transform pass that runs `rewrite` on every Relax function that is not a composite."""

    def apply(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for name, function in module.functions.items():
            if isinstance(function, relax.Function) and "Composite" not in (function.attrs or {}):
                updated[name] = rewrite(function)
        return updated

    return tvm.transform.module_pass(apply, opt_level=0, name=rewrite.__name__)


def module_pass(rewrite: Callable[[tvm.IRModule], tvm.IRModule]) -> tvm.transform.Pass:
    """A tvm.transform pass that runs `rewrite` on the whole module."""

    def apply(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return rewrite(module)

    return tvm.transform.module_pass(apply, opt_level=0, name=rewrite.__name__)
