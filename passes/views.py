"""Decide which rearrangements cost nothing: views with offset and strides, or one copy each.

    slice, permute, reshape   ->  a view of what they rearrange, while every reader can address it
    concat                    ->  each part is written straight into its place, where its producer
                                  can write there and its other readers can read there
    otherwise                 ->  one copy, where the fewest bytes are moved

`plan_views` changes nothing; it says for each variable where it lies. Readers that take strided
images (an NPU's DMA: channels adjacent, any row and pixel pitch) are told from those that want
dense memory (CPU kernels, results of the graph) by `addresses_images`. It is asked about concats
and views too: whether the copies that one may need read and write strided images. Run it on a
graph whose layout and placement are settled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from tilewright.passes.canonicalise import permutation
from tilewright.passes.constants import RESHAPES, dtype_of, op_name, shape_of
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.rewriter import variables_in
from tilewright.passes.strides import Address, dense, permuted, reshaped, sliced

RESULT = "the graph's result"


@dataclass(frozen=True)
class View:
    """The variable lies in `base`'s buffer; a variable with its own buffer is its own base."""

    base: relax.Var
    address: Address


@dataclass(frozen=True)
class Copy:
    """The variable is copied into a dense buffer of its own, because of `consumer`."""

    bytes: int
    cause: str
    consumer: str


@dataclass(frozen=True)
class ViewPlan:
    """Where each variable lies once every copy is made, and the copies, by variable."""

    places: dict[relax.Var, View]
    copies: dict[relax.Var, Copy]


@dataclass
class _Choice:
    """One way to lay out a variable and the views of it."""

    cost: int
    places: dict[relax.Var, View] = field(default_factory=dict)
    copies: dict[relax.Var, Copy] = field(default_factory=dict)

    def including(self, other: _Choice) -> _Choice:
        return _Choice(
            self.cost + other.cost,
            {**self.places, **other.places},
            {**self.copies, **other.copies},
        )


def plan_views(
    function: relax.Function, addresses_images: Callable[[relax.Expr], bool]
) -> ViewPlan:
    """Places and copies for every tensor variable of a straight-line function."""
    return _Planner(function, addresses_images).plan()


