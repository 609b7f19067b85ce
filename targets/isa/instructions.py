"""The NPU's instruction set: one dataclass an instruction, and how it lies in the stream.

A stream is a header of 64 bytes and instructions of 64 bytes, little endian, unpadded:

    header       magic "TWNP", u16 version, u16 instruction bytes, 8 bytes target digest,
                 u32 instructions, u32 sram_bytes, u32 accumulator_bytes, u32 constants_bytes,
                 u32 arena_bytes, u32 crc32 of all after the header, zeros
    instruction  u8 opcode, u8 flags, u8 wait_mask, u8 core (0), u16 wait[4], 52 bytes payload

The payload holds an instruction's fields in the order they are declared below, packed; what is
left of it is zero. Each `flag` takes the next bit of the flags byte, lowest first.

Four engines run concurrently, each an in-order queue. An engine counts the instructions it has
completed; `waits[engine] = n` holds an instruction back until that engine has completed n, which
must all come earlier in the stream. Waits are full integers here and 16 bits in the stream, so
that a wait may look at most 32,767 instructions of an engine back.

Addresses are bytes of SRAM, except accumulator addresses and pitches, which count int32
elements. Activation tiles are [height][width][channels] with a pixel pitch and a row pitch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar

MAGIC = b"TWNP"
VERSION = 1
INSTRUCTION_BYTES = 64
HEADER_BYTES = 64
PAYLOAD_BYTES = 52
NO_BIAS = 0xFFFFFFFF
LONGEST_WAIT = 32767


class Engine(IntEnum):
    """The queues, in the order of their wait words. END waits for all and belongs to none."""

    DMA_IN = 0
    DMA_OUT = 1
    MAC = 2
    VECTOR = 3


class Opcode(IntEnum):
    END = 0
    LOAD = 1
    STORE = 2
    CONV = 3
    DEPTHWISE = 4
    REQUANTIZE = 5
    ADD = 6
    SUBTRACT = 7
    MULTIPLY = 8
    LOOKUP = 9
    MAX_POOL = 10
    AVERAGE_POOL = 11
    COPY = 12
    FILL = 13


class DramRegion(IntEnum):
    """What a DMA's dram_offset counts from."""

    CONSTANTS = 0
    ARENA = 1


@dataclass(frozen=True)
class Word:
    """How a field lies in the stream: a `struct` format character, or "flag".

    A "byte" is signed unless the flag named by `unsigned_when` is set.
    """

    format: str
    unsigned_when: str = ""

    @property
    def type_name(self) -> str:
        names = {"B": "u8", "H": "u16", "h": "i16", "I": "u32", "i": "i32", "f": "f32"}
        return names.get(self.format, self.format)

    def limits(self, unsigned: bool) -> tuple[int, int]:
        if self.format == "byte":
            return (0, 255) if unsigned else (-128, 127)
        bits = 8 * struct.calcsize("<" + self.format)
        return (
            (0, 2**bits - 1) if self.format.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )


def _word(format_: str, unsigned_when: str = "") -> Any:
    return field(metadata={"word": Word(format_, unsigned_when)})


def _flag() -> Any:
    return field(default=False, metadata={"word": Word("flag")})


def word(item: Field[Any]) -> Word:
    """The place in the stream of a field of an instruction."""
    found = item.metadata["word"]
    assert isinstance(found, Word)
    return found


@dataclass(frozen=True, kw_only=True)
class Instruction:
    waits: Mapping[Engine, int] = field(default_factory=dict)

    opcode: ClassVar[Opcode]
    engine: ClassVar[Engine | None]


@dataclass(frozen=True, kw_only=True)
class End(Instruction):
    """The last instruction: the stream is done when all engines are."""

    opcode = Opcode.END
    engine = None


@dataclass(frozen=True, kw_only=True)
class _Transfer(Instruction):
    """count_2 x count_1 contiguous runs of run_bytes, both sides strided in bytes."""

    region: int = _word("B")
    dram_offset: int = _word("I")
    sram_address: int = _word("I")
    run_bytes: int = _word("I")
    count_1: int = _word("H")
    count_2: int = _word("H")
    dram_stride_1: int = _word("i")
    dram_stride_2: int = _word("i")
    sram_stride_1: int = _word("I")
    sram_stride_2: int = _word("I")


@dataclass(frozen=True, kw_only=True)
class Load(_Transfer):
    """DRAM to SRAM, in any byte alignment on both sides."""

    opcode = Opcode.LOAD
    engine = Engine.DMA_IN


@dataclass(frozen=True, kw_only=True)
class Store(_Transfer):
    """SRAM to DRAM; only the arena can be written."""

    opcode = Opcode.STORE
    engine = Engine.DMA_OUT


