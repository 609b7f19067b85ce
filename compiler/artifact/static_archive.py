"""Static libraries as the GNU and LLVM linkers read them, the same bytes each time.

`!<arch>`, then a member `/` with the index: how many symbols, for each the offset of the member
that defines it, all big endian, then their names; then the objects, each at an even offset.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tilewright.compiler.artifact.elf import ElfObject

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


def static_archive(members: Mapping[str, bytes]) -> bytes:
    """The objects in the order given; names are at most 15 characters."""
    symbols = [(name, ElfObject(data).shown()) for name, data in members.items()]
    names = b"".join(f"{symbol}\0".encode() for _, shown in symbols for symbol in shown)
    count = sum(len(shown) for _, shown in symbols)
    offset = len(_MAGIC) + _HEADER_BYTES + _even(4 + 4 * count + len(names))
    offsets = {}
    for name, data in members.items():
        offsets[name] = offset
        offset += _HEADER_BYTES + _even(len(data))
    index = struct.pack(
        f">{1 + count}I", count, *(offsets[name] for name, shown in symbols for _ in shown)
    )
    parts = [_MAGIC, _member("/", index + names)]
    parts += [_member(f"{name}/", data) for name, data in members.items()]
    return b"".join(parts)


def _member(name: str, data: bytes) -> bytes:
    """Header with neither time nor owner, content, and a filler up to an even length."""
    assert len(name) <= 16, name
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (_even(len(data)) - len(data))


def _even(size: int) -> int:
    return size + size % 2
