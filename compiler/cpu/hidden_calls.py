"""Keep calls of NPU regions and free views out of the sight of TVM's passes.

    y = npu_region_0(x)  ->  y = call_dps_packed("tilewright.hidden.0", x)

TVM would fuse or legalise them; as calls of packed functions it leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from tilewright.passes.constants import op_name
from tilewright.passes.rewriter import Rewriter, substitute, variables_in
from tilewright.passes.views import free_views

PREFIX = "tilewright.hidden."


def hide_calls(main: relax.Function) -> tuple[relax.Function, list[relax.Call]]:
    """`main` with region calls and free views hidden, and what was hidden, by number."""
    free = free_views(main)
    visited = iter(
        binding.var
        for block in main.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call | relax.TupleGetItem)
    )
    hidden: list[relax.Call] = []

    def hide(value: relax.Expr) -> relax.Expr | None:
        var = next(visited)
        is_region = isinstance(getattr(value, "op", None), tvm.ir.GlobalVar)
        if not is_region and var not in free:
            return None
        hidden.append(value)
        types = list(value.ty.fields) if isinstance(value.ty, relax.TupleType) else value.ty
        name = f"{PREFIX}{len(hidden) - 1}"
        return relax.call_dps_packed(name, list(variables_in(value)), types)

    return Rewriter(main).run(hide), hidden


def restore_calls(
    module: tvm.IRModule, regions: Mapping[str, relax.Function], hidden: Sequence[relax.Call]
) -> tvm.IRModule:
    """`module` with what `hide_calls` hid, on the variables that now stand for its arguments."""
    builder = relax.BlockBuilder(module)
    symbols = {name: builder.add_func(function, name) for name, function in regions.items()}

    def restore(value: relax.Expr) -> relax.Expr | None:
        if op_name(value) != "relax.call_dps_packed":
            return None
        symbol = str(value.args[0].global_symbol)
        if not symbol.startswith(PREFIX):
            return None
        call = hidden[int(symbol.removeprefix(PREFIX))]
        pairs = zip(variables_in(call), value.args[1].fields, strict=True)
        arguments = {old: new for old, new in pairs if not old.same_as(new)}
        moved = substitute(call, arguments)
        if isinstance(call.op, tvm.ir.GlobalVar):
            return relax.Call(symbols[call.op.name_hint], moved.args)
        return relax.Call(call.op, moved.args, call.attrs)

    updated = tvm.IRModule(builder.get().functions, attrs=module.attrs)
    updated["main"] = Rewriter(module["main"]).run(restore)
    return updated
