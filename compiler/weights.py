"""The one blob of constants that an artifact carries, each constant once."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Weights:
    """Constants at multiples of `alignment` bytes; equal bytes share one place."""

    alignment: int = 64
    _blob: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def add(self, data: bytes) -> int:
        """The byte offset at which `data` lies."""
        if data not in self._places:
            self._blob.extend(bytes(-len(self._blob) % self.alignment))
            self._places[data] = len(self._blob)
            self._blob.extend(data)
        return self._places[data]

    def blob(self) -> bytes:
        """All constants so far."""
        return bytes(self._blob)
