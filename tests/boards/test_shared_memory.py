"""Two models that share one arena and one NPU: what they take together, and that it is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boards.on_board import HERE, run
from tilewright.compiler import cli, compile_model
from tilewright.compiler.artifact import Artifact
from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.artifact.elf import ElfObject
from tilewright.compiler.artifact.shared_memory import shared_memory
from tilewright.targets.description import BOARDS, parse_target
from tilewright.targets.errors import ArtifactError

MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(scope="module")
def pair() -> list[Artifact]:
    """A mcu-16's NPU beside this machine's CPU, so that firmware runs without an emulator."""
    npu = (BOARDS / "mcu-16.toml").read_text().partition("[cpu]")[0]
    host = (BOARDS / "host.toml").read_text()
    target = parse_target(f"{npu}\n{host[host.index('[cpu]') :]}", "pair.toml")
    names = ("dscnn_kws_int8", "autoencoder_ad_int8")
    return [compile_model(MODELS / f"{name}.onnx", target) for name in names]


def test_the_combined_peak_is_the_larger_arena(pair: list[Artifact]) -> None:
    together = shared_memory(pair)
    arenas = [artifact.manifest["arena"]["bytes"] for artifact in pair]
    assert (together.arena, together.arenas_apart) == (max(arenas), sum(arenas))
    alone = [shared_memory([artifact]) for artifact in pair]
    for artifact, one in zip(pair, alone, strict=True):
        linked = artifact.report["memory"]["linked"]
        assert (one.flash, one.ram) == (linked["flash"], linked["ram"])
    assert together.ram is not None and together.flash is not None
    assert max(one.ram or 0 for one in alone) < together.ram < sum(one.ram or 0 for one in alone)
    assert together.weights == sum(one.weights for one in alone)


def test_both_run_in_it(pair: list[Artifact], tmp_path: Path) -> None:
    together = shared_memory(pair)
    first, second = pair
    for name, artifact in (("first", first), ("second", second)):
        artifact.save(tmp_path / name)
    command = ["gcc", "-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror", "-I."]
    command += [f"-D{name}={artifact.manifest['c_name']}" for name, artifact in
                (("FIRST", first), ("SECOND", second))]  # fmt: skip
    command += [f"-DARENA_BYTES={together.arena}", f"-DWORKSPACE_BYTES={together.npu_workspace}"]
    command += ["-Ifirst/board", str(HERE / "two_models.c")]
    libraries = ["first/board/libmodel.a", "second/board/libmodel.a", "-lm", "-lpthread"]
    run([*command, *libraries, "-o", "firmware"], tmp_path)
    turns = [(first, 0), (second, 1), (first, 2)]
    feeds = [random_inputs(artifact.manifest, seed) for artifact, seed in turns]
    inputs = b"".join(array.tobytes() for feed in feeds for array in feed.values())
    (tmp_path / "inputs.bin").write_bytes(inputs)
    assert run(["./firmware"], tmp_path) == "done\n"
    expected = [
        values.tobytes()
        for (artifact, _), feed in zip(turns, feeds, strict=True)
        for values in artifact.run(feed).values()
    ]
    assert (tmp_path / "outputs.bin").read_bytes() == b"".join(expected)
    sizes = ElfObject((tmp_path / "firmware").read_bytes()).symbol_sizes()
    assert sizes["model_arena"] == together.arena


def test_the_main_that_comes_along_simulates_the_npu(pair: list[Artifact], tmp_path: Path) -> None:
    board = pair[0].directory / "board"
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{board}"]
    run([*command, f"{board}/main.c", f"{board}/libmodel.a", "-lm", "-o", "main"], tmp_path)
    assert run(["./main"], tmp_path).strip() == pair[0].manifest["outputs"][0]["name"]


def test_the_command_prints_it(
    pair: list[Artifact], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, artifact in enumerate(pair):
        artifact.save(tmp_path / str(index))
    assert cli.main(["memory", str(tmp_path / "0"), str(tmp_path / "1")]) == 0
    printed = capsys.readouterr().out.splitlines()
    together = shared_memory(pair)
    assert printed[-3].split() == [
        "together",
        *(f"{size:,}" for size in (together.arena, together.weights, together.flash, together.ram)),
    ]
    assert printed[-1] == f"in bytes; with an arena each: {together.arenas_apart:,}"


def test_models_of_two_boards_share_nothing(pair: list[Artifact]) -> None:
    other = compile_model(MODELS / "mnist_conv_fp32.onnx", "host")
    with pytest.raises(ArtifactError, match="share memory only on one board"):
        shared_memory([pair[0], other])
    with pytest.raises(ArtifactError, match="no artifacts: share memory only on one board"):
        shared_memory([])
