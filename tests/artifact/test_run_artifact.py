"""Arrays go in by name and come out by name; what does not fit is refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.artifact import Artifact, load_artifact, make_artifact
from tilewright.compiler.program import Program
from tilewright.targets.errors import ArtifactError

Array = np.ndarray[Any, Any]


def test_outputs_come_by_name(artifact: Artifact, x: Array, y: Array) -> None:
    outputs = artifact.run({"x": x})
    assert list(outputs) == ["y"]
    assert np.array_equal(outputs["y"], y)


def test_outputs_outlive_the_next_run(artifact: Artifact, x: Array, y: Array) -> None:
    first = artifact.run({"x": x})["y"]
    artifact.run({"x": 2 * x})
    assert np.array_equal(first, y)


@pytest.mark.parametrize(
    "rearrange",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: unaligned(x),
    ],
    ids=["fortran", "strided", "negative strides", "byte-swapped", "unaligned"],
)
def test_memory_order_does_not_matter(
    artifact: Artifact, x: Array, y: Array, rearrange: Any
) -> None:
    assert np.array_equal(artifact.run({"x": rearrange(x)})["y"], y)


def unaligned(x: Array) -> Array:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    shifted = memory[1:].view(x.dtype).reshape(x.shape)
    shifted[:] = x
    return shifted


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"z": np.zeros((6, 5), np.float32)},
            "row-sums: has no input z; it takes x: float32 [6, 5]",
        ),
        ({}, "row-sums: input x is missing; it takes x: float32 [6, 5]"),
        (
            {"x": np.zeros((6, 5), np.float32), "mask": np.zeros(1)},
            "row-sums: has no input mask; it takes x: float32 [6, 5]",
        ),
        (
            {"x": np.zeros((5, 6), np.float32)},
            "row-sums: input x has shape [5, 6], the model takes [6, 5]",
        ),
        (
            {"x": np.zeros((6, 5))},
            "row-sums: input x is float64, the model takes float32; "
            "convert it, for instance with .astype('float32')",
        ),
        (
            {"x": [[1, 2], [3]]},
            "row-sums: input x is no array; it takes x: float32 [6, 5]",
        ),
        (
            np.zeros((6, 5), np.float32),
            "row-sums: inputs must be given by name, as {name: array}; it takes x: float32 [6, 5]",
        ),
    ],
)
def test_wrong_inputs_are_explained(
    artifact: Artifact, inputs: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ArtifactError) as error:
        artifact.run(inputs)
    assert str(error.value) == message


def test_inputs_can_be_written_straight_into_the_arena(
    artifact: Artifact, x: Array, y: Array
) -> None:
    artifact.input("x")[:] = x
    assert np.array_equal(artifact.run()["y"], y)
    assert np.array_equal(artifact.output("y"), y)


def test_arrays_that_lie_in_the_arena_are_read_before_they_are_overwritten(
    artifact: Artifact, x: Array, y: Array
) -> None:
    place = artifact.input("x")
    place[:] = x[::-1]
    assert np.array_equal(artifact.run({"x": place[::-1]})["y"], y)


def test_unknown_names_are_explained(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError) as error:
        artifact.output("z")
    assert str(error.value) == "row-sums: has no output 'z'; its outputs are y"


def test_a_failing_kernel_is_named_by_its_operator(failing_program: Program, x: Array) -> None:
    with make_artifact(failing_program) as artifact, pytest.raises(ArtifactError) as error:
        artifact.run({"x": x})
    assert str(error.value) == "sum: the kernel failed with -7"


def test_running_up_to_a_step_shows_what_it_computed(artifact: Artifact, x: Array) -> None:
    artifact.output("y")[:] = -1
    artifact.input("x")[:] = x
    artifact.run_until(1)
    assert np.allclose(artifact.tensor(128, (6,), "float32"), x.sum(axis=1))
    assert np.all(artifact.output("y") == -1)
    with pytest.raises(ArtifactError, match="row-sums: has no step 3"):
        artifact.run_until(3)


@pytest.mark.parametrize("threads", [1, 2, 5, 16])
def test_any_number_of_threads_gives_the_same(
    saved: Path, x: Array, y: Array, threads: int
) -> None:
    with load_artifact(saved, threads=threads) as artifact:
        for _ in range(50):
            assert np.array_equal(artifact.run({"x": x})["y"], y)


def test_no_threads_are_refused(saved: Path) -> None:
    with pytest.raises(ArtifactError) as error:
        load_artifact(saved, threads=0)
    assert str(error.value) == "0 threads cannot run a model; ask for 1 or more"


def test_callers_on_many_threads_take_turns(artifact: Artifact, x: Array, y: Array) -> None:
    wrong: list[int] = []

    def call(factor: int) -> None:
        for _ in range(20):
            if not np.array_equal(artifact.run({"x": x * factor})["y"], expected[factor]):
                wrong.append(factor)

    bias = np.arange(6, dtype=np.float32)
    expected = {factor: (y - bias) * factor + bias for factor in (0, 1)}
    expected[1] = y
    callers = [threading.Thread(target=call, args=(factor,)) for factor in (0, 1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_several_artifacts_run_in_one_process(
    artifact: Artifact, program: Program, failing_program: Program, x: Array, y: Array
) -> None:
    with make_artifact(failing_program) as failing, make_artifact(program) as second:
        first = artifact.run({"x": x})["y"]
        with pytest.raises(ArtifactError):
            failing.run({"x": x})
        assert np.array_equal(second.run({"x": x})["y"], first)
        assert np.array_equal(artifact.output("y"), y)


def test_a_closed_artifact_says_so(saved: Path, x: Array) -> None:
    with load_artifact(saved) as artifact:
        pass
    with pytest.raises(ArtifactError) as error:
        artifact.run({"x": x})
    assert str(error.value) == "row_sums: was closed and cannot run; load it again"
    artifact.close()


def test_an_artifact_may_live_until_the_interpreter_ends(saved: Path, artifact: Artifact) -> None:
    artifact.save(saved, tar=True)
    code = (
        "from tilewright.compiler import load_artifact; import numpy as np;"
        f"kept = [load_artifact('{saved}', threads=2), load_artifact('{saved}.tar', threads=2)];"
        "[one.run({'x': np.zeros((6, 5), np.float32)}) for one in kept];"
        "print(kept[1].directory)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()


def test_a_forked_process_runs_on(artifact: Artifact, x: Array, y: Array) -> None:
    """Workers do not survive a fork; without new ones the child would wait for ever."""
    artifact.run({"x": x})
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(artifact.run({"x": x})["y"], y) else 1)
    assert os.waitpid(child, 0)[1] == 0
