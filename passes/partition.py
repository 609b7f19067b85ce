"""Gather what runs on the NPU into as few regions as the graph allows.

    a = npu.conv2d(x); b = softmax(a); c = npu.add(a, d)
    ->  t = npu_region_0(x, d); b = softmax(t[0]);  with both npu calls inside the region

Bindings are reordered so that the devices hand over as seldom as possible. An operator whose
crossing costs more than it saves goes back to the CPU, with both times as its reason. Regions
are functions with Codegen = "tilewright_npu", which RunCodegen hands to the NPU's backend.
Run it after `fuse_npu_operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from tilewright.passes.base import module_pass
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.npu_views import may_be_in_region
from tilewright.passes.placement_reasons import PlacementReasons
from tilewright.schedules.placement import Decision, Node, Placement, PlacementGraph, place

CODEGEN = "tilewright_npu"

# Modelled nanoseconds of a composite function on the CPU and on the NPU.
Times = Callable[[relax.Function], tuple[int, int]]


def partition(
    times: Times,
    crossing_nanoseconds: int,
    reasons: PlacementReasons,
    channels_multiple: int = 1,
) -> tvm.transform.Pass:
    """The pass; `reasons` gains an entry for each operator that goes back to the CPU.

    `channels_multiple`: the NPU moves whole groups of so many channels between DRAM and SRAM.
    """

    def rewrite(module: tvm.IRModule) -> tvm.IRModule:
        return _Partition(module, times, crossing_nanoseconds, reasons, channels_multiple).run()

    rewrite.__name__ = "partition"
    return module_pass(rewrite)


def composite_of(module: tvm.IRModule, value: relax.Expr) -> relax.Function | None:
    """The composite function that `value` calls, if it calls one."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
        return None
    function = module[value.op]
    is_composite = isinstance(function, relax.Function) and "Composite" in (function.attrs or {})
    return function if is_composite else None


def bindings_of(function: relax.Function) -> list[relax.VarBinding]:
    """All bindings of a function in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def variables_in(value: relax.Expr) -> list[relax.Var]:
    """The variables that a binding's value reads, each once."""
    return list(relax.analysis.free_vars(value))


@dataclass
class _Partition:
    module: tvm.IRModule
    times: Times
    crossing: int
    reasons: PlacementReasons
    channels_multiple: int

    def run(self) -> tvm.IRModule:
        main = self.module["main"]
        bindings = bindings_of(main)
        placement = place(self._graph(bindings), self.crossing)
        on_npu = {i for i, device in enumerate(placement.devices) if device == "npu"}
        self._explain(bindings, placement)
        updated = tvm.IRModule(self.module.functions, attrs=self.module.attrs)
        builder = _MainBuilder(updated, main, bindings)
        for region in placement.regions:
            computes = any(
                composite_of(self.module, bindings[i].value) is not None for i in region.nodes
            )
            if region.device == "npu" and computes:
                builder.add_region([i for i in region.nodes if i in on_npu])
            else:
                builder.add_plain(region.nodes)
        return builder.finish()

    def _graph(self, bindings: list[relax.VarBinding]) -> PlacementGraph:
        index = {binding.var: i for i, binding in enumerate(bindings)}
        edges = [
            (index[var], consumer)
            for consumer, binding in enumerate(bindings)
            for var in variables_in(binding.value)
            if var in index
        ]
        return PlacementGraph(tuple(self._node(b) for b in bindings), tuple(edges))

    def _node(self, binding: relax.VarBinding) -> Node:
        name = binding.var.name
        composite = composite_of(self.module, binding.value)
        if composite is not None:
            cpu_time, npu_time = self.times(composite)
            demanded = [self.reasons.demands.get(node) for node in composite_nodes(composite)]
            return Node(name, None if "npu" in demanded else cpu_time, npu_time)
        if isinstance(binding.value, relax.Var) or may_be_in_region(
            binding.value, self.channels_multiple
        ):
            return Node(name, 0, 0)
        return Node(name, 0, None)

    def _explain(self, bindings: list[relax.VarBinding], placement: Placement) -> None:
        for decision in placement.decisions:
            for node in decision.nodes:
                composite = composite_of(self.module, bindings[node].value)
                if composite is not None:
                    self.reasons.refuse(
                        composite_nodes(composite), "slower-on-npu", _comparison(decision)
                    )


def composite_nodes(composite: relax.Function) -> tuple[str, ...]:
    """The ONNX nodes a composite function stands for, in order."""
    calls = [b.value for b in bindings_of(composite) if isinstance(b.value, relax.Call)]
    return tuple(dict.fromkeys(node for call in calls for node in onnx_nodes_of(call)))


def _comparison(decision: Decision) -> str:
    cpu, npu = decision.cpu_time / 1e3, decision.npu_time / 1e3
    return (
        f"is faster on the CPU: {cpu:.1f} us there, {npu:.1f} us on the NPU with its "
        "hand-overs (both modelled)"
    )


