"""Run neighbouring operators depth first: stripe by stripe of rows, intermediates never whole.

    a -> conv1 -> b -> conv2 -> c      becomes, for each stripe of c's rows,

    conv1 on the rows of b that this stripe needs and the last one did not have
    copy of the rows of b that both stripes need
    conv2 on the stripe's rows

Every stripe of b is a small buffer of its own, so b costs neither DRAM traffic nor the SRAM of the
whole. Nothing is computed twice. The result is an ordinary list of operators: the same arithmetic
on views of rows, which `plan_region` schedules like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.schedules.npu.geometry import Covered, Window
from tilewright.targets.operators import (
    Conv2d,
    Copy,
    Elementwise,
    Lookup,
    Operator,
    Pool2d,
    Tensor,
)

Rows = tuple[int, int]


@dataclass
class Striped:
    """Operators in order, for each the index of the one it is a part of, and new buffers."""

    operators: list[Operator] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    buffer_bytes: dict[str, int] = field(default_factory=dict)


def can_stripe(operator: Operator) -> bool:
    """Whether rows of the output depend on a window of rows of the inputs and nothing else."""
    return isinstance(operator, Conv2d | Pool2d | Elementwise | Lookup)


def row_window(operator: Operator) -> Window:
    """Which rows of its inputs an operator that can be striped needs."""
    if isinstance(operator, Conv2d | Pool2d):
        dilation = operator.dilations[0] if isinstance(operator, Conv2d) else 1
        top, _, bottom, _ = operator.pads
        extent = operator.input.height
        return Window(extent, operator.kernel[0], operator.strides[0], dilation, top, bottom)
    return Window(operator.output.height)


def stripe_chain(
    operators: Sequence[Operator], cuts: Sequence[int], first_owner: int, skewed: bool = False
) -> Striped:
    """Run `operators` for each range of output rows between `cuts` of the last one.

    All outputs but the last are read by these operators alone, whole and through one view, and
    none is broadcast. `skewed`: each operator runs a stripe ahead of the one after it, so that an
    engine need not wait for another to finish the same stripe; intermediates then live longer.
    """
    stripes = _Stripes(operators, first_owner)
    for low, high in itertools.pairwise(cuts):
        stripes.add((low, high))
    made = stripes.made
    if not skewed:
        return made
    ahead = [stripe + owner for stripe, owner in zip(stripes.stripe_of, made.owners, strict=True)]
    order = sorted(
        range(len(made.operators)), key=lambda step: (ahead[step], -made.owners[step], step)
    )
    return Striped(
        [made.operators[step] for step in order],
        [made.owners[step] for step in order],
        made.buffer_bytes,
    )


class _Stripes:
    """Keeps, for every intermediate, the rows that its latest stripe holds."""

    def __init__(self, operators: Sequence[Operator], first_owner: int) -> None:
        self.operators, self.first_owner = operators, first_owner
        self.made = Striped()
        self.stripe_of: list[int] = []
        self.held: dict[str, tuple[Rows, Tensor]] = {}
        self.index = 0

    def add(self, rows: Rows) -> None:
        """One stripe: `rows` of the last operator's output."""
        held, fresh = self._needed(rows)
        for place, operator in enumerate(self.operators[:-1]):
            name = operator.output.buffer
            if name not in held or held[name] == self.held.get(name, (None,))[0]:
                continue
            tensor = self._new_tensor(operator.output, held[name])
            self._keep(place, operator, tensor, held[name])
            self.held[name] = held[name], tensor
            low, high = fresh[name]
            if low < high:
                start = held[name][0]
                self._compute(
                    place, operator, (low, high), _rows(tensor, low - start, high - start)
                )
        last = self.operators[-1]
        self._compute(len(self.operators) - 1, last, rows, _rows(last.output, *rows))
        self.index += 1

    def _needed(self, rows: Rows) -> tuple[dict[str, Rows], dict[str, Rows]]:
        """By intermediate: the rows this stripe must hold, and those of them to be computed."""
        held: dict[str, Rows] = {}
        fresh: dict[str, Rows] = {}
        wanted: dict[str, Rows] = {}
        own = {operator.output.buffer for operator in self.operators[:-1]}
        for operator in reversed(self.operators):
            name = operator.output.buffer
            if operator is not self.operators[-1]:
                if name not in wanted:
                    continue
                before = self.held[name][0] if name in self.held else (0, wanted[name][0])
                held[name] = wanted[name][0], max(wanted[name][1], before[1])
                fresh[name] = max(held[name][0], before[1]), held[name][1]
            computed = rows if operator is self.operators[-1] else fresh[name]
            if computed[0] >= computed[1]:
                continue
            covered = row_window(operator).covered(*computed)
            for tensor in operator.inputs:
                if tensor.buffer in own and not broadcasts(operator, tensor):
                    wanted[tensor.buffer] = _union(wanted.get(tensor.buffer), covered)
        return held, fresh

    def _new_tensor(self, whole: Tensor, rows: Rows) -> Tensor:
        name = f"{whole.buffer}@{self.index}"
        height = rows[1] - rows[0]
        tensor = Tensor(name, height, whole.width, whole.channels, whole.dtype, name)
        self.made.buffer_bytes[name] = tensor.elements
        return tensor

    def _keep(self, place: int, operator: Operator, tensor: Tensor, rows: Rows) -> None:
        """Copy the rows that the stripe before has already computed."""
        if operator.output.buffer not in self.held:
            return
        before, source = self.held[operator.output.buffer]
        low, high = rows[0], min(before[1], rows[1])
        if low >= high:
            return
        output = _rows(tensor, 0, high - low)
        copy = Copy(
            f"{operator.name}@{self.index}/keep",
            operator.onnx_nodes,
            output,
            input=_rows(source, low - before[0], high - before[0]),
        )
        self._append(place, copy)

    def _compute(self, place: int, operator: Operator, rows: Rows, output: Tensor) -> None:
        """`rows` of an operator's output, from the rows of its inputs that they need."""
        covered = row_window(operator).covered(*rows)
        changes = {
            name: self._input_rows(operator, tensor, covered)
            for name, tensor in vars(operator).items()
            if isinstance(tensor, Tensor) and name != "output"
        }
        part = replace(operator, name=f"{operator.name}@{self.index}", output=output, **changes)  # type: ignore[arg-type]
        if isinstance(part, Conv2d | Pool2d):
            _, left, _, right = part.pads
            part = replace(part, pads=(covered.before, left, covered.after, right))
        self._append(place, part)

    def _input_rows(self, operator: Operator, tensor: Tensor, covered: Covered) -> Tensor:
        if broadcasts(operator, tensor):
            return tensor
        if tensor.buffer not in self.held:
            return _rows(tensor, covered.low, covered.high)
        (start, _), held = self.held[tensor.buffer]
        return _rows(held, covered.low - start, covered.high - start)

    def _append(self, place: int, operator: Operator) -> None:
        self.made.operators.append(operator)
        self.made.owners.append(self.first_owner + place)
        self.stripe_of.append(self.index)


