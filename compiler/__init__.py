"""Tilewright's public calls: compile a model, load what was compiled.

Importing this is cheap; TVM is loaded when something is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnx

    from tilewright.compiler.artifact import Artifact
    from tilewright.compiler.compile import Options
    from tilewright.compiler.quantize import Quantized, QuantizeOptions
    from tilewright.compiler.quantize.data import Data
    from tilewright.targets.description import Target

__all__ = ["compile_model", "load_artifact"]


def compile_model(
    model: str | os.PathLike[str] | onnx.ModelProto,
    target: str | os.PathLike[str] | Target,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    fallback: bool = True,
    placements: Mapping[str, Literal["cpu", "npu"]] | None = None,
    db: str | os.PathLike[str] | None = None,
    dump: str | os.PathLike[str] | None = None,
    time_passes: bool = False,
    verify: bool = False,
    progress: bool = False,
    calibration: Data | None = None,
    quantize: QuantizeOptions | None = None,
) -> Artifact:
    """Compile an ONNX model for a board, named or described in a .toml file.

    `shapes` fixes inputs by name; without `fallback` any operator on the CPU is an error;
    `placements` puts ONNX nodes on a device by hand; `db` is a tuning database whose records are
    used; `dump` is a directory for the IR after every pass; `verify` compares seeded runs with
    onnxruntime. With `calibration` (docs/quantization.md) the model is made int8 first, as
    `quantize` asks. The artifact lives in a temporary directory until it is saved. Raises
    TilewrightError for whatever the caller can mend.
    """
    from tilewright.compiler.artifact import make_artifact
    from tilewright.compiler.compile import Options, compile_program

    options = Options(
        shapes=shapes or {},
        fallback=fallback,
        placements=placements or {},
        db=Path(db) if db is not None else None,
        dump=Path(dump) if dump is not None else None,
        time_passes=time_passes,
        progress=progress,
    )
    source = model if not isinstance(model, str | os.PathLike) else Path(model)
    board = target if not isinstance(target, os.PathLike) else Path(target)
    quantized = None
    if calibration is not None:
        source, options, quantized = _quantised(source, options, calibration, quantize)
    artifact = make_artifact(compile_program(source, board, options))
    artifact.quantized = quantized
    if verify:
        from tilewright.compiler.verify import verify_artifact

        artifact.verification = verify_artifact(artifact, source, board, options)
    return artifact


def _quantised(
    source: Path | str | onnx.ModelProto,
    options: Options,
    calibration: Data,
    wishes: QuantizeOptions | None,
) -> tuple[onnx.ModelProto, Options, Quantized]:
    """The int8 model to compile in place of `source`, under its name."""
    import onnx

    from tilewright.compiler.frontend import load_model
    from tilewright.compiler.quantize import QuantizeOptions, quantize_model

    is_model = isinstance(source, onnx.ModelProto)
    asked = replace(wishes or QuantizeOptions(), shapes=options.shapes, progress=options.progress)
    made = quantize_model(source if is_model else load_model(source), calibration, asked)
    name = None if is_model else Path(source).stem
    kept = made.model.SerializeToString(deterministic=True)
    return made.model, replace(options, shapes={}, name=name, source=kept), made


def load_artifact(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    target: str | os.PathLike[str] | None = None,
) -> Artifact:
    """The artifact in a directory or a .tar file; see `tilewright.compiler.artifact`."""
    from tilewright.compiler.artifact import load_artifact as load

    return load(path, threads=threads, target=target)
