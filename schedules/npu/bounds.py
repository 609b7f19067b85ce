"""The least cycles the described hardware could need, by formula: two figures beside every result.

roofline = max(MACs / (R * C), least DRAM bytes / DRAM bytes a cycle)

    which anyone can recompute from the model and the description. Least DRAM bytes are the weights
    (one byte each) and biases (four), and the inputs and outputs that lie in DRAM.

bound = max(roofline, MAC engine, vector engine, DMA ports), each engine doing its least work:

    convolution   ceil(N / C) * ceil(K / r) * M / s, where an array of R rows is s sub-arrays of
                  r = R / s rows that take different pixels. K is taps * input channels where the
                  reduction is flattened; else taps * ceil(channels / r) takes the place of
                  ceil(K / r). A pass of all R rows does the work of s passes of r rows in the same
                  time, so no mixture is faster. No fill and drain where weights are
                  double-buffered, but every row of weights enters through the port:
                  ceil(N / C) * K / weight rows a cycle (R - 1 rows of K fewer when not).
                  Without double buffering each pass pays load, fill and drain:
                  the cheapest a * (cost of R rows) + b * (cost of r rows) with a*R + b*r >= K.
    depthwise     taps * ceil(N / min(R, C)) * M on the diagonal, else MACs / MACs a cycle
    vector        elements / lanes: requantisation, tables, element-wise; taps count in pooling
    DMA ports     bytes in, and bytes out, over the port's bytes a cycle

Memory sizes, latencies, start-up cycles, bursts and dependences are ignored. Bounds of a network
add each engine's work over its operators; they are no sums of the operators' bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tilewright.targets.description import Npu
from tilewright.targets.operators import (
    Conv2d,
    Elementwise,
    Lookup,
    MatMul,
    Operator,
    Pool2d,
    Tensor,
)


@dataclass(frozen=True)
class Work:
    """Least work of one or more operators: each engine's cycles and the bytes that must move."""

    macs: int = 0
    mac_cycles: float = 0.0
    vector_cycles: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.macs + other.macs,
            self.mac_cycles + other.mac_cycles,
            self.vector_cycles + other.vector_cycles,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
        )

    @property
    def dram_bytes(self) -> int:
        return self.bytes_in + self.bytes_out

    def roofline_cycles(self, npu: Npu) -> int:
        computing = self.macs / npu.macs_per_cycle
        return math.ceil(max(computing, self.dram_bytes / npu.dram_bytes_per_cycle))

    def bound_cycles(self, npu: Npu) -> int:
        port = npu.memory.dma_bytes_per_cycle
        engines = (self.mac_cycles, self.vector_cycles, self.bytes_in / port, self.bytes_out / port)
        return max(self.roofline_cycles(npu), math.ceil(max(engines) - 1e-9))


def operator_work(operator: Operator, npu: Npu, in_dram: Collection[str] | None = None) -> Work:
    """The least work of one operator.

    `in_dram` names the buffers that must be read from or written to DRAM; None: all of them, as
    for an operator on its own.
    """

    def moved(buffer: str, size: int) -> int:
        return size if in_dram is None or buffer in in_dram else 0

    inputs = _largest(operator.inputs)
    return Work(
        operator.macs,
        mac_cycles(operator, npu),
        _vector_operations(operator) / npu.vector.lanes,
        _weight_bytes(operator) + sum(moved(*item) for item in inputs.items()),
        moved(operator.output.buffer, operator.output.elements),
    )


def network_work(operators: Sequence[Operator], npu: Npu) -> Work:
    """The least work of operators that keep what they hand each other in the SRAM.

    What none of them writes comes from DRAM, what none of them reads goes there, once.
    """
    total = sum((operator_work(operator, npu, ()) for operator in operators), Work())
    read = _largest(tensor for operator in operators for tensor in operator.inputs)
    written = {operator.output.buffer for operator in operators}
    results = {o.output for o in operators if o.output.buffer not in read}
    return total + Work(
        bytes_in=sum(size for buffer, size in read.items() if buffer not in written),
        bytes_out=sum(tensor.elements for tensor in results),
    )


def bound_cycles(operator: Operator, npu: Npu) -> int:
    """The bound of one operator on its own, inputs and output in DRAM."""
    return operator_work(operator, npu).bound_cycles(npu)


