"""One definition of how pictures become inputs: in Python, in C, in files and on command lines."""

from __future__ import annotations

import ctypes
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tilewright.compiler.artifact.preprocess_source import FOLDER
from tilewright.compiler.preprocessing import (
    ORDERS,
    Preprocessing,
    parse_preprocessing,
    preprocess,
    read_picture,
    resize,
    store_preprocessing,
    stored_preprocessing,
)
from tilewright.targets.errors import ModelError

RUNTIME = FOLDER.parent

HARNESS = """
#include "preprocess.h"
int make(const uint8_t *pixels, int32_t height, int32_t width, int32_t rows, int32_t columns,
         int is_float, void *input, const int32_t *integers, const float *floats) {
  tilewright_preprocessing how = {{integers[0], integers[1]}, {integers[2], integers[3]},
    integers[4], integers[5], {floats[0], floats[1], floats[2]},
    {floats[3], floats[4], floats[5]}, integers[6]};
  return tilewright_preprocess(&how, pixels, height, width, rows, columns, is_float, input);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("preprocess")
    (folder / "harness.c").write_text(HARNESS)
    includes = ["-I", str(FOLDER), "-I", str(RUNTIME)]
    warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=off"]
    command = ["gcc", *warnings, "-shared", "-fPIC", *includes, "harness.c", "-o", "made.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "made.so"))


def in_c(
    library: ctypes.CDLL, picture: np.ndarray, how: Preprocessing, like: np.ndarray
) -> tuple[int, np.ndarray]:
    made = np.zeros_like(like)
    rows, columns = like.shape[2:] if how.layout == "NCHW" else like.shape[1:3]
    integers = np.array(
        [
            *(*how.resize, 0, 0)[:2],
            *(how.crop or (0, 0)),
            ORDERS.index(how.order),
            how.channels,
            how.layout == "NCHW",
        ],
        np.int32,
    )
    floats = np.zeros(6, np.float32)
    floats[: how.channels], floats[3 : 3 + how.channels] = how.means(), how.scales()
    arrays = (np.ascontiguousarray(picture), made, integers, floats)
    pixels, place, whole, real = (array.ctypes.data_as(ctypes.c_void_p) for array in arrays)
    height, width = picture.shape[:2]
    status = library.make(
        pixels, height, width, rows, columns, int(like.dtype == np.float32), place, whole, real
    )
    return status, made


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    target=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    order=st.sampled_from(ORDERS),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    dtype=st.sampled_from(["float32", "uint8"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_c_gives_the_same_bytes(
    library: ctypes.CDLL,
    height: int,
    width: int,
    target: tuple[int, int],
    order: str,
    layout: str,
    dtype: str,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    picture = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    channels = 1 if order == "gray" else 3
    how = Preprocessing(
        resize=target,
        crop=(max(1, target[0] // 2), max(1, target[1] - 1)),
        order=order,
        mean=tuple(generator.uniform(0, 255, channels)),
        scale=tuple(generator.uniform(0.001, 1, channels)),
        layout=layout,
    )
    expected = preprocess(picture, how, dtype)
    status, made = in_c(library, picture, how, expected)
    assert status == 0
    assert made.tobytes() == expected.tobytes()


def test_c_refuses_a_picture_of_the_wrong_size(library: ctypes.CDLL) -> None:
    how = Preprocessing(crop=(8, 8))
    like = np.zeros((1, 3, 8, 8), np.float32)
    assert in_c(library, np.zeros((7, 9, 3), np.uint8), how, like)[0] == 1
    assert in_c(library, np.zeros((8, 9, 3), np.uint8), how, like)[0] == 0


def test_the_shorter_side_is_resized_and_the_middle_taken(library: ctypes.CDLL) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (50, 31, 3), dtype=np.uint8)
    how = Preprocessing(resize=(24,), crop=(20, 20))
    assert how.resized_shape(50, 31) == (38, 24)
    expected = preprocess(picture, how)
    middle = resize(picture, 38, 24)[9:29, 2:22]
    assert np.array_equal(expected[0].transpose(1, 2, 0), middle.astype(np.float32))
    assert in_c(library, picture, how, expected)[1].tobytes() == expected.tobytes()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_resizing_is_bilinear_between_centres(inputs: int, outputs: int, seed: int) -> None:
    row = np.random.default_rng(seed).integers(0, 256, (1, inputs, 3), dtype=np.uint8)
    found = resize(row, 1, outputs)
    for place in range(outputs):
        at = Fraction((2 * place + 1) * inputs, 2 * outputs) - Fraction(1, 2)
        at = min(max(at, Fraction(0)), Fraction(inputs - 1))
        first = int(at)
        part = float(at - first)
        second = min(first + 1, inputs - 1)
        exact = row[0, first] * (1 - part) + row[0, second] * part
        assert np.abs(found[0, place] - exact).max() <= 0.5 + 256 / 2048


def test_enlarging_is_pillows_bilinear_within_one() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    theirs = np.asarray(Image.fromarray(picture).resize((60, 45), Image.Resampling.BILINEAR))
    assert np.abs(resize(picture, 45, 60).astype(int) - theirs).max() <= 1


def test_a_description_survives_a_models_metadata() -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    how = parse_preprocessing("resize=256,crop=224x224,mean=124:116:104,scale=0.017,order=bgr")
    assert how == Preprocessing((256,), (224, 224), "bgr", (124.0, 116.0, 104.0), (0.017,), "NCHW")
    store_preprocessing(model, Preprocessing())
    store_preprocessing(model, how)
    assert len(model.metadata_props) == 1
    assert stored_preprocessing(model) == how


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crop=224", "crop takes height and width"),
        ("size=224", "there is no size; there are crop, layout, mean, order, resize, scale"),
        ("mean=1:2", "mean takes 1 or 3 numbers"),
        ("crop=axb", "crop=axb holds no numbers"),
        ("order=xyz", "order 'xyz' is none of rgb, bgr, gray"),
        ("crop", "'crop' is no KEY=VALUE"),
        ("{", "is no JSON"),
    ],
)
def test_a_wrong_description_is_explained(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_preprocessing(text)
    assert message in str(caught.value)


def test_a_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(ModelError, match=r"a\.png: cannot be read as a picture"):
        read_picture(tmp_path / "a.png")
