"""quantize, compile --calibration, run --image and compare on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.quantized_digits import MODELS, digit_arrays
from tilewright.compiler.cli import main

MODEL = str(MODELS / "mnist_conv_fp32.onnx")
PREPARE = "crop=28x28,order=gray"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number, digit in enumerate(digit_arrays()["calibration"][:6]):
        pixels = np.rint(255 * digit[0]).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_from_pictures_to_a_comparison(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, made = str(tmp_path / "artifact"), str(tmp_path / "int8.onnx")
    common = ["--preprocess", PREPARE, "--method", "minmax"]
    assert main(["quantize", MODEL, "--data", str(pictures), "-o", made, *common]) == 0
    said = capsys.readouterr()
    assert "6 samples" in said.out
    assert "warning: calibration has 6 samples" in said.err
    onnx.checker.check_model(made)

    assert main(["compile", made, "--target", "mcu-16", "-o", out]) == 0
    header = (Path(out) / "board/model.h").read_text()
    assert "int int8_preprocess(const tilewright_context *context" in header
    picture = str(pictures / "0.png")
    assert main(["run", out, "--image", picture]) == 0

    capsys.readouterr()
    arguments = ["compare", MODEL, out, "--compiled", made, "--image", picture]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "ReLU114_Output_0" in shown
    assert "every layer is 20 dB or more above its own error" in shown


def test_compile_calibrates_on_the_way(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "artifact"
    arguments = ["compile", MODEL, "--target", "mcu-16", "-o", str(out)]
    options = ["--calibration", str(pictures), "--preprocess", PREPARE, "--method", "mse"]
    assert main([*arguments, *options]) == 0
    assert "6 samples" in capsys.readouterr().out
    assert (out / "quantized.onnx").is_file()
    assert "mnist_conv_fp32_preprocess" in (out / "board/model.h").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "nowhere: no such file or folder"),
        (["--data", "nowhere", "--samples", "many"], "'many' is no count"),
        (["--data", "nowhere", "--input-range", "x=3,1"], "is no NAME=LOW,HIGH"),
        (["--data", "nowhere", "--float", "conv9"], "conv9: the model has no such node"),
        (["--data", "nowhere", "--labels", "l.npy"], "l.npy: is no .npy file of labels"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = ["quantize", MODEL, "-o", str(tmp_path / "o.onnx"), *arguments]
    try:
        code = main(whole)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
