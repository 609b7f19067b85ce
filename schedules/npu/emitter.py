"""The moving parts every operator's emission shares: slots in the SRAM, loads, stores, tiles.

Instructions are appended in program order as if they ran one after the other; `waits` works out
afterwards what may overlap. Loading early is a matter of having two slots, not of order here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.schedules.npu.constants import Block, Range
from tilewright.schedules.npu.geometry import Covered
from tilewright.schedules.npu.layout import Layout, View
from tilewright.schedules.npu.region_plan import Image, OperatorPlan, RegionPlan
from tilewright.targets import isa
from tilewright.targets.operators import Tensor

_LARGEST_COUNT = 65535


@dataclass
class Ring:
    """Equal slots filled in turn; `find` tells whether `key` has to be loaded."""

    address: int
    slot_bytes: int
    slots: int
    held: dict[int, Hashable] = field(default_factory=dict)
    turn: int = 0

    @staticmethod
    def of(step: OperatorPlan, name: str) -> Ring:
        """The ring called `name` of an operator: input0, input1, weights, tables or output."""
        slot_bytes, slots = step.tiling.rings[name]
        return Ring(step.addresses.get(name, 0), slot_bytes, slots)

    def find(self, key: Hashable) -> tuple[int, bool]:
        """The slot's address for `key`, and whether it still holds something else."""
        for slot, holds in self.held.items():
            if holds == key:
                return self.address + slot * self.slot_bytes, False
        slot, self.turn = self.turn, (self.turn + 1) % max(self.slots, 1)
        self.held[slot] = key
        return self.address + slot * self.slot_bytes, True