@dataclass(frozen=True, kw_only=True)
class _Multiply(Instruction):
    """accumulator[pixel][c] = start[c] + sum of (x - input_zero) * (w - weight_zero).

    start is the bias, 0 under NO_BIAS, or with accumulate what the accumulator held. Taps outside
    the input tile contribute nothing. The accumulator pixel of output (y, x) is
    y * output_width + x, accumulator_pitch elements apart. The bias table holds int32s for
    output_channels rounded up to the target's table columns; NO_BIAS and accumulate go without.
    """

    input_address: int = _word("I")
    input_row_pitch: int = _word("I")
    input_pixel_pitch: int = _word("H")
    input_height: int = _word("H")
    input_width: int = _word("H")
    input_channels: int = _word("H")
    weight_address: int = _word("I")
    weight_channel_pitch: int = _word("H")  # bytes from one row of output channels to the next
    accumulator_address: int = _word("I")
    accumulator_pitch: int = _word("H")
    output_height: int = _word("H")
    output_width: int = _word("H")
    output_channels: int = _word("H")
    kernel_h: int = _word("B")
    kernel_w: int = _word("B")
    stride_h: int = _word("B")
    stride_w: int = _word("B")
    dilation_h: int = _word("B")
    dilation_w: int = _word("B")
    pad_top: int = _word("B")
    pad_left: int = _word("B")
    input_zero: int = _word("h")
    weight_zero: int = _word("h")
    bias_address: int = _word("I")
    accumulate: bool = _flag()
    input_unsigned: bool = _flag()
    weight_unsigned: bool = _flag()


@dataclass(frozen=True, kw_only=True)
class Conv(_Multiply):
    """Weights [kernel_h][kernel_w][input_channels][output_channels]; a matmul is a 1x1."""

    opcode = Opcode.CONV
    engine = Engine.MAC


@dataclass(frozen=True, kw_only=True)
class Depthwise(_Multiply):
    """Weights [kernel_h][kernel_w][output_channels]; output c reads input c // multiplier."""

    channel_multiplier: int = _word("B")

    opcode = Opcode.DEPTHWISE
    engine = Engine.MAC


@dataclass(frozen=True, kw_only=True)
class Requantize(Instruction):
    """Accumulators to int8: y = rint(f32(acc) * multiplier[c] / output_scale) + output_zero.

    Two float32 steps; premultiplied leaves the division out. Clipped to [clip_low, clip_high].
    The table at table_address holds table_channels float32 multipliers, which must be channels
    rounded up to the target's table columns.
    """

    accumulator_address: int = _word("I")
    accumulator_pitch: int = _word("H")
    height: int = _word("H")
    width: int = _word("H")
    channels: int = _word("H")
    output_address: int = _word("I")
    output_row_pitch: int = _word("I")
    output_pixel_pitch: int = _word("H")
    table_address: int = _word("I")
    table_channels: int = _word("H")
    output_scale: float = _word("f")
    output_zero: int = _word("h")
    clip_low: int = _word("h")
    clip_high: int = _word("h")
    premultiplied: bool = _flag()
    output_unsigned: bool = _flag()

    opcode = Opcode.REQUANTIZE
    engine = Engine.VECTOR


@dataclass(frozen=True, kw_only=True)
class _Binary(Instruction):
    """y = rint(((a - a_zero) * a_scale op (b - b_zero) * b_scale) / output_scale) + output_zero.

    Tiles are runs of `pixels`, with no row pitch: 52 bytes have no room for three. A b_pixel_pitch
    of 0 broadcasts one pixel of b over all of a.
    """

    a_address: int = _word("I")
    b_address: int = _word("I")
    output_address: int = _word("I")
    pixels: int = _word("I")
    channels: int = _word("H")
    a_pixel_pitch: int = _word("H")
    b_pixel_pitch: int = _word("H")
    output_pixel_pitch: int = _word("H")
    a_scale: float = _word("f")
    b_scale: float = _word("f")
    output_scale: float = _word("f")
    a_zero: int = _word("h")
    b_zero: int = _word("h")
    output_zero: int = _word("h")
    clip_low: int = _word("h")
    clip_high: int = _word("h")
    a_unsigned: bool = _flag()
    b_unsigned: bool = _flag()
    output_unsigned: bool = _flag()

    engine = Engine.VECTOR


@dataclass(frozen=True, kw_only=True)
class Add(_Binary):
    opcode = Opcode.ADD


@dataclass(frozen=True, kw_only=True)
class Subtract(_Binary):
    opcode = Opcode.SUBTRACT


@dataclass(frozen=True, kw_only=True)
class Multiply(_Binary):
    opcode = Opcode.MULTIPLY


