"""The symbols of a relocatable ELF object: which it shows, and hiding the rest; what it takes.

objcopy does this too, but only for the machines it was built for; a cross compiler need not bring
one. Layout after the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.targets.errors import ArtifactError

_RELA, _REL, _SYMTAB, _GROUP, _SYMTAB_SHNDX = 4, 9, 2, 17, 18
_LLVM_ADDRSIG = 0x6FFF4C03  # numbers symbols; a linker does without it
_LOCAL = 0
_UNDEFINED = 0
_NOBITS = 8
_MACHINES = {3: "x86", 40: "Arm", 62: "x86", 183: "AArch64", 243: "RISC-V"}
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_STACK_NOTE = ".note.GNU-stack"


@dataclass(frozen=True)
class _Section:
    """One section header; `at` is where it stands in the file."""

    at: int
    name: int  # offset into the names of sections
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class LoadedBytes:
    """What an object or program takes on the board: read-only, written, and zero at the start."""

    read_only: int
    written: int
    zeroed: int

    @property
    def flash(self) -> int:
        """The first values of what is written stand in the flash too."""
        return self.read_only + self.written

    @property
    def ram(self) -> int:
        return self.written + self.zeroed


@dataclass(frozen=True)
class _Symbol:
    name: str
    entry: bytes
    info: int  # binding in the high four bits, type in the low
    section: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == _LOCAL

    @property
    def is_defined(self) -> bool:
        return self.section != _UNDEFINED


class ElfObject:
    """An object or program of any machine; raises ArtifactError for bytes that are none."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or len(data) < 52:
            raise ArtifactError("the C compiler's output is no ELF object; only ELF is supported")
        self._data = data
        self._wide = data[4] == 2
        self._order = "<" if data[5] == 1 else ">"
        self._sections = list(self._read_sections())
        tables = [index for index, one in enumerate(self._sections) if one.kind == _SYMTAB]
        self._table = tables[0] if tables else 0
        self._symbols = list(self._read_symbols()) if tables else []

    @property
    def machine(self) -> str:
        """`64-bit AArch64`: what the code in it is for."""
        (number,) = self._unpack("H", 18)
        return f"{64 if self._wide else 32}-bit {_MACHINES.get(number, f'machine {number}')}"

    def loaded_bytes(self) -> LoadedBytes:
        """By section: what is loaded, without the gaps between sections."""
        loaded = [one for one in self._sections if one.flags & _ALLOCATED]
        zeroed = sum(one.size for one in loaded if one.kind == _NOBITS)
        written = sum(one.size for one in loaded if one.flags & _WRITABLE and one.kind != _NOBITS)
        return LoadedBytes(sum(one.size for one in loaded) - zeroed - written, written, zeroed)

    def shown(self) -> list[str]:
        """Names other objects can refer to."""
        return [one.name for one in self._symbols if one.is_defined and not one.is_local]

    def wanted(self) -> list[str]:
        """Names that other objects must define."""
        return [one.name for one in self._symbols if one.name and not one.is_defined]

    def symbol_sizes(self) -> dict[str, int]:
        """Bytes of every function and object that has a name."""
        return self._numbers("Q", 16) if self._wide else self._numbers("I", 8)

    def symbol_values(self) -> dict[str, int]:
        """In a program the addresses of all that has a name."""
        return self._numbers("Q", 8) if self._wide else self._numbers("I", 4)

    def _numbers(self, code: str, at: int) -> dict[str, int]:
        return {
            one.name: struct.unpack_from(self._order + code, one.entry, at)[0]
            for one in self._symbols
            if one.is_defined and one.name
        }

    def showing_only(self, keep: Callable[[str], bool]) -> bytes:
        """The object with every other defined symbol made local, and no word about its stack
        where its parts disagree.

        LLVM says that the stack holds no code, C compilers for boards without an operating system
        say nothing, and joining the two gives the demand that it may.
        """
        if not self._symbols:
            return self._data
        hidden = [self._hide(one, keep) for one in self._symbols]
        # Local symbols stand before the others, so entries move and whatever counts them follows.
        order = sorted(range(len(hidden)), key=lambda index: not hidden[index].is_local)
        place = {old: new for new, old in enumerate(order)}
        data = bytearray(self._data)
        table = self._sections[self._table]
        entries = b"".join(hidden[index].entry for index in order)
        data[table.offset : table.offset + len(entries)] = entries
        self._set_info(data, table, sum(one.is_local for one in hidden))
        for section in self._sections:
            if self._name(section) == _STACK_NOTE and section.flags & _EXECUTABLE:
                # Another name, the end of this one: linkers drop a section that holds nothing.
                struct.pack_into(self._order + "I", data, section.at, section.name + 1)
        for section in self._sections:
            if section.link == self._table:
                self._follow(data, section, place, order)
        return bytes(data)

    def _hide(self, symbol: _Symbol, keep: Callable[[str], bool]) -> _Symbol:
        if symbol.is_local or not symbol.is_defined or keep(symbol.name):
            return symbol
        info = symbol.info & 0xF
        entry = bytearray(symbol.entry)
        entry[4 if self._wide else 12] = info
        return _Symbol(symbol.name, bytes(entry), info, symbol.section)

    def _follow(
        self, data: bytearray, section: _Section, place: dict[int, int], order: list[int]
    ) -> None:
        """Symbol numbers in `section` become the new ones."""
        if section.kind in (_REL, _RELA):
            shift, code = (32, "Q") if self._wide else (8, "I")
            at = struct.calcsize(code)
            for offset in range(section.offset, section.offset + section.size, section.entry_size):
                (info,) = self._unpack(code, offset + at)
                info = place[info >> shift] << shift | info & ((1 << shift) - 1)
                struct.pack_into(self._order + code, data, offset + at, info)
        elif section.kind == _GROUP:
            self._set_info(data, section, place[section.info])
        elif section.kind == _SYMTAB_SHNDX:
            numbers = self._unpack(f"{len(order)}I", section.offset)
            moved = [numbers[index] for index in order]
            struct.pack_into(f"{self._order}{len(order)}I", data, section.offset, *moved)
        elif section.kind == _LLVM_ADDRSIG:
            struct.pack_into(self._order + "I", data, section.at + (40 if self._wide else 24), 0)

    def _set_info(self, data: bytearray, section: _Section, value: int) -> None:
        struct.pack_into(self._order + "I", data, section.at + (44 if self._wide else 28), value)

    def _read_sections(self) -> Iterator[_Section]:
        (start,) = self._unpack("Q", 40) if self._wide else self._unpack("I", 32)
        step, count = self._unpack("HH", 58 if self._wide else 46)
        if start and not count:  # more than fit the header: the first section holds the count
            (count,) = (
                self._unpack("Q", start + 32) if self._wide else self._unpack("I", start + 20)
            )
        for at in range(start, start + step * count, step):
            name, kind = self._unpack("II", at)
            if self._wide:
                flags, _, offset, size, link, info, _, entry = self._unpack("QQQQIIQQ", at + 8)
            else:
                flags, _, offset, size, link, info, _, entry = self._unpack("8I", at + 8)
            yield _Section(at, name, kind, flags, offset, size, link, info, entry)

    def _name(self, section: _Section) -> str:
        (table,) = self._unpack("H", 62 if self._wide else 50)
        if table == 0xFFFF:  # more than fit the header: the first section tells
            table = self._sections[0].link
        return self._text(self._sections[table], section.name)

    def _text(self, table: _Section, offset: int) -> str:
        start = table.offset + offset
        return self._data[start : self._data.index(b"\0", start)].decode()

    def _read_symbols(self) -> Iterator[_Symbol]:
        table = self._sections[self._table]
        names = self._sections[table.link]
        for at in range(table.offset, table.offset + table.size, table.entry_size):
            entry = self._data[at : at + table.entry_size]
            if self._wide:
                name, info, _, section = self._unpack("IBBH", at)
            else:
                name, _, _, info, _, section = self._unpack("IIIBBH", at)
            yield _Symbol(self._text(names, name), entry, info, section)

    def _unpack(self, code: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + code, self._data, offset)
