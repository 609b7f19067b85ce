"""What every operator does and costs: the rows and totals of report.json.

Cycles are simulated on the real command stream; bounds are formulas (schedules/npu/bounds.py);
latency is modelled. Nothing here is timed, so that artifacts are reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import onnx

from tilewright.compiler.npu.backend import EmittedRegion
from tilewright.compiler.onnx_facts import NodeFacts, node_facts
from tilewright.compiler.power import power_totals
from tilewright.compiler.timeline import Timeline
from tilewright.passes.placement_reasons import PlacementReasons, Reason
from tilewright.passes.views import Copy
from tilewright.schedules.cpu.cost import KernelFacts, kernel_seconds
from tilewright.schedules.npu.bounds import Work, network_work, operator_work
from tilewright.targets.backend import EnergyParts
from tilewright.targets.description import Target
from tilewright.targets.errors import PlacementError

NO_NPU = Reason("no-npu", "the target has no NPU")
NOT_QUANTISED = Reason("not-quantised", "works on real numbers; the NPU computes in int8")
MOVING_OPERATORS = {
    "Concat", "Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
ROW: dict[str, Any] = dict.fromkeys(
    ("reason", "reason_code", "macs", "cycles", "bound_cycles", "dram_bytes", "roofline_cycles",
     "sram_peak_bytes", "energy_uj", "time_us")
)  # fmt: skip


@dataclass
class ReportBuilder:
    """Collects rows in the order the steps run."""

    target: Target
    reasons: PlacementReasons
    model: onnx.ModelProto
    regions: Mapping[str, EmittedRegion]
    copies: Mapping[str, Copy]
    operators: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    npu_work: list[Work] = field(default_factory=list)
    npu_cycles: int = 0
    told: set[str] = field(default_factory=set)  # nodes whose MACs a row has
    cpu_seconds: float = 0.0
    energy: EnergyParts = field(default_factory=EnergyParts)

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.target.cpu.crossing_us)
        self.nodes: dict[str, NodeFacts] = node_facts(self.model)

    def add_cpu(self, onnx_nodes: Sequence[str], kernel: str, facts: KernelFacts) -> int:
        """The row of a CPU kernel; returns its index."""
        reason = self._reason(onnx_nodes)
        known = [node for node in onnx_nodes if node in self.nodes]
        total = self._first_told_macs(known)
        seconds = kernel_seconds(facts, total or 0, self.target.cpu)
        self.cpu_seconds += seconds
        self.timeline.add_cpu(len(self.operators), seconds * 1e6)
        self._note_copy(onnx_nodes)
        self.operators.append(
            ROW
            | {
                "name": next(iter([*known, *onnx_nodes]), kernel),
                "onnx_nodes": list(onnx_nodes),
                "op": self._op_type(onnx_nodes),
                "device": "cpu",
                "reason": reason.text,
                "reason_code": reason.code,
                "macs": total,
                "time_us": seconds * 1e6,
            }
        )
        return len(self.operators) - 1

    def add_region(self, symbol: str, constants: bytes, arena_bytes: int) -> list[int]:
        """The rows of an NPU region, from a simulation of its command stream."""
        emitted = self.regions[symbol]
        assert self.target.npu is not None
        npu = self.target.npu
        scheduled = emitted.scheduled
        run = scheduled.backend.simulate(npu, emitted.emitted, constants, arena_bytes)
        outside = (*scheduled.region.inputs, *scheduled.region.outputs)
        first = len(self.operators)
        for operator, share in zip(scheduled.region.operators, run.shares, strict=True):
            least = operator_work(operator, npu, outside)
            self.operators.append(
                ROW
                | {
                    "name": operator.name,
                    "onnx_nodes": list(operator.onnx_nodes),
                    "op": self._op_type(operator.onnx_nodes),
                    "device": "npu",
                    "macs": operator.macs,
                    "cycles": share.cycles,
                    "bound_cycles": least.bound_cycles(npu),
                    "dram_bytes": share.dram_bytes,
                    "roofline_cycles": least.roofline_cycles(npu),
                    "sram_peak_bytes": share.sram_peak_bytes,
                    "energy_uj": share.energy_uj,
                    "time_us": share.cycles / npu.clock_mhz,
                }
            )
        self.npu_work.append(network_work(scheduled.region.operators, npu))
        self.npu_cycles += run.cycles
        self.energy += run.energy
        self.timeline.add_npu(first, run, npu.clock_mhz)
        for copy in scheduled.copies:
            self.notes.append(
                {"kind": "copy", "name": copy.name, "bytes": copy.bytes, "cause": copy.cause,
                 "consumer": copy.consumer}
            )  # fmt: skip
        return list(range(first, len(self.operators)))

    def check_demands(self, fallback: bool) -> None:
        """Raise PlacementError where an operator is not where the user wants it."""
        on_cpu = [row for row in self.operators if row["device"] == "cpu"]
        if not fallback and on_cpu:
            first = on_cpu[0]
            more = f" and {len(on_cpu) - 1} more" if len(on_cpu) > 1 else ""
            raise PlacementError(
                f"{first['name']}{more}: would run on the CPU ({first['reason']}); compile "
                "without --no-fallback or change the model"
            )
        for node, device in self.reasons.demands.items():
            rows = [row for row in self.operators if node in row["onnx_nodes"]]
            if not rows:
                raise PlacementError(
                    f"--place {node}={device}: the compiled model has no such node; "
                    "`report.json` lists them"
                )
            wrong = [row for row in rows if row["device"] != device]
            if wrong:
                raise PlacementError(
                    f"--place {node}={device}: it runs on the {wrong[0]['device']}: "
                    f"{wrong[0]['reason']}; drop the demand"
                )

    def totals(self, arena_bytes: int, bound_bytes: int, weight_bytes: int) -> dict[str, Any]:
        """The report's totals."""
        crossings = sum(
            before["device"] != after["device"] for before, after in pairwise(self.operators)
        )
        seconds = self.cpu_seconds + crossings * self.target.cpu.crossing_us * 1e-6
        totals: dict[str, Any] = {
            "macs": sum(row["macs"] or 0 for row in self.operators),
            "cycles": None,
            "bound_cycles": None,
            "roofline_cycles": None,
            "mac_utilization": None,
        }
        if self.target.npu is not None and self.npu_work:
            npu, work = self.target.npu, sum(self.npu_work, Work())
            npu_seconds = self.npu_cycles / (npu.clock_mhz * 1e6)
            seconds += npu_seconds
            totals |= {
                "cycles": self.npu_cycles,
                "bound_cycles": work.bound_cycles(npu),
                "roofline_cycles": work.roofline_cycles(npu),
                "mac_utilization": work.macs / (self.npu_cycles * npu.macs_per_cycle),
                **power_totals(npu, self.energy, work.macs, npu_seconds, seconds),
            }
        return totals | {
            "latency_ms": seconds * 1e3,
            "arena_bytes": arena_bytes,
            "arena_bound_bytes": bound_bytes,
            "weight_bytes": weight_bytes,
            "crossings": crossings,
        }

    def _note_copy(self, nodes: Sequence[str]) -> None:
        """Say so where a kernel does nothing but copy what no view could stand for."""
        kinds = {self.nodes[node].op_type for node in nodes if node in self.nodes}
        if kinds <= MOVING_OPERATORS:
            for node in (node for node in nodes if node in self.copies):
                copy = self.copies[node]
                self.notes.append(
                    {"kind": "copy", "name": node, "bytes": copy.bytes, "cause": copy.cause,
                     "consumer": copy.consumer}
                )  # fmt: skip
                return

    def _first_told_macs(self, nodes: Sequence[str]) -> int | None:
        """MACs of ONNX nodes that no row has told before: a node may take several kernels."""
        fresh = [node for node in dict.fromkeys(nodes) if node not in self.told]
        self.told.update(fresh)
        return sum(self.nodes[node].macs or 0 for node in fresh) or None

    def _reason(self, onnx_nodes: Sequence[str]) -> Reason:
        if self.target.npu is None:
            return NO_NPU
        return self.reasons.of(onnx_nodes) or NOT_QUANTISED

    def _op_type(self, onnx_nodes: Sequence[str]) -> str:
        """The ONNX operator, or for a step of ours beside a node what it does to its data."""
        known = [self.nodes[node].op_type for node in onnx_nodes if node in self.nodes]
        return known[0] if known else "".join(onnx_nodes[:1]).rpartition("/")[2] or "copy"
