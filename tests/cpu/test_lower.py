"""Lowering keeps names, views and regions, and makes as few kernels as fusion allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tests.cpu.run_kernels import HOST, graph_of
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.passes.constants import constant
from tilewright.passes.names import onnx_nodes_of, with_names

Array = NDArray[Any]


def named(value: Any, *names: str) -> Any:
    return with_names(value, names)


def calls_of(module: tvm.IRModule) -> list[Any]:
    main = module["main"]
    return [binding.value for block in main.body.blocks for binding in block.bindings]


def convolution(x: Any) -> Any:
    weight = constant(np.ones((3, 3, 4, 8), np.float32))
    return relax.op.nn.conv2d(x, weight, padding=1, data_layout="NHWC", kernel_layout="HWIO")


def test_a_convolution_takes_its_epilogue_and_the_names_of_all() -> None:
    def build(builder: Any, x: Any) -> Any:
        convolved = builder.emit(named(convolution(x), "conv1"))
        biased = builder.emit(
            named(relax.op.add(convolved, constant(np.ones(8, np.float32))), "b1")
        )
        return named(relax.op.nn.relu(biased), "relu1")

    padded, product = calls_of(
        lower_to_kernels(graph_of(build, [np.zeros((1, 5, 5, 4), np.float32)]), HOST)
    )
    assert onnx_nodes_of(padded) == ("conv1/padded",)
    assert onnx_nodes_of(product) == ("conv1", "b1", "relu1")


def test_a_pointwise_convolution_needs_no_copy() -> None:
    def build(_builder: Any, x: Any) -> Any:
        weight = constant(np.ones((1, 1, 4, 8), np.float32))
        return relax.op.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO")

    assert (
        len(calls_of(lower_to_kernels(graph_of(build, [np.zeros((1, 5, 5, 4), "f4")]), HOST))) == 1
    )


def test_views_stay() -> None:
    def build(builder: Any, x: Any) -> Any:
        flat = builder.emit(named(relax.op.reshape(builder.emit(relax.op.exp(x)), (12,)), "view"))
        return relax.op.negative(flat)

    names = [
        call.op.name
        for call in calls_of(lower_to_kernels(graph_of(build, [np.zeros((3, 4), "f4")]), HOST))
    ]
    assert names == ["relax.call_tir", "relax.reshape", "relax.call_tir"]


def test_elementwise_chains_become_one_kernel() -> None:
    def build(builder: Any, x: Any, y: Any) -> Any:
        total = builder.emit(relax.op.add(x, y))
        return relax.op.nn.relu(
            builder.emit(relax.op.multiply(total, builder.emit(relax.op.exp(total))))
        )

    inputs = [np.zeros((3, 4), np.float32)] * 2
    assert len(calls_of(lower_to_kernels(graph_of(build, inputs), HOST))) == 1


def test_a_call_of_another_function_stays() -> None:
    module = graph_of(lambda _b, x: relax.op.exp(x), [np.zeros((3, 4), np.float32)])
    region = module["main"].with_attr("Codegen", "npu").with_attr("global_symbol", "region")
    builder = relax.BlockBuilder()
    variable = builder.add_func(region, "region")
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            inside = builder.emit(
                named(relax.Call(variable, [builder.emit(relax.op.negative(x))]), "n")
            )
            output = builder.emit_output(relax.op.negative(inside))
        builder.emit_func_output(output)
    lowered = lower_to_kernels(builder.get(), HOST)
    kinds = [type(call.op).__name__ for call in calls_of(lowered)]
    assert kinds == ["Op", "GlobalVar", "Op"]
    region_call = calls_of(lowered)[1]
    assert region_call.op.name_hint == "region"
    assert onnx_nodes_of(region_call) == ("n",)
    assert isinstance(lowered["region"], relax.Function)


def test_every_kernel_has_one_outermost_parallel_loop() -> None:
    def build(builder: Any, x: Any) -> Any:
        convolved = builder.emit(convolution(x))
        pooled = builder.emit(relax.op.nn.max_pool2d(convolved, (2, 2), (2, 2), layout="NHWC"))
        return relax.op.nn.softmax(builder.emit(relax.op.mean(pooled, [1, 2])))

    lowered = lower_to_kernels(graph_of(build, [np.zeros((1, 6, 6, 4), np.float32)]), HOST)
    for function in lowered.functions.values():
        if isinstance(function, tirx.PrimFunc):
            text = function.script()
            assert text.count("T.parallel(") == 1
            assert "sblock_alloc_buffer" not in text
