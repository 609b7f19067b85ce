"""Several artifacts on one board: what they take together when they share an arena and an NPU.

They run one after another. The arena and the simulator's workspace are then as large as the most
demanding model's; what each holds for itself, weights and code and context, adds up. An output is
good until the next model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.artifact.load import Artifact
from tilewright.targets.errors import ArtifactError


@dataclass(frozen=True)
class SharedMemory:
    """In bytes; flash and RAM are None where a model was not linked for want of a compiler."""

    arena: int  # the largest
    arenas_apart: int  # what they take if each has its own
    npu_workspace: int
    weights: int
    flash: int | None
    ram: int | None


def shared_memory(artifacts: Sequence[Artifact]) -> SharedMemory:
    """What the models take together; raises ArtifactError for models of different boards."""
    boards = {one.manifest["target"]["sha256"]: one for one in artifacts}
    if len(boards) != 1:
        names = ", ".join(
            f"{one.manifest['name']} for {one.manifest['target']['name']}" for one in artifacts
        )
        raise ArtifactError(
            f"{names or 'no artifacts'}: share memory only on one board; compile for one target"
        )
    arenas = [int(one.manifest["arena"]["bytes"]) for one in artifacts]
    memories = [one.report["memory"] for one in artifacts]
    workspaces = [int(memory["ram"]["npu_workspace"]) for memory in memories]
    flash = ram = None
    if all(memory["linked"] for memory in memories):
        simulators = [memory["flash"]["npu_simulator"] for memory in memories]
        devices = [memory["ram"]["npu_device"] for memory in memories]
        # One simulator and one device serve all.
        flash = _shared([memory["linked"]["flash"] for memory in memories], simulators)
        rams = [memory["linked"]["ram"] for memory in memories]
        lent = [sum(parts) for parts in zip(arenas, workspaces, devices, strict=True)]
        ram = sum(rams) - sum(lent) + max(arenas) + max(workspaces) + max(devices)
    return SharedMemory(
        arena=max(arenas),
        arenas_apart=sum(arenas),
        npu_workspace=max(workspaces),
        weights=sum(int(one.manifest["weights"]["bytes"]) for one in artifacts),
        flash=flash,
        ram=ram,
    )


def _shared(totals: Sequence[int], parts: Sequence[int]) -> int:
    """The sum, with the largest of `parts` in place of all of them."""
    return sum(totals) - sum(parts) + max(parts)
