"""What is damaged, foreign or of another version is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.artifact import Artifact, host_machine, load_artifact
from tilewright.compiler.artifact.manifest import read_manifest, seal
from tilewright.compiler.program import Program
from tilewright.targets.errors import ArtifactError

EVERY_FILE = [
    "board/kernels.o",
    "board/libmodel.a",
    "board/libmodel.so",
    "board/main.c",
    "board/model.c",
    "board/model.h",
    "board/model_runtime.c",
    "board/model_runtime.h",
    "board/streams.S",
    "board/thread_pool.c",
    "board/thread_pool.h",
    "board/tilewright_runtime.h",
    "board/weights.S",
    "board/weights.bin",
    "host/libmodel.so",
    "report.json",
    "target.toml",
]


def refusal(path: Path) -> str:
    with pytest.raises(ArtifactError) as error:
        load_artifact(path)
    return str(error.value)


def reseal(folder: Path, **changes: Any) -> None:
    """Another manifest whose checksums are right."""
    manifest = json.loads((folder / "manifest.json").read_text())
    seal({**manifest, **changes}, folder)


def test_manifest_lists_every_file(saved: Path) -> None:
    assert sorted(read_manifest(saved)["files"]) == EVERY_FILE


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_flipped_bit_is_refused(saved: Path, name: str) -> None:
    data = bytearray((saved / name).read_bytes())
    data[len(data) // 2] ^= 1
    (saved / name).write_bytes(data)
    assert refusal(saved) == (
        f"{saved}/{name}: does not match its checksum in manifest.json; the file was changed or "
        "damaged, copy or compile the artifact again"
    )


def test_a_missing_file_is_refused(saved: Path) -> None:
    (saved / "board/weights.bin").unlink()
    assert refusal(saved) == (
        f"{saved}/board/weights.bin: cannot be read: No such file or directory; "
        "copy the artifact again"
    )


def test_a_flipped_bit_in_the_manifest_is_refused(saved: Path) -> None:
    """Whatever bit it is: some leave it valid JSON, some do not."""
    manifest = saved / "manifest.json"
    data = manifest.read_bytes()
    for place in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[place] ^= 1
        manifest.write_bytes(damaged)
        assert str(saved) in refusal(saved)


def test_a_changed_value_in_the_manifest_is_refused(saved: Path) -> None:
    manifest = saved / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"float32"', '"float64"'))
    assert refusal(saved) == (
        f"{saved}/manifest.json: does not match its own checksum; the file was changed or "
        "damaged, compile the model again"
    )


def test_another_schema_version_is_refused(saved: Path) -> None:
    reseal(saved, schema_version=99)
    assert refusal(saved) == (
        f"{saved}: has schema version 99, this Tilewright reads 1; "
        "compile the model again with this version"
    )


def test_another_machine_is_refused(saved: Path) -> None:
    host = read_manifest(saved)["host"]
    reseal(saved, host={**host, "machine": "z80"})
    assert refusal(saved).startswith(f"{saved}: its host library is for Linux z80, this is Linux ")


def test_another_target_is_refused(saved: Path, tmp_path: Path) -> None:
    load_artifact(saved, target=saved / "target.toml").close()
    with pytest.raises(ArtifactError) as error:
        load_artifact(saved, target="mcu-16")
    assert str(error.value) == (
        f"{saved}: was compiled for bench, not for mcu-16 as it is described now; "
        "compile the model again"
    )
    faster = tmp_path / "faster.toml"
    faster.write_text(
        (saved / "target.toml").read_text().replace("clock_mhz = 1000", "clock_mhz = 1001")
    )
    with pytest.raises(ArtifactError, match="was compiled for another description of it, not for"):
        load_artifact(saved, target=faster)


def test_a_lesser_cpu_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = read_manifest(saved)["host"]
    reseal(saved, host={**host, "cpu_flags": ["avx2", "fma"]})
    monkeypatch.setattr(host_machine, "_cpu_flags", lambda: {"avx2"})
    assert refusal(saved) == (
        f"{saved}: its host library needs a CPU with fma; compile the model again on this machine"
    )


def test_no_artifact_is_told(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == (
        f"{tmp_path}/none: no such artifact; make one with tilewright compile"
    )
    assert refusal(tmp_path) == (
        f"{tmp_path}: is no artifact, it holds no manifest.json; make one with tilewright compile"
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": 1}', "\xff"])
def test_something_else_for_a_manifest_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    assert refusal(tmp_path).startswith(f"{tmp_path}/manifest.json: ")


def test_a_truncated_tar_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "out", tar=True)
    data = (tmp_path / "out.tar").read_bytes()
    (tmp_path / "out.tar").write_bytes(data[: len(data) // 2])
    assert refusal(tmp_path / "out.tar").startswith(f"{tmp_path}/out.tar: ")
    (tmp_path / "out.tar").write_text("not a tar file at all")
    assert refusal(tmp_path / "out.tar").startswith(f"{tmp_path}/out.tar: is no complete tar file")


def test_manifest_says_what_the_artifact_is(artifact: Artifact, program: Program) -> None:
    manifest = artifact.manifest
    assert manifest["name"] == "row-sums"
    assert manifest["c_name"] == "row_sums"
    assert manifest["target"]["name"] == "bench"
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["inputs"] == [
        {
            "name": "x",
            "shape": [6, 5],
            "dtype": "float32",
            "layout": "NC",
            "quantization": None,
            "offset": 0,
            "bytes": 120,
        }
    ]
    assert manifest["arena"] == {"bytes": 216, "alignment": 64}
    assert manifest["steps"][1] == {
        "name": "bias",
        "operators": [1],
        "device": "cpu",
        "kernel": "add_bias",
        "tasks": 6,
    }
    memory = artifact.report["memory"]
    assert memory["flash"]["weights"] == len(program.weights)
    assert artifact.report == {
        "memory": memory,
        "operators": list(program.operators),
        "totals": program.totals,
        "notes": list(program.notes),
        "timeline": [],
    }
