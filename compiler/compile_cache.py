"""Compiled artifacts kept by what they were made of, so that an unchanged compile is a copy.

The key is a digest of the model's bytes, the board's description, every option, the bytes of every
file an option names, and the tool chain. A model whose weights lie in files beside it has them
listed with their digests in its entry: which they are is known only once it has been loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact.load import Artifact, load_artifact
from tilewright.targets.errors import ArtifactError

_LARGEST_BYTES = 2 << 30  # of all entries together; the oldest go
_BESIDE = "beside.json"
_ARTIFACT = "artifact"


def cache_folder() -> Path:
    """In the user's cache directory."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tilewright" / "compiled"


class CompileCache:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder()

    def find(self, key: str, model: Path) -> Artifact | None:
        """The artifact stored for `key`; None where none is, or it is damaged or out of date."""
        entry = self._folder / key
        try:
            beside = json.loads((entry / _BESIDE).read_text(encoding="utf-8"))
            if any(file_digest(model.parent / name) != found for name, found in beside.items()):
                return None
            artifact = load_artifact(entry / _ARTIFACT)
        except (OSError, ValueError, ArtifactError):
            return None
        os.utime(entry)
        return artifact

    def store(self, key: str, artifact: Artifact, model: Path) -> None:
        """Keep `artifact`; a cache that cannot be written is only a slower compiler."""
        entry = self._folder / key
        try:
            shutil.rmtree(entry, ignore_errors=True)
            entry.mkdir(parents=True)
            artifact.save(entry / _ARTIFACT)
            beside = {name: file_digest(model.parent / name) for name in external_files(model)}
            (entry / _BESIDE).write_text(json.dumps(beside), encoding="utf-8")
            self._prune(entry)
        except (OSError, ArtifactError):
            shutil.rmtree(entry, ignore_errors=True)

    def _prune(self, newest: Path) -> None:
        entries = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total > _LARGEST_BYTES and entry != newest:
                shutil.rmtree(entry, ignore_errors=True)
                total -= sizes[entry]


def compile_key(
    model: Path, target_source: str, options: Mapping[str, Any], chain: Mapping[str, str]
) -> str:
    """`options` are the command's own; whatever names a file stands for what is in it."""
    facts = {
        "model": [model.stem, file_digest(model)],
        "target": target_source,
        "options": {name: [repr(value), *_contents(value)] for name, value in options.items()},
        "chain": dict(chain),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def external_files(model: Path) -> list[str]:
    """The files beside the model that hold its weights."""
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    loaded = onnx.load(model, load_external_data=False)
    return sorted(
        {
            entry.value
            for tensor in _get_all_tensors(loaded)
            if uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _contents(value: Any) -> Iterator[str]:
    """Digests of the files that an option's value names, those in a folder among them."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _contents(part)
    elif isinstance(value, str) and Path(value.rpartition("=")[2]).exists():
        place = Path(value.rpartition("=")[2])
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (f"{path} {file_digest(path)}" for path in files if path.is_file())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
