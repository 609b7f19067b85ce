"""Where things stand in an artifact directory, and the names a model has in C."""

from __future__ import annotations

import re

SCHEMA_VERSION = 1

MANIFEST = "manifest.json"
REPORT = "report.json"
TARGET = "target.toml"
BOARD = "board"
QUANTIZED = "quantized.onnx"  # what was compiled, where it was made of a float model on the way
HOST_LIBRARY = "host/libmodel.so"
BOARD_LIBRARY = "board/libmodel.a"
BOARD_SHARED_LIBRARY = "board/libmodel.so"
WEIGHTS = "board/weights.bin"
STREAMS = "board/streams"

# Cache lines and the widest vector registers of every CPU we know; the NPU asks for less.
ARENA_ALIGNMENT = 64
WEIGHT_ALIGNMENT = 64

_TAKEN = ("tilewright", "npu")


def c_name(model: str) -> str:
    """The prefix of the model's C names: `resnet-8` is `resnet_8`, `8bit` is `model_8bit`.

    Names our own headers use, and those C reserves, get the prefix `model_` too.
    """
    name = re.sub(r"[^0-9A-Za-z_]", "_", model)
    first_word = name.partition("_")[0]
    if not name or not name[0].isalpha() or first_word in _TAKEN:
        return f"model_{name}"
    return name


def stream_file(symbol: str) -> str:
    """Where the command stream of an NPU step stands, relative to the artifact."""
    return f"{STREAMS}/{symbol}.bin"
