"""Choose which chains of operators run depth first, and in how high stripes.

Worth it where intermediates would go through the DRAM; in a region without any, where pooling or
element-wise work can run beside a convolution's. By formula, for every chain of that kind: the
highest stripes that fit what stays of the SRAM, and then the busiest of array, vector engine and
DRAM against the operators one by one. The best division of the region into chains and single
operators is a shortest path over the positions between operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.npu.bounds import operator_work
from tilewright.schedules.npu.geometry import round_up
from tilewright.schedules.npu.planning import Chain
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.stripes import (
    broadcasts,
    can_stripe,
    internal_buffers,
    row_window,
)
from tilewright.targets.description import Npu
from tilewright.targets.operators import Conv2d, Operator, Region

_LONGEST = 16  # operators in a chain
_HEIGHTS = (48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_LEAST_STRIPES = 2


def choose_chains(region: Region, npu: Npu, plan: RegionPlan, room: float) -> list[Chain]:
    """The chains that should run in stripes; `plan` is the region's, layer by layer.

    Stripes may take `room` of the SRAM by the formulas, which leave out alignment and gaps.
    """
    return _Chooser(region, npu, plan, int(room * npu.sram_bytes)).choose()


@dataclass(frozen=True)
class _Option:
    cycles: float
    chain: Chain | None  # None: one operator, whole


class _Chooser:
    def __init__(self, region: Region, npu: Npu, plan: RegionPlan, room: int) -> None:
        self.region, self.npu, self.plan, self.room = region, npu, plan, room
        self.operators = region.operators
        self.spilled = {one.buffer for one in plan.spilled}
        self.in_dram = {
            name
            for name in region.buffer_bytes
            if name in self.spilled or name in region.inputs or name in region.outputs
        }
        self.readers = count_readers(region)

    def choose(self) -> list[Chain]:
        best: list[float] = [0.0]
        steps: list[_Option] = []
        for end in range(1, len(self.operators) + 1):
            single = _Option(self._whole_cycles(self.operators[end - 1]), None)
            options = [(best[end - 1] + single.cycles, single)]
            for start in range(end - 2, max(end - _LONGEST, 0) - 1, -1):
                option = self._chain_option(start, end)
                if option is not None:
                    options.append((best[start] + option.cycles, option))
            cycles, option = min(options, key=lambda pair: pair[0])
            best.append(cycles)
            steps.append(option)
        chains: list[Chain] = []
        end = len(self.operators)
        while end:
            chain = steps[end - 1].chain
            if chain is not None:
                chains.insert(0, chain)
            end = chain.first if chain is not None else end - 1
        return chains

    def _whole_cycles(self, operator: Operator) -> float:
        return float(operator_work(operator, self.npu, self.in_dram).bound_cycles(self.npu))

    def _chain_option(self, start: int, end: int) -> _Option | None:
        """Operators start..end in the highest stripes that fit; None where they cannot be."""
        operators = self.operators[start:end]
        if not can_chain(self.region, start, end, self.readers):
            return None
        inner = {operator.output.buffer for operator in operators[:-1]}
        if not (inner & self.spilled if self.spilled else _mixes_engines(operators)):
            return None
        rows = operators[-1].output.height
        taken = self._taken(start, end, inner)
        for height in _HEIGHTS:
            if height * _LEAST_STRIPES > rows:
                continue
            if taken + self._stripe_bytes(operators, height) <= self.room:
                cuts = (*range(0, rows, height), rows)
                return _Option(self._chain_cycles(operators, inner, len(cuts) - 1),
                               Chain(start, end, cuts))  # fmt: skip
        return None

    def _taken(self, start: int, end: int, inner: set[str]) -> int:
        """SRAM that buffers take which stay while the chain runs, most at once.

        Inputs that were loaded whole are not among them: a chain loads the rows it needs.
        """
        sizes = [0] * (end - start)
        for name, resident in self.plan.residents.items():
            first, last = self.plan.lives[name]
            if name not in inner and not resident.is_loaded:
                for step in range(max(first, start), min(last + 1, end)):
                    sizes[step - start] += resident.layout.nbytes
        return max(sizes)

    def _stripe_bytes(self, operators: Sequence[Operator], height: int) -> int:
        """SRAM that one stripe in full swing takes: stripes of intermediates, weights, slots.

        An intermediate of which rows are kept for the next stripe lives all the time, and twice
        while the next is made; the others live from their operator to the next.
        """
        aligned = self.npu.aligned_channels
        held, fresh = _rows_in_swing(operators, height)
        inside = {operator.output.buffer for operator in operators}
        always = making = 0
        loaded: dict[str, int] = {}
        for operator in operators:
            output = operator.output
            own = held.get(output.buffer, 2 * min(height, 8)) * output.width
            own *= aligned(output.channels)
            beside = 0
            for tensor in operator.inputs:
                rows = held.get(tensor.buffer, 1)
                if tensor.buffer in inside and rows == fresh[tensor.buffer]:
                    beside += rows * tensor.width * aligned(tensor.channels)
                elif tensor.buffer not in inside and tensor.buffer in self.in_dram:
                    slot = min(rows, 16) * tensor.width * aligned(tensor.channels)
                    loaded[tensor.buffer] = slot
            making = max(making, own + beside)
            keeps = output.buffer in held and held[output.buffer] > fresh[output.buffer]
            always += (own if keeps else 0) + self._constant_bytes(operator)
        return always + making + sum(loaded.values())

    def _constant_bytes(self, operator: Operator) -> int:
        if not isinstance(operator, Conv2d):
            return 0
        aligned = self.npu.aligned_channels(operator.output.channels)
        packed = operator.weight.size // operator.output.channels * aligned + 8 * aligned
        return round_up(packed, self.npu.tables.alignment)

    def _chain_cycles(self, operators: Sequence[Operator], inner: set[str], stripes: int) -> float:
        """The busiest engine over the whole chain, each operator started once a stripe."""
        outside = self.in_dram - inner
        array, vector = self.npu.array, self.npu.vector
        load = array.rows // array.weight_rows_per_cycle
        start = load + array.rows + array.columns
        total = sum(
            (operator_work(operator, self.npu, outside) for operator in operators[1:]),
            operator_work(operators[0], self.npu, outside),
        )
        overhead = stripes * len(operators) * (start + vector.startup_cycles) / 2
        return total.bound_cycles(self.npu) + overhead


def count_readers(region: Region) -> dict[str, int]:
    """How many operators read each buffer."""
    readers: dict[str, int] = {}
    for operator in region.operators:
        for name in {tensor.buffer for tensor in operator.inputs}:
            readers[name] = readers.get(name, 0) + 1
    return readers


def can_chain(region: Region, start: int, end: int, readers: dict[str, int]) -> bool:
    """Whether operators start..end can run in stripes, all intermediates their own."""
    operators = region.operators[start:end]
    if not all(can_stripe(operator) for operator in operators):
        return False
    kept = (*region.inputs, *region.outputs)
    inner = {operator.output.buffer for operator in operators[:-1]}
    internal = internal_buffers(operators, readers, kept)
    return not inner - internal and _whole_views(operators, inner)


def _mixes_engines(operators: Sequence[Operator]) -> bool:
    """Some work for the array and some for the vector engine alone, which then run together."""
    multiplies = [isinstance(operator, Conv2d) for operator in operators]
    return any(multiplies) and not all(multiplies)


def _rows_in_swing(
    operators: Sequence[Operator], height: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Rows of every buffer that a stripe in the middle holds, and those new in it."""
    held: dict[str, int] = {}
    fresh = {operators[-1].output.buffer: height}
    for operator in reversed(operators):
        outputs = fresh.get(operator.output.buffer, 0)
        window = row_window(operator)
        for tensor in operator.inputs:
            if outputs and not broadcasts(operator, tensor):
                needed = min(window.needed(outputs), tensor.height)
                new = min(outputs * window.stride, tensor.height)
                held[tensor.buffer] = max(held.get(tensor.buffer, 0), needed)
                fresh[tensor.buffer] = max(fresh.get(tensor.buffer, 0), new)
    return held, fresh


def _whole_views(operators: Sequence[Operator], inner: set[str]) -> bool:
    """Every intermediate is read as it was written, row by row."""
    written = {operator.output.buffer: operator.output for operator in operators}
    return all(
        not broadcasts(operator, tensor)
        and (tensor.offset, tensor.pitch_y, tensor.pitch_x, tensor.height, tensor.width)
        == (o.offset, o.pitch_y, o.pitch_x, o.height, o.width)
        for operator in operators
        for tensor in operator.inputs
        if tensor.buffer in inner and (o := written[tensor.buffer])
    )