def roofline_cycles(operator: Operator, npu: Npu) -> int:
    """The roofline of one operator on its own, inputs and output in DRAM."""
    return operator_work(operator, npu).roofline_cycles(npu)


def network_bound_cycles(operators: Sequence[Operator], npu: Npu) -> int:
    return network_work(operators, npu).bound_cycles(npu)


def network_roofline_cycles(operators: Sequence[Operator], npu: Npu) -> int:
    return network_work(operators, npu).roofline_cycles(npu)


def _largest(tensors: Iterable[Tensor]) -> dict[str, int]:
    """The most bytes that any view of each buffer holds."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.buffer] = max(sizes.get(tensor.buffer, 0), tensor.elements)
    return sizes


def mac_cycles(operator: Operator, npu: Npu) -> float:
    """The MAC engine's least cycles; 0 where it has nothing to do."""
    match operator:
        case Conv2d() if operator.is_depthwise:
            pixels = operator.output.height * operator.output.width
            taps = operator.kernel[0] * operator.kernel[1]
            return _depthwise_cycles(npu, pixels, taps, operator.output.channels)
        case Conv2d():
            pixels = operator.output.height * operator.output.width
            taps = operator.kernel[0] * operator.kernel[1]
            inner, outer = operator.weight.shape[2], operator.output.channels // operator.groups
            return _grouped_cycles(npu, pixels, taps, inner, outer, operator.groups)
        case MatMul():
            rows, inner, columns = operator.a.width, operator.a.channels, operator.b.channels
            return conv_cycles(npu, rows, 1, inner, columns)
    return 0.0


def conv_cycles(npu: Npu, pixels: int, taps: int, inputs: int, outputs: int) -> float:
    """A convolution of one group; see the module's formulas."""
    array = npu.array
    columns = -(-outputs // array.columns)
    depth, turns = (taps * inputs, 1) if array.reduction == "flattened" else (inputs, taps)
    if not array.weight_double_buffer:
        return columns * turns * _separate_passes(npu, pixels, depth)
    part = array.rows // array.subarrays
    passes = columns * turns * -(-depth // part)
    port = columns * turns * depth / array.weight_rows_per_cycle
    return max(passes * pixels / array.subarrays, port)


def _separate_passes(npu: Npu, pixels: int, depth: int) -> float:
    """The cheapest passes of all rows and of one sub-array's rows that cover `depth`."""
    array = npu.array
    part = array.rows // array.subarrays

    def pass_cycles(rows: int, shared: float) -> float:
        return math.ceil(rows / array.weight_rows_per_cycle) + rows + array.columns - 3 + shared

    whole = pass_cycles(array.rows, pixels)
    split = pass_cycles(part, pixels / array.subarrays)
    most = -(-depth // array.rows)
    return min(
        full * whole + max(-(-(depth - full * array.rows) // part), 0) * split
        for full in range(most + 1)
    )


def _grouped_cycles(npu: Npu, pixels: int, taps: int, inner: int, outer: int, groups: int) -> float:
    """Groups one by one, or several at once as one block-diagonal convolution."""
    return min(
        -(-groups // bundle) * conv_cycles(npu, pixels, taps, inner * bundle, outer * bundle)
        for bundle in range(1, groups + 1)
        if groups % bundle == 0
    )


def _depthwise_cycles(npu: Npu, pixels: int, taps: int, outputs: int) -> float:
    if npu.depthwise.mode != "diagonal":
        return pixels * taps * outputs / npu.depthwise_macs_per_cycle
    array = npu.array
    side = min(array.rows, array.columns)
    passes = taps * -(-outputs // side)
    if array.weight_double_buffer:
        return max(passes * pixels, taps * outputs / array.weight_rows_per_cycle)
    load = math.ceil(array.rows / array.weight_rows_per_cycle)
    return passes * (load + array.rows + array.columns - 3 + pixels)


def _vector_operations(operator: Operator) -> int:
    match operator:
        case Conv2d():
            return operator.output.elements * (1 if operator.lookup is None else 2)
        case Pool2d():
            return operator.output.elements * operator.kernel[0] * operator.kernel[1]
        case MatMul() | Elementwise() | Lookup():
            return operator.output.elements
    return 0


def _weight_bytes(operator: Operator) -> int:
    if isinstance(operator, Conv2d):
        return int(operator.weight.size) + 4 * operator.output.channels
    return 0