@dataclass(frozen=True, kw_only=True)
class Lookup(Instruction):
    """y = table[raw byte of x]; the 256 bytes of the table are aligned as the target's tables."""

    input_address: int = _word("I")
    input_row_pitch: int = _word("I")
    input_pixel_pitch: int = _word("H")
    output_address: int = _word("I")
    output_row_pitch: int = _word("I")
    output_pixel_pitch: int = _word("H")
    height: int = _word("H")
    width: int = _word("H")
    channels: int = _word("H")
    table_address: int = _word("I")

    opcode = Opcode.LOOKUP
    engine = Engine.VECTOR


@dataclass(frozen=True, kw_only=True)
class _Pool(Instruction):
    """A window over an int8 tile; the tile's pads stand for padding of the image.

    Maximum: padding never wins, scales and zeros are unused. Average:
    y = rint(sum (x - input_zero) * input_scale / (count * output_scale)) + output_zero, exact,
    rounded once, half to even; count is the taps inside the tile, with count_include_pad those
    inside tile and pads. Every window must see at least one tap of the tile.
    """

    input_address: int = _word("I")
    input_row_pitch: int = _word("I")
    input_pixel_pitch: int = _word("H")
    input_height: int = _word("H")
    input_width: int = _word("H")
    channels: int = _word("H")
    output_address: int = _word("I")
    output_row_pitch: int = _word("I")
    output_pixel_pitch: int = _word("H")
    output_height: int = _word("H")
    output_width: int = _word("H")
    kernel_h: int = _word("H")
    kernel_w: int = _word("H")
    stride_h: int = _word("B")
    stride_w: int = _word("B")
    pad_top: int = _word("B")
    pad_left: int = _word("B")
    pad_bottom: int = _word("B")
    pad_right: int = _word("B")
    input_scale: float = _word("f")
    output_scale: float = _word("f")
    input_zero: int = _word("byte", "input_unsigned")
    output_zero: int = _word("byte", "output_unsigned")
    clip_low: int = _word("byte", "output_unsigned")
    clip_high: int = _word("byte", "output_unsigned")
    count_include_pad: bool = _flag()
    input_unsigned: bool = _flag()
    output_unsigned: bool = _flag()

    engine = Engine.VECTOR


@dataclass(frozen=True, kw_only=True)
class MaxPool(_Pool):
    opcode = Opcode.MAX_POOL


@dataclass(frozen=True, kw_only=True)
class AveragePool(_Pool):
    opcode = Opcode.AVERAGE_POOL


@dataclass(frozen=True, kw_only=True)
class Copy(Instruction):
    """SRAM to SRAM, count_2 x count_1 runs in any byte alignment, one run after another."""

    source_address: int = _word("I")
    destination_address: int = _word("I")
    run_bytes: int = _word("I")
    count_1: int = _word("H")
    count_2: int = _word("H")
    source_stride_1: int = _word("I")
    source_stride_2: int = _word("I")
    destination_stride_1: int = _word("I")
    destination_stride_2: int = _word("I")

    opcode = Opcode.COPY
    engine = Engine.VECTOR


@dataclass(frozen=True, kw_only=True)
class Fill(Instruction):
    """Set count_2 x count_1 runs of SRAM to one raw byte."""

    address: int = _word("I")
    run_bytes: int = _word("I")
    count_1: int = _word("H")
    count_2: int = _word("H")
    stride_1: int = _word("I")
    stride_2: int = _word("I")
    value: int = _word("B")

    opcode = Opcode.FILL
    engine = Engine.VECTOR


INSTRUCTIONS: dict[Opcode, type[Instruction]] = {
    kind.opcode: kind
    for kind in (
        End, Load, Store, Conv, Depthwise, Requantize, Add, Subtract, Multiply, Lookup,
        MaxPool, AveragePool, Copy, Fill,
    )
}  # fmt: skip


@dataclass(frozen=True)
class CommandStream:
    """Instructions, END last, and the memory they need; `target_digest` is `Npu.digest[:8]`."""

    instructions: list[Instruction]
    sram_bytes: int
    accumulator_bytes: int
    constants_bytes: int
    arena_bytes: int
    target_digest: bytes


def payload_fields(kind: type[Instruction]) -> list[Field[Any]]:
    """The fields in the payload, in order."""
    return [f for f in fields(kind) if f.name != "waits" and word(f).format != "flag"]


def flag_fields(kind: type[Instruction]) -> list[Field[Any]]:
    """The fields in the flags byte, lowest bit first."""
    return [f for f in fields(kind) if f.name != "waits" and word(f).format == "flag"]


def payload_struct(kind: type[Instruction]) -> struct.Struct:
    """The binary layout of the payload without the zeros after it."""
    formats = (word(f).format for f in payload_fields(kind))
    return struct.Struct("<" + "".join("B" if code == "byte" else code for code in formats))
