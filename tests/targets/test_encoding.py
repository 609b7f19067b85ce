"""Command streams to bytes and back, and what neither side accepts."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.targets import isa
from tilewright.targets.assembler import AssemblyError, assemble, disassemble, parse_stream
from tilewright.targets.errors import SimulatorFault
from tilewright.targets.isa import CommandStream, EncodingError, Engine, Instruction, decode, encode
from tilewright.targets.isa.instructions import (
    PAYLOAD_BYTES,
    flag_fields,
    payload_fields,
    payload_struct,
    word,
)
from tilewright.targets.simulator.isa_header import HEADER, isa_header

KINDS = [kind for kind in isa.INSTRUCTIONS.values() if kind is not isa.End]


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    kind = draw(st.sampled_from(KINDS))
    values: dict[str, Any] = {f.name: draw(st.booleans()) for f in flag_fields(kind)}
    for item in payload_fields(kind):
        place = word(item)
        if place.format == "f":
            values[item.name] = draw(st.floats(width=32, allow_nan=False))
        else:
            low, high = place.limits(values.get(place.unsigned_when, False))
            values[item.name] = draw(st.integers(low, high))
    return kind(**values)


@st.composite
def streams(draw: st.DrawFn) -> CommandStream:
    made: list[Instruction] = []
    counts = dict.fromkeys(Engine, 0)
    for instruction in draw(st.lists(instructions(), max_size=6)):
        waits = {
            engine: draw(st.integers(0, count))
            for engine, count in counts.items()
            if draw(st.booleans())
        }
        made.append(replace(instruction, waits=waits))
        assert instruction.engine is not None
        counts[instruction.engine] += 1
    sizes = [draw(st.integers(0, 2**32 - 1)) for _ in range(4)]
    return CommandStream([*made, isa.End()], *sizes, draw(st.binary(min_size=8, max_size=8)))


@given(streams())
def test_decode_inverts_encode(stream: CommandStream) -> None:
    assert decode(encode(stream)) == stream


@given(streams())
def test_assemble_inverts_disassemble(stream: CommandStream) -> None:
    data = encode(stream)
    assert assemble(disassemble(data)) == data


def test_every_payload_fits() -> None:
    for kind in isa.INSTRUCTIONS.values():
        assert payload_struct(kind).size <= PAYLOAD_BYTES
        assert len(flag_fields(kind)) <= 8


def test_the_words_of_a_fill() -> None:
    """The layout itself, byte by byte: what a driver's author reads in a hex dump."""
    fill = isa.Fill(
        address=0x11223344, run_bytes=5, count_1=6, count_2=7, stride_1=8, stride_2=9, value=10
    )
    data = encode(CommandStream([fill, isa.End()], 1, 2, 3, 4, b"digestXY"))
    body = data[64:]
    header = b"TWNP" + struct.pack("<HH8s6I", 1, 64, b"digestXY", 2, 1, 2, 3, 4, zlib.crc32(body))
    assert data[:64] == header.ljust(64, b"\0")
    words = bytes([13, 0, 0, 0]) + bytes(8)
    words += bytes.fromhex("44332211") + struct.pack("<IHHII", 5, 6, 7, 8, 9) + b"\x0a"
    assert body[:64] == words.ljust(64, b"\0")
    assert body[64:] == bytes(64)


def fill(**changes: Any) -> isa.Fill:
    values = {"address": 0, "run_bytes": 1, "count_1": 1, "count_2": 1, "stride_1": 0}
    return isa.Fill(**(values | {"stride_2": 0, "value": 0} | changes))


def stream_of(*made: Instruction) -> CommandStream:
    return CommandStream([*made, isa.End()], 0, 0, 0, 0, bytes(8))


def test_waits_reach_far_back_but_not_too_far() -> None:
    many = [fill()] * 70_000
    far = stream_of(*many, fill(waits={Engine.VECTOR: 70_000 - 32_767}))
    assert decode(encode(far)).instructions[-2].waits == {Engine.VECTOR: 37_233}
    with pytest.raises(EncodingError, match=r"instruction 70000 .* waits for 37232 of"):
        encode(stream_of(*many, fill(waits={Engine.VECTOR: 37_232})))


def test_waiting_for_what_comes_later_is_refused() -> None:
    with pytest.raises(EncodingError, match=r"instruction 0 .* waits for 1 of MAC, 0 are issued"):
        encode(stream_of(fill(waits={Engine.MAC: 1})))


