"""manifest.json: what an artifact is, what made it, and the checksum of every file in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact.c_source import step_name
from tilewright.compiler.artifact.host_machine import describe_machine
from tilewright.compiler.artifact.layout import (
    ARENA_ALIGNMENT,
    MANIFEST,
    SCHEMA_VERSION,
    WEIGHT_ALIGNMENT,
    WEIGHTS,
    c_name,
    stream_file,
)
from tilewright.compiler.program import KernelCall, NpuCall, Objects, Port, Program
from tilewright.targets.errors import ArtifactError

Manifest = dict[str, Any]

PACKAGES = {
    "tilewright": "tilewright",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "numpy": "numpy",
}


def make_manifest(
    program: Program,
    target_name: str,
    host: Mapping[str, Any],
    board: Mapping[str, Any],
    npu_workspace_bytes: int,
) -> Manifest:
    """All but the checksums, which `seal` adds once the files stand."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "c_name": c_name(program.name),
        "versions": {name: version(package) for name, package in PACKAGES.items()},
        "target": {"name": target_name, "sha256": _digest(program.target_toml.encode())},
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "preprocessing": asdict(program.preprocessing) if program.preprocessing else None,
        "arena": {"bytes": program.arena_bytes, "alignment": ARENA_ALIGNMENT},
        "weights": {
            "bytes": len(program.weights),
            "alignment": WEIGHT_ALIGNMENT,
            "file": WEIGHTS,
        },
        # Of the simulated NPU, beside the arena; 0 for a model that uses no NPU.
        "npu_workspace_bytes": npu_workspace_bytes,
        "steps": [_step(program, step) for step in program.steps],
        "intermediates": [asdict(tensor) for tensor in program.intermediates],
        "host": dict(host),
        "board": dict(board),
    }


def describe_host(objects: Objects, compiler: str, *, simulates: bool) -> dict[str, Any]:
    """`simulates`: the library holds the NPU's simulator, which is compiled for this very CPU."""
    return {
        **describe_machine(objects, native=simulates),
        **_objects(objects),
        "c_compiler": compiler,
    }


def describe_board(
    objects: Objects, compiler: str | None, library: str | None, missing: str | None
) -> dict[str, Any]:
    """`library` is null where it could not be built, and `missing` says what that takes."""
    return {
        "library": library,
        "missing": missing,
        **_objects(objects),
        "c_compiler": compiler,
    }


def seal(manifest: Manifest, artifact: Path) -> None:
    """Write manifest.json with the checksum of every other file, and of the manifest itself."""
    names = sorted(
        path.relative_to(artifact).as_posix() for path in artifact.rglob("*") if path.is_file()
    )
    files = {name: _digest((artifact / name).read_bytes()) for name in names if name != MANIFEST}
    sealed = {**manifest, "files": files}
    sealed["manifest_sha256"] = _self_digest(sealed)
    (artifact / MANIFEST).write_text(json.dumps(sealed, indent=2) + "\n", encoding="utf-8")


def read_manifest(artifact: Path) -> Manifest:
    """The manifest, refused when it is damaged or of another schema version."""
    try:
        text = (artifact / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ArtifactError(
            f"{artifact}: is no artifact, it holds no {MANIFEST}; make one with tilewright compile"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{artifact}/{MANIFEST}: cannot be read: {error}") from error
    try:
        manifest = json.loads(text)
        schema_version, digest = manifest["schema_version"], manifest["manifest_sha256"]
    except (ValueError, KeyError, TypeError):
        raise ArtifactError(
            f"{artifact}/{MANIFEST}: is no manifest of Tilewright; compile the model again"
        ) from None
    if schema_version != SCHEMA_VERSION:
        raise ArtifactError(
            f"{artifact}: has schema version {schema_version}, this Tilewright reads "
            f"{SCHEMA_VERSION}; compile the model again with this version"
        )
    if digest != _self_digest(manifest):
        raise ArtifactError(
            f"{artifact}/{MANIFEST}: does not match its own checksum; the file was changed or "
            "damaged, compile the model again"
        )
    return dict(manifest)


def check_files(manifest: Manifest, artifact: Path) -> None:
    """Every file is there and holds the bytes it was written with."""
    for name, expected in manifest["files"].items():
        try:
            found = _digest((artifact / name).read_bytes())
        except OSError as error:
            raise ArtifactError(
                f"{artifact}/{name}: cannot be read: {error.strerror}; copy the artifact again"
            ) from error
        if found != expected:
            raise ArtifactError(
                f"{artifact}/{name}: does not match its checksum in {MANIFEST}; the file was "
                "changed or damaged, copy or compile the artifact again"
            )


def _port(port: Port) -> dict[str, Any]:
    quantization = None if port.scale is None else {"scale": port.scale, "zero": port.zero or 0}
    return {
        "name": port.name,
        "shape": list(port.shape),
        "dtype": port.dtype,
        "layout": port.layout,
        "quantization": quantization,
        "offset": port.offset,
        "bytes": port.bytes,
    }


def _step(program: Program, step: KernelCall | NpuCall) -> dict[str, Any]:
    described = {"name": step_name(program, step), "operators": list(step.operators)}
    if isinstance(step, KernelCall):
        return {**described, "device": "cpu", "kernel": step.symbol, "tasks": step.tasks}
    return {**described, "device": "npu", "stream": stream_file(step.symbol)}


def _objects(objects: Objects) -> dict[str, str]:
    return {"triple": objects.triple, "cpu": objects.cpu, "features": objects.features}


def _self_digest(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return _digest(json.dumps(rest, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
