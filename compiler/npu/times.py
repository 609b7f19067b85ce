"""Modelled times of a composite on either device, for deciding where it runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from tilewright.passes.npu_operators import Site, dense_image, operators_of
from tilewright.passes.partition import bindings_of
from tilewright.schedules.backends import backend_of
from tilewright.schedules.cpu.cost import modelled_seconds
from tilewright.targets.description import Cpu, Npu
from tilewright.targets.operators import Operator


def modelled_times(npu: Npu, cpu: Cpu) -> Callable[[relax.Function], tuple[int, int]]:
    """Nanoseconds of a composite function on the CPU and on the NPU.

    The NPU's are its lower bound with all operands in DRAM: whether intermediates stay in the SRAM
    is decided only when the regions are known.
    """

    backend = backend_of(npu)

    def times(composite: relax.Function) -> tuple[int, int]:
        call = next(b.value for b in bindings_of(composite) if isinstance(b.value, relax.Call))
        site = Site("operator", (), lambda e: dense_image("input", e), dense_image("output", call))
        operators = operators_of(call, site)
        cycles = sum(backend.least_cycles(npu, operator) for operator in operators)
        moved = sum(tensor.elements for o in operators for tensor in (*o.inputs, o.output))
        moved += sum(constant_bytes(operator) for operator in operators)
        macs = sum(operator.macs for operator in operators)
        cpu_seconds = modelled_seconds(macs, moved, "int8", cpu)
        return round(cpu_seconds * 1e9), round(cycles * 1e3 / npu.clock_mhz)

    return times


def constant_bytes(operator: Operator) -> int:
    """Bytes of weights, biases and tables that either device must read."""
    arrays = vars(operator).values()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def crossing_nanoseconds(cpu: Cpu) -> int:
    """One hand-over between the devices."""
    return round(cpu.crossing_us * 1e3)
