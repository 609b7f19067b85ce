"""The numbers and the hints of a comparison, on arrays."""

from __future__ import annotations

import numpy as np
import onnx

from tests.qdq_models import QdqModel
from tilewright.compiler.compare.inputs import draw_inputs
from tilewright.compiler.compare.measures import hint, measure, sqnr

EXPECTED = np.random.default_rng(0).normal(0, 1, (1, 6, 5, 7)).astype(np.float32)
SQUARE = EXPECTED[..., :5]


def test_equal_arrays_are_as_near_as_can_be() -> None:
    measures = measure(EXPECTED, EXPECTED)
    assert (measures.cosine, measures.largest, measures.channels) == (1.0, 0.0, ())
    assert measures.sqnr == 150.0


def test_the_worst_channel_comes_first() -> None:
    found = EXPECTED.copy()
    found[:, 4] += 0.5
    found[:, 1] += 0.25
    measures = measure(found, EXPECTED)
    assert [channel for channel, _ in measures.channels] == [4, 1]
    assert np.isclose(measures.channels[0][1], 0.8)
    assert np.isclose(measures.largest, 0.5)


def test_sqnr_is_ten_log_of_the_energies() -> None:
    assert np.isclose(sqnr(EXPECTED * 1.1, EXPECTED), 20.0, atol=1e-3)


def test_hints_name_the_cause() -> None:
    rolled = np.roll(SQUARE, 2, axis=1)
    narrow = EXPECTED.copy()
    narrow[:, 2] *= 0.001
    rounded = np.rint(narrow * 100) / 100
    cases = {
        "scale: the values are 3 times": hint(3 * EXPECTED, EXPECTED, None),
        "channels permuted: 6 of them, channel 0 holds 4's": hint(rolled, SQUARE, None),
        "layout: the values match when height and width": hint(
            SQUARE.transpose(0, 1, 3, 2), SQUARE, None
        ),
        "layout: the values match when NCHW and NHWC": hint(
            np.ascontiguousarray(EXPECTED.transpose(0, 2, 3, 1)).reshape(EXPECTED.shape),
            EXPECTED,
            None,
        ),
        "saturation": hint(np.clip(EXPECTED, -0.5, 0.5), EXPECTED, (-0.5, 0.5)),
        "per-tensor scale: 1 channels": hint(rounded, narrow, None),
        "no single cause": hint(-(EXPECTED[:, ::-1] ** 2), EXPECTED, None),
    }
    for expected, found in cases.items():
        assert found.startswith(expected), (expected, found)


def test_inputs_are_drawn_from_the_calibrated_range() -> None:
    quantised = QdqModel()
    value = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, (1, 64))
    scale = quantised.constant(np.float32(0.5))
    zero = quantised.constant(np.int8(-128))
    quantised.outputs.append(quantised.node("QuantizeLinear", ["image", scale, zero]))
    model = quantised.model()
    model.graph.input.append(value)
    port = {"name": "image", "shape": [1, 64], "dtype": "float32", "bytes": 256}
    drawn = draw_inputs(model, {"inputs": [port]}, 3)["image"]
    assert 0 <= drawn.min() < 30 and 100 < drawn.max() <= 127.5
    assert np.array_equal(drawn, draw_inputs(model, {"inputs": [port]}, 3)["image"])
