"""Wrong usage and unusable input are one line on standard error, and exit code 2."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import cli, cli_run, cli_target
from tilewright.compiler.artifact import Artifact
from tilewright.targets.errors import VerificationError

Capture = pytest.CaptureFixture[str]


def fails(capsys: Capture, *arguments: str) -> str:
    """The one line on standard error of a command that cannot be carried out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(cli.DEBUG, raising=False)
        try:
            code = cli.main(arguments)
        except SystemExit as exit_:
            code = exit_.code
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.rstrip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "tilewright: the following arguments are required: COMMAND; see tilewright --help"),
        (
            ["compile", "m.onnx", "-o", "out"],
            "tilewright compile: the following arguments are required: --target; "
            "see tilewright compile --help",
        ),
        (
            ["compile", "m.onnx", "--target", "host", "-o", "out", "--shape", "x=1,b"],
            "tilewright compile: argument --shape: 'x=1,b' is no NAME=SHAPE; "
            "write for instance x=1,3,224,224; see tilewright compile --help",
        ),
        (
            ["compile", "m.onnx", "--target", "host", "-o", "out", "--shape", "x=1,0"],
            "tilewright compile: argument --shape: 'x=1,0' is no NAME=SHAPE; "
            "write for instance x=1,3,224,224; see tilewright compile --help",
        ),
        (
            ["compile", "m.onnx", "--target", "host", "-o", "out", "--place", "conv1=gpu"],
            "tilewright compile: argument --place: 'conv1=gpu' is no NODE=cpu or NODE=npu; "
            "write for instance conv1=cpu; see tilewright compile --help",
        ),
        (
            ["run", "out", "--repeat", "0"],
            "tilewright run: argument --repeat: '0' is no count; write 1 or more; "
            "see tilewright run --help",
        ),
        (
            ["run", "out", "--input", "x.npy"],
            "tilewright run: argument --input: 'x.npy' is no NAME=FILE.npy; "
            "write for instance x=x.npy; see tilewright run --help",
        ),
        (
            ["run", "none"],
            "tilewright: none: no such artifact; make one with tilewright compile",
        ),
    ],
)
def test_wrong_usage(capsys: Capture, arguments: list[str], message: str) -> None:
    assert fails(capsys, *arguments) == message


def test_unwritable_output_is_told_before_compiling(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    message = fails(
        capsys, "compile", "no-such.onnx", "--target", "host", "-o", str(tmp_path / "notes.txt")
    )
    assert message == (
        f"tilewright: {tmp_path}/notes.txt: exists and is no artifact; "
        "choose another name or remove it"
    )


def test_run_from_a_file(capsys: Capture, saved: Path, tmp_path: Path) -> None:
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    np.save(tmp_path / "x.npy", x)
    arguments = ["run", str(saved), "--input", f"x={tmp_path}/x.npy", "--repeat", "3"]
    assert cli.main([*arguments, "--output-dir", str(tmp_path / "results")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [
        "output  dtype    shape  least  most  argmax",
        "y       float32  6         10   140       5",
    ]
    assert printed[3].startswith("3 runs on this machine, measured: median ")
    saved_y = np.load(tmp_path / "results" / "y.npy")
    assert np.array_equal(saved_y, x.sum(axis=1) + np.arange(6))


def test_load_is_measured(capsys: Capture, saved: Path) -> None:
    arguments = ["run", str(saved), "--random", "1", "--load", "50", "--in-flight", "3"]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"warm start: \d+ ms from loading to the first outputs, measured", printed[-2]
    )
    assert re.fullmatch(
        r"load: 50 requests, 3 in flight, measured: [\d.]+ a second; latency median [\d.]+ ms, "
        r"95 % within [\d.]+ ms, 99 % within [\d.]+ ms",
        printed[-1],
    )


def test_run_from_a_seed_is_the_same_each_time(
    capsys: Capture, artifact: Artifact, saved: Path
) -> None:
    outputs = []
    for seed in ("5", "5", "6"):
        assert cli.main(["run", str(saved), "--random", seed]) == 0
        outputs.append(capsys.readouterr().out.splitlines()[1])
    assert outputs[0] == outputs[1] != outputs[2]


def test_run_without_inputs_lists_them(capsys: Capture, saved: Path) -> None:
    assert fails(capsys, "run", str(saved)) == (
        "tilewright: row-sums: input x is missing; it takes x: float32 [6, 5]"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "is no .npy file; write one with numpy.save"),
        (b"text", "is no .npy file; write one with numpy.save"),
    ],
)
def test_unreadable_input_files(
    capsys: Capture, saved: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "x.npy"
    if content is not None:
        path.write_bytes(content)
    assert fails(capsys, "run", str(saved), "--input", f"x={path}") == (
        f"tilewright: {path}: {message}"
    )


def test_an_archive_of_arrays_is_refused(capsys: Capture, saved: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(1))
    assert fails(capsys, "run", str(saved), "--input", f"x={tmp_path}/x.npz") == (
        f"tilewright: {tmp_path}/x.npz: holds several arrays; write each with numpy.save"
    )


def test_results_that_cannot_be_written(capsys: Capture, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["run", str(saved), "--random", "1", "--output-dir", f"{tmp_path}/file"]) == 2
    assert capsys.readouterr().err == (
        f"tilewright: {tmp_path}/file: cannot be written: File exists\n"
    )


def test_disassembling_a_cpu_model_says_so(capsys: Capture, saved: Path) -> None:
    assert cli.main(["disassemble", str(saved)]) == 0
    assert capsys.readouterr().out == "; no step of this artifact runs on the NPU\n"


def test_targets_are_listed(capsys: Capture) -> None:
    assert cli.main(["target", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"edge-128", "host", "mcu-16", "raspberry-pi-4"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 1 for line in lines)


def test_unknown_target(capsys: Capture) -> None:
    assert fails(capsys, "target", "show", "edge-127").startswith(
        "tilewright: edge-127: no such target; did you mean edge-128? "
    )


@pytest.mark.parametrize(
    ("raised", "code", "printed"),
    [
        (KeyboardInterrupt(), 130, "tilewright: interrupted\n"),
        (
            ValueError("two\nlines"),
            1,
            "tilewright: internal error: ValueError: two lines; "
            "run again with TILEWRIGHT_DEBUG=1 for the traceback\n",
        ),
        (VerificationError("conv1 disagrees"), 1, "tilewright: conv1 disagrees\n"),
    ],
)
def test_faults_of_ours(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    code: int,
    printed: str,
) -> None:
    def fail() -> list[str]:
        raise raised

    monkeypatch.delenv(cli.DEBUG, raising=False)
    monkeypatch.setattr(cli_target, "list_targets", fail)
    assert cli.main(["target", "list"]) == code
    assert capsys.readouterr().err == printed


def test_the_traceback_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise ValueError("two")

    monkeypatch.setenv(cli.DEBUG, "1")
    monkeypatch.setattr(cli_target, "list_targets", fail)
    with pytest.raises(ValueError, match="two"):
        cli.main(["target", "list"])


def test_target_commands_do_not_load_tvm() -> None:
    code = (
        "import sys; from tilewright.compiler.cli import main; main(['target', 'list']);"
        "sys.exit('tvm' in sys.modules or 'onnxruntime' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_closed_pipe_is_no_error(saved: Path) -> None:
    command = f"{sys.executable} -m tilewright.compiler.cli target list | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_output_names_become_file_names() -> None:
    assert cli_run._file_name("a/b:0") == "a_b_0"
