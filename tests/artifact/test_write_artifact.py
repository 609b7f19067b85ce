"""An artifact is written whole or not at all, and the same input gives the same bytes."""

from __future__ import annotations

import os
import resource
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.compiler.artifact import (
    Artifact,
    build_artifact,
    check_destination,
    load_artifact,
    write_artifact,
)
from tilewright.compiler.program import Program
from tilewright.targets.errors import ArtifactError


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_same_program_same_bytes(program: Program, tmp_path: Path) -> None:
    write_artifact(tmp_path / "one", lambda folder: build_artifact(program, folder))
    write_artifact(tmp_path / "elsewhere" / "two", lambda folder: build_artifact(program, folder))
    one, two = contents(tmp_path / "one"), contents(tmp_path / "elsewhere" / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_nothing_of_this_machine_is_in_the_files(saved: Path) -> None:
    """No path reaches the files, or another checkout would give other bytes."""
    for name, content in contents(saved).items():
        assert str(Path.home()).encode() not in content, name
        assert os.getcwd().encode() not in content, name
        assert b"/tmp/" not in content, name


def test_tar_holds_the_same_files_and_the_same_bytes_each_time(
    artifact: Artifact, tmp_path: Path
) -> None:
    artifact.save(tmp_path / "one", tar=True)
    os.utime(tmp_path / "one" / "manifest.json", (1, 1))
    artifact.save(tmp_path / "two", tar=True)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with load_artifact(tmp_path / "one.tar") as loaded:
        assert contents(loaded.directory) == contents(tmp_path / "one")


def test_an_artifact_replaces_an_artifact(artifact: Artifact, saved: Path) -> None:
    (saved / "left over").write_text("from before")
    artifact.save(saved)
    assert contents(saved) == contents(artifact.directory)
    assert os.listdir(saved.parent) == ["saved"]


def test_a_symbolic_link_stays_one(artifact: Artifact, saved: Path) -> None:
    (saved / "left over").write_text("from before")
    link = saved.parent / "latest"
    link.symlink_to("saved")
    artifact.save(link)
    assert link.is_symlink()
    assert contents(saved) == contents(artifact.directory)


def test_only_artifacts_are_replaced(artifact: Artifact, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError) as error:
        artifact.save(precious)
    assert str(error.value) == (
        f"{precious}: exists and is no artifact; choose another name or remove it"
    )
    assert contents(precious) == {"thesis.txt": b"years of work"}
    with pytest.raises(ArtifactError, match="exists and is no artifact"):
        check_destination(precious / "thesis.txt")


def test_an_empty_directory_becomes_the_artifact(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    artifact.save(tmp_path / "empty")
    load_artifact(tmp_path / "empty").close()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_failing_midway_leaves_what_was_there(
    artifact: Artifact, saved: Path, failure: BaseException
) -> None:
    before = contents(saved)

    def fill(folder: Path) -> None:
        (folder / "manifest.json").write_text("{}")
        raise failure

    expected = ArtifactError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        write_artifact(saved, fill)
    assert contents(saved) == before
    assert os.listdir(saved.parent) == ["saved"]
    if isinstance(failure, OSError):
        assert str(error.value) == (
            f"{saved}: cannot be written: No space left on device; nothing was left behind"
        )


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 1000, 10_000])
def test_full_disk_leaves_nothing(artifact: Artifact, tmp_path: Path, size: int) -> None:
    with largest_file(size), pytest.raises(ArtifactError) as error:
        artifact.save(tmp_path / "out")
    assert "out: cannot be written: File too large; nothing was left behind" in str(error.value)
    assert os.listdir(tmp_path) == []


def test_full_disk_under_the_tar_leaves_no_tar(artifact: Artifact, tmp_path: Path) -> None:
    size = max(map(len, contents(artifact.directory).values()))
    with largest_file(size), pytest.raises(ArtifactError, match=r"out\.tar: cannot be written"):
        artifact.save(tmp_path / "out", tar=True)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("parent", ["/proc", "/proc/none/deeper"])
def test_a_place_that_cannot_be_written_is_explained(artifact: Artifact, parent: str) -> None:
    with pytest.raises(ArtifactError) as error:
        artifact.save(f"{parent}/out")
    assert str(error.value) == (
        f"{parent}/out: /proc cannot be written to (No such file or directory); "
        "choose another place"
    )


def test_a_file_where_a_directory_should_be_is_explained(
    artifact: Artifact, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError) as error:
        artifact.save(tmp_path / "file" / "out")
    assert str(error.value) == (
        f"{tmp_path}/file/out: {tmp_path}/file cannot be written to (Not a directory); "
        "choose another place"
    )


def test_no_compiler_is_explained(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(ArtifactError) as error:
        write_artifact(tmp_path / "out", lambda folder: build_artifact(program, folder))
    assert str(error.value) == (
        "no C compiler: no-such-compiler is not on PATH; "
        "install gcc, or name a compiler in the environment variable CC"
    )
    assert os.listdir(tmp_path) == []


def test_a_kernel_that_is_not_there_is_named(program: Program, tmp_path: Path) -> None:
    step = replace(program.steps[0], symbol="forgotten")
    with pytest.raises(ArtifactError, match="undefined reference to `forgotten'"):
        build_artifact(replace(program, steps=(step,)), tmp_path)


def test_tars_that_reach_outside_are_refused(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("evil")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "evil", "../evil")
    with pytest.raises(ArtifactError, match=r"holds '\.\./evil', which no artifact has"):
        load_artifact(tmp_path / "evil.tar")


def test_only_the_models_own_names_can_be_seen(saved: Path) -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "host/libmodel.so"],
        cwd=saved,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    assert "row_sums_run" in names
    assert [name for name in names if not name.startswith(("row_sums_", "tilewright_pool_"))] == []
