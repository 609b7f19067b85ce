"""Where calibration data may come from, and what is said when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilewright.compiler.preprocessing import Preprocessing, preprocess, read_picture
from tilewright.compiler.quantize.data import Data, Inputs, read_samples
from tilewright.targets.errors import ModelError

FLOAT = np.dtype("float32")
ONE = Inputs({"x": (1, 3, 4, 4)}, {"x": FLOAT})
TWO = Inputs({"x": (1, 2), "y": (1, 3)}, {"x": FLOAT, "y": FLOAT})
BATCH = np.random.default_rng(0).random((5, 3, 4, 4)).astype(np.float32)


def read(data: Data, inputs: Inputs = ONE) -> list[dict[str, Any]]:
    return list(read_samples(data, inputs))


def assert_is_batch(found: list[dict[str, Any]]) -> None:
    assert len(found) == 5
    assert all(np.array_equal(s["x"][0], image) for s, image in zip(found, BATCH, strict=True))


def test_arrays_in_files_are_split_into_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "batch.npy", BATCH)
    np.savez(tmp_path / "batch.npz", whatever=BATCH)
    assert_is_batch(read(str(tmp_path / "batch.npy")))
    assert_is_batch(read(tmp_path / "batch.npz"))


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for number, image in enumerate(BATCH):
        np.save(tmp_path / f"{number}.npy", image)
    assert_is_batch(read(str(tmp_path)))


def test_a_generator_is_read_item_by_item(tmp_path: Path) -> None:
    assert_is_batch(read(iter(BATCH)))
    source = tmp_path / "mine.py"
    source.write_text(
        "import numpy as np\n"
        "def samples():\n"
        "    for n in range(3):\n"
        "        yield {'x': np.full((1, 2), n, np.float32), 'y': np.zeros((1, 3), np.float32)}\n"
    )
    found = read(f"{source}:samples", TWO)
    assert [float(sample["x"][0, 0]) for sample in found] == [0, 1, 2]


def test_pictures_are_prepared_as_described(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    how = Preprocessing(resize=(5,), crop=(4, 4), scale=(0.5,))
    found = read(str(tmp_path), Inputs(ONE.shapes, ONE.dtypes, how))
    assert np.array_equal(found[0]["x"], preprocess(pixels, how))
    assert np.array_equal(read_picture(tmp_path / "a.png"), pixels)


def test_pictures_without_a_description_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(ModelError, match="describe the preprocessing"):
        read(str(tmp_path))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2), np.float32), r"x has shape \[2, 2\], the model takes \[1, 3, 4, 4\]"),
        (np.full((1, 3, 4, 4), np.nan, np.float32), "x holds NaN or infinity"),
        (np.zeros((1, 3, 4, 4), np.int32), "x is int32, the model takes float32"),
    ],
)
def test_arrays_that_do_not_fit_are_explained(array: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read([array])


def test_places_that_hold_nothing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        read(str(tmp_path / "missing"))
    with pytest.raises(ModelError, match="holds no pictures"):
        read(str(tmp_path))
    with pytest.raises(ModelError, match="holds no y, which the model takes"):
        read([{"x": np.zeros((1, 2), np.float32)}], TWO)
    (tmp_path / "a.py").write_text("")
    with pytest.raises(ModelError, match="has no function samples"):
        read(f"{tmp_path}/a.py:samples")
