"""The distinct kernels of a model: equal computations share one function, whatever their names."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax, tirx

from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.schedule import Kernel, schedule


class KernelLibrary:
    """Schedules fused PrimFuncs on demand and keeps each distinct kernel once."""

    def __init__(self, functions: Mapping[str, tirx.PrimFunc], cpu: CpuFacts) -> None:
        self._functions, self._cpu = functions, cpu
        self._scheduled: dict[str, list[Kernel]] = {}
        self._builder = relax.BlockBuilder()  # gives equal functions one variable

    def kernels_of(self, group: str) -> tuple[tirx.PrimFunc, list[Kernel]]:
        """The fused PrimFunc `group` and the kernels that compute it, in order."""
        function = self._functions[group]
        if group not in self._scheduled:
            self._scheduled[group] = schedule(function, self._cpu)
        return function, self._scheduled[group]

    def add(self, group: str, kernel: Kernel) -> tvm.ir.GlobalVar:
        """The variable of the function that computes `kernel`."""
        return self._builder.add_func(kernel.function, group)

    def module(self) -> tvm.IRModule:
        """All kernels that were added."""
        return self._builder.get()
