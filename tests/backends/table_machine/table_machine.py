"""A second instruction set, unlike the first: no scratchpad, no array, one in-order list of runs.

Every operator of two int8 operands becomes a table of 65,536 bytes, every one of one operand a
table of 256; so element-wise operators, look-ups and copies run on it, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tilewright.targets.simulator
from tilewright.targets.backend import (
    Backend,
    Emitted,
    EnergyParts,
    OperatorShare,
    Plan,
    Simulation,
    SpilledBuffer,
    lives_in_order,
)
from tilewright.targets.description import Npu
from tilewright.targets.operators import Copy, Elementwise, Lookup, Operator, Region, Tensor
from tilewright.targets.support import Refusal, operator_kind

HERE = Path(__file__).parent
DRIVER = Path(tilewright.targets.simulator.__file__).parent / "npu_driver.h"
COPY, UNARY, BINARY = range(3)


@dataclass
class TablePlan:
    region: Region
    lanes: int
    constants: bytes = b""
    spilled: list[SpilledBuffer] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)  # one offset an operator

    @property
    def lives(self) -> dict[str, tuple[int, int]]:
        return lives_in_order(self.region)


class TableMachine(Backend):
    def refuses(self, npu: Npu, operator: Operator) -> Refusal | None:
        if isinstance(operator, Copy | Elementwise | Lookup):
            return None
        return Refusal("kind", f"{operator_kind(operator)} is not what a table can do")

    def least_cycles(self, npu: Npu, operator: Operator) -> int:
        return -(-operator.output.elements // npu.vector.lanes)

    def plan(self, npu: Npu, region: Region) -> TablePlan:
        plan = TablePlan(region, npu.vector.lanes)
        for operator in region.operators:
            plan.tables.append(len(plan.constants))
            plan.constants += table_of(operator)
        plan.spilled = [*_spilled(region)]
        return plan

    def emit(self, plan: Plan, buffer_offsets: Mapping[str, int], constants_offset: int) -> Emitted:
        assert isinstance(plan, TablePlan)
        stream, cycles = b"TAB1", []
        for operator, table in zip(plan.region.operators, plan.tables, strict=True):
            runs = [*_runs(operator, buffer_offsets)]
            for kind, a, b, out, count in runs:
                stream += struct.pack("<6I", kind, a, b, out, constants_offset + table, count)
            cycles.append(sum(-(-run[-1] // plan.lanes) for run in runs))
        return Emitted(stream, cycles)

    def simulate(
        self, npu: Npu, emitted: Emitted, constants: bytes, arena_bytes: int
    ) -> Simulation:
        shares = [OperatorShare(cycles, 0, 0, 0.0) for cycles in emitted.details]
        return Simulation(sum(emitted.details), shares, EnergyParts())

    def driver_files(self, npu: Npu) -> Sequence[Path]:
        return [DRIVER, HERE / "npu_simulator.h", HERE / "table_machine.c"]

    def machine_source(self, npu: Npu, name: str) -> str:
        return f"const npu_machine {name} = {{{npu.vector.lanes}}};\n"

    def workspace_bytes(self, npu: Npu, stream: bytes) -> int:
        return 8


def table_of(operator: Operator) -> bytes:
    """What the operator gives for every raw byte, or every pair of raw bytes."""
    if isinstance(operator, Lookup):
        return operator.table.tobytes()
    if not isinstance(operator, Elementwise):
        return b""
    raw = np.arange(256, dtype=np.uint8)
    a = raw.view(operator.a.dtype).astype(np.int32)[:, None] - operator.a_zero
    b = raw.view(operator.b.dtype).astype(np.int32)[None, :] - operator.b_zero
    operate = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operator.kind]
    real = operate(
        a.astype(np.float32) * np.float32(operator.a_scale),
        b.astype(np.float32) * np.float32(operator.b_scale),
    )
    steps = np.rint(real / np.float32(operator.output_scale)) + operator.output_zero
    limits = np.iinfo(operator.output.dtype)
    low, high = max(operator.clip_low, limits.min), min(operator.clip_high, limits.max)
    return np.clip(steps, low, high).astype(operator.output.dtype).tobytes()


def _runs(
    operator: Operator, offsets: Mapping[str, int]
) -> Iterator[tuple[int, int, int, int, int]]:
    """One run for all pixels where everything is dense, else one for each."""
    first, second = operator.inputs[0], operator.inputs[-1]
    kind = {Copy: COPY, Lookup: UNARY, Elementwise: BINARY}[type(operator)]
    output = operator.output
    if all(_is_dense(tensor, output) for tensor in (first, second, output)):
        places = (offsets[tensor.buffer] + tensor.offset for tensor in (first, second, output))
        yield (kind, *places, output.elements)  # type: ignore[misc]
        return
    for y in range(output.height):
        for x in range(output.width):
            places = (_pixel(tensor, y, x, offsets) for tensor in (first, second, output))
            yield (kind, *places, output.channels)  # type: ignore[misc]


def _is_dense(tensor: Tensor, output: Tensor) -> bool:
    is_whole = tensor.elements == output.elements
    return is_whole and tensor.pitch_y * tensor.height == tensor.elements


def _pixel(tensor: Tensor, y: int, x: int, offsets: Mapping[str, int]) -> int:
    row, column = min(y, tensor.height - 1), min(x, tensor.width - 1)
    return offsets[tensor.buffer] + tensor.offset + row * tensor.pitch_y + column * tensor.pitch_x


def _spilled(region: Region) -> Iterator[SpilledBuffer]:
    """Every intermediate buffer: there is no scratchpad."""
    for buffer, life in lives_in_order(region).items():
        if buffer not in (*region.inputs, *region.outputs):
            yield SpilledBuffer(buffer, region.buffer_bytes[buffer], *life)