class _Planner:
    def __init__(
        self, function: relax.Function, addresses_images: Callable[[relax.Expr], bool]
    ) -> None:
        self.function = function
        self.addresses_images = addresses_images
        bindings = [b for block in function.body.blocks for b in block.bindings]
        self.values: dict[relax.Var, relax.Expr] = {b.var: b.value for b in bindings}
        self.readers: dict[relax.Var, list[relax.Var]] = {}
        for var, value in self.values.items():
            for read in variables_in(value):
                self.readers.setdefault(read, []).append(var)
        self.results = set(variables_in(function.body.body))
        self.joined: dict[relax.Var, View] = {}
        self.copied_parts: dict[relax.Var, Copy] = {}

    def plan(self) -> ViewPlan:
        for var in reversed(list(self.values)):
            if op_name(self.values[var]) == "relax.concat":
                self._place_parts(var)
        chosen = _Choice(0)
        for var in [*self.function.params, *self.values]:
            if isinstance(var.ty, relax.TensorType) and not is_view(self.values.get(var)):
                place = self.joined.get(var, View(var, _own(var)))
                best = self._choose(var, place, None)
                assert best is not None  # since nothing forbids to copy what is no view
                chosen = chosen.including(best)
        return ViewPlan(chosen.places, {**chosen.copies, **self.copied_parts})

    def _place_parts(self, var: relax.Var) -> None:
        """Let the parts of a concat be written into it, or say what copies them."""
        call = self.values[var]
        whole = self.joined.get(var, View(var, _own(var)))
        axis = int(call.attrs.axis) % len(shape_of(var))
        begins = [0] * len(shape_of(var))
        for part in call.args[0].fields:
            address = sliced(whole.address, begins, shape_of(part), [1] * len(begins))
            begins[axis] += shape_of(part)[axis]
            if not isinstance(part, relax.Var):
                continue
            cause = self._why_not_written_into(part, var, address)
            if cause is None:
                self.joined[part] = View(whole.base, address)
            else:
                self.copied_parts[part] = Copy(_own(part).bytes, cause, name_of(var, call))

    def _why_not_written_into(
        self, part: relax.Var, concat: relax.Var, address: Address
    ) -> str | None:
        producer = self.values.get(part)
        if producer is None:
            return "an input of the graph cannot be written elsewhere"
        if is_view(producer):
            return "it is a view of a tensor that lies elsewhere"
        if part in self.joined or self.readers[part].count(concat) > 1:
            return "it is joined in more than one place"
        if part in self.results:
            return "it is a result of the graph too"
        if not self._fits(producer, address):
            return f"{name_of(part, producer)} writes dense memory only"
        for reader in self.readers[part]:
            value = self.values[reader]
            if reader is not concat and not is_view(value) and not self._fits(value, address):
                return f"{name_of(reader, value)} reads dense memory only"
        return None

    def _fits(self, call: relax.Expr, address: Address) -> bool:
        if address.is_dense:
            return True
        is_call = isinstance(call, relax.Call)
        return is_call and address.has_adjacent_channels and self.addresses_images(call)

    def _choose(self, var: relax.Var, place: View, source: Address | None) -> _Choice | None:
        """The cheaper of leaving `var` at `place` and copying it, views of it included.

        None when neither can be: the copy would have to read `source`, the address of what `var`
        views, and cannot; or `var` is a reshape, for which there is no kernel. Then what it views
        is copied, and all is dense.
        """
        unreadable = self._unreadable(var, place.address)
        kept = None if unreadable else self._with_views(var, place)
        is_own = place.base.same_as(var) and place.address.is_dense
        if kept is not None and (is_own or kept.cost == 0):
            return kept
        call = self.values.get(var, var)
        if source is not None and (op_name(call) in RESHAPES or not self._fits(call, source)):
            return kept
        own = View(var, _own(var))
        views = self._with_views(var, own)
        assert views is not None  # since all of them read dense memory
        cause = unreadable or self._unreadable_below(var, place.address) or self._shared(var)
        copy = Copy(own.address.bytes, *cause)
        copied = _Choice(copy.bytes, {}, {var: copy}).including(views)
        return kept if kept is not None and kept.cost <= copied.cost else copied

    def _with_views(self, var: relax.Var, place: View) -> _Choice | None:
        """`var` at `place`, and the best for each view of it; None when one has no way."""
        choice = _Choice(0, {var: place})
        for reader in self._views_of(var):
            address = viewed(self.values[reader], place.address)
            if address is None:
                return None
            best = self._choose(reader, View(place.base, address), place.address)
            if best is None:
                return None
            choice = choice.including(best)
        return choice

    def _views_of(self, var: relax.Var) -> list[relax.Var]:
        return [r for r in self.readers.get(var, []) if is_view(self.values[r])]

    def _unreadable(self, var: relax.Var, address: Address) -> tuple[str, str] | None:
        """(cause, consumer) of the first reader that cannot address `var` there."""
        if var in self.results and not address.is_dense:
            return "results are dense", RESULT
        for reader in self.readers.get(var, []):
            value = self.values[reader]
            name = name_of(reader, value)
            if is_view(value):
                if viewed(value, address) is None:
                    return f"{name} joins axes that do not follow each other in memory", name
            elif not self._is_written_in_place(var, value) and not self._fits(value, address):
                return f"{name} reads dense memory only", name
        return None

    def _unreadable_below(self, var: relax.Var, address: Address) -> tuple[str, str] | None:
        """(cause, consumer) of the first reader of a view of `var` that cannot address it."""
        for reader in self._views_of(var):
            seen = viewed(self.values[reader], address)
            if seen is None:
                continue
            found = self._unreadable(reader, seen) or self._unreadable_below(reader, seen)
            if found:
                return found
        return None

    def _is_written_in_place(self, var: relax.Var, reader: relax.Expr) -> bool:
        """Whether `reader` is the concat that `var` is a part of already."""
        return op_name(reader) == "relax.concat" and var in self.joined

    def _shared(self, var: relax.Var) -> tuple[str, str]:
        """(cause, consumer) when `var` itself could stay but views of it are cheaper dense."""
        reader = self._views_of(var)[0]
        return "one copy serves several views of it", name_of(reader, self.values[reader])