def test_a_value_that_does_not_fit() -> None:
    with pytest.raises(EncodingError, match=r"instruction 0 \(FILL\): count_1 65536 is outside"):
        encode(stream_of(fill(count_1=65536)))


def test_a_scale_that_is_no_float32() -> None:
    requantize = isa.Requantize(
        accumulator_address=0, accumulator_pitch=1, height=1, width=1, channels=1,
        output_address=0, output_row_pitch=0, output_pixel_pitch=0, table_address=0,
        table_channels=1, output_scale=0.1, output_zero=0, clip_low=0, clip_high=0,
    )  # fmt: skip
    with pytest.raises(EncodingError, match=r"output_scale 0\.1 is not a float32"):
        encode(stream_of(requantize))
    with pytest.raises(EncodingError, match=r"output_scale 1e\+39 is not a float32"):
        encode(stream_of(replace(requantize, output_scale=1e39)))
    encode(stream_of(replace(requantize, output_scale=float(np.float32(0.1)))))


GOOD = encode(stream_of(fill()))


def damaged(offset: int, value: int, *, repair: bool) -> bytes:
    data = bytearray(GOOD)
    data[offset] = value
    if repair:
        data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"TWNP", "4 bytes are less than its header"),
        (damaged(0, 0, repair=False), "is not b'TWNP' version 1"),
        (damaged(4, 2, repair=False), "version 2"),
        (damaged(50, 1, repair=False), "header"),
        (GOOD[:-1], "truncated or damaged"),
        (damaged(70, 1, repair=False), "truncated or damaged"),
        (damaged(64, 99, repair=True), "instruction 0: unknown opcode 99"),
        (damaged(65, 1, repair=True), r"instruction 0 \(FILL\): reserved bits are not zero"),
        (damaged(66, 16, repair=True), "reserved bits"),
        (damaged(67, 1, repair=True), "reserved bits"),
        (damaged(68, 1, repair=True), "reserved bits"),
        (damaged(66, 1, repair=True), ""),
        (damaged(127, 1, repair=True), "reserved bits"),
    ],
)
def test_damaged_streams(data: bytes, message: str) -> None:
    if not message:  # a wait for zero instructions is no damage
        assert decode(data).instructions[0].waits == {Engine.DMA_IN: 0}
        return
    with pytest.raises(SimulatorFault, match=message):
        decode(data)


def test_decoding_a_wait_for_a_later_instruction() -> None:
    data = bytearray(damaged(66, 1, repair=True))
    data[68] = 1
    data[36:40] = struct.pack("<I", zlib.crc32(data[64:]))
    with pytest.raises(SimulatorFault, match="waits for a later instruction of DMA_IN"):
        decode(bytes(data))


DIRECTIVES = ".target 0011223344556677\n.sram 0x40\n.accumulator 0\n.constants 0\n.arena 0\n"
FILL = "FILL address=0 run_bytes=1 count_1=1 count_2=1 stride_1=0 stride_2=0 value=0"


def test_assembly_takes_comments_and_hexadecimal() -> None:
    stream = parse_stream(DIRECTIVES + f"; all of it\n{FILL}  ; once\nEND")
    assert stream.sram_bytes == 64
    assert stream.instructions == [fill(), isa.End()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("END", "the directive .target is missing"),
        (DIRECTIVES.replace(".arena 0\n", "") + "END", "the directive .arena is missing"),
        (".target 12", "line 1: .target 12 is not 16 hex digits"),
        (".target zz", "line 1: .target zz is not 16 hex digits"),
        (".sram", "line 1: .sram takes one value"),
        (DIRECTIVES + "FIL", r"line 6: FIL is no instruction; did you mean FILL\?"),
        (DIRECTIVES + FILL.replace("value", "valu"), r"FILL has no field valu; did you mean value"),
        (DIRECTIVES + FILL + " +accumulate", "line 6: FILL has no flag accumulate"),
        (DIRECTIVES + "FILL address=0", "line 6: FILL lacks run_bytes, count_1"),
        (DIRECTIVES + FILL.replace("=1", "=one", 1), "line 6: one is no number"),
        (DIRECTIVES + FILL + " wait=NPU:1", "line 6: wait=NPU:1 is not ENGINE:COUNT"),
        (DIRECTIVES + FILL + " wait=MAC", "wait=MAC is not ENGINE:COUNT"),
    ],
)
def test_assembly_errors(text: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        assemble(text)


def test_the_c_header_is_up_to_date() -> None:
    assert HEADER.read_text() == isa_header(), (
        "run python -m tilewright.targets.simulator.isa_header"
    )
