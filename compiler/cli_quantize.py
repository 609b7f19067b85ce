"""`tilewright quantize`: a float model becomes an int8 QDQ model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.targets.errors import ModelError

if TYPE_CHECKING:
    from tilewright.compiler.quantize import Quantized, QuantizeOptions

METHODS = ("auto", "minmax", "percentile", "mse", "entropy")


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("quantize", help="make an int8 QDQ model of a float model")
    parser.add_argument("model", metavar="MODEL", help="a float ONNX file")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help="pictures, .npy, .npz, or FILE.py:FUNCTION"
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT.onnx")
    add_options(parser)
    parser.add_argument("--shape", action="append", default=[], type=_shape, metavar="NAME=1,3,8,8")
    parser.add_argument(
        "--float", action="append", default=[], metavar="NODE", help="keep a layer in float"
    )
    parser.add_argument(
        "--sensitivity", action="store_true", help="rank the layers by the harm they do"
    )
    parser.add_argument(
        "--max-drop",
        type=float,
        metavar="POINTS",
        help="keep as few layers in float as lose no more (top-1 agreement, or accuracy)",
    )
    parser.add_argument("--labels", metavar="FILE.npy", help="the right classes, for --max-drop")
    parser.add_argument("--check-data", metavar="DATA", help="a second set, held to the ranges")
    parser.set_defaults(command=quantize)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of calibration, which `compile --calibration` shares."""
    group = parser.add_argument_group("calibration")
    group.add_argument("--method", choices=METHODS, default="auto")
    group.add_argument("--percentile", type=float, default=99.99, metavar="P")
    group.add_argument(
        "--preprocess",
        metavar="TEXT_OR_JSON",
        help="how pictures become inputs: resize=256,crop=224x224,mean=124:116:104,scale=0.017",
    )
    group.add_argument(
        "--samples", type=_samples, metavar="N|auto", help="use so many, or until ranges settle"
    )
    group.add_argument(
        "--per-tensor", action="store_true", help="one scale a weight, not one a channel"
    )
    group.add_argument("--equalise", choices=("auto", "on", "off"), default="auto")
    group.add_argument("--correct-bias", choices=("auto", "on", "off"), default="auto")
    group.add_argument(
        "--input-range",
        action="append",
        default=[],
        type=_input_range,
        metavar="NAME=LOW,HIGH",
        help="what an input may be; data that differs is warned about",
    )


def quantize(options: argparse.Namespace) -> None:
    import onnx

    from tilewright.compiler.frontend import load_model
    from tilewright.compiler.quantize import quantize_model

    output = Path(options.output)
    if not output.absolute().parent.is_dir():
        raise ModelError(f"{output}: its folder does not exist; make it first")
    made = quantize_model(load_model(options.model), options.data, quantize_options(options))
    onnx.save(made.model, str(output))
    show(made)
    print(f"{output}: written")


def quantize_options(options: argparse.Namespace) -> QuantizeOptions:
    """The command line's wishes."""
    from tilewright.compiler.preprocessing import parse_preprocessing
    from tilewright.compiler.quantize import QuantizeOptions

    switches = {"auto": None, "on": True, "off": False}
    return QuantizeOptions(
        method=options.method,
        percentile=options.percentile,
        per_channel=not options.per_tensor,
        equalise=switches[options.equalise],
        correct_bias=switches[options.correct_bias],
        samples=options.samples,
        preprocessing=parse_preprocessing(options.preprocess) if options.preprocess else None,
        shapes=dict(options.shape),
        input_ranges=dict(options.input_range),
        in_float=getattr(options, "float", ()),
        sensitivity=getattr(options, "sensitivity", False),
        max_drop=getattr(options, "max_drop", None),
        labels=_labels(getattr(options, "labels", None)),
        check_data=getattr(options, "check_data", None),
        progress=sys.stderr.isatty(),
    )


def show(made: Quantized) -> None:
    """What was done and found; warnings on standard error."""
    for warning in made.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for choice in made.choices:
        print(choice)
    for place, harm in enumerate(made.sensitivity, start=1):
        print(f"{place:4d}. {harm.unit}: {harm.decibels:.2f} dB when it alone is quantised")
    if made.in_float:
        print(f"kept in float: {', '.join(made.in_float)}")
    if made.drop is not None:
        print(f"lost: {made.drop:.2f} points")
    for departure in made.departures:
        print(departure)
    print(f"{made.samples} samples, outputs {made.decibels:.2f} dB above quantisation noise")


def _labels(file: str | None) -> list[int] | None:
    import numpy as np

    if file is None:
        return None
    try:
        return [int(label) for label in np.load(file, allow_pickle=False).reshape(-1)]
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: is no .npy file of labels: {error}") from error


def _samples(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; write 1 or more, or auto")
    return int(text)


def _input_range(text: str) -> tuple[str, tuple[float, float]]:
    name, equals, ends = text.rpartition("=")
    try:
        low, high = (float(end) for end in ends.split(","))
    except ValueError:
        equals = ""
        low = high = 0.0
    if not equals or not low < high:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=LOW,HIGH, such as image=0,1")
    return name, (low, high)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from tilewright.compiler.cli_compile import shape_argument

    return shape_argument(text)
