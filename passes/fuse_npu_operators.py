"""Gather what the NPU runs as one operator into composite functions named npu.*.

    lookup(conv2d(x, w, b, m), table)  ->  npu.conv2d_lookup(x)
    conv2d(x, w, b, m)                 ->  npu.conv2d(x)             and so on, one an operator

Only what the target takes is gathered, the larger form first, so that where a fused form is
refused its parts still go to the NPU. What stays behind has its reason in `reasons`, by ONNX node.
Run it when layouts are final; `partition` needs its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_op, wildcard

from tilewright.passes.base import module_pass
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.npu_operators import (
    BUILDERS,
    NotOnNpuError,
    Site,
    constant,
    dense_image,
    operators_of,
)
from tilewright.passes.npu_views import may_be_in_region
from tilewright.passes.placement_reasons import PlacementReasons
from tilewright.passes.reasons import reasons_of
from tilewright.schedules.backends import backend_of
from tilewright.targets.description import Npu
from tilewright.targets.operators import Conv2d, Operator

WITH_LOOKUP = ("tilewright.conv2d", "tilewright.dense")
ARGUMENTS = {
    "tilewright.conv2d": 4,
    "tilewright.dense": 4,
    "tilewright.matmul": 2,
    "tilewright.add": 2,
    "tilewright.subtract": 2,
    "tilewright.multiply": 2,
    "tilewright.lookup": 2,
    "tilewright.max_pool2d": 1,
    "tilewright.avg_pool2d": 1,
    "relax.nn.pad": 1,
}


def fuse_npu_operators(npu: Npu, reasons: PlacementReasons) -> tvm.transform.Pass:
    """The pass for one NPU; fills `reasons` for every operator left behind."""

    def is_taken(context: relax.transform.PatternCheckContext) -> bool:
        matched = dict(context.matched_bindings.items())
        calls = [value for value in matched.values() if isinstance(value, relax.Call)]
        calls.sort(key=lambda call: call.op.name == "tilewright.lookup")
        if any(reasons.demands.get(n) == "cpu" for call in calls for n in onnx_nodes_of(call)):
            return False
        return not _escapes(context, matched) and refusal(npu, calls) is None

    def rewrite(module: tvm.IRModule) -> tvm.IRModule:
        _record_reasons(module, npu, reasons)
        no_annotations: dict[str, DFPattern] = {}
        patterns = [(name, pattern, no_annotations, is_taken) for name, pattern in _patterns()]
        return relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(module)

    rewrite.__name__ = "fuse_npu_operators"
    return module_pass(rewrite)


def _patterns() -> list[tuple[str, DFPattern]]:
    fused = [
        (f"npu.{op.split('.')[-1]}_lookup", is_op("tilewright.lookup")(_call(op), wildcard()))
        for op in WITH_LOOKUP
    ]
    return fused + [(f"npu.{op.split('.')[-1]}", _call(op)) for op in BUILDERS]


def _call(op: str) -> DFPattern:
    return is_op(op)(*(wildcard() for _ in range(ARGUMENTS[op])))


def _escapes(
    context: relax.transform.PatternCheckContext, matched: Mapping[relax.Var, relax.Expr]
) -> bool:
    """Whether a value inside the match is also used outside it."""
    last = context.value_to_bound_var.get(context.matched_expr)
    inner = [var for var in matched if last is None or not var.same_as(last)]
    return any(len(context.var_usages.get(var, [])) > 1 for var in inner)


def refusal(npu: Npu, calls: list[relax.Call]) -> tuple[str, str] | None:
    """Why the NPU does not run this operator (and its lookup, if two calls): code and sentence."""
    try:
        output = dense_image("output", calls[-1])
        site = Site("operator", (), lambda expr: dense_image("input", expr), output)
        operators = operators_of(calls[0], site)
        if len(calls) == 2:
            operators = [_with_lookup(operator, calls[1]) for operator in operators]
    except NotOnNpuError as reason:
        return reason.code, reason.text
    backend = backend_of(npu)
    refusals = (backend.refuses(npu, operator) for operator in operators)
    found = next((found for found in refusals if found), None)
    return (found.code, found.text) if found else None


def _with_lookup(operator: Operator, lookup: relax.Call) -> Operator:
    if not isinstance(operator, Conv2d):
        raise NotOnNpuError("fused-lookup", "only convolution and dense take a table on the way")
    return replace(operator, lookup=constant(lookup.args[1]).view(np.uint8))


def _record_reasons(module: tvm.IRModule, npu: Npu, reasons: PlacementReasons) -> None:
    def visit(expr: Any) -> None:
        if not isinstance(expr, relax.Call) or not hasattr(expr.op, "name"):
            return
        if may_be_in_region(expr, npu.layout.dram_channels_multiple):
            return
        nodes = onnx_nodes_of(expr)
        by_hand = [node for node in nodes if reasons.demands.get(node) == "cpu"]
        if by_hand:
            reasons.refuse(nodes, "placed-by-hand", "placed on the CPU by hand")
        elif not isinstance(expr.ty, relax.TensorType):
            reasons.refuse(nodes, "several-results", f"{expr.op.name} has several results")
        elif (found := refusal(npu, [expr])) is not None:
            reasons.refuse(nodes, *found)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            for node, text in reasons_of(function).items():
                reasons.refuse([node], "not-recognised", text)
            relax.analysis.post_order_visit(function, visit)
