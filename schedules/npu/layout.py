"""How a buffer lies in the SRAM when it stays there as a whole.

In DRAM a buffer is bytes, and its tensors are views with byte pitches. The NPU reads and writes
whole groups of channels, so in the SRAM every pixel starts at a multiple of the alignment:

    byte p * pixel_bytes + c of the buffer  ->  byte p * sram_pixel_bytes + c of the SRAM

with sram_pixel_bytes = pixel_bytes rounded up. A buffer whose views do not agree on a pixel, or
whose written views would spill into a neighbour, cannot stay and goes through the DRAM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.npu.geometry import round_up
from tilewright.targets.operators import Tensor


@dataclass(frozen=True)
class View:
    """A tile in the SRAM: address and pitches in bytes."""

    address: int
    row_pitch: int
    pixel_pitch: int

    def at(self, row: int, column: int, channel: int = 0) -> View:
        address = self.address + row * self.row_pitch + column * self.pixel_pitch + channel
        return View(address, self.row_pitch, self.pixel_pitch)


@dataclass(frozen=True)
class Layout:
    pixel_bytes: int
    sram_pixel_bytes: int
    nbytes: int  # in the SRAM
    alignment: int

    def view(self, tensor: Tensor, base: int) -> View:
        """`tensor` when its buffer starts at SRAM address `base`."""
        address = base + self._stretch(tensor.offset)
        several = tensor.height * tensor.width > 1
        pixel = self._stretch(tensor.pitch_x) if several else tensor.channels
        pixel = round_up(pixel, self.alignment)
        row = self._stretch(tensor.pitch_y) if tensor.height > 1 else tensor.width * pixel
        return View(address, row, pixel)

    def pixels_until(self, tensor: Tensor, row: int) -> int:
        """Pixels from the start of the buffer to the end of row `row` of `tensor`."""
        last = tensor.offset + row * tensor.pitch_y + (tensor.width - 1) * tensor.pitch_x
        return -(-(last + tensor.channels) // self.pixel_bytes)

    def _stretch(self, position: int) -> int:
        pixel, channel = divmod(position, self.pixel_bytes)
        return pixel * self.sram_pixel_bytes + channel


def find_layout(
    nbytes: int, reads: Sequence[Tensor], writes: Sequence[Tensor], alignment: int
) -> Layout | None:
    """The layout that serves all views of a buffer of `nbytes`, or None."""
    views = [*reads, *writes]
    pixel = min((t.pitch_x for t in views if t.height * t.width > 1), default=nbytes)
    stretched = round_up(pixel, alignment)
    if not all(_fits(tensor, pixel, stretched, alignment) for tensor in views):
        return None
    if any(_spills(tensor, views, pixel, stretched, alignment) for tensor in writes):
        return None
    pixels = -(-nbytes // pixel)
    return Layout(pixel, stretched, round_up(pixels * stretched, alignment), alignment)


def _fits(tensor: Tensor, pixel: int, stretched: int, alignment: int) -> bool:
    """Every group of channels of `tensor` starts aligned and pixels map to pixels."""
    several_rows, several = tensor.height > 1, tensor.height * tensor.width > 1
    if stretched == pixel:
        pitches = [tensor.pitch_x] * several + [tensor.pitch_y] * several_rows
        return all(step % alignment == 0 for step in [tensor.offset, *pitches])
    channel = tensor.offset % pixel
    return (
        channel % alignment == 0
        and channel + tensor.channels <= pixel
        and (not several or tensor.pitch_x % pixel == 0)
        and (not several_rows or tensor.pitch_y % pixel == 0)
    )


def _spills(
    written: Tensor, views: Sequence[Tensor], pixel: int, stretched: int, alignment: int
) -> bool:
    """Writing whole groups of channels would reach another view's channels."""
    low = written.offset % pixel
    end = low + written.channels
    whole = low + round_up(written.channels, alignment)
    if whole == end:
        return False
    if written.height * written.width > 1 and whole > stretched:
        return True
    return any(
        view.offset % pixel < whole and view.offset % pixel + view.channels > end for view in views
    )
