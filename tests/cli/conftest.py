"""The fixtures of tests/handmade_program.py, by name."""

from tests.handmade_program import (
    artifact,
    compile_kernels,
    failing_program,
    program,
    saved,
    x,
    y,
)

__all__ = ["artifact", "compile_kernels", "failing_program", "program", "saved", "x", "y"]
