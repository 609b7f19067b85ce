"""Write npu_isa.h, the instruction set for the simulator, from the one definition in Python.

Run `python -m tilewright.targets.simulator.isa_header` after a change of the instruction set; a
test compares the file with what this module makes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tilewright.targets.isa import INSTRUCTIONS, Engine, Instruction
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
_READERS = {"B": "u8", "H": "u16", "h": "i16", "I": "u32", "i": "i32", "f": "f32"}


def isa_header() -> str:
    """The text of npu_isa.h."""
    kinds = list(INSTRUCTIONS.values())
    structures = [_structure(kind) + "\n" + _decoder(kind) for kind in kinds if _has_fields(kind)]
    return "\n".join([_TOP, *_constants(kinds), "", *structures, "#endif", ""])


def _has_fields(kind: type[Instruction]) -> bool:
    return bool(payload_fields(kind))


def _constants(kinds: list[type[Instruction]]) -> Iterator[str]:
    yield f"enum {{ NPU_ISA_VERSION = {VERSION}, NPU_ENGINES = {len(Engine)} }};"
    yield (
        f"enum {{ NPU_HEADER_BYTES = {HEADER_BYTES}, NPU_INSTRUCTION_BYTES = {INSTRUCTION_BYTES},"
        f" NPU_PAYLOAD_BYTES = {PAYLOAD_BYTES} }};"
    )
    yield f"enum {{ {', '.join(f'NPU_OP_{kind.opcode.name} = {kind.opcode:d}' for kind in kinds)} }};"
    yield f"enum {{ {', '.join(f'NPU_ENGINE_{e.name} = {e:d}' for e in Engine)} }};"
    yield "typedef struct { const char *name; int32_t engine, payload_bytes, flags; } npu_kind;"
    yield f"static const npu_kind npu_kinds[{len(kinds)}] = {{"
    for kind in kinds:
        engine = len(Engine) if kind.engine is None else int(kind.engine)
        size, flags = payload_struct(kind).size, len(flag_fields(kind))
        yield f'  {{"{kind.opcode.name}", {engine}, {size}, {flags}}},'
    yield "};"


def _name(kind: type[Instruction]) -> str:
    return f"npu_{kind.opcode.name.lower()}"


def _structure(kind: type[Instruction]) -> str:
    lines = [f"  {_c_type(word(f))} {f.name};" for f in payload_fields(kind)]
    lines += [f"  int32_t {f.name};" for f in flag_fields(kind)]
    return "\n".join(["typedef struct {", *lines, f"}} {_name(kind)};"])


def _decoder(kind: type[Instruction]) -> str:
    flags = [f.name for f in flag_fields(kind)]
    lines, offset = [], 12
    for item in payload_fields(kind):
        place = word(item)
        lines.append(f"  d.{item.name} = {_reader(place, offset, flags)};")
        offset += 1 if place.format == "byte" else struct.calcsize("<" + place.format)
    lines += [f"  d.{name} = w[1] >> {bit} & 1;" for bit, name in enumerate(flags)]
    signature = f"static inline {_name(kind)} {_name(kind)}_fields(const uint8_t *w) {{"
    return "\n".join([signature, f"  {_name(kind)} d;", *lines, "  return d;", "}", ""])


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