class _MainBuilder:
    """Rebuilds `main` binding by binding, in a new order, with regions split off."""

    def __init__(
        self, module: tvm.IRModule, main: relax.Function, bindings: list[relax.VarBinding]
    ) -> None:
        self.module = module
        self.main = main
        self.old = bindings
        self.new: list[relax.VarBinding] = []
        self.block = relax.BlockBuilder(module)
        self.regions = 0
        self.readers: dict[relax.Var, list[int]] = {}
        for index, binding in enumerate(bindings):
            for var in variables_in(binding.value):
                self.readers.setdefault(var, []).append(index)
        self.results = set(variables_in(main.body.body))

    def add_plain(self, nodes: tuple[int, ...]) -> None:
        """Keep these bindings in main; composites among them become plain calls again."""
        for node in nodes:
            binding = self.old[node]
            composite = composite_of(self.module, binding.value)
            if composite is None:
                self.new.append(binding)
            else:
                self.new.extend(_inlined(binding, composite))

    def add_region(self, nodes: list[int]) -> None:
        """Move these bindings into a function of their own and call it."""
        inside = {self.old[node].var for node in nodes}
        inputs = list(
            dict.fromkeys(
                var
                for node in nodes
                for var in variables_in(self.old[node].value)
                if var not in inside
            )
        )
        outputs = [self.old[n].var for n in nodes if self._is_read_outside(n, set(nodes))]
        function = self._region_function(nodes, inputs, outputs)
        name = f"npu_region_{self.regions}"
        self.regions += 1
        symbol = tvm.ir.GlobalVar(name)
        symbol = self.block.add_func(function.with_attr("global_symbol", name), name)
        call = self.block.normalize(relax.Call(symbol, inputs))
        if len(outputs) == 1:
            self.new.append(relax.VarBinding(outputs[0], call))
            return
        together = relax.DataflowVar(name, call.ty)
        self.new.append(relax.VarBinding(together, call))
        for index, output in enumerate(outputs):
            part = self.block.normalize(relax.TupleGetItem(together, index))
            self.new.append(relax.VarBinding(output, part))

    def finish(self) -> tvm.IRModule:
        """The module with the new main; composites no one calls any more are gone."""
        body = relax.SeqExpr([relax.DataflowBlock(self.new)], self.main.body.body)
        main = relax.Function(
            self.main.params, body, self.main.ret_ty, attrs=self.main.attrs, span=self.main.span
        )
        module = self.block.get()
        module["main"] = main
        module = tvm.IRModule(module.functions, attrs=self.module.attrs)
        return relax.transform.DeadCodeElimination(["main"])(module)

    def _is_read_outside(self, node: int, inside: set[int]) -> bool:
        var = self.old[node].var
        readers = self.readers.get(var, [])
        return var in self.results or any(reader not in inside for reader in readers)

    def _region_function(
        self, nodes: list[int], inputs: list[relax.Var], outputs: list[relax.Var]
    ) -> relax.Function:
        renamed: dict[relax.Expr, relax.Expr] = {var: relax.Var(var.name, var.ty) for var in inputs}
        params = list(renamed.values())
        bindings: list[relax.VarBinding] = []
        for node in nodes:
            binding = self.old[node]
            if isinstance(binding.value, relax.Var):
                renamed[binding.var] = renamed[binding.value]
                continue
            composite = composite_of(self.module, binding.value)
            if composite is not None and binding.value.op not in renamed:
                local = relax.Var(binding.value.op.name_hint, composite.ty)
                renamed[binding.value.op] = local
                bindings.append(relax.VarBinding(local, composite.without_attr("Primitive")))
            inner = relax.Var(binding.var.name, binding.var.ty)
            bindings.append(relax.VarBinding(inner, substitute(binding.value, renamed)))
            renamed[binding.var] = inner
        results = [renamed[var] for var in outputs]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        body = self.block.normalize(relax.SeqExpr([relax.BindingBlock(bindings)], result))
        return relax.Function(params, body, result.ty).with_attr("Codegen", CODEGEN)


def _inlined(binding: relax.VarBinding, composite: relax.Function) -> list[relax.VarBinding]:
    """The bindings of a composite in place of its call; the last one binds the call's variable."""
    renamed: dict[relax.Expr, relax.Expr] = dict(
        zip(composite.params, binding.value.args, strict=True)
    )
    inner = [b for b in bindings_of(composite) if isinstance(b.value, relax.Call)]
    result = []
    for position, step in enumerate(inner):
        value = substitute(step.value, renamed)
        is_last = position == len(inner) - 1
        var = binding.var if is_last else relax.DataflowVar(step.var.name, step.var.ty)
        renamed[step.var] = var
        result.append(relax.VarBinding(var, value))
    return result


def substitute(value: relax.Expr, renamed: Mapping[relax.Expr, relax.Expr]) -> relax.Expr:
    """`value` with variables and called functions replaced; one level of tuples deep."""
    if value in renamed:
        return renamed[value]
    if isinstance(value, relax.Tuple):
        replaced = relax.Tuple([substitute(field, renamed) for field in value.fields])
        return replaced
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(value.tuple_value, renamed), value.index)
    if isinstance(value, relax.Call):
        arguments = [substitute(argument, renamed) for argument in value.args]
        op = renamed.get(value.op, value.op)
        return relax.Call(op, arguments, value.attrs, span=value.span)
    return value
