"""Why each operator runs where it runs, by the user's own ONNX node names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Device = Literal["cpu", "npu"]


@dataclass(frozen=True)
class Reason:
    """A stable code, and the sentence that the report prints."""

    code: str
    text: str


@dataclass
class PlacementReasons:
    """What passes know so far; `demands` are the user's own `--place NODE=DEVICE`."""

    demands: Mapping[str, Device] = field(default_factory=dict)
    by_node: dict[str, Reason] = field(default_factory=dict)

    def refuse(self, nodes: Iterable[str], code: str, text: str) -> None:
        """Note why `nodes` stay on the CPU; the first reason is the one that counts."""
        for node in nodes:
            self.by_node.setdefault(node, Reason(code, text))

    def of(self, nodes: Iterable[str]) -> Reason | None:
        """The reason of the first of `nodes` that has one."""
        return next((self.by_node[node] for node in nodes if node in self.by_node), None)
