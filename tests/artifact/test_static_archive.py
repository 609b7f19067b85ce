"""Hiding symbols and writing archives, held against the binutils."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.artifact.elf import ElfObject
from tilewright.compiler.artifact.static_archive import static_archive
from tilewright.targets.errors import ArtifactError

LIBRARY = """
int table[3] = {1, 2, 3};
static int private = 40;
int shared_tail(int x) { return x + table[1]; }
__attribute__((weak)) int hook(void) { return private; }
extern int outside(int);
int entry(int x) { return outside(shared_tail(x)) + hook(); }
int other_entry(void) { return table[2]; }
"""
# Its own `table` and `shared_tail` would clash with the library's.
USER = """
#include <stdio.h>
int table = 7;
int shared_tail(void) { return table; }
int outside(int x) { return 10 * x; }
int entry(int);
int other_entry(void);
int main(void) { printf("%d %d %d", entry(5), other_entry(), shared_tail()); return 0; }
"""


def compile_object(folder: Path, source: str, name: str, *flags: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    command = ["gcc", "-O1", *flags, "-c", f"{name}.c", "-o", f"{name}.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / f"{name}.o"


def output_of(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("-m32", "-fno-pic")], ids=["64 bits", "32 bits"])
@pytest.mark.parametrize("sections", [(), ("-ffunction-sections", "-fdata-sections")])
def test_hidden_symbols_clash_with_nobody(
    tmp_path: Path, flags: tuple[str, ...], sections: tuple[str, ...]
) -> None:
    made = compile_object(tmp_path, LIBRARY, "library", *flags, *sections).read_bytes()
    assert set(ElfObject(made).shown()) == {"table", "shared_tail", "hook", "entry", "other_entry"}
    hidden = ElfObject(made).showing_only({"entry", "other_entry"}.__contains__)
    assert ElfObject(hidden).shown() == ["entry", "other_entry"]
    (tmp_path / "library.a").write_bytes(static_archive({"library.o": hidden}))
    listing = output_of(tmp_path, "nm", "--print-armap", "library.a")
    assert "entry in library.o" in listing
    assert "U outside" in listing
    if not flags:
        compile_object(tmp_path, USER, "user")
        output_of(tmp_path, "gcc", "user.o", "library.a", "-o", "user")
        assert output_of(tmp_path, "./user") == "110 3 7"


def test_objcopy_agrees(tmp_path: Path) -> None:
    made = compile_object(tmp_path, LIBRARY, "library")
    output_of(tmp_path, "objcopy", "--keep-global-symbol=entry", str(made), "theirs.o")
    (tmp_path / "ours.o").write_bytes(ElfObject(made.read_bytes()).showing_only("entry".__eq__))
    for listing in (["nm"], ["objdump", "-dr"]):
        theirs = output_of(tmp_path, *listing, "theirs.o").replace("theirs.o", "")
        assert output_of(tmp_path, *listing, "ours.o").replace("ours.o", "") == theirs


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_ar_reads_what_was_packed(tmp_path: Path, sizes: list[int]) -> None:
    """Whatever the parity of the members' lengths."""
    made = compile_object(tmp_path, LIBRARY, "library").read_bytes()
    members = {f"{index}.o": made + b"\0" * size for index, size in enumerate(sizes)}
    (tmp_path / "all.a").write_bytes(static_archive(members))
    assert output_of(tmp_path, "ar", "t", "all.a").split() == list(members)
    output_of(tmp_path, "ar", "x", "all.a")
    assert {name: (tmp_path / name).read_bytes() for name in members} == members


def test_the_linker_takes_only_the_members_it_needs(tmp_path: Path) -> None:
    wanted = compile_object(tmp_path, "int wanted(void) { return 1; }", "wanted").read_bytes()
    other = compile_object(tmp_path, "int other(void) { return 1; }", "other").read_bytes()
    compile_object(tmp_path, "int wanted(void); int main(void) { return !wanted(); }", "user")
    (tmp_path / "all.a").write_bytes(static_archive({"other.o": other, "wanted.o": wanted}))
    output_of(tmp_path, "gcc", "user.o", "all.a", "-o", "user")
    names = output_of(tmp_path, "nm", "user").split()
    assert "wanted" in names
    assert "other" not in names


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(100)])
def test_other_objects_are_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError) as error:
        ElfObject(data)
    assert str(error.value) == ("the C compiler's output is no ELF object; only ELF is supported")


def test_an_object_without_symbols_stays_as_it_is(tmp_path: Path) -> None:
    made = compile_object(tmp_path, "typedef int nothing;", "empty")
    output_of(tmp_path, "strip", "empty.o")
    data = made.read_bytes()
    assert ElfObject(data).shown() == []
    assert ElfObject(data).showing_only("".__eq__) == data
