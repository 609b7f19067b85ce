"""Find out which bytes of the arena a model really touches, to hold against the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.compiler.artifact.arguments import port_view, write_inputs
from tilewright.compiler.artifact.layout import ARENA_ALIGNMENT
from tilewright.compiler.artifact.load import Artifact
from tilewright.compiler.artifact.native import Model, aligned_bytes

# Two patterns without a bit in common: whatever a step writes differs from one of them.
_PATTERNS = (0xA5, 0x5A)
_GUARD_BYTES = 4096


@dataclass(frozen=True)
class MemoryUse:
    """`used_bytes` reaches from the arena's start to the last byte touched."""

    planned_bytes: int
    used_bytes: int
    stray_bytes: int  # touched within 4 KiB before and after the arena
    reads_unwritten: bool  # the outputs depend on what the arena held before the run

    @property
    def is_as_planned(self) -> bool:
        """The plan's last bytes may be what rounding its end up to the alignment added."""
        unused = self.planned_bytes - self.used_bytes
        rounding = unused < ARENA_ALIGNMENT
        return rounding and self.stray_bytes == 0 and not self.reads_unwritten


def measure_memory_use(artifact: Artifact, inputs: Mapping[str, ArrayLike]) -> MemoryUse:
    """Run the model once over each pattern, in an arena with guard bytes on both sides."""
    planned = int(artifact.manifest["arena"]["bytes"])
    touched = np.zeros(planned + 2 * _GUARD_BYTES, np.bool_)
    outputs = []
    for pattern in _PATTERNS:
        memory = aligned_bytes(touched.size, _GUARD_BYTES)
        memory[:] = pattern
        outputs.append(_run(artifact, memory[_GUARD_BYTES : _GUARD_BYTES + planned], inputs))
        touched |= memory != pattern
    inside = np.flatnonzero(touched[_GUARD_BYTES : _GUARD_BYTES + planned])
    return MemoryUse(
        planned_bytes=planned,
        used_bytes=int(inside[-1]) + 1 if inside.size else 0,
        stray_bytes=int(touched.sum()) - inside.size,
        reads_unwritten=outputs[0] != outputs[1],
    )


def _run(
    artifact: Artifact, arena: NDArray[np.uint8], inputs: Mapping[str, ArrayLike]
) -> list[bytes]:
    write_inputs(artifact.manifest, arena, inputs)
    model = Model(artifact.directory, artifact.manifest, arena, artifact.threads)
    try:
        model.run()
        return [port_view(arena, port).tobytes() for port in artifact.manifest["outputs"]]
    finally:
        model.close()
