"""Find the backend that a description names: the bundled one, or a plug-in's."""

from __future__ import annotations

from importlib.metadata import entry_points

from tilewright.schedules.npu.backend import TiledBackend
from tilewright.targets.backend import Backend
from tilewright.targets.description import Npu
from tilewright.targets.errors import TargetError
from tilewright.targets.groups import BUNDLED_BACKEND

GROUP = "tilewright.backends"


def backend_of(npu: Npu) -> Backend:
    """The instruction set of `npu`.

    Raises TargetError: no such backend is installed, or what is found is none.
    """
    if npu.backend == BUNDLED_BACKEND:
        return TiledBackend()
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if npu.backend not in found:
        known = ", ".join([BUNDLED_BACKEND, *sorted(found)])
        raise TargetError(
            f'npu.backend = "{npu.backend}": no such backend is installed; known are {known}, '
            f"others come with packages that have an entry point in {GROUP}"
        )
    try:
        kind = found[npu.backend].load()
        backend = kind()
    except Exception as error:
        raise TargetError(
            f'npu.backend = "{npu.backend}": {found[npu.backend].value} cannot be loaded: '
            f"{type(error).__name__}: {error}; mend or remove its package"
        ) from error
    if not isinstance(backend, Backend):
        raise TargetError(
            f'npu.backend = "{npu.backend}": {found[npu.backend].value} is not a '
            "tilewright.targets.backend.Backend; derive it from that class"
        )
    return backend
