"""An element-wise operator with one constant number is a table, to the bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from tests.quantised_graphs import add, graph
from tests.reference import Quantization, binary
from tilewright.passes.constants import array_of, op_name
from tilewright.passes.decompose import OPERATIONS, binary_table, decompose
from tilewright.passes.partition import bindings_of

SCALES = st.floats(2**-10, 8, width=32)
ZEROS = st.integers(-128, 127)


@given(
    kind=st.sampled_from(sorted(OPERATIONS)),
    number=st.integers(-128, 127),
    number_first=st.booleans(),
    scales=st.tuples(SCALES, SCALES, SCALES),
    zeros=st.tuples(ZEROS, ZEROS, ZEROS),
)
def test_the_table_is_the_operator_at_every_byte(kind, number, number_first, scales, zeros) -> None:
    a, b, out = (
        Quantization(np.float32(scale), zero, "int8")
        for scale, zero in zip(scales, zeros, strict=True)
    )
    attrs = {
        "a_scale": scales[0], "a_zero": zeros[0], "b_scale": scales[1], "b_zero": zeros[1],
        "output_scale": scales[2], "output_zero": zeros[2], "clip_low": -128, "clip_high": 127,
        "out_dtype": "int8",
    }  # fmt: skip
    every = np.arange(256, dtype=np.uint8).view(np.int8)
    fixed = np.full(256, number, np.int8)
    operands = (fixed, every) if number_first else (every, fixed)
    expected = binary(OPERATIONS[kind], operands[0], a, operands[1], b, out)
    assert np.array_equal(binary_table(kind, number, number_first, "int8", attrs), expected)


def test_a_number_is_folded_into_a_table() -> None:
    module = graph((1, 4, 4, 3), lambda emit, x: emit(add(x, relax.const(np.int8([[5]])), "shift")))
    (lookup,) = [b.value for b in bindings_of(decompose(module)["main"]) if op_name(b.value)]
    assert op_name(lookup) == "tilewright.lookup"
    table = array_of(lookup.args[1])
    # x = 0: (0 + 4) * 0.5 + (5 - 1) * 0.25 = 3, over 0.75 is 4, plus 2
    assert table is not None
    assert table[0] == 6


def test_a_constant_for_each_channel_stays_an_operator() -> None:
    constant = relax.const(np.int8([1, 2, 3]))
    module = graph((1, 4, 4, 3), lambda emit, x: emit(add(x, constant, "shift")))
    kinds = [op_name(b.value) for b in bindings_of(decompose(module)["main"]) if op_name(b.value)]
    assert kinds == ["tilewright.add"]
