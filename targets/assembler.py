"""Command streams as text that people read and write, one instruction a line.

    .target 6a480cae00112233
    .sram 65536
    LOAD  region=1 dram_offset=0 sram_address=0 run_bytes=64 count_1=1 ...
    CONV  wait=DMA_IN:1,VECTOR:0 input_address=0 ... bias_address=none +input_unsigned
    END

Fields are those of targets/isa/instructions.py in the order of the binary word; `+name` sets a
flag; what follows `;` is a comment. Assembling a disassembled stream gives the same bytes.
"""

from __future__ import annotations

import difflib
from typing import Any

from tilewright.targets.errors import TilewrightError
from tilewright.targets.isa import (
    INSTRUCTIONS,
    NO_BIAS,
    CommandStream,
    Engine,
    Instruction,
    Opcode,
    decode,
    encode,
)
from tilewright.targets.isa.instructions import flag_fields, payload_fields, word

# Directive and the field of CommandStream it fills.
_SIZES = {
    ".sram": "sram_bytes",
    ".accumulator": "accumulator_bytes",
    ".constants": "constants_bytes",
    ".arena": "arena_bytes",
}
_DIGEST_BYTES = 8


class AssemblyError(TilewrightError):
    """A line that is no instruction: which line, which word, what was expected."""


def disassemble(data: bytes) -> str:
    """The text of a binary stream; raises SimulatorFault for a damaged one."""
    return format_stream(decode(data))


def assemble(text: str) -> bytes:
    """The binary stream of `text`; raises AssemblyError, or EncodingError for unfit values."""
    return encode(parse_stream(text))


def format_stream(stream: CommandStream) -> str:
    """The text of a stream, directives first."""
    lines = [f".target {stream.target_digest.hex()}"]
    lines += [f"{directive} {getattr(stream, name)}" for directive, name in _SIZES.items()]
    lines += map(format_instruction, stream.instructions)
    return "\n".join(lines) + "\n"


def format_instruction(instruction: Instruction) -> str:
    """One instruction as one line."""
    kind = type(instruction)
    words = [kind.opcode.name]
    if instruction.waits:
        waits = (f"{engine.name}:{count}" for engine, count in sorted(instruction.waits.items()))
        words.append("wait=" + ",".join(waits))
    for item in payload_fields(kind):
        value = getattr(instruction, item.name)
        shown = "none" if item.name == "bias_address" and value == NO_BIAS else repr(value)
        words.append(f"{item.name}={shown}")
    words += [f"+{item.name}" for item in flag_fields(kind) if getattr(instruction, item.name)]
    return " ".join(words)


def parse_stream(text: str) -> CommandStream:
    """The stream that `text` describes. Raises AssemblyError naming the line."""
    sizes: dict[str, int] = {}
    digest: bytes | None = None
    instructions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition(";")[0].split()
        if not words:
            continue
        if words[0] == ".target":
            digest = _parse_digest(words, number)
        elif words[0] in _SIZES:
            sizes[_SIZES[words[0]]] = int(_parse_number(_only(words, number), "H", number))
        else:
            instructions.append(_parse_instruction(words, number))
    missing = [directive for directive, name in _SIZES.items() if name not in sizes]
    if digest is None or missing:
        directive = ".target" if digest is None else missing[0]
        raise AssemblyError(f"assembly: the directive {directive} is missing")
    return CommandStream(instructions, **sizes, target_digest=digest)


def _only(words: list[str], number: int) -> str:
    if len(words) != 2:
        raise AssemblyError(f"line {number}: {words[0]} takes one value")
    return words[1]


def _parse_digest(words: list[str], number: int) -> bytes:
    text = _only(words, number)
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise AssemblyError(f"line {number}: .target {text} is not {2 * _DIGEST_BYTES} hex digits")
    return digest


def _parse_instruction(words: list[str], number: int) -> Instruction:
    if words[0] not in Opcode.__members__:
        hint = _nearest(words[0], list(Opcode.__members__))
        raise AssemblyError(f"line {number}: {words[0]} is no instruction{hint}")
    kind = INSTRUCTIONS[Opcode[words[0]]]
    formats = {item.name: word(item).format for item in payload_fields(kind)}
    flags = [item.name for item in flag_fields(kind)]
    values: dict[str, Any] = {}
    for text in words[1:]:
        name, _, value = text.partition("=")
        if text.startswith("+"):
            _expect(text[1:], flags, "flag", words[0], number)
            values[text[1:]] = True
        elif name == "wait":
            values["waits"] = _parse_waits(value, number)
        else:
            _expect(name, list(formats), "field", words[0], number)
            values[name] = (
                NO_BIAS if value == "none" else _parse_number(value, formats[name], number)
            )
    missing = [name for name in formats if name not in values]
    if missing:
        raise AssemblyError(f"line {number}: {words[0]} lacks {', '.join(missing)}")
    return kind(**values)


def _expect(name: str, known: list[str], what: str, opcode: str, number: int) -> None:
    if name not in known:
        raise AssemblyError(f"line {number}: {opcode} has no {what} {name}{_nearest(name, known)}")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _parse_waits(text: str, number: int) -> dict[Engine, int]:
    waits = {}
    for part in text.split(","):
        name, _, count = part.partition(":")
        if name not in Engine.__members__ or not count.isdecimal():
            engines = ", ".join(Engine.__members__)
            raise AssemblyError(
                f"line {number}: wait={text} is not ENGINE:COUNT,... with engines {engines}"
            )
        waits[Engine[name]] = int(count)
    return waits


def _parse_number(text: str, format_: str, number: int) -> float:
    try:
        return float(text) if format_ == "f" else int(text, 0)
    except ValueError:
        raise AssemblyError(f"line {number}: {text} is no number") from None
