"""Give every tensor of `main`, and every buffer an NPU region spills, its offset in one arena.

    lv = call_tir(kernel, (x,)); y = npu_region_0(lv)
    ->  main gains attributes: arena_bytes, arena_bound_bytes, arena_offsets (one list of byte
        offsets a parameter and a binding: several where it is a tuple), region_offsets

Bindings run in order. A region takes one step an operator, so that its inputs die, and its
outputs and spilled buffers live, operator by operator. Reshapes and other names for a tensor take
no memory. Inputs are written before the first step; outputs are read after the last.
Run it when all that remains in main are kernel calls, region calls and views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import tvm
from tvm import relax

from tilewright.passes.base import module_pass
from tilewright.passes.constants import op_name
from tilewright.passes.partition import bindings_of
from tilewright.passes.rewriter import variables_in
from tilewright.passes.views import free_views, plan_views
from tilewright.schedules.memory.plan import Buffer, plan


@dataclass(frozen=True)
class Footprint:
    """What a region does to the arena; steps count its operators from 0.

    `spilled` are (buffer, bytes, first step, last step) that the region needs for itself.
    """

    steps: int
    input_last_step: tuple[int, ...]
    output_first_step: tuple[int, ...]
    spilled: tuple[tuple[str, int, int, int], ...]


def plan_memory(footprints: Mapping[str, Footprint], alignment: int) -> tvm.transform.Pass:
    """The pass; `footprints` by the name of each region's function, `alignment` in bytes."""

    def rewrite(module: tvm.IRModule) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        updated["main"] = _Lifetimes(module["main"], footprints).planned(alignment)
        return updated

    rewrite.__name__ = "plan_memory"
    return module_pass(rewrite)


def region_called(value: relax.Expr, regions: Mapping[str, object]) -> str | None:
    """The name of the region that `value` calls, if it calls one."""
    op = getattr(value, "op", None)
    name = op.name_hint if isinstance(op, tvm.ir.GlobalVar) else None
    return name if name in regions else None


def tensor_bytes(type_: relax.Type) -> int:
    """Bytes of a dense tensor of this type."""
    shape = [int(extent) for extent in type_.shape.values]
    return prod(shape) * np.dtype(str(type_.dtype.dtype)).itemsize


@dataclass
class _Lifetimes:
    main: relax.Function
    footprints: Mapping[str, Footprint]
    names: dict[relax.Var, list[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    alias: dict[str, tuple[str, int]] = field(default_factory=dict)
    region_buffers: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.views = plan_views(self.main, lambda _: False)
        self.free = free_views(self.main)
        self.values = {binding.var: binding.value for binding in bindings_of(self.main)}

    def planned(self, alignment: int) -> relax.Function:
        """`main` with the plan in its attributes."""
        rows: list[list[str]] = []
        for param in self.main.params:
            rows.append(self._define(param, 0))
        step = 1
        for binding in bindings_of(self.main):
            rows.append(self._define_binding(binding, step))
            step += self._steps(binding.value)
        self._alias_views()
        for result in variables_in(self.main.body.body):
            for name in self.names[result]:
                self.last[name] = step
        made = plan(
            [
                Buffer(name, size, self.first[name], self.last[name], self.alias.get(name))
                for name, size in self.sizes.items()
            ],
            alignment,
        )
        offsets = [[made.offsets[name] for name in row] for row in rows]
        regions = {
            region: {name.split("/", 1)[1]: made.offsets[name] for name in names}
            for region, names in self.region_buffers.items()
        }
        return self.main.with_attrs(
            {
                "arena_bytes": made.total_bytes,
                "arena_bound_bytes": made.bound_bytes,
                "arena_offsets": offsets,
                "region_offsets": regions,
            }
        )

    def _steps(self, value: relax.Expr) -> int:
        region = region_called(value, self.footprints)
        return self.footprints[region].steps if region else 1

    def _define(self, var: relax.Var, step: int) -> list[str]:
        types = list(var.ty.fields) if isinstance(var.ty, relax.TupleType) else [var.ty]
        names = []
        for type_ in types:
            name = f"{len(self.sizes)}:{var.name}"
            self.sizes[name] = tensor_bytes(type_)
            self.first[name] = self.last[name] = step
            names.append(name)
        self.names[var] = names
        return names

    def _define_binding(self, binding: relax.VarBinding, step: int) -> list[str]:
        var, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem):
            self.names[var] = [self.names[value.tuple_value][value.index]]
        elif isinstance(value, relax.Tuple):
            self.names[var] = [name for part in value.fields for name in self.names[part]]
        elif isinstance(value, relax.Var):
            self.names[var] = self.names[value]
        elif (region := region_called(value, self.footprints)) is not None:
            self._define_region(var, value, self.footprints[region], region, step)
        else:
            for argument in variables_in(value):
                self._use(argument, step)
            self._define(var, step)
        return self.names[var]

    def _alias_views(self) -> None:
        """Let what lies in another tensor's buffer lie there, a part of a concat among them."""
        for var, place in self.views.places.items():
            if not place.base.same_as(var) and self._is_settled(place.base):
                self.alias[self.names[var][0]] = (self.names[place.base][0], place.address.offset)

    def _is_settled(self, base: relax.Var) -> bool:
        """A concat takes its parts in only where it takes in all of them."""
        return op_name(self.values.get(base)) != "relax.concat" or base in self.free

    def _use(self, var: relax.Var, step: int) -> None:
        for name in self.names[var]:
            self.last[name] = max(self.last[name], step)

    def _define_region(
        self, var: relax.Var, call: relax.Call, footprint: Footprint, region: str, step: int
    ) -> None:
        for argument, last in zip(call.args, footprint.input_last_step, strict=True):
            self._use(argument, step + last)
        end = step + footprint.steps - 1
        for name, first in zip(self._define(var, step), footprint.output_first_step, strict=True):
            self.first[name], self.last[name] = step + first, end
        self.region_buffers[region] = []
        for buffer, nbytes, first, last in footprint.spilled:
            name = f"{region}/{buffer}"
            self.sizes[name] = nbytes
            self.first[name], self.last[name] = step + first, step + last
            self.region_buffers[region].append(name)
