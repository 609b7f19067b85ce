"""`tilewright run`: feed an artifact from files or a seed, save or sum up what comes out."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tilewright.compiler.report_text import table
from tilewright.targets.errors import ArtifactError

if TYPE_CHECKING:
    from tilewright.compiler.artifact import Artifact

Arrays = dict[str, NDArray[Any]]


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("run", help="run an artifact on this machine")
    parser.add_argument("artifact", metavar="DIR", help="an artifact, directory or .tar")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=input_argument,
        metavar="NAME=FILE.npy",
        help="an input's values; once for each input",
    )
    parser.add_argument(
        "--image",
        metavar="FILE",
        help="a picture, made the input as the model's own description says",
    )
    parser.add_argument(
        "--random", type=int, metavar="SEED", help="draw the inputs not given from this seed"
    )
    parser.add_argument("--repeat", type=_count, default=1, metavar="N", help="run N times")
    parser.add_argument(
        "--load", type=_count, metavar="N", help="measure N requests, several in flight at a time"
    )
    parser.add_argument(
        "--in-flight", type=_count, metavar="K", help="requests in flight under --load; default 2"
    )
    parser.add_argument("--threads", type=_count, metavar="N", help="CPU threads; default all")
    parser.add_argument("--output-dir", metavar="DIR", help="save every output there as .npy")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import load_artifact
    from tilewright.compiler.artifact.arguments import random_inputs

    begin = time.perf_counter()
    with load_artifact(options.artifact, threads=options.threads) as artifact:
        drawn = {} if options.random is None else random_inputs(artifact.manifest, options.random)
        picture = {} if options.image is None else pictured(artifact, Path(options.image))
        inputs = drawn | picture | {name: read_array(Path(file)) for name, file in options.input}
        outputs, milliseconds, warm_start = {}, [], 0.0
        for _ in tqdm(range(options.repeat), desc="run", file=sys.stderr, disable=None):
            start = time.perf_counter()
            outputs = artifact.run(inputs)
            milliseconds.append(1000 * (time.perf_counter() - start))
            warm_start = warm_start or 1000 * (time.perf_counter() - begin)
        _show(outputs)
        _show_time(milliseconds, artifact.statistics())
        print(f"warm start: {warm_start:.0f} ms from loading to the first outputs, measured")
        if options.load:
            _show_load(artifact, inputs, options.load, options.in_flight or 2)
    if options.output_dir:
        _save(outputs, Path(options.output_dir))


def pictured(artifact: Artifact, file: Path) -> Arrays:
    """The picture as the artifact's input, prepared as calibration prepared its own."""
    from tilewright.compiler.preprocessing import preprocess, preprocessing_of, read_picture

    stored = artifact.manifest["preprocessing"]
    if stored is None:
        raise ArtifactError(
            "--image: the model does not say how pictures become its input; quantise it with "
            "--preprocess, or give the array with --input"
        )
    how = preprocessing_of(stored)
    port = artifact.manifest["inputs"][0]
    return {port["name"]: preprocess(read_picture(file), how, port["dtype"])}


def _show(outputs: Arrays) -> None:
    rows = [
        (
            name,
            str(array.dtype),
            "x".join(map(str, array.shape)) or "scalar",
            *((f"{array.min():.6g}", f"{array.max():.6g}") if array.size else ("-", "-")),
            str(array.argmax()) if array.size else "-",
        )
        for name, array in outputs.items()
    ]
    print(
        "\n".join(table(("output", "dtype", "shape", "least", "most", "argmax"), rows, (3, 4, 5)))
    )


def _show_time(milliseconds: list[float], simulated: dict[str, int]) -> None:
    runs = "1 run" if len(milliseconds) == 1 else f"{len(milliseconds)} runs"
    print(
        f"\n{runs} on this machine, measured: "
        f"median {statistics.median(milliseconds):.3f} ms, least {min(milliseconds):.3f} ms"
    )
    if "cycles" in simulated:
        print(f"NPU: {simulated['cycles']:,} cycles a run, simulated")


def _show_load(artifact: Artifact, inputs: Arrays, requests: int, in_flight: int) -> None:
    from tilewright.compiler.artifact.measure_load import measure_load

    progress = tqdm(range(requests), desc="load", file=sys.stderr, disable=None)
    with artifact.dispatch(in_flight=in_flight) as dispatcher:
        figures = measure_load(dispatcher, inputs, requests, iter(progress))
    print(
        f"load: {requests} requests, {in_flight} in flight, measured: "
        f"{figures.per_second:.1f} a second; latency median {figures.percentile(50):.3f} ms, "
        f"95 % within {figures.percentile(95):.3f} ms, 99 % within {figures.percentile(99):.3f} ms"
    )


def _save(outputs: Arrays, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            np.save(folder / f"{_file_name(name)}.npy", array)
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot be written: {error.strerror}") from error


def _file_name(tensor: str) -> str:
    return re.sub(r"[^0-9A-Za-z_.-]", "_", tensor)


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file; ArtifactError where there is none."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise ArtifactError(f"{path}: is no .npy file; write one with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise ArtifactError(f"{path}: holds several arrays; write each with numpy.save")
    return array


def input_argument(text: str) -> tuple[str, str]:
    """NAME=FILE.npy of a command line."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no NAME=FILE.npy; write for instance x=x.npy"
        )
    return name, file


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; write 1 or more")
    return int(text)
