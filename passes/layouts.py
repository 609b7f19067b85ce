"""Arithmetic of axis orders: x = permute(y, order), where axis i of x is axis order[i] of y."""

from __future__ import annotations

from collections.abc import Sequence

TO_NHWC = [0, 2, 3, 1]
TO_NCHW = [0, 3, 1, 2]
OIHW_TO_HWIO = [2, 3, 1, 0]
SPATIAL_AXES = {"NCHW": (2, 3), "NHWC": (1, 2)}


def join_orders(inner: Sequence[int], outer: Sequence[int]) -> list[int]:
    """The one permutation that does `inner`, then `outer`."""
    return [inner[axis] for axis in outer]


def inverse_order(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return [list(order).index(axis) for axis in range(len(order))]


def is_identity(order: Sequence[int]) -> bool:
    """Whether the permutation changes nothing."""
    return list(order) == list(range(len(order)))


def moves_no_element(order: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether permuting a tensor of `shape` leaves every element at its place in memory.

    It does when only axes of extent 1 change places; the permutation is then a reshape.
    """
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def order_without(order: Sequence[int], dropped: Sequence[int]) -> list[int]:
    """The order left over when the axes `dropped` (of the unpermuted tensor) are reduced away."""
    kept = [axis for axis in order if axis not in dropped]
    return [sorted(kept).index(axis) for axis in kept]
