"""Write npu_isa.h, the instruction set for the simulator, from the one definition in Python.

Run `python -m tilewright.targets.simulator.isa_header` after a change of the instruction set; a
test compares the file with what this module makes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tilewright.targets.isa import (
    INSTRUCTIONS,
    Add,
    Copy,
    Depthwise,
    Engine,
    Fill,
    Instruction,
    Load,
    Lookup,
    MaxPool,
    Requantize,
)
from tilewright.targets.isa.instructions import (
    HEADER_BYTES,
    INSTRUCTION_BYTES,
    PAYLOAD_BYTES,
    VERSION,
    Word,
    flag_fields,
    payload_fields,
    payload_struct,
    word,
)

HEADER = Path(__file__).parent / "npu_isa.h"
_KINDS = list(INSTRUCTIONS.values())
# Opcodes that share a layout share a structure. A convolution is read as a depthwise one, whose
# last field is among the reserved zeros.
_LAYOUTS: dict[str, type[Instruction]] = {
    "transfer": Load,
    "multiply": Depthwise,
    "requantize": Requantize,
    "binary": Add,
    "lookup": Lookup,
    "pool": MaxPool,
    "copy": Copy,
    "fill": Fill,
}
_READERS = {"B": "u8", "H": "u16", "h": "i16", "I": "u32", "i": "i32", "f": "f32"}


def isa_header() -> str:
    """The text of npu_isa.h."""
    layouts = [_structure(name) + "\n" + _decoder(name) for name in _LAYOUTS]
    return "\n".join([_TOP, *_constants(), "", *layouts, "#endif", ""])


def _constants() -> Iterator[str]:
    yield "enum {"
    yield f"  NPU_ISA_VERSION = {VERSION},"
    yield f"  NPU_HEADER_BYTES = {HEADER_BYTES},"
    yield f"  NPU_INSTRUCTION_BYTES = {INSTRUCTION_BYTES},"
    yield f"  NPU_PAYLOAD_BYTES = {PAYLOAD_BYTES}"
    yield "};"
    yield "enum {"
    yield from (f"  NPU_OP_{kind.opcode.name} = {kind.opcode:d}," for kind in _KINDS)
    yield f"  NPU_OPCODES = {len(_KINDS)}"
    yield "};"
    yield "enum {"
    yield from (f"  NPU_ENGINE_{engine.name} = {engine:d}," for engine in Engine)
    yield f"  NPU_ENGINES = {len(Engine)}"
    yield "};"
    yield ""
    yield "typedef struct {"
    yield "  const char *name;"
    yield "  int32_t engine, payload_bytes, flags;"
    yield "} npu_kind;"
    yield "static const npu_kind npu_kinds[NPU_OPCODES] = {"
    for kind in _KINDS:
        engine = len(Engine) if kind.engine is None else int(kind.engine)
        size, flags = payload_struct(kind).size, len(flag_fields(kind))
        yield f'  {{"{kind.opcode.name}", {engine}, {size}, {flags}}},'
    yield "};"


def _structure(name: str) -> str:
    kind = _LAYOUTS[name]
    lines = [f"  {_c_type(word(f))} {f.name};" for f in payload_fields(kind)]
    lines += [f"  int32_t {f.name};" for f in flag_fields(kind)]
    return "\n".join(["typedef struct {", *lines, f"}} npu_{name};"])


def _decoder(name: str) -> str:
    kind = _LAYOUTS[name]
    flags = [f.name for f in flag_fields(kind)]
    lines, offset = [], INSTRUCTION_BYTES - PAYLOAD_BYTES
    for item in payload_fields(kind):
        place = word(item)
        lines.append(f"  d.{item.name} = {_reader(place, offset, flags)};")
        offset += 1 if place.format == "byte" else struct.calcsize("<" + place.format)
    lines += [f"  d.{flag} = w[1] >> {bit} & 1;" for bit, flag in enumerate(flags)]
    signature = f"static inline npu_{name} npu_{name}_fields(const uint8_t *w) {{"
    return "\n".join([signature, f"  npu_{name} d;", *lines, "  return d;", "}", ""])


def _c_type(place: Word) -> str:
    return {"I": "uint32_t", "f": "float"}.get(place.format, "int32_t")


def _reader(place: Word, offset: int, flags: list[str]) -> str:
    if place.format == "byte":
        bit = flags.index(place.unsigned_when)
        return f"w[1] >> {bit} & 1 ? w[{offset}] : (int8_t)w[{offset}]"
    return f"npu_{_READERS[place.format]}(w + {offset})"


_TOP = """\
/* The instruction set; written by isa_header.py from targets/isa/instructions.py. */
#ifndef NPU_ISA_H
#define NPU_ISA_H

#include <stdint.h>
#include <string.h>

static inline int32_t npu_u8(const uint8_t *p) { return p[0]; }
static inline int32_t npu_u16(const uint8_t *p) { return p[0] | p[1] << 8; }
static inline int32_t npu_i16(const uint8_t *p) { return (int16_t)npu_u16(p); }
static inline uint32_t npu_u32(const uint8_t *p) {
  return (uint32_t)npu_u16(p) | (uint32_t)npu_u16(p + 2) << 16;
}
static inline int32_t npu_i32(const uint8_t *p) { return (int32_t)npu_u32(p); }
static inline float npu_f32(const uint8_t *p) {
  uint32_t bits = npu_u32(p);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
"""

if __name__ == "__main__":
    HEADER.write_text(isa_header())
