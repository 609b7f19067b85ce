"""Everything the simulator refuses, each with instruction, field and reason."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.targets.programs import ARENA_BYTES, CONSTANTS_BYTES, make_stream
from tilewright.targets import isa, load_target
from tilewright.targets.errors import SimulatorFault
from tilewright.targets.isa import Engine, Instruction
from tilewright.targets.simulator import Simulator

_found = load_target("mcu-16").npu  # channels aligned to 16, tables to 16 bytes and 16 channels
assert _found is not None
NPU = _found
SIMULATOR = Simulator(NPU)
SRAM = NPU.sram_bytes


def transfer(kind: type[Any] = isa.Load, **changes: int) -> Any:
    values = {
        "region": 1, "dram_offset": 0, "sram_address": 0, "run_bytes": 16, "count_1": 1,
        "count_2": 1, "dram_stride_1": 0, "dram_stride_2": 0, "sram_stride_1": 0,
        "sram_stride_2": 0,
    }  # fmt: skip
    return kind(**(values | changes))


def conv(kind: type[Any] = isa.Conv, **changes: int) -> Any:
    values = {
        "input_address": 0, "input_row_pitch": 64, "input_pixel_pitch": 16, "input_height": 4,
        "input_width": 4, "input_channels": 3, "weight_address": 512, "weight_channel_pitch": 16,
        "accumulator_address": 0, "accumulator_pitch": 16, "output_height": 2, "output_width": 2,
        "output_channels": 3, "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1,
        "dilation_h": 1, "dilation_w": 1, "pad_top": 0, "pad_left": 0, "input_zero": 0,
        "weight_zero": 0, "bias_address": 1024,
    }  # fmt: skip
    extra = {"channel_multiplier": 1} if kind is isa.Depthwise else {}
    return kind(**(values | extra | changes))


def requantize(**changes: Any) -> Any:
    values = {
        "accumulator_address": 0, "accumulator_pitch": 16, "height": 2, "width": 2, "channels": 3,
        "output_address": 0, "output_row_pitch": 32, "output_pixel_pitch": 16,
        "table_address": 256, "table_channels": 16, "output_scale": 1.0, "output_zero": 0,
        "clip_low": -128, "clip_high": 127,
    }  # fmt: skip
    return isa.Requantize(**(values | changes))


def add(**changes: Any) -> Any:
    values = {
        "a_address": 0, "b_address": 64, "output_address": 128, "pixels": 4, "channels": 16,
        "a_pixel_pitch": 16, "b_pixel_pitch": 16, "output_pixel_pitch": 16, "a_scale": 1.0,
        "b_scale": 1.0, "output_scale": 1.0, "a_zero": 0, "b_zero": 0, "output_zero": 0,
        "clip_low": -128, "clip_high": 127,
    }  # fmt: skip
    return isa.Add(**(values | changes))


def lookup(**changes: int) -> Any:
    values = {
        "input_address": 0, "input_row_pitch": 64, "input_pixel_pitch": 16, "output_address": 256,
        "output_row_pitch": 64, "output_pixel_pitch": 16, "height": 4, "width": 4, "channels": 16,
        "table_address": 512,
    }  # fmt: skip
    return isa.Lookup(**(values | changes))


def pool(kind: type[Any] = isa.MaxPool, **changes: Any) -> Any:
    values = {
        "input_address": 0, "input_row_pitch": 64, "input_pixel_pitch": 16, "input_height": 4,
        "input_width": 4, "channels": 16, "output_address": 256, "output_row_pitch": 32,
        "output_pixel_pitch": 16, "output_height": 2, "output_width": 2, "kernel_h": 2,
        "kernel_w": 2, "stride_h": 2, "stride_w": 2, "pad_top": 0, "pad_left": 0, "pad_bottom": 0,
        "pad_right": 0, "input_scale": 1.0, "output_scale": 1.0, "input_zero": 0,
        "output_zero": 0, "clip_low": -128, "clip_high": 127,
    }  # fmt: skip
    return kind(**(values | changes))


def copy(**changes: int) -> Any:
    values = {
        "source_address": 0, "destination_address": 64, "run_bytes": 16, "count_1": 1,
        "count_2": 1, "source_stride_1": 0, "source_stride_2": 0, "destination_stride_1": 0,
        "destination_stride_2": 0,
    }  # fmt: skip
    return isa.Copy(**(values | changes))


def fill(**changes: int) -> Any:
    values = {
        "address": 0, "run_bytes": 16, "count_1": 1, "count_2": 1, "stride_1": 0, "stride_2": 0,
        "value": 0,
    }  # fmt: skip
    return isa.Fill(**(values | changes))


def run(stream: bytes, constants: int = CONSTANTS_BYTES, arena: int = ARENA_BYTES) -> None:
    SIMULATOR.run(stream, bytes(constants), np.zeros(arena, np.uint8))


def fault(*instructions: Instruction) -> str:
    with pytest.raises(SimulatorFault) as error:
        run(make_stream(NPU, list(instructions)))
    return str(error.value)


def test_the_instructions_are_sound_as_they_stand() -> None:
    clear = fill(run_bytes=4096)
    made = [transfer(), transfer(isa.Store), conv(), conv(isa.Depthwise), requantize(), add()]
    rest = [lookup(), pool(), pool(isa.AveragePool), copy(), fill()]
    waits = {Engine.VECTOR: 1}
    run(make_stream(NPU, [clear, *(replace(i, waits=waits) for i in [*made, *rest])]))


def test_outputs_may_replace_element_wise_inputs_or_lie_between_their_channels() -> None:
    clear = fill(run_bytes=4096)
    halves = {"a_pixel_pitch": 32, "b_pixel_pitch": 32, "output_pixel_pitch": 32}
    made = [
        add(output_address=0),
        add(output_address=64),
        add(b_address=0, output_address=16, **halves),
        lookup(input_pixel_pitch=32, output_pixel_pitch=32, output_address=16),
        pool(input_pixel_pitch=32, output_pixel_pitch=32, output_address=16),
    ]
    run(make_stream(NPU, [clear, *made]))


ZERO_EXTENTS: list[tuple[Any, list[str]]] = [
    (transfer, ["run_bytes", "count_1", "count_2"]),
    (
        conv,
        [
            *("input_height", "input_width", "input_channels", "output_height", "output_width"),
            *("output_channels", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h"),
            "dilation_w",
        ],
    ),
    (requantize, ["height", "width", "channels"]),
    (add, ["pixels", "channels"]),
    (lookup, ["height", "width", "channels"]),
    (
        pool,
        [
            *("input_height", "input_width", "channels", "output_height", "output_width"),
            *("kernel_h", "kernel_w", "stride_h", "stride_w"),
        ],
    ),
    (copy, ["run_bytes", "count_1", "count_2"]),
    (fill, ["run_bytes", "count_1", "count_2"]),
]


@pytest.mark.parametrize(
    ("make", "field"), [(make, field) for make, fields in ZERO_EXTENTS for field in fields]
)
def test_nothing_may_be_zero_wide(make: Any, field: str) -> None:
    instruction = make(**{field: 0})
    expected = f"instruction 0 ({instruction.opcode.name}): {field} = 0: must be 1 or more"
    assert fault(instruction) == expected


BEYOND = "reaches beyond the SRAM of the stream"
ACCUMULATORS = NPU.accumulator_bytes // 4


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (transfer(region=2), "region = 2: neither constants (0) nor arena (1)"),
        (transfer(isa.Store, region=0), "region = 0: only the arena (1) can be written"),
        (transfer(dram_offset=ARENA_BYTES - 15), "the transfer reaches beyond the arena"),
        (transfer(region=0, run_bytes=4097), "the transfer reaches beyond the constants"),
        (transfer(count_1=2, dram_stride_1=-1), "reaches before the start of its region"),
        (
            transfer(count_2=2, dram_stride_2=ARENA_BYTES),
            "the transfer reaches beyond the arena",
        ),
        (transfer(sram_address=SRAM - 15), f"sram_address = {SRAM - 15}: the transfer {BEYOND}"),
        (transfer(count_1=2, sram_stride_1=SRAM), f"the transfer {BEYOND}"),
        (conv(input_address=8), "input_address = 8: not a multiple of the channel alignment"),
        (conv(input_row_pitch=72), "pitches are no multiples of the channel alignment"),
        (conv(input_pixel_pitch=8), "pitches are no multiples of the channel alignment"),
        (conv(input_address=SRAM - 240), f"input_address = {SRAM - 240}: the tile {BEYOND}"),
        (conv(weight_channel_pitch=2), "weight_channel_pitch = 2: less than the output channels"),
        (conv(weight_address=SRAM - 418), f"weight_address = {SRAM - 418}: the weights reach"),
        (conv(accumulator_pitch=2), "accumulator_pitch = 2: less than the channels of a pixel"),
        (conv(accumulator_address=ACCUMULATORS - 50), "reaches beyond the accumulators"),
        (conv(input_zero=128), "input_zero = 128: no value of the data's type"),
        (conv(input_zero=-1, input_unsigned=True), "input_zero = -1: no value of the data's"),
        (conv(weight_zero=-129), "weight_zero = -129: no value of the data's type"),
        (conv(bias_address=1032), "bias_address = 1032: the table is misaligned"),
        (conv(bias_address=SRAM - 48), f"bias_address = {SRAM - 48}: the table is short"),
        (conv(isa.Depthwise, channel_multiplier=0), "channel_multiplier = 0: must be 1 or more"),
        (conv(isa.Depthwise, channel_multiplier=2), "not input_channels times channel_multiplier"),
        (requantize(table_channels=2), "table_channels = 2: the table is short: fewer than"),
        (requantize(table_channels=3), "table_channels = 3: the table is short: not whole columns"),
        (requantize(table_address=260), "table_address = 260: the table is misaligned"),
        (requantize(table_address=SRAM - 48), "the table is short: with whole columns it reaches"),
        (requantize(accumulator_pitch=2), "accumulator_pitch = 2: less than the channels"),
        (requantize(output_address=8), "output_address = 8: not a multiple of the channel"),
        (requantize(output_address=SRAM - 32), f"output_address = {SRAM - 32}: the tile {BEYOND}"),
        (requantize(output_scale=0.0), "output_scale = 0: the scale is not positive and finite"),
        (requantize(output_scale=float("inf")), "the scale is not positive and finite"),
        (requantize(output_zero=200), "output_zero = 200: no value of the data's type"),
        (requantize(clip_low=-129), "clip_low = -129: no value of the data's type"),
        (requantize(clip_high=255), "clip_high = 255: no value of the data's type"),
        (requantize(clip_low=5, clip_high=4), "clip_low = 5: greater than clip_high"),
        (add(a_address=4), "a_address = 4: not a multiple of the channel alignment"),
        (add(b_pixel_pitch=8), "b_address = 64: the tile's pitches are no multiples"),
        (add(output_address=SRAM - 48), f"output_address = {SRAM - 48}: the tile {BEYOND}"),
        (add(pixels=2**32 - 1), f"a_address = 0: the tile {BEYOND}"),
        (add(a_scale=-1.0), "a_scale = 0: the scale is not positive and finite"),
        (add(b_scale=float("-inf")), "b_scale = 0: the scale is not positive and finite"),
        (add(b_zero=999), "b_zero = 999: no value of the data's type"),
        (add(output_address=16), "output_address = 16: the tile overlaps what is yet to be read"),
        (add(output_address=80), "output_address = 80: the tile overlaps what is yet to be read"),
        (add(b_pixel_pitch=0, b_address=144), "the tile overlaps what is yet to be read"),
        (lookup(output_address=16), "the tile overlaps what is yet to be read"),
        (lookup(output_address=480), "the tile overlaps what is yet to be read"),
        (pool(output_address=0), "output_address = 0: the tile overlaps what is yet to be read"),
        (lookup(table_address=520), "table_address = 520: the table is misaligned"),
        (lookup(table_address=SRAM - 128), f"table_address = {SRAM - 128}: the table is short"),
        (lookup(input_address=1), "input_address = 1: not a multiple of the channel alignment"),
        (pool(pad_top=2), "pad_top = 2: the first window would see no input"),
        (pool(pad_left=2), "pad_left = 2: the first window would see no input"),
        (pool(output_height=3), "output_height = 3: the last window would see no input"),
        (pool(output_width=3), "output_width = 3: the last window would see no input"),
        (
            pool(output_unsigned=True, clip_low=0),
            "output_unsigned = 1: a maximum keeps the type of its input",
        ),
        (pool(isa.AveragePool, input_scale=0.0), "input_scale = 0: the scale is not positive"),
        (pool(output_address=SRAM), f"output_address = {SRAM}: the tile {BEYOND}"),
        (copy(source_address=SRAM - 15), f"source_address = {SRAM - 15}: the copy {BEYOND}"),
        (copy(count_1=2, destination_stride_1=SRAM), f"the copy {BEYOND}"),
        (fill(count_2=2, stride_2=SRAM), f"the fill {BEYOND}"),
    ],
)
def test_wrong_fields(instruction: Instruction, message: str) -> None:
    text = fault(fill(), instruction)
    assert text.startswith(f"instruction 1 ({instruction.opcode.name}): ")
    assert message in text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dram_offset": 8}, "dram_offset = 8"),
        ({"run_bytes": 8}, "run_bytes = 8"),
        ({"count_1": 2, "dram_stride_1": -8, "dram_offset": 16}, "dram_stride_1 = -8"),
        ({"count_2": 2, "dram_stride_2": 24}, "dram_stride_2 = 24"),
    ],
)
def test_a_dma_that_moves_whole_groups_of_channels(changes: dict[str, int], field: str) -> None:
    npu = replace(NPU, layout=replace(NPU.layout, dram_channels_multiple=16))
    simulator, memory = Simulator(npu), (bytes(CONSTANTS_BYTES), np.zeros(ARENA_BYTES, np.uint8))
    simulator.run(make_stream(npu, [transfer()]), *memory)
    simulator.run(make_stream(npu, [transfer(region=0, **changes)]), *memory)
    with pytest.raises(SimulatorFault, match=rf"{field}: no whole groups? of channels"):
        simulator.run(make_stream(npu, [transfer(**changes)]), *memory)


def test_a_multiplier_that_is_not_finite() -> None:
    infinite = fill(address=256, run_bytes=64, value=255)
    text = fault(infinite, replace(requantize(), waits={Engine.VECTOR: 1}))
    assert text == (
        "instruction 1 (REQUANTIZE): table_address = 256: holds a multiplier that is not finite"
    )


def raw(instructions: list[Instruction], offset: int, value: int) -> bytes:
    """A stream with one byte changed and its checksum made right again."""
    data = bytearray(make_stream(NPU, instructions))
    data[offset] = value
    data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 0, "command stream: does not begin with the header of one"),
        (4, 9, "command stream: is of another version; compile the model again"),
        (6, 32, "command stream: is of another version"),
        (16, 5, "command stream: is truncated: its length is not its header's"),
        (8, 0, "command stream: was compiled for another NPU: the target's digest differs"),
        (23, 255, "command stream: needs more SRAM than this NPU has"),
        (27, 255, "command stream: needs more accumulators than this NPU has"),
        (31, 255, "command stream: needs more constants than were given"),
        (35, 255, "command stream: needs a larger arena than was given"),
        (63, 1, "command stream: has nonzero reserved header bytes"),
        (64, 14, "instruction 0: opcode = 14: unknown"),
        (65, 1, "instruction 0 (FILL): flags = 1: reserved bits are set"),
        (66, 16, "instruction 0 (FILL): wait_mask = 16: reserved bits are set"),
        (67, 1, "instruction 0 (FILL): core = 1: this NPU has one core, number 0"),
        (68, 1, "instruction 0 (FILL): wait = 1: set, but not in wait_mask"),
        (127, 7, "instruction 0 (FILL): reserved = 7: bytes after the fields must be zero"),
        (128, 13, "instruction 1 (FILL): run_bytes = 0: must be 1 or more"),
        (64, 0, "instruction 0 (END): reserved = 16: bytes after the fields must be zero"),
    ],
)
def test_damaged_bytes(offset: int, value: int, message: str) -> None:
    with pytest.raises(SimulatorFault) as error:
        run(raw([fill()], offset, value))
    assert str(error.value).startswith(message)


def test_a_flipped_bit_is_found_by_the_checksum() -> None:
    data = bytearray(make_stream(NPU, [fill()]))
    data[80] ^= 1
    with pytest.raises(SimulatorFault, match="is damaged: its checksum differs"):
        run(bytes(data))


def test_a_stream_cut_short() -> None:
    with pytest.raises(SimulatorFault, match="is truncated"):
        run(make_stream(NPU, [fill()])[:-64])
    with pytest.raises(SimulatorFault, match="does not begin with the header"):
        run(b"TWNP")


def test_waiting_for_a_later_instruction() -> None:
    data = bytearray(raw([fill()], 66, 1))
    data[68] = 1
    data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    with pytest.raises(SimulatorFault, match="wait = 1: for a later instruction"):
        run(bytes(data))


def test_waiting_for_a_later_instruction_of_a_long_stream() -> None:
    """65,600 instructions back is 64 ahead in the 16 bits of a wait."""
    count = 65_600
    data = bytearray(make_stream(NPU, [fill(run_bytes=1)] * count))
    last = 64 + 64 * (count - 1)
    data[last + 2] = 1 << Engine.VECTOR
    struct.pack_into("<H", data, last + 4 + 2 * Engine.VECTOR, (count + 63) % 65536)
    data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    with pytest.raises(SimulatorFault, match=r"instruction 65599 .*wait = 127: for a later"):
        run(bytes(data))


def test_a_stream_without_an_end() -> None:
    data = bytearray(make_stream(NPU, [fill(), fill()]))
    last = struct.pack("<I", 2)
    data = data[:-64]
    data[16:20] = last
    data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    with pytest.raises(SimulatorFault, match="opcode = 13: the stream does not finish with END"):
        run(bytes(data))


def test_an_end_before_the_last_instruction() -> None:
    with pytest.raises(SimulatorFault, match=r"instruction 0 .END.: opcode = 0: END before"):
        run(make_stream(NPU, [isa.End()]))


def test_declared_sizes_bind_the_instructions() -> None:
    with pytest.raises(SimulatorFault, match="the fill reaches beyond the SRAM of the stream"):
        run(make_stream(NPU, [fill(run_bytes=65)], sram_bytes=64))
    with pytest.raises(SimulatorFault, match="the transfer reaches beyond the arena"):
        run(make_stream(NPU, [transfer()], arena_bytes=15))


def test_too_little_memory_given() -> None:
    stream = make_stream(NPU, [fill()])
    with pytest.raises(SimulatorFault, match="needs a larger arena than was given"):
        run(stream, arena=ARENA_BYTES - 1)
    with pytest.raises(SimulatorFault, match="needs more constants than were given"):
        run(stream, constants=CONSTANTS_BYTES - 1)


def test_a_read_only_arena_is_refused() -> None:
    arena = np.zeros(ARENA_BYTES, np.uint8)
    arena.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        SIMULATOR.run(make_stream(NPU, [fill()]), bytes(CONSTANTS_BYTES), arena)
