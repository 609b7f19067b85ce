"""`tilewright inspect`: what is in a model, and what a target would take of it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.compiler.cli_compile import shape_argument
from tilewright.compiler.report_text import table

if TYPE_CHECKING:
    from tilewright.compiler.inspect_model import Inspection, Placement, PortFacts


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect", help="show a model's inputs, outputs and operators, and what a target takes"
    )
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--target", metavar="NAME_OR_TOML", help="show what it takes and refuses")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=shape_argument,
        metavar="NAME=1,3,224,224",
        help="fix an input's shape; once for each input",
    )
    parser.set_defaults(command=inspect)


def inspect(options: argparse.Namespace) -> None:
    from tilewright.compiler.frontend import load_model
    from tilewright.compiler.inspect_model import inspect_model, inspect_placement
    from tilewright.targets.description import load_target

    target = load_target(options.target) if options.target else None
    model, shapes = load_model(options.model), dict(options.shape)
    print("\n".join(_model_lines(inspect_model(model, shapes))))
    if target is not None:
        placement = inspect_placement(model, target, shapes)
        print("\n".join(["", *_placement_lines(target.name, placement)]))


def _model_lines(facts: Inspection) -> list[str]:
    rows = [_cells("input", port) for port in facts.inputs]
    rows += [_cells("output", port) for port in facts.outputs]
    lines = table(("", "name", "shape", "type", "layout"), rows, ())
    lines += [_dynamic_line(port) for port in facts.inputs if port.is_dynamic]
    lines.append(f"operators  {_counted(facts.operators.items())}")
    lines += [f"unusual    {name}: {what}" for name, what in facts.unusual]
    return lines + [f"warning    {warning}" for warning in facts.warnings]


def _dynamic_line(port: PortFacts) -> str:
    if port.dimensions is None:
        return f"dynamic    {port.name}: of unknown rank; give its shape with --shape"
    axes = ", ".join(f"{axis} ({port.dimensions[axis]})" for axis in port.dynamic_axes)
    return f"dynamic    {port.name}: axes {axes}; bind them with --shape"


def _cells(kind: str, port: PortFacts) -> tuple[str, ...]:
    from tilewright.compiler.frontend.shapes import spelled

    layout = f"{port.layout}?" if port.layout else "-"
    return (kind, port.name, spelled(port.dimensions), port.dtype, layout)


def _placement_lines(target: str, placement: Placement) -> list[str]:
    on_npu, on_cpu = Counter(placement.on_npu.values()), placement.on_cpu
    lines = [f"{target}: {on_npu.total()} ONNX nodes on the NPU, {len(on_cpu)} on the CPU"]
    if on_npu:
        lines.append(f"on the NPU  {_counted(on_npu.items())}")
    return lines + (table(("on the CPU", "operator", "reason"), on_cpu, ()) if on_cpu else [])


def _counted(counts: Any) -> str:
    listed: Sequence[tuple[str, int]] = sorted(counts)
    return ", ".join(f"{count} {name}" for name, count in listed)
