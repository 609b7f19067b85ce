"""The command `tilewright`: reads the command line, turns every error into one line.

Each group of commands is a file of its own and imports what it needs when it runs: help and target
commands start without loading TVM.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from tilewright.compiler import (
    cli_compare,
    cli_compile,
    cli_diff,
    cli_disassemble,
    cli_inspect,
    cli_memory,
    cli_profile,
    cli_quantize,
    cli_run,
    cli_target,
    cli_tune,
)
from tilewright.targets.errors import TilewrightError, VerificationError

DONE, OUR_FAULT, UNUSABLE_INPUT, INTERRUPTED = 0, 1, 2, 130
DEBUG = "TILEWRIGHT_DEBUG"


class _Parser(argparse.ArgumentParser):
    """Wrong usage in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: done; 1: a fault of ours; 2: wrong usage or unusable input."""
    try:
        options = _parser().parse_args(arguments)
        options.command(options)
        sys.stdout.flush()
    except VerificationError as error:
        return _fail(OUR_FAULT, str(error))
    except TilewrightError as error:
        return _fail(UNUSABLE_INPUT, str(error))
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may go to that pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        fact = f"{type(error).__name__}: {error}"
        return _fail(
            OUR_FAULT, f"internal error: {fact}; run again with {DEBUG}=1 for the traceback"
        )
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tilewright", description="Compile ONNX models for boards with a CPU and an NPU."
    )
    parser.add_argument("--version", action="version", version=version("tilewright"))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (
        cli_inspect,
        cli_compare,
        cli_compile,
        cli_run,
        cli_profile,
        cli_diff,
        cli_memory,
        cli_quantize,
        cli_target,
        cli_tune,
        cli_disassemble,
    ):
        group.add_commands(commands)
    return parser


def _fail(code: int, message: str) -> int:
    print(f"tilewright: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
