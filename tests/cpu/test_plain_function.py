"""The C form of kernels: what their index arithmetic may rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tests.cpu.run_kernels import HOST, graph_of
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.compiler.cpu.plain_function import lower_to_statements, to_plain_function


def test_divisions_of_task_numbers_need_no_correction_of_signs() -> None:
    def build(_builder: Any, x: Any) -> Any:
        return relax.op.permute_dims(x, [0, 2, 1, 3, 4])

    kernels = lower_to_kernels(graph_of(build, [np.zeros((1, 2, 4, 6, 6), np.int8)]), HOST)
    functions = {
        symbol: function
        for symbol, function in kernels.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    (lowered,) = lower_to_statements(tvm.IRModule(functions)).functions.values()
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu"})
    plain = tvm.IRModule({"kernel": to_plain_function(lowered, "kernel", target)})
    code = tirx.transform.LowerIntrin()(plain).script()
    assert "truncmod" in code
    assert "Select" not in code
    assert ">> 31" not in code
