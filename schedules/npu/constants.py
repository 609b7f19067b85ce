"""Pack weights and tables in the order and the form the hardware loads them.

One block a tile of output channels and of the reduction:

    weights   for each piece [taps][input channels][output channels, padded to whole groups]
    tables    int32 biases, one table a piece, and float32 multipliers, each padded and aligned as
              the description says and in its order; then the 256 bytes of a look-up table

Where the reduction is split, the tables of a tile of output channels are a block of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu.geometry import round_up, split
from tilewright.schedules.npu.grid import one_table_bytes
from tilewright.schedules.npu.tiling import Tiling
from tilewright.schedules.npu.work import Piece, Work, pieces
from tilewright.targets.description import Npu
from tilewright.targets.operators import Conv2d, Lookup, MatMul

Range = tuple[int, int]


@dataclass(frozen=True)
class Tables:
    """Byte offsets in a block: biases one a piece, multipliers, look-up table."""

    biases: tuple[int, ...]
    multipliers: int
    lookup: int
    nbytes: int


@dataclass(frozen=True)
class Block:
    """`nbytes` from `offset` of the constants. Weights lie at `weights`, one offset a piece."""

    offset: int
    nbytes: int
    pieces: tuple[Piece, ...] = ()
    weights: tuple[int, ...] = ()
    tables: Tables | None = None


@dataclass(frozen=True)
class Blocks:
    """`weights` by (output channels, reduction) of the tile, `tables` by its output channels."""

    weights: dict[tuple[Range, Range], Block] = field(default_factory=dict)
    tables: dict[Range, Block] = field(default_factory=dict)


@dataclass
class Constants:
    """The constants of a region as they grow; `alignment` of every block."""

    alignment: int
    data: bytearray = field(default_factory=bytearray)

    def append(self, block: bytes) -> int:
        """The offset at which `block` now lies."""
        self.data.extend(bytes(-len(self.data) % self.alignment))
        self.data.extend(block)
        return len(self.data) - len(block)


def pack_constants(work: Work, tiling: Tiling, npu: Npu, constants: Constants) -> Blocks:
    """Append all blocks of an operator, in the order its loops first need them."""
    blocks = Blocks()
    if work.multiply is None:
        if work.table_bytes:
            blocks.tables[0, work.output.channels] = _append_tables(work, (), 0, 0, npu, constants)
        return blocks
    whole = -(-work.multiply.reduction // tiling.reduction) == 1
    if isinstance(work.operator, MatMul):
        table = _append_tables(work, (), 0, tiling.channels, npu, constants)
        for channels in split(work.output.channels, tiling.channels):
            blocks.tables[channels] = table
        return blocks
    for low, high in split(work.output.channels, tiling.channels):
        parts = pieces(work, low, high, npu.channel_alignment)
        if not whole:
            blocks.tables[low, high] = _append_tables(work, parts, low, high, npu, constants)
        for inner in split(work.multiply.reduction, tiling.reduction):
            if not whole:
                parts = [Piece(low, high, *inner)]
            block = _append_weights(work, parts, whole, npu, constants)
            blocks.weights[(low, high), inner] = block
    return blocks


def _append_weights(
    work: Work, parts: Sequence[Piece], with_tables: bool, npu: Npu, constants: Constants
) -> Block:
    data, places = bytearray(), []
    for piece in parts:
        places.append(len(data))
        data.extend(_piece_weights(work, piece, npu).tobytes())
    data.extend(bytes(-len(data) % npu.tables.alignment))
    tables = None
    if with_tables:
        low, high = parts[0].low, parts[-1].high
        tables = _place_tables(work, parts, high - low, len(data), npu)
        data.extend(_table_bytes(work, parts, low, high, tables, npu)[len(data) :])
    offset = constants.append(bytes(data))
    return Block(offset, len(data), tuple(parts), tuple(places), tables)


def _append_tables(
    work: Work, parts: Sequence[Piece], low: int, high: int, npu: Npu, constants: Constants
) -> Block:
    tables = _place_tables(work, parts, high - low, 0, npu)
    data = _table_bytes(work, parts, low, high, tables, npu)
    return Block(constants.append(data), len(data), tables=tables)


def _place_tables(
    work: Work, parts: Sequence[Piece], channels: int, start: int, npu: Npu
) -> Tables:
    """Where each table of a block lies, the first at `start`."""
    sizes = [int(one_table_bytes(piece.high - piece.low, npu)) for piece in parts]
    multipliers = int(one_table_bytes(channels, npu)) if work.multiply else 0
    bias_first = npu.tables.order == "bias_first"
    at = start + (0 if bias_first else multipliers)
    biases = []
    for size in sizes:
        biases.append(at)
        at += size
    at_multipliers = at if bias_first else start
    lookup = start + sum(sizes) + multipliers
    end = lookup + round_up(work.table_bytes, npu.tables.alignment)
    return Tables(tuple(biases), at_multipliers, lookup, end)


def _table_bytes(
    work: Work, parts: Sequence[Piece], low: int, high: int, tables: Tables, npu: Npu
) -> bytes:
    """A block of zeros up to the first table, then the tables."""
    data = bytearray(tables.nbytes)

    def put(offset: int, values: NDArray[np.generic]) -> None:
        data[offset : offset + values.nbytes] = values.tobytes()

    match work.operator:
        case Conv2d():
            for offset, piece in zip(tables.biases, parts, strict=True):
                put(offset, work.operator.bias.astype("<i4")[piece.low : piece.high])
            put(tables.multipliers, work.operator.multiplier.astype("<f4")[low:high])
            if work.operator.lookup is not None:
                put(tables.lookup, work.operator.lookup)
        case MatMul():
            count = npu.table_channels(high - low)
            put(tables.multipliers, np.full(count, work.operator.multiplier, "<f4"))
        case Lookup():
            put(tables.lookup, work.operator.table)
    return bytes(data)


def _piece_weights(work: Work, piece: Piece, npu: Npu) -> NDArray[np.uint8]:
    """[taps][input channels of the window][output channels, padded] as raw bytes."""
    conv = work.operator
    assert isinstance(conv, Conv2d)
    multiply = work.multiply
    assert multiply is not None
    raw = conv.weight.view(np.uint8).reshape(multiply.taps, -1, conv.output.channels)
    depth = 1 if multiply.depthwise else piece.last - piece.first
    zero = np.uint8(conv.weight_zero & 0xFF)
    width = npu.aligned_channels(piece.high - piece.low)
    packed = np.full((multiply.taps, depth, width), zero, np.uint8)
    if multiply.depthwise:
        packed[:, 0, : piece.high - piece.low] = raw[:, 0, piece.low : piece.high]
    elif not multiply.bundle:
        wanted = raw[:, piece.first : piece.last, piece.low : piece.high]
        packed[:, :, : piece.high - piece.low] = wanted
    else:
        inner, outer = raw.shape[1], conv.output.channels // conv.groups
        for group in range(piece.low // outer, -(-piece.high // outer)):
            rows = slice(group * inner - piece.first, (group + 1) * inner - piece.first)
            columns = slice(group * outer, (group + 1) * outer)
            at = group * outer - piece.low
            packed[:, rows, at : at + outer] = raw[:, :, columns]
    return packed
