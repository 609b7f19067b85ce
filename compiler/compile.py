"""From an ONNX file and a target to a program: the whole way of a model, stage by stage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import tvm
from tqdm import tqdm
from tvm.ir.instrument import PassTimingInstrument

from tilewright.compiler.assemble import Parts, assemble
from tilewright.compiler.cpu.kernels import Kernels, compile_kernels
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.compiler.dump import DumpPasses
from tilewright.compiler.frontend import import_to_relax, load_model, prepare
from tilewright.compiler.memory_limits import check_memory
from tilewright.compiler.npu.backend import ScheduledRegion, emit_regions, schedule_regions
from tilewright.compiler.npu.times import crossing_nanoseconds, modelled_times
from tilewright.compiler.pipeline import graph_passes
from tilewright.compiler.preprocessing import stored_preprocessing
from tilewright.compiler.program import Program
from tilewright.compiler.weights import Weights
from tilewright.passes.fuse_npu_operators import fuse_npu_operators
from tilewright.passes.pad_channels import pad_channels
from tilewright.passes.partition import partition
from tilewright.passes.placement_reasons import Device, PlacementReasons
from tilewright.passes.plan_memory import plan_memory
from tilewright.passes.views import Copy, needed_copies
from tilewright.targets.description import Target, load_target

STAGES = ("import", "graph passes", "partition", "CPU kernels", "NPU schedules", "code", "report")


@dataclass(frozen=True)
class Options:
    """What a user may ask of a compilation beside model and target."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fallback: bool = True
    placements: Mapping[str, Device] = field(default_factory=dict)
    db: Path | None = None  # a tuning database
    dump: Path | None = None
    time_passes: bool = False
    progress: bool = False
    name: str | None = None  # of the model; None for its file's
    passes_left_out: frozenset[str] = frozenset()  # of pipeline.OPTIONAL_PASSES
    source: bytes = b""  # the model, where it is no file of the user's: kept in the artifact


def compile_program(
    model: str | Path | onnx.ModelProto, target: str | Path | Target, options: Options
) -> Program:
    """The program for `target`; raises a TilewrightError for whatever the user can mend."""
    chosen = target if isinstance(target, Target) else load_target(str(target))
    loaded = model if isinstance(model, onnx.ModelProto) else load_model(model)
    stem = "model" if isinstance(model, onnx.ModelProto) else Path(model).stem
    name = options.name or stem
    instruments = [PassTimingInstrument()] if options.time_passes else []
    if options.dump is not None:
        instruments.append(DumpPasses(options.dump))
    with tvm.transform.PassContext(opt_level=3, instruments=instruments), _stages(options) as stage:
        program = _compile(loaded, name, chosen, options, stage)
        if options.time_passes:
            print(instruments[0].render())
    how = stored_preprocessing(loaded)
    return replace(program, preprocessing=how, source=options.source)


def scheduled_regions(
    model: str | Path, target: Target, options: Options
) -> dict[str, ScheduledRegion]:
    """The model's NPU regions with their untuned schedules, by name."""
    with tvm.transform.PassContext(opt_level=3), _stages(options) as stage:
        return _plan(load_model(model), target, options, stage).scheduled


@dataclass(frozen=True)
class Placed:
    """A model up to the partition: `module` has a function for each NPU region."""

    prepared: onnx.ModelProto
    module: tvm.IRModule
    reasons: PlacementReasons


def place_operators(loaded: onnx.ModelProto, target: Target, options: Options) -> Placed:
    """Where every operator runs, without making code for it."""
    with tvm.transform.PassContext(opt_level=3), _stages(options) as stage:
        return _place(loaded, target, options, stage)


@dataclass(frozen=True)
class _Planned:
    """A model up to the memory plan: where everything runs and lies."""

    prepared: onnx.ModelProto
    module: tvm.IRModule
    scheduled: dict[str, ScheduledRegion]
    weights: Weights
    reasons: PlacementReasons
    copies: dict[str, Copy]  # on the CPU, where no view could stand

    @property
    def arena_bytes(self) -> int:
        return int(self.module["main"].attrs["arena_bytes"])


def _compile(
    loaded: onnx.ModelProto, name: str, target: Target, options: Options, stage: tqdm[str]
) -> Program:
    planned = _plan(loaded, target, options, stage)
    module, emitted = emit_regions(planned.module, planned.scheduled)
    _begin(stage, "code")
    host, board = compile_for_both(module, target)
    _begin(stage, "report")
    parts = Parts(
        name, planned.prepared, module, target, host, board, emitted, planned.reasons,
        planned.weights, planned.copies,
    )  # fmt: skip
    program = assemble(parts, options.fallback)

    def plan_arena(shapes: Mapping[str, Sequence[int]], board: Target) -> int:
        return _plan(loaded, board, replace(options, shapes=shapes), stage).arena_bytes

    check_memory(program, target, planned.prepared, plan_arena)
    return program


def _place(loaded: onnx.ModelProto, target: Target, options: Options, stage: tqdm[str]) -> Placed:
    _begin(stage, "import")
    prepared = prepare(loaded, {key: tuple(shape) for key, shape in options.shapes.items()})
    module = import_to_relax(prepared)
    _begin(stage, "graph passes")
    module = tvm.ir.transform.Sequential(graph_passes(options.passes_left_out))(module)
    _begin(stage, "partition")
    reasons = PlacementReasons(options.placements)
    if target.npu is not None:
        times = modelled_times(target.npu, target.cpu)
        if "pad_channels" not in options.passes_left_out:
            module = pad_channels(target.npu)(module)
        module = fuse_npu_operators(target.npu, reasons)(module)
        crossing = crossing_nanoseconds(target.cpu)
        multiple = target.npu.layout.dram_channels_multiple
        module = partition(times, crossing, reasons, multiple)(module)
    return Placed(prepared, module, reasons)


def _plan(loaded: onnx.ModelProto, target: Target, options: Options, stage: tqdm[str]) -> _Planned:
    placed = _place(loaded, target, options, stage)
    prepared, module, reasons = placed.prepared, placed.module, placed.reasons
    weights = Weights()
    _begin(stage, "CPU kernels")
    copies = needed_copies(module["main"])
    module = lower_to_kernels(module, target.cpu)
    _begin(stage, "NPU schedules")
    scheduled = schedule_regions(module, target.npu, weights, options.db) if target.npu else {}
    footprints = {symbol: region.footprint for symbol, region in scheduled.items()}
    module = plan_memory(footprints, arena_alignment(target))(module)
    return _Planned(prepared, module, scheduled, weights, reasons, copies)


def compile_for_both(module: tvm.IRModule, target: Target) -> tuple[Kernels, Kernels | None]:
    """The kernels for this machine, and for the board where that is another machine."""
    machine = load_target("host").cpu
    host = compile_kernels(module, machine)
    if (target.cpu.triple, target.cpu.cpu) == (machine.triple, machine.cpu):
        return host, None
    return host, compile_kernels(module, target.cpu)


def arena_alignment(target: Target) -> int:
    """Bytes at which tensors start: whole vectors of the CPU and whole bursts of the NPU."""
    burst = target.npu.memory.burst_bytes if target.npu else 1
    return max(16, target.cpu.vector_bits // 8, burst)


@contextlib.contextmanager
def _stages(options: Options) -> Iterator[tqdm[str]]:
    with tqdm(total=len(STAGES), disable=None if options.progress else True, leave=False) as bar:
        yield bar


def _begin(bar: tqdm[str], stage: str) -> None:
    bar.update(STAGES.index(stage) - bar.n)
    bar.set_description(stage)
