"""Time command streams on a board: a command that prints the microseconds a stream took.

    COMMAND STREAM_FILE CONSTANTS_FILE ARENA_BYTES

The command runs the stream once or often, through the board's driver (npu_driver.h), and prints one
number. `python -m tilewright.targets.simulated_board BOARD.toml` is such a command for a simulated
board.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tilewright.targets.errors import ProfileError

# Microseconds of a stream with its constants, in an arena of so many bytes.
BoardTimer = Callable[[bytes, bytes, int], float]


def command_timer(command: str) -> BoardTimer:
    """Runs `command` for each stream; ProfileError when it fails or prints no number."""

    def time(stream: bytes, constants: bytes, arena_bytes: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / "stream.bin", Path(folder) / "constants.bin"]
            for path, content in zip(files, (stream, constants), strict=True):
                path.write_bytes(content)
            return _run([*shlex.split(command), *map(str, files), str(arena_bytes)], command)

    return time


def _run(arguments: list[str], command: str) -> float:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ProfileError(f"{command}: cannot be run: {error.strerror}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProfileError(f"{command}: failed with exit code {done.returncode}: {last}")
    try:
        return float(done.stdout.split()[-1])
    except (IndexError, ValueError):
        shown = done.stdout.strip()[:60]
        raise ProfileError(
            f"{command}: printed {shown!r}; the last word must be the microseconds taken"
        ) from None
