"""`tilewright compare`: an artifact beside the model it came from, layer by layer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler.cli_run import input_argument, pictured, read_array
from tilewright.compiler.report_text import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.compiler.artifact import Artifact
    from tilewright.compiler.compare import Row

HEADER = ("tensor", "own dB", "dB", "cosine", "max error", "worst channels")


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "compare", help="compare an artifact with onnxruntime, layer by layer"
    )
    parser.add_argument("model", metavar="MODEL", help="the float or quantised ONNX model")
    parser.add_argument("artifact", metavar="DIR", help="an artifact, directory or .tar")
    parser.add_argument(
        "--compiled", metavar="QDQ.onnx", help="what DIR was compiled from, where not from MODEL"
    )
    parser.add_argument(
        "--input", action="append", default=[], type=input_argument, metavar="NAME=FILE.npy"
    )
    parser.add_argument("--image", metavar="FILE", help="a picture for the input")
    parser.add_argument("--random", type=int, default=0, metavar="SEED", help="draw other inputs")
    parser.add_argument(
        "--threshold", type=float, default=20.0, metavar="DB", help="a layer below it is named"
    )
    parser.add_argument(
        "--tensors", metavar="DIR", help="dumps NAME.npy in place of MODEL's own tensors"
    )
    parser.add_argument("--unfused", action="store_true", help="show what fused operators hide")
    parser.add_argument(
        "--bisect", action="store_true", help="leave passes out to find one that changes results"
    )
    parser.set_defaults(command=compare_)


def compare_(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import load_artifact
    from tilewright.compiler.compare import Wishes, compare, compiled_source
    from tilewright.compiler.compare.inputs import draw_inputs
    from tilewright.compiler.frontend import load_model

    reference = load_model(options.model)
    with load_artifact(options.artifact) as artifact:
        source = compiled_source(artifact, Path(options.compiled or options.model))
        inputs = draw_inputs(source, artifact.manifest, options.random)
        inputs |= {} if options.image is None else pictured(artifact, Path(options.image))
        inputs |= {name: read_array(Path(file)) for name, file in options.input}
        if options.bisect:
            _bisect(reference, source, artifact, inputs)
            return
        wishes = Wishes(
            threshold=options.threshold,
            tensors=Path(options.tensors) if options.tensors else None,
            unfused=options.unfused,
            progress=sys.stderr.isatty(),
        )
        _show(list(compare(reference, source, artifact, inputs, wishes)), options.threshold)


def _show(rows: list[Row], threshold: float) -> None:
    from tilewright.compiler.compare import first_below

    print("\n".join(table(HEADER, [_cells(row) for row in rows], (1, 2, 3, 4))))
    for row in rows:
        if row.hint:
            print(f"{row.tensor}: {row.hint}")
    first = first_below(rows, threshold)
    if first is None:
        print(f"\nevery layer is {threshold:g} dB or more above its own error")
    else:
        print(
            f"\nfirst layer below {threshold:g} dB: {', '.join(first.nodes)}, "
            f"which ends in {first.tensor}: {first.judged:.2f} dB; {first.hint}"
        )


def _cells(row: Row) -> tuple[str, ...]:
    measures = row.measures
    channels = " ".join(f"{c}:{100 * share:.0f}%" for c, share in measures.channels)
    own = "-" if row.own_sqnr is None else f"{row.own_sqnr:.2f}"
    return (
        row.tensor,
        own,
        f"{measures.sqnr:.2f}",
        f"{measures.cosine:.6f}",
        f"{measures.largest:.4g}",
        channels or "-",
    )


def _bisect(
    reference: Any, source: Any, artifact: Artifact, inputs: dict[str, NDArray[Any]]
) -> None:
    from tilewright.compiler.compare.bisect import bisect

    for step in bisect(reference, source, artifact, inputs):
        name = "with all passes" if step.left_out is None else f"without {step.left_out}"
        if step.sqnr is None:
            print(f"{name}: does not compile")
        else:
            print(f"{name}: {step.sqnr:.2f} dB{', other values' if step.changes else ''}")
