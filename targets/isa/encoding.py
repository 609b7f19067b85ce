"""Command streams to bytes and back; the layout is told in `instructions`."""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tilewright.targets.errors import SimulatorFault, TilewrightError
from tilewright.targets.isa.instructions import (
    HEADER_BYTES,
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    LONGEST_WAIT,
    MAGIC,
    PAYLOAD_BYTES,
    VERSION,
    CommandStream,
    Engine,
    Instruction,
    Opcode,
    flag_fields,
    payload_fields,
    payload_struct,
    word,
)  # fmt: skip

_HEADER = struct.Struct("<4sHH8s6I24s")
_PREFIX = struct.Struct("<BBBB4H")


class EncodingError(TilewrightError):
    """A field that the instruction's word cannot hold."""


def encode(stream: CommandStream) -> bytes:
    """The stream's bytes; raises EncodingError naming the instruction and field that do not fit."""
    body = b"".join(_encode_all(stream.instructions))
    header = _HEADER.pack(
        MAGIC, VERSION, INSTRUCTION_BYTES, stream.target_digest, len(stream.instructions),
        stream.sram_bytes, stream.accumulator_bytes, stream.constants_bytes, stream.arena_bytes,
        zlib.crc32(body), b"",
    )  # fmt: skip
    return header + body


def decode(data: bytes) -> CommandStream:
    """The stream in `data`; raises SimulatorFault for what no encoder could have written."""
    if len(data) < HEADER_BYTES:
        raise SimulatorFault(f"command stream: {len(data)} bytes are less than its header")
    magic, version, size, digest, count, sram, accumulator, constants, arena, crc, rest = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC or (version, size) != (VERSION, INSTRUCTION_BYTES) or any(rest):
        raise SimulatorFault(
            f"command stream: header {magic!r} version {version} is not {MAGIC!r} version {VERSION}"
        )
    body = data[HEADER_BYTES:]
    if len(body) != count * INSTRUCTION_BYTES or zlib.crc32(body) != crc:
        raise SimulatorFault("command stream: truncated or damaged (length or crc32 differs)")
    return CommandStream(list(_decode_all(body)), sram, accumulator, constants, arena, digest)


def _encode_all(instructions: list[Instruction]) -> Iterator[bytes]:
    issued = dict.fromkeys(Engine, 0)
    for index, instruction in enumerate(instructions):
        where = f"instruction {index} ({instruction.opcode.name})"
        yield _encode_prefix(instruction, issued, where) + _encode_payload(instruction, where)
        if instruction.engine is not None:
            issued[instruction.engine] += 1


def _encode_prefix(instruction: Instruction, issued: dict[Engine, int], where: str) -> bytes:
    mask, waits = 0, [0, 0, 0, 0]
    for engine, value in instruction.waits.items():
        if not 0 <= issued[engine] - value <= LONGEST_WAIT or value < 0:
            raise EncodingError(
                f"{where}: waits for {value} of {engine.name}, {issued[engine]} are issued before"
            )
        mask |= 1 << engine
        waits[engine] = value % 65536
    flags = sum(
        getattr(instruction, f.name) << bit for bit, f in enumerate(flag_fields(type(instruction)))
    )
    return _PREFIX.pack(instruction.opcode, flags, mask, 0, *waits)


def _encode_payload(instruction: Instruction, where: str) -> bytes:
    values = []
    for item in payload_fields(type(instruction)):
        place, value = word(item), getattr(instruction, item.name)
        unsigned = bool(place.unsigned_when) and getattr(instruction, place.unsigned_when)
        if place.format == "f":
            if ctypes.c_float(value).value != value:
                raise EncodingError(f"{where}: {item.name} {value} is not a float32")
        else:
            low, high = place.limits(unsigned)
            if not low <= value <= high:
                raise EncodingError(f"{where}: {item.name} {value} is outside [{low}, {high}]")
        values.append(value & 0xFF if place.format == "byte" else value)
    return payload_struct(type(instruction)).pack(*values).ljust(PAYLOAD_BYTES, b"\0")


def _decode_all(body: bytes) -> Iterator[Instruction]:
    issued = dict.fromkeys(Engine, 0)
    for index in range(len(body) // INSTRUCTION_BYTES):
        raw = body[index * INSTRUCTION_BYTES : (index + 1) * INSTRUCTION_BYTES]
        instruction = _decode_one(raw, issued, f"instruction {index}")
        yield instruction
        if instruction.engine is not None:
            issued[instruction.engine] += 1


def _decode_one(raw: bytes, issued: dict[Engine, int], where: str) -> Instruction:
    opcode, flags, mask, core, *words = _PREFIX.unpack_from(raw)
    if opcode not in INSTRUCTIONS:
        raise SimulatorFault(f"{where}: unknown opcode {opcode}")
    kind = INSTRUCTIONS[Opcode(opcode)]
    layout, names = payload_struct(kind), flag_fields(kind)
    reserved = raw[_PREFIX.size + layout.size :]
    if core or mask >> len(Engine) or flags >> len(names) or any(reserved):
        raise SimulatorFault(f"{where} ({kind.opcode.name}): reserved bits are not zero")
    values: dict[str, Any] = {f.name: bool(flags >> bit & 1) for bit, f in enumerate(names)}
    payload = layout.unpack_from(raw, _PREFIX.size)
    for item, value in zip(payload_fields(kind), payload, strict=True):
        place = word(item)
        signed_byte = place.format == "byte" and not values[place.unsigned_when]
        values[item.name] = value - 256 if signed_byte and value > 127 else value
    waits = {}
    for engine in Engine:
        if mask >> engine & 1:
            distance = (issued[engine] - words[engine]) % 65536
            if distance > LONGEST_WAIT or distance > issued[engine]:
                raise SimulatorFault(f"{where}: waits for a later instruction of {engine.name}")
            waits[engine] = issued[engine] - distance
        elif words[engine]:
            raise SimulatorFault(f"{where} ({kind.opcode.name}): reserved bits are not zero")
    return kind(waits=waits, **values)