@dataclass(frozen=True)
class Tile:
    """Ranges of an operator's output."""

    rows: Range
    columns: Range
    channels: Range

    @property
    def height(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def width(self) -> int:
        return self.columns[1] - self.columns[0]

    @property
    def depth(self) -> int:
        return self.channels[1] - self.channels[0]

    @property
    def pixels(self) -> int:
        return self.height * self.width


@dataclass
class Emitter:
    """Builds the program of one region; offsets are bytes of the arena and of the constants."""

    plan: RegionPlan
    buffer_offsets: Mapping[str, int]
    constants_offset: int
    instructions: list[isa.Instruction] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    step: int = 0
    next_accumulator: int = 0
    loaded_pixels: dict[str, int] = field(default_factory=dict)
    loaded_images: dict[Image, int] = field(default_factory=dict)

    def add(self, instruction: isa.Instruction) -> None:
        self.instructions.append(instruction)
        self.steps.append(self.step)

    def accumulators(self, elements: int) -> int:
        """The address of as many accumulators, going round the buffer."""
        capacity = self.plan.npu.accumulator_bytes // 4
        if self.next_accumulator + elements > capacity:
            self.next_accumulator = 0
        address, self.next_accumulator = self.next_accumulator, self.next_accumulator + elements
        return address

    def constants(self, step: OperatorPlan, ring: Ring, key: Hashable, block: Block) -> int:
        """The address of a block of constants, loaded if need be."""
        if step.image is not None:
            end = block.offset + block.nbytes - step.image.offset
            self._load_image(step.image, end)
            return step.image.address + block.offset - step.image.offset
        address, is_new = ring.find(key)
        if is_new:
            offset = self.constants_offset + block.offset
            self.add(_run(isa.Load, isa.DramRegion.CONSTANTS, offset, address, block.nbytes))
        return address

    def _load_image(self, image: Image, until: int) -> None:
        """Bring an image as far as `until`, and on for as long as makes a worthwhile transfer.

        The first image of all comes piecemeal, since nothing runs yet that could hide more.
        """
        start = self.loaded_images.get(image, 0)
        if until <= start:
            return
        if self.loaded_images:
            until = min(max(until, start + self.plan.transfer_bytes), image.nbytes)
        self.loaded_images[image] = until
        offset = self.constants_offset + image.offset + start
        address = image.address + start
        self.add(_run(isa.Load, isa.DramRegion.CONSTANTS, offset, address, until - start))

    def move(
        self,
        kind: type[isa.Load] | type[isa.Store],
        tensor: Tensor,
        rows: Range,
        columns: Range,
        channels: Range,
        view: View,
        gaps: bool = False,
    ) -> None:
        """A tile of `tensor` between the DRAM and `view`, which is where the tile starts.

        Pixels that lie the same on both sides are one run; with `gaps` the bytes between the
        pixels' channels may come along, which only a slot of one's own allows.
        """
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        depth = channels[1] - channels[0]
        dram = self.buffer_offsets[tensor.buffer] + tensor.offset + channels[0]
        dram += rows[0] * tensor.pitch_y + columns[0] * tensor.pitch_x
        same = tensor.pitch_x == view.pixel_pitch
        run, counts = depth, (width, height)
        strides = ((tensor.pitch_x, tensor.pitch_y), (view.pixel_pitch, view.row_pitch))
        if same and (depth == tensor.pitch_x or gaps):
            run, counts = (width - 1) * tensor.pitch_x + depth, (height, 1)
            strides = ((tensor.pitch_y, 0), (view.row_pitch, 0))
            if tensor.pitch_y == view.row_pitch and tensor.pitch_y == width * tensor.pitch_x:
                run, counts = run + (height - 1) * tensor.pitch_y, (1, 1)
        self.add(
            kind(
                region=isa.DramRegion.ARENA,
                dram_offset=dram,
                sram_address=view.address,
                run_bytes=run,
                count_1=counts[0],
                count_2=counts[1],
                dram_stride_1=strides[0][0] if counts[0] > 1 else 0,
                dram_stride_2=strides[0][1] if counts[1] > 1 else 0,
                sram_stride_1=strides[1][0] if counts[0] > 1 else 0,
                sram_stride_2=strides[1][1] if counts[1] > 1 else 0,
            )
        )

    def load_whole(self, buffer: str, until: int) -> None:
        """Bring the first `until` pixels of a buffer that stays, as far as they are not there."""
        resident = self.plan.residents[buffer]
        start = self.loaded_pixels.get(buffer, 0)
        if not resident.is_loaded or until <= start:
            return
        self.loaded_pixels[buffer] = until
        layout, offset = resident.layout, self.buffer_offsets[buffer]
        nbytes = self.plan.region.buffer_bytes[buffer]
        dram = offset + start * layout.pixel_bytes
        address = resident.address + start * layout.sram_pixel_bytes
        if layout.pixel_bytes == layout.sram_pixel_bytes:
            end = min(until * layout.pixel_bytes, nbytes)
            run = end - start * layout.pixel_bytes
            self.add(_run(isa.Load, isa.DramRegion.ARENA, dram, address, run))
            return
        whole = min(until, nbytes // layout.pixel_bytes)
        for first in range(start, whole, _LARGEST_COUNT):
            pixels = min(whole - first, _LARGEST_COUNT)
            self.add(_pixel_load(offset, resident.address, layout, first, pixels))
        if until > whole:  # the buffer ends within its last pixel
            dram = offset + whole * layout.pixel_bytes
            address = resident.address + whole * layout.sram_pixel_bytes
            rest = nbytes - whole * layout.pixel_bytes
            self.add(_run(isa.Load, isa.DramRegion.ARENA, dram, address, rest))


def _run(
    kind: type[isa.Load] | type[isa.Store], region: int, offset: int, address: int, nbytes: int
) -> isa.Instruction:
    return kind(
        region=region,
        dram_offset=offset,
        sram_address=address,
        run_bytes=nbytes,
        count_1=1,
        count_2=1,
        dram_stride_1=0,
        dram_stride_2=0,
        sram_stride_1=0,
        sram_stride_2=0,
    )


def _pixel_load(
    offset: int, address: int, layout: Layout, first: int, pixels: int
) -> isa.Instruction:
    """Pixels first..first + pixels of a whole buffer, each to its stretched place."""
    return isa.Load(
        region=isa.DramRegion.ARENA,
        dram_offset=offset + first * layout.pixel_bytes,
        sram_address=address + first * layout.sram_pixel_bytes,
        run_bytes=layout.pixel_bytes,
        count_1=pixels,
        count_2=1,
        dram_stride_1=layout.pixel_bytes,
        dram_stride_2=0,
        sram_stride_1=layout.sram_pixel_bytes,
        sram_stride_2=0,
    )


@dataclass
class Input:
    """One operand of an operator: a view of what stays, or a ring of loaded tiles."""

    emitter: Emitter
    tensor: Tensor
    ring: Ring | None  # None: the buffer stays in the SRAM

    @staticmethod
    def of(emitter: Emitter, step: OperatorPlan, tensor: Tensor, name: str) -> Input:
        if tensor.buffer in emitter.plan.residents:
            return Input(emitter, tensor, None)
        return Input(emitter, tensor, Ring.of(step, name))

    def tile(self, rows: Covered, columns: Covered, channels: Range) -> View:
        """Where the covered rows and columns of these channels lie, loaded if need be."""
        if self.ring is None:
            resident = self.emitter.plan.residents[self.tensor.buffer]
            self.emitter.load_whole(
                self.tensor.buffer, resident.layout.pixels_until(self.tensor, rows.high - 1)
            )
            view = resident.layout.view(self.tensor, resident.address)
            return view.at(rows.low, columns.low, channels[0])
        key = (rows.low, rows.high, columns.low, columns.high, channels)
        address, is_new = self.ring.find(key)
        pixel = self.emitter.plan.npu.aligned_channels(channels[1] - channels[0])
        view = View(address, pixel * (columns.high - columns.low), pixel)
        if is_new:
            self.emitter.move(
                isa.Load,
                self.tensor,
                (rows.low, rows.high),
                (columns.low, columns.high),
                channels,
                view,
                gaps=True,
            )
        return view


@dataclass
class Output:
    """An operator's output: written where it stays, or in slots; stored where it must be."""

    emitter: Emitter
    tensor: Tensor
    ring: Ring | None
    stored: bool

    @staticmethod
    def of(emitter: Emitter, step: OperatorPlan) -> Output:
        tensor = step.work.output
        if tensor.buffer in emitter.plan.residents:
            return Output(emitter, tensor, None, step.residency.stored)
        return Output(emitter, tensor, Ring.of(step, "output"), step.residency.stored)

    def open(self, tile: Tile) -> View:
        """Where the tile is to be written."""
        if self.ring is None:
            resident = self.emitter.plan.residents[self.tensor.buffer]
            view = resident.layout.view(self.tensor, resident.address)
            return view.at(tile.rows[0], tile.columns[0], tile.channels[0])
        address, _ = self.ring.find(tile)
        pixel = self.emitter.plan.npu.aligned_channels(tile.depth)
        return View(address, pixel * tile.width, pixel)

    def close(self, tile: Tile, view: View) -> None:
        """The tile is written: store it if it is to reach the DRAM."""
        if self.stored:
            self.emitter.move(isa.Store, self.tensor, tile.rows, tile.columns, tile.channels, view)


def float32(value: float) -> float:
    """The float32 nearest to `value`, which is what an instruction holds."""
    return float(np.float32(value))
