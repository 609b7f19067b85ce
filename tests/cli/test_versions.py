"""Caches, locks and comparisons: what an unchanged, a changed and an upgraded build meet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler import cli, tool_chain
from tilewright.compiler.artifact.manifest import read_manifest, seal

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """y = x @ weights, the weights in a file beside the model; an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_model(tmp_path, 1.0)


def write_model(folder: Path, value: float) -> Path:
    weights = numpy_helper.from_array(np.full((300, 4), value, np.float32), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"], "product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = folder / "product.onnx"
    (folder / "product.data").unlink(missing_ok=True)
    onnx.save_model(made, path, save_as_external_data=True, location="product.data")
    return path


def compile_(model: Path, output: str, *options: str) -> int:
    place = str(model.parent / output)
    return cli.main(["compile", str(model), "--target", "host", "-o", place, *options])


def from_cache(capture: Capture, model: Path, *options: str) -> bool:
    assert compile_(model, "out", *options) == 0
    return "taken from the cache" in capture.readouterr().out


def test_an_unchanged_compile_comes_from_the_cache(capsys: Capture, model: Path) -> None:
    assert not from_cache(capsys, model)
    shutil.move(model.parent / "out", model.parent / "first")
    assert from_cache(capsys, model)
    first, second = (read_manifest(model.parent / name) for name in ("first", "out"))
    assert first == second
    assert not from_cache(capsys, model, "--no-cache")
    assert not from_cache(capsys, model, "--place", "product=cpu")


def test_changed_weights_beside_the_model_are_noticed(capsys: Capture, model: Path) -> None:
    assert not from_cache(capsys, model)
    write_model(model.parent, 2.0)
    assert not from_cache(capsys, model)
    assert from_cache(capsys, model)


def test_another_tool_chain_is_noticed(
    capsys: Capture, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not from_cache(capsys, model)
    monkeypatch.setattr(tool_chain, "own_digest", lambda: "another")
    assert not from_cache(capsys, model)


def test_a_damaged_entry_is_compiled_anew(capsys: Capture, model: Path) -> None:
    assert not from_cache(capsys, model)
    (weights,) = (model.parent / "cache").rglob("weights.bin")
    weights.write_bytes(b"damaged")
    assert not from_cache(capsys, model)
    assert from_cache(capsys, model)


def test_a_cache_that_cannot_be_written_does_not_matter(
    capsys: Capture, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(model))  # a file
    assert not from_cache(capsys, model)
    assert not from_cache(capsys, model)


def test_a_hit_does_not_load_tvm(model: Path) -> None:
    assert compile_(model, "out") == 0
    code = (
        "import sys; from tilewright.compiler.cli import main; main(sys.argv[1:]);"
        "sys.exit(any(name in sys.modules for name in ('tvm', 'onnxruntime')))"
    )
    arguments = ["compile", str(model), "--target", "host", "-o", str(model.parent / "again")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=os.environ, capture_output=True, text=True
    )
    assert "taken from the cache" in done.stdout
    assert done.returncode == 0, done.stderr


def test_a_lock_holds_the_tool_chain(
    capsys: Capture, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = model.parent / "tools.lock"
    assert compile_(model, "out", "--lock", str(lock)) == 2
    assert capsys.readouterr().err == (
        f"tilewright: {lock}: no such lock file; make one with --write-lock\n"
    )
    assert compile_(model, "out", "--write-lock", str(lock)) == 0
    assert compile_(model, "out", "--lock", str(lock)) == 0
    table = json.loads(lock.read_text())
    table["tool_chain"] |= {"onnx": "1.0", "python": "2.7"}
    lock.write_text(json.dumps(table))
    capsys.readouterr()
    assert compile_(model, "out", "--lock", str(lock)) == 2
    message = capsys.readouterr().err
    assert f"onnx is {onnx.__version__}, locked is 1.0; python is " in message
    assert message.endswith("install what is locked, or lock this one with --write-lock\n")
    lock.write_text("{}")
    assert compile_(model, "out", "--lock", str(lock)) == 2
    assert capsys.readouterr().err == (
        f"tilewright: {lock}: is no lock file; make one with --write-lock\n"
    )


def test_equal_artifacts_exceed_no_limit(capsys: Capture, model: Path) -> None:
    assert compile_(model, "old") == compile_(model, "new") == 0
    capsys.readouterr()
    limits = ["--max-latency-percent", "0", "--max-memory-percent", "0"]
    limits += ["--max-output-difference", "0", "--max-moved", "0"]
    assert cli.main(["diff", str(model.parent / "old"), str(model.parent / "new"), *limits]) == 0
    assert "output y: the same bits" in capsys.readouterr().out


def test_changes_are_told_and_limits_fail(capsys: Capture, model: Path) -> None:
    old, new = (model.parent / name for name in ("old", "new"))
    assert compile_(model, "old") == 0
    write_model(model.parent, 1.5)
    assert compile_(model, "new") == 0
    report = json.loads((new / "report.json").read_text())
    report["operators"][0]["device"] = "npu"
    report["totals"]["latency_ms"] *= 1.2
    report["totals"]["arena_bytes"] *= 2
    (new / "report.json").write_text(json.dumps(report))
    manifest = read_manifest(new)
    seal({**manifest, "versions": {**manifest["versions"], "tvm": "9"}}, new)
    capsys.readouterr()
    assert cli.main(["diff", str(old), str(new)]) == 0
    printed = capsys.readouterr().out
    assert f"tvm: {manifest['versions']['tvm']} -> 9" in printed
    assert "12 of 12 elements differ, by " in printed
    assert "product: cpu -> npu" in printed
    for limit, fact in [
        (["--max-latency-percent", "10"], "latency_ms grew by 20.0 %, allowed are 10 %"),
        (["--max-memory-percent", "50"], "arena_bytes grew by 100.0 %, allowed are 50 %"),
        (["--max-output-difference", "0.001"], "output y differs by "),
        (["--max-moved", "0"], "1 nodes moved, product first; allowed are 0"),
    ]:
        assert cli.main(["diff", str(old), str(new), *limit]) == 1
        assert capsys.readouterr().err.startswith(f"tilewright: {new}: {fact}")
    assert cli.main(["diff", str(old), str(new), "--max-latency-percent", "21"]) == 0


def test_artifacts_of_two_models_are_not_compared(
    capsys: Capture, model: Path, saved: Path
) -> None:
    assert compile_(model, "old") == 0
    capsys.readouterr()
    assert cli.main(["diff", str(model.parent / "old"), str(saved)]) == 2
    assert "compare artifacts of one model" in capsys.readouterr().err
