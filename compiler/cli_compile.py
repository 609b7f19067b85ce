"""`tilewright compile`: a model file becomes an artifact."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler import cli_quantize
from tilewright.compiler.report_text import summary

if TYPE_CHECKING:
    from tilewright.compiler.artifact import Artifact

_NEED_COMPILING = ("db", "dump", "time_passes", "verify", "calibration")
_NOT_OF_THE_ARTIFACT = (
    "command", "output", "tar", "model", "target", "lock", "write_lock", "no_cache",
    *_NEED_COMPILING,
)  # fmt: skip


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("compile", help="compile an ONNX model for a target")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--target", required=True, metavar="NAME_OR_TOML", help="a bundled board or its .toml file"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="the artifact to write"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=shape_argument,
        metavar="NAME=1,3,224,224",
        help="fix an input's shape; once for each input",
    )
    parser.add_argument(
        "--no-fallback", action="store_true", help="fail if an operator would run on the CPU"
    )
    parser.add_argument(
        "--place",
        action="append",
        default=[],
        type=_placement,
        metavar="NODE=cpu|npu",
        help="place an ONNX node by hand; once for each node",
    )
    parser.add_argument("--db", metavar="FILE", help="use the schedules that tilewright tune found")
    parser.add_argument("--dump", metavar="DIR", help="write the IR after every pass there")
    parser.add_argument("--time-passes", action="store_true", help="print how long every pass took")
    parser.add_argument(
        "--verify", action="store_true", help="fail unless the outputs agree with onnxruntime's"
    )
    parser.add_argument(
        "--calibration",
        metavar="DATA",
        help="quantise the float model first: pictures, .npy, .npz, or FILE.py:FUNCTION",
    )
    cli_quantize.add_options(parser)
    parser.add_argument("--tar", action="store_true", help="write DIR.tar as well")
    parser.add_argument(
        "--lock", metavar="FILE", help="fail unless the tool chain is the one locked there"
    )
    parser.add_argument("--write-lock", metavar="FILE", help="lock this tool chain there")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="compile even if nothing has changed since last time",
    )
    parser.set_defaults(command=compile_)


def compile_(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import check_destination

    check_destination(Path(options.output))

    from tilewright.compiler.tool_chain import check_lock, tool_chain, write_lock
    from tilewright.targets.description import load_target

    target = load_target(options.target)
    chain = tool_chain(target)
    if options.lock:
        check_lock(Path(options.lock), chain)
    artifact = _cached_or_compiled(options, target.source, chain)
    if options.write_lock:
        write_lock(Path(options.write_lock), chain)
    if artifact.quantized is not None:
        cli_quantize.show(artifact.quantized)
    artifact.save(options.output, tar=options.tar)
    print(summary(artifact.report))
    if artifact.verification is not None:
        print(artifact.verification)
    print(f"\n{options.output}: written for {artifact.manifest['target']['name']}")
    missing = artifact.manifest["board"]["missing"]
    if missing:
        print(f"{options.output}/board: sources only, no libmodel.a: {missing}")


def _cached_or_compiled(
    options: argparse.Namespace, target_source: str, chain: dict[str, str]
) -> Artifact:
    """From the cache where the same was compiled before, unless compiling itself is wanted."""
    from tilewright.compiler.compile_cache import CompileCache, compile_key

    model = Path(options.model)
    if options.no_cache or any(getattr(options, name) for name in _NEED_COMPILING):
        return _compiled(options)
    if not model.is_file():
        return _compiled(options)  # which says what is wrong
    telling = {
        name: value for name, value in vars(options).items() if name not in _NOT_OF_THE_ARTIFACT
    }
    key = compile_key(model, target_source, telling, chain)
    cache = CompileCache()
    artifact = cache.find(key, model)
    if artifact is None:
        artifact = _compiled(options)
        cache.store(key, artifact, model)
    else:
        print(f"{options.model}: unchanged, taken from the cache")
    return artifact


def _compiled(options: argparse.Namespace) -> Artifact:
    from tilewright.compiler import compile_model

    return compile_model(
        options.model,
        options.target,
        dict(options.shape),
        fallback=not options.no_fallback,
        placements=dict(options.place),
        db=options.db,
        dump=options.dump,
        time_passes=options.time_passes,
        verify=options.verify,
        calibration=options.calibration,
        quantize=cli_quantize.quantize_options(options) if options.calibration else None,
        progress=sys.stderr.isatty(),
    )


def shape_argument(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=1,3,224,224 of a command line."""
    name, equals, extents = text.rpartition("=")
    try:
        shape = tuple(int(extent) for extent in extents.split(","))
    except ValueError:
        shape = ()
    if not equals or not name or not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no NAME=SHAPE; write for instance x=1,3,224,224"
        )
    return name, shape


def _placement(text: str) -> tuple[str, str]:
    node, _, device = text.rpartition("=")
    if not node or device not in ("cpu", "npu"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no NODE=cpu or NODE=npu; write for instance conv1=cpu"
        )
    return node, device
