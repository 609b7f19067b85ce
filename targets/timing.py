"""What an instruction costs on its own: cycles, multiply-accumulates and bytes, by formula.

The simulator counts by the same formulas and adds what only a whole stream shows: waiting for
each other, for the shared DRAM channel, and conflicts in the banks. docs/simulator.md derives them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets import isa
from tilewright.targets.groups import Npu, round_up


@dataclass(frozen=True)
class Cost:
    """`cycles` until the engine is free again; bytes without and (bursts) with rounding."""

    cycles: int
    macs: int = 0
    sram_read: int = 0
    sram_written: int = 0
    dram_bytes: int = 0
    dram_burst_bytes: int = 0


def cost(npu: Npu, instruction: isa.Instruction) -> Cost:
    """The cost of one instruction that runs alone."""
    match instruction:
        case isa.Load() | isa.Store():
            return _transfer_cost(npu, instruction)
        case isa.Conv():
            return _conv_cost(npu, instruction)
        case isa.Depthwise():
            return _depthwise_cost(npu, instruction)
        case isa.Requantize(height=h, width=w, channels=c):
            return _vector_cost(npu, h * w * c, read=4 * c, written=h * w * c)
        case isa.Add() | isa.Subtract() | isa.Multiply():
            count = instruction.pixels * instruction.channels
            second = count if instruction.b_pixel_pitch else instruction.channels
            return _vector_cost(npu, count, read=count + second, written=count)
        case isa.Lookup(height=h, width=w, channels=c):
            return _vector_cost(npu, h * w * c, read=h * w * c + 256, written=h * w * c)
        case isa.MaxPool() | isa.AveragePool():
            count = instruction.output_height * instruction.output_width * instruction.channels
            reads = count * instruction.kernel_h * instruction.kernel_w
            return _vector_cost(npu, reads, read=reads, written=count)
        case isa.Copy():
            count = instruction.run_bytes * instruction.count_1 * instruction.count_2
            return _vector_cost(npu, count, read=count, written=count)
        case isa.Fill():
            count = instruction.run_bytes * instruction.count_1 * instruction.count_2
            return _vector_cost(npu, count, read=0, written=count)
    return Cost(0)


def conv_cycles(npu: Npu, pixels: int, taps: int, inputs: int, outputs: int) -> int:
    """Cycles of a convolution on the array, by the mapping of rows that takes the fewest."""
    array = npu.array
    whole = _array_cycles(npu, array.rows, pixels, taps, inputs, outputs)
    if array.subarrays == 1:
        return whole
    share, part = -(-pixels // array.subarrays), array.rows // array.subarrays
    return min(whole, _array_cycles(npu, part, share, taps, inputs, outputs))


def depthwise_cycles(npu: Npu, pixels: int, taps: int, outputs: int) -> int:
    """Cycles of a depthwise convolution, by the mapping the NPU has."""
    mode = npu.depthwise.mode
    if mode == "diagonal":
        side = min(npu.array.rows, npu.array.columns)
        folds, rest = -(-outputs // side), (outputs - 1) % side + 1
        return _passes_cycles(npu, npu.array.rows, pixels, taps * (folds - 1), taps, side, rest)
    macs = pixels * taps * outputs
    if mode == "vector":
        return npu.vector.startup_cycles + -(-macs // npu.vector.lanes)
    return -(-macs // npu.depthwise.macs_per_cycle)


def transfer_cycles(npu: Npu, burst_bytes: int) -> int:
    """Cycles of a DMA transfer that moves `burst_bytes`, whole bursts, over an idle channel."""
    memory = npu.memory
    port = memory.dma_bytes_per_cycle * 1000
    rate = min(port, dram_millibytes_per_cycle(npu))
    return memory.dma_latency_cycles + -(-burst_bytes * 1000 // rate)


def dram_millibytes_per_cycle(npu: Npu) -> int:
    """DRAM bandwidth as the integer the simulator counts with."""
    return max(1, round(npu.dram_bytes_per_cycle * 1000))


def _array_cycles(npu: Npu, rows: int, pixels: int, taps: int, inputs: int, outputs: int) -> int:
    turns = 1
    if npu.array.reduction == "channels":
        turns, taps = taps, 1
    reduction = taps * inputs
    folds, rest = -(-reduction // rows), (reduction - 1) % rows + 1
    columns = -(-outputs // npu.array.columns) * turns
    return _passes_cycles(npu, rows, pixels, columns * (folds - 1), columns, rows, rest)


def _passes_cycles(
    npu: Npu, rows: int, pixels: int, full: int, last: int, full_rows: int, last_rows: int
) -> int:
    """`full` passes that load full_rows rows of weights, and `last` that load last_rows."""
    array = npu.array
    drain = rows + array.columns - 2
    if not array.weight_double_buffer:
        load = -(-rows // array.weight_rows_per_cycle)
        return (full + last) * (load + drain + pixels) - 1
    load_full = -(-full_rows // array.weight_rows_per_cycle)
    load_last = -(-last_rows // array.weight_rows_per_cycle)
    first = load_full if full else load_last
    follow_full = full - (1 if full else 0)
    follow_last = last - (0 if full else 1)
    hidden = follow_full * max(pixels, load_full) + follow_last * max(pixels, load_last)
    return first + pixels + hidden + drain


def _transfer_cost(npu: Npu, move: isa.Load | isa.Store) -> Cost:
    run, runs = _merged_runs(move)
    moved = run * runs
    bursts = runs * round_up(run, npu.memory.burst_bytes)
    load = isinstance(move, isa.Load)
    return Cost(
        transfer_cycles(npu, bursts),
        sram_read=0 if load else moved,
        sram_written=moved if load else 0,
        dram_bytes=moved,
        dram_burst_bytes=bursts,
    )


def _merged_runs(move: isa.Load | isa.Store) -> tuple[int, int]:
    """Bytes of a contiguous run in DRAM, and how many: runs that touch are one."""
    run, runs, stride = move.run_bytes, 1, 0
    for count, stride in ((move.count_1, move.dram_stride_1), (move.count_2, move.dram_stride_2)):
        if count == 1:
            continue
        if runs == 1 and stride == run:
            run *= count
        else:
            runs *= count
    return run, runs


def _conv_cost(npu: Npu, conv: isa.Conv) -> Cost:
    pixels, taps = conv.output_height * conv.output_width, conv.kernel_h * conv.kernel_w
    inputs, outputs = conv.input_channels, conv.output_channels
    reduction = taps * inputs
    streamed = -(-outputs // npu.array.columns) * reduction * pixels
    return Cost(
        conv_cycles(npu, pixels, taps, inputs, outputs),
        macs=pixels * reduction * outputs,
        sram_read=reduction * outputs + streamed + _bias_bytes(conv),
    )


def _depthwise_cost(npu: Npu, conv: isa.Depthwise) -> Cost:
    pixels, taps = conv.output_height * conv.output_width, conv.kernel_h * conv.kernel_w
    macs = pixels * taps * conv.output_channels
    return Cost(
        depthwise_cycles(npu, pixels, taps, conv.output_channels),
        macs=macs,
        sram_read=taps * conv.output_channels + macs + _bias_bytes(conv),
    )


def _bias_bytes(conv: isa.Conv | isa.Depthwise) -> int:
    starts = conv.bias_address != isa.NO_BIAS and not conv.accumulate
    return 4 * conv.output_channels if starts else 0


def _vector_cost(npu: Npu, operations: int, read: int, written: int) -> Cost:
    cycles = npu.vector.startup_cycles + -(-operations // npu.vector.lanes)
    return Cost(cycles, sram_read=read, sram_written=written)