def free_views(function: relax.Function) -> set[relax.Var]:
    """The slices, permutes, reshapes and concats that move nothing where all memory is dense.

    A concat is among them when every part can be written into its place. A strided view is among
    them when only views read it, which end in dense ones: no kernel takes strides.
    """
    plan = plan_views(function, lambda _: False)
    free = set()
    for block in function.body.blocks:
        for binding in block.bindings:
            var, value = binding.var, binding.value
            if op_name(value) == "relax.concat":
                home = plan.places[var].base
                parts = value.args[0].fields
                written = (
                    part in plan.places
                    and part not in plan.copies  # a view of another part lies in `home` as well
                    and plan.places[part].base.same_as(home)
                    for part in parts
                )
                if all(written):
                    free.add(var)
            elif is_view(value) and not plan.places[var].base.same_as(var):
                free.add(var)
    return free


def needed_copies(function: relax.Function) -> dict[str, Copy]:
    """What must be copied where all memory is dense, by the user's name for what is copied.

    A concat that cannot take its parts in stands under its own name, with the cause of the first.
    """
    plan = plan_views(function, lambda _: False)
    values = {b.var: b.value for block in function.body.blocks for b in block.bindings}
    copies: dict[str, Copy] = {}
    for var, copy in plan.copies.items():
        copies[name_of(var, values[var]) if var in values else str(var.name)] = copy
    for var, value in values.items():
        if op_name(value) == "relax.concat":
            parts = (part for part in value.args[0].fields if part in plan.copies)
            for first in (plan.copies[part] for part in list(parts)[:1]):
                whole = Copy(_own(var).bytes, first.cause, first.consumer)
                copies.setdefault(name_of(var, value), whole)
    return copies


def is_view(value: relax.Expr | None) -> bool:
    """Whether `value` only rearranges one tensor."""
    name = "" if value is None else op_name(value)
    return name in (*RESHAPES, "relax.permute_dims") or (
        name == "relax.strided_slice" and window_of(value) is not None
    )


def viewed(call: relax.Call, source: Address) -> Address | None:
    """Where the result of a view lies in its source's buffer; None when it can only be copied."""
    if op_name(call) == "relax.permute_dims":
        return permuted(source, permutation(call))
    window = window_of(call)
    if window is not None:
        return sliced(source, window[0], shape_of(call), window[1])
    return reshaped(source, shape_of(call))


def window_of(call: relax.Expr) -> tuple[list[int], list[int]] | None:
    """(begins, steps) along each axis of a slice that runs forward; None for what is not that."""
    if op_name(call) != "relax.strided_slice":
        return None
    shape = shape_of(call.args[0])
    axes, firsts, _lasts, *rest = ([int(v) for v in part.fields] for part in call.args[1:])
    begins, steps = [0] * len(shape), [1] * len(shape)
    for position, axis in enumerate(axes):
        first = firsts[position] + (shape[axis] if firsts[position] < 0 else 0)
        begins[axis] = min(max(first, 0), shape[axis])
        steps[axis] = rest[0][position] if rest else 1
    return None if min(steps, default=1) < 1 else (begins, steps)


def name_of(var: relax.Var, value: relax.Expr) -> str:
    """The user's name for the node that made `var`."""
    return next(iter(onnx_nodes_of(value)), str(var.name))


def _own(var: relax.Var) -> Address:
    itemsize = math.ceil(np.dtype(dtype_of(var)).itemsize)
    return dense(shape_of(var), itemsize)
