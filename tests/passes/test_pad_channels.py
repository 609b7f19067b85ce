"""Channels in whole groups, where the NPU moves nothing else, and the same values as before."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from tests.quantised_graphs import add, conv, dequantize, graph, lookup
from tilewright.compiler import compile_model
from tilewright.passes.base import function_pass
from tilewright.passes.constants import op_name, shape_of
from tilewright.passes.pad_channels import pad_channels, pad_weight
from tilewright.passes.partition import bindings_of
from tilewright.passes.rewriter import Rewriter
from tilewright.targets.description import Npu, Target, load_target, parse_target


def grouping_target(multiple: int = 16) -> Target:
    """mcu-16 with a DMA that moves whole groups of channels only."""
    source = load_target("mcu-16").source
    changed = source.replace("[npu.layout]", f"[npu.layout]\ndram_channels_multiple = {multiple}")
    return parse_target(changed, "grouping.toml")


def npu() -> Npu:
    found = grouping_target().npu
    assert found is not None
    return found


def rebuilt(module: tvm.IRModule) -> tvm.IRModule:
    """`module` as a walk that changes nothing leaves it: without aliases."""
    return function_pass(lambda function: Rewriter(function).run(lambda _: None))(module)


def steps(module: tvm.IRModule) -> list[tuple[str, int]]:
    """Operators of main with the channels they give."""
    return [
        (op_name(b.value).split(".")[-1], shape_of(b.value)[-1])
        for b in bindings_of(module["main"])
        if op_name(b.value)
    ]


def test_padding_travels_from_operator_to_operator() -> None:
    def body(emit, x):
        return emit(lookup(emit(conv(emit(conv(x, 17, "a")), 5, "b")), "t"))

    assert steps(pad_channels(npu())(graph((1, 4, 4, 3), body))) == [
        ("pad", 16),
        ("conv2d", 32),
        ("conv2d", 16),
        ("lookup", 16),
        ("strided_slice", 5),
    ]


def test_whole_groups_are_left_alone() -> None:
    module = graph((1, 4, 4, 16), lambda emit, x: emit(conv(x, 32, "a")))
    tvm.ir.assert_structural_equal(pad_channels(npu())(module), rebuilt(module))


def test_a_dma_that_gathers_needs_no_padding() -> None:
    module = graph((1, 4, 4, 3), lambda emit, x: emit(conv(x, 5, "a")))
    gathering = load_target("mcu-16").npu
    tvm.ir.assert_structural_equal(pad_channels(gathering)(module), rebuilt(module))


def test_what_the_npu_refuses_anyway_is_left_alone() -> None:
    module = graph((1, 40, 40, 3), lambda emit, x: emit(conv(x, 5, "a", strides=[9, 9])))
    tvm.ir.assert_structural_equal(pad_channels(npu())(module), rebuilt(module))


@given(
    shape=st.tuples(*(st.integers(1, 6) for _ in range(4))),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    zero=st.integers(-3, 3),
    seed=st.integers(0, 99),
)
def test_added_weights_add_nothing(shape, more, zero, seed) -> None:
    """(x - zx) @ (w - zw) over the real channels is what it was, whatever added ones hold."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, shape)
    inputs, outputs = shape[2] + more[0], shape[3] + more[1]
    padded = pad_weight(weight, inputs, outputs, zero)
    pixel = rng.integers(-128, 128, (*shape[:2], inputs))
    whole = np.einsum("hwi,hwio->o", pixel, padded - zero)
    assert np.array_equal(
        whole[: shape[3]], np.einsum("hwi,hwio->o", pixel[..., : shape[2]], weight - zero)
    )
    assert not np.any(whole[shape[3] :])


def test_depthwise_and_addition_keep_their_channels_apart() -> None:
    def body(emit, x):
        wide = emit(conv(x, 20, "a"))
        return emit(dequantize(emit(add(wide, emit(lookup(wide, "t")), "sum")), "end"))

    names = steps(pad_channels(npu())(graph((1, 4, 4, 3), body)))
    assert names == [
        ("pad", 16),
        ("conv2d", 32),
        ("lookup", 32),
        ("add", 32),
        ("strided_slice", 20),
        ("dequantize", 20),
    ]


@pytest.mark.parametrize("model", ["resnet8_cifar_int8", "mobilenetv2_kws_int8"])
def test_padded_networks_give_the_same_bits(model: str) -> None:
    path = f"tests/models/{model}.onnx"
    plain, padded = compile_model(path, "mcu-16"), compile_model(path, grouping_target())
    rng = np.random.default_rng(1)
    (port,) = plain.manifest["inputs"]
    feed = {port["name"]: rng.integers(-128, 128, port["shape"]).astype(np.int8)}
    for name, values in plain.run(feed).items():
        assert np.array_equal(padded.run(feed)[name], values)
    rows = padded.report["operators"]
    kinds = ("Conv", "Gemm", "Add", "AveragePool")
    assert {row["device"] for row in rows if row["op"] in kinds} == {"npu"}
    (padding,) = [row for row in rows if row["op"] == "padded"]
    assert padding["device"] == "cpu"
    assert "channels; this NPU moves whole groups of 16" in padding["reason"]
