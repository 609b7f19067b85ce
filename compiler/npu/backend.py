"""The NPU as a BYOC backend of TVM: regions are scheduled, then emitted as command streams.

Scheduling says which buffers a region spills, which the arena plan must know; emission needs the
plan's offsets. So `schedule_regions` runs before `plan_memory`, and `emit_regions` after it, by
RunCodegen calling the `relax.ext.tilewright_npu` registered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax

from tilewright.compiler.npu.records import best_choices
from tilewright.compiler.npu.region import MadeCopy, RegionLowering
from tilewright.compiler.weights import Weights
from tilewright.passes.partition import CODEGEN
from tilewright.passes.plan_memory import Footprint
from tilewright.schedules.backends import backend_of
from tilewright.targets.backend import Backend, Emitted, Plan
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region


@dataclass(frozen=True)
class ScheduledRegion:
    """A region with its tiles chosen; `constants_offset` is where its weights lie."""

    backend: Backend
    region: Region
    plan: Plan
    copies: tuple[MadeCopy, ...]
    constants_offset: int

    @property
    def footprint(self) -> Footprint:
        """What the arena plan must know, in operators of the region."""
        lives = self.plan.lives
        return Footprint(
            len(self.region.operators),
            tuple(lives[buffer][1] if buffer in lives else 0 for buffer in self.region.inputs),
            tuple(lives[buffer][0] for buffer in self.region.outputs),
            tuple(
                (spilled.buffer, spilled.nbytes, spilled.first_operator, spilled.last_operator)
                for spilled in self.plan.spilled
            ),
        )


@dataclass(frozen=True)
class EmittedRegion:
    """A region's command stream, and what its backend knows of it."""

    scheduled: ScheduledRegion
    emitted: Emitted

    @property
    def stream(self) -> bytes:
        return self.emitted.stream


def schedule_regions(
    module: tvm.IRModule, npu: Npu, weights: Weights, db: Path | None = None
) -> dict[str, ScheduledRegion]:
    """Every region of `module` by its function's name, its constants appended to `weights`.

    Where the tuning database `db` has records of a region for this NPU, the best is used.
    """
    scheduled, backend = {}, backend_of(npu)
    for symbol, function in module.functions.items():
        if not isinstance(function, relax.Function) or not is_region(function):
            continue
        lowering = RegionLowering(function, symbol.name_hint)
        region = lowering.lower()
        choices = best_choices(db, region, npu) if db is not None else None
        plan = backend.replan(npu, region, choices) if choices else backend.plan(npu, region)
        offset = weights.add(plan.constants)
        scheduled[symbol.name_hint] = ScheduledRegion(
            backend, region, plan, tuple(lowering.copies), offset
        )
    return scheduled


def is_region(function: relax.Function) -> bool:
    """Whether the NPU runs this function."""
    return bool(function.attrs) and function.attrs.get("Codegen", None) == CODEGEN


def emit_regions(
    module: tvm.IRModule, scheduled: Mapping[str, ScheduledRegion]
) -> tuple[tvm.IRModule, dict[str, EmittedRegion]]:
    """`module` with region calls replaced by external ones, and the streams they stand for."""
    offsets = _buffer_offsets(module, scheduled)
    emitted: dict[str, EmittedRegion] = {}

    def generate(
        functions: Sequence[relax.Function], _options: object, _names: object
    ) -> list[tvm.runtime.Module]:
        for function in functions:
            name = str(function.attrs["global_symbol"])
            region = scheduled[name]
            made = region.backend.emit(region.plan, offsets[name], region.constants_offset)
            emitted[name] = EmittedRegion(region, made)
        return [_stream_module(name, one.stream) for name, one in emitted.items()]

    tvm.register_global_func(f"relax.ext.{CODEGEN}", generate, override=True)
    return relax.transform.RunCodegen(entry_functions=["main"])(module), emitted


def _stream_module(name: str, stream: bytes) -> tvm.runtime.Module:
    """The command stream as C source, for whoever exports the module through TVM."""
    rows = [stream[start : start + 16] for start in range(0, len(stream), 16)]
    values = ",\n  ".join(", ".join(str(byte) for byte in row) for row in rows)
    source = f"const unsigned char {name}_stream[{len(stream)}] = {{\n  {values}\n}};\n"
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    return create(source, "c", [name], [])


def _buffer_offsets(
    module: tvm.IRModule, scheduled: Mapping[str, ScheduledRegion]
) -> dict[str, dict[str, int]]:
    """Arena offsets of each region's inputs, outputs and spilled buffers, from plan_memory."""
    main = module["main"]
    spilled = main.attrs["region_offsets"]
    rows = [[int(offset) for offset in row] for row in main.attrs["arena_offsets"]]
    at: dict[relax.Var, list[int]] = dict(zip(main.params, rows, strict=False))
    offsets: dict[str, dict[str, int]] = {}
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    for binding, row in zip(bindings, rows[len(main.params) :], strict=True):
        at[binding.var] = row
        op = getattr(binding.value, "op", None)
        if not isinstance(op, tvm.ir.GlobalVar) or op.name_hint not in scheduled:
            continue
        region = scheduled[op.name_hint].region
        places = {buffer: int(offset) for buffer, offset in spilled[op.name_hint].items()}
        for buffer, argument in zip(region.inputs, binding.value.args, strict=True):
            places[buffer] = at[argument][0]
        places.update(zip(region.outputs, row, strict=True))
        offsets[op.name_hint] = places
    return offsets