def broadcasts(operator: Operator, tensor: Tensor) -> bool:
    """One pixel that serves every row: it must be complete before the first stripe."""
    pixels = operator.output.height * operator.output.width
    return isinstance(operator, Elementwise) and tensor.height * tensor.width == 1 < pixels


def _rows(tensor: Tensor, low: int, high: int) -> Tensor:
    """The view of rows low..high."""
    return replace(
        tensor,
        height=high - low,
        offset=tensor.offset + low * tensor.pitch_y,
        row_pitch=tensor.pitch_y,
        pixel_pitch=tensor.pitch_x,
    )


def _union(one: Rows | None, two: Covered) -> Rows:
    if one is None:
        return two.low, two.high
    return min(one[0], two.low), max(one[1], two.high)


def internal_buffers(
    operators: Iterable[Operator], readers: dict[str, int], kept: Iterable[str]
) -> set[str]:
    """Buffers that these operators write whole, once, and alone read.

    `readers` counts all operators of the region that read a buffer; `kept` are its inputs and
    outputs.
    """
    inside: dict[str, int] = {}
    written: dict[str, int] = {}
    for operator in operators:
        for name in {tensor.buffer for tensor in operator.inputs}:
            inside[name] = inside.get(name, 0) + 1
        written[operator.output.buffer] = written.get(operator.output.buffer, 0) + 1
    outside = set(kept)
    return {
        name
        for name, times in written.items()
        if times == 1 and name not in outside and inside.get(name, 0) == readers.get(name, -1)
    }
