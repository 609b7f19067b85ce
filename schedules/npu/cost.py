"""The formulas of `targets.timing` for many candidates at once: numpy arrays in, arrays out.

Letters of the formulas: an array of R rows and C columns, K = taps x input channels, N output
channels, M output pixels. A test holds these functions and `targets.timing` together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.targets import timing
from tilewright.targets.description import Npu

Number = Any  # int, float or an array of them: numpy's broadcasting does the rest


def ceil_div(value: Number, divisor: Number) -> Number:
    return -(-value // divisor)


def conv_cycles(npu: Npu, pixels: Number, taps: Number, inputs: Number, outputs: Number) -> Number:
    """One CONV: each pass holds R x C weights while M pixels stream through."""
    array = npu.array
    whole = _array_cycles(npu, array.rows, pixels, taps, inputs, outputs)
    if array.subarrays == 1:
        return whole
    share, part = ceil_div(pixels, array.subarrays), array.rows // array.subarrays
    return np.minimum(whole, _array_cycles(npu, part, share, taps, inputs, outputs))


def depthwise_cycles(npu: Npu, pixels: Number, taps: Number, outputs: Number) -> Number:
    """One DEPTHWISE, by the mapping the NPU has."""
    mode = npu.depthwise.mode
    if mode == "diagonal":
        side = min(npu.array.rows, npu.array.columns)
        folds, rest = ceil_div(outputs, side), (outputs - 1) % side + 1
        return _passes_cycles(npu, npu.array.rows, pixels, taps * (folds - 1), taps, side, rest)
    startup = npu.vector.startup_cycles if mode == "vector" else 0
    return startup + ceil_div(pixels * taps * outputs, npu.depthwise_macs_per_cycle)


def vector_cycles(npu: Npu, operations: Number) -> Number:
    return npu.vector.startup_cycles + ceil_div(operations, npu.vector.lanes)


def transfer_cycles(npu: Npu, runs: Number, run_bytes: Number) -> Number:
    """One DMA of `runs` runs that do not touch in DRAM, each rounded to whole bursts."""
    burst = npu.memory.burst_bytes
    rate = min(npu.memory.dma_bytes_per_cycle * 1000, timing.dram_millibytes_per_cycle(npu))
    moved = runs * ceil_div(run_bytes, burst) * burst
    return npu.memory.dma_latency_cycles + ceil_div(moved * 1000, rate)


def _array_cycles(
    npu: Npu, rows: int, pixels: Number, taps: Number, inputs: Number, outputs: Number
) -> Number:
    flattened = npu.array.reduction == "flattened"
    depth, turns = (taps * inputs, 1) if flattened else (inputs, taps)
    folds, rest = ceil_div(depth, rows), (depth - 1) % rows + 1
    columns = ceil_div(outputs, npu.array.columns) * turns
    return _passes_cycles(npu, rows, pixels, columns * (folds - 1), columns, rows, rest)


def _passes_cycles(
    npu: Npu, rows: int, pixels: Number, full: Number, last: Number, filled: int, rest: Number
) -> Number:
    """`full` passes that load `filled` rows of weights and `last` (one at least) that load `rest`.

    Double-buffered, a load hides under the pass before it, and the array drains once.
    """
    array = npu.array
    drain = rows + array.columns - 2
    if not array.weight_double_buffer:
        load = ceil_div(rows, array.weight_rows_per_cycle)
        return (full + last) * (load + drain + pixels) - 1
    load_full = ceil_div(filled, array.weight_rows_per_cycle)
    load_last = ceil_div(rest, array.weight_rows_per_cycle)
    starts_full = np.minimum(full, 1)
    first = np.where(starts_full == 1, load_full, load_last)
    hidden = (full - starts_full) * np.maximum(pixels, load_full)
    hidden = hidden + (last - 1 + starts_full) * np.maximum(pixels, load_last)
    return first + pixels + hidden + drain
