"""A model that a board has no room for: what is lacking, and what would help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.compiler import compile_model
from tilewright.compiler.memory_limits import Shortage
from tilewright.targets.description import BOARDS, Target, parse_target
from tilewright.targets.errors import MemoryLimitError

MODELS = Path(__file__).parents[1] / "models"


def small_board(arena_kib: int, flash_kib: int) -> Target:
    cpu = (BOARDS / "raspberry-pi-4.toml").read_text().partition("[memory]")[0]
    limits = f"arena_limit_kib = {arena_kib}\nflash_limit_kib = {flash_kib}\nreserve_percent = 10\n"
    return parse_target(f"{cpu}\n[memory]\n{limits}", "small.toml")


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", text)]


def test_every_region_and_remedy_is_told() -> None:
    with pytest.raises(MemoryLimitError) as error:
        compile_model(
            MODELS / "mtcnn_rnet_fp32.onnx", small_board(50, 100), {"input_2": (4, 24, 24, 3)}
        )
    facts, _, remedies = str(error.value).partition(" What would help: ")
    assert facts.startswith("raspberry-pi-4: the arena needs ")
    arena, flash = facts.split("; ")
    for text, kib in ((arena, 50), (flash, 100)):
        required, available, limit, reserve, excess = numbers(text.replace("pi-4", ""))
        assert limit == kib * 1024
        assert (reserve, available) == (limit - limit * 9 // 10, limit * 9 // 10)
        assert excess == required - available > 0
    batch, int8_arena, int8_flash, *boards, last = remedies.split("; ")
    assert batch.startswith("batch 1 instead of 4: an arena of ")
    single = compile_model(
        MODELS / "mtcnn_rnet_fp32.onnx", "raspberry-pi-4", {"input_2": (1, 24, 24, 3)}
    )
    assert numbers(batch)[0] == single.report["totals"]["arena_bytes"]
    assert "about" in int8_arena and "bytes of arena, estimated" in int8_arena
    assert "bytes of flash, estimated" in int8_flash
    assert boards and all(board.startswith("board ") for board in boards)
    assert last == "or raise the limits in [memory] if the board has more"


def test_what_fits_is_compiled() -> None:
    compile_model(MODELS / "mnist_conv_fp32.onnx", small_board(4096, 4096))


def test_a_shortage_without_a_reserve() -> None:
    assert str(Shortage("flash", 3000, 2048, 2048)) == (
        "the flash needs 3,000 bytes, 2,048 are available: 952 too many"
    )
