"""Put an artifact where the user wants it: whole, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.compiler.artifact.layout import MANIFEST
from tilewright.targets.errors import ArtifactError


def check_destination(destination: Path) -> None:
    """Raise ArtifactError where `destination` cannot become an artifact; leaves nothing there.

    Ask before a long compilation, not only after it.
    """
    if destination.exists() and not _may_replace(destination):
        raise ArtifactError(
            f"{destination}: exists and is no artifact; choose another name or remove it"
        )
    parent = destination.resolve().parent
    while not parent.exists():
        parent = parent.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=parent))
    except OSError as error:
        raise ArtifactError(
            f"{destination}: {parent} cannot be written to ({error.strerror}); choose another place"
        ) from error


def write_artifact(destination: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a directory beside `destination`, then move it there in one step.

    An artifact that stands there is replaced once the new one is complete. Raises ArtifactError,
    and leaves nothing behind, when the disk is full or the place cannot be written.
    """
    check_destination(destination)
    place = destination.resolve()  # a symbolic link stays one
    with disk_errors(destination):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _beside(place) as scratch:
            fresh = scratch / "artifact"
            fresh.mkdir()
            fill(fresh)
            _flush(fresh)
            _swap(fresh, place, scratch / "replaced")


def write_tar(artifact: Path, destination: Path) -> None:
    """The artifact's files as one .tar whose bytes depend on nothing else."""
    with disk_errors(destination), _beside(destination) as scratch:
        fresh = scratch / "artifact.tar"
        with tarfile.open(fresh, "w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(artifact.rglob("*")):
                if path.is_file():
                    entry = tarfile.TarInfo(path.relative_to(artifact).as_posix())
                    content = path.read_bytes()
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        fresh.replace(destination)


def read_tar(archive: Path, folder: Path) -> None:
    """Unpack what `write_tar` wrote; anything but plain files below `folder` is refused."""
    try:
        with tarfile.open(archive, "r:") as tar:
            for entry in tar:
                target = (folder / entry.name).resolve()
                if not entry.isreg() or not target.is_relative_to(folder.resolve()):
                    raise ArtifactError(
                        f"{archive}: holds {entry.name!r}, which no artifact has; it is refused"
                    )
                source = tar.extractfile(entry)
                assert source is not None
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())
    except tarfile.TarError as error:
        raise ArtifactError(f"{archive}: is no complete tar file ({error})") from error
    except OSError as error:
        raise ArtifactError(f"{archive}: cannot be unpacked: {error.strerror}") from error


def _may_replace(destination: Path) -> bool:
    """An artifact, or an empty directory."""
    if not destination.is_dir():
        return False
    return (destination / MANIFEST).is_file() or not any(destination.iterdir())


@contextmanager
def _beside(destination: Path) -> Iterator[Path]:
    """A scratch directory on the destination's file system, gone afterwards in any case."""
    parent = destination.absolute().parent
    scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def disk_errors(destination: Path) -> Iterator[None]:
    """What the system refuses while `destination` is written becomes an ArtifactError."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{destination}: cannot be written: {error.strerror or error}; nothing was left behind"
        ) from error


def _flush(folder: Path) -> None:
    """Contents reach the disk before the name does."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _swap(fresh: Path, destination: Path, aside: Path) -> None:
    """`fresh` becomes `destination`; what stood there stands again if that fails."""
    if not destination.exists():
        fresh.rename(destination)
        return
    destination.rename(aside)
    try:
        fresh.rename(destination)
    except BaseException:
        aside.rename(destination)
        raise
