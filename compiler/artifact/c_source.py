"""Write a program as C: model.h for its users, model.c for the compiler, the data as assembly.

The C code is data: tables of tensors and steps, and one short function a kernel call that turns
offsets into pointers. All that moves is in runtime/.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from string import Template

from tilewright.compiler.artifact.layout import (
    ARENA_ALIGNMENT,
    WEIGHT_ALIGNMENT,
    c_name,
    stream_file,
)
from tilewright.compiler.artifact.preprocess_source import (
    preprocess_declaration,
    preprocess_source,
)
from tilewright.compiler.program import KernelCall, NpuCall, Port, Program, Reference
from tilewright.schedules.backends import backend_of
from tilewright.targets.errors import ArtifactError
from tilewright.targets.groups import Npu

RUNTIME = Path(__file__).parent / "runtime"

_DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
_MAX_RANK = 8


def model_header(program: Program, npu_workspace_bytes: int) -> str:
    """model.h: the one header a user includes."""
    return _fill(
        "model.h.in",
        program,
        input_list=_port_list(program.inputs),
        output_list=_port_list(program.outputs),
        arena_bytes=program.arena_bytes,
        arena_alignment=ARENA_ALIGNMENT,
        weight_bytes=len(program.weights),
        weight_alignment=WEIGHT_ALIGNMENT,
        input_count=len(program.inputs),
        output_count=len(program.outputs),
        step_count=len(program.steps),
        uses_npu=int(uses_npu(program)),
        preprocess=preprocess_declaration(program),
        npu=_npu_declarations(program, npu_workspace_bytes) if uses_npu(program) else "",
    )


def model_source(program: Program) -> str:
    """model.c: the tables, and the functions model.h declares."""
    return _fill(
        "model.c.in",
        program,
        declarations="\n".join(_declarations(program)),
        calls="\n".join(
            _call(index, step)
            for index, step in enumerate(program.steps)
            if isinstance(step, KernelCall)
        ),
        model_name=_string(program.name),
        preprocess=preprocess_source(program),
        inputs=_rows(_tensor(port) for port in program.inputs),
        outputs=_rows(_tensor(port) for port in program.outputs),
        steps=_rows(_step(program, index) for index in range(len(program.steps))),
        stream_runner="tilewright_run_stream" if uses_npu(program) else "NULL",
    )


def main_source(program: Program) -> str:
    """main.c: the least a board's firmware does, to begin from."""
    return _fill("main.c.in", program)


def machine_definition(program: Program, npu: Npu) -> str:
    """npu_machine.c: the NPU's numbers for the simulator."""
    source = backend_of(npu).machine_source(npu, machine_symbol(program))
    return f'#include "npu_simulator.h"\n\n{source}'


def machine_symbol(program: Program) -> str:
    return f"{c_name(program.name)}_npu_machine"


def weights_assembly(program: Program) -> str:
    """weights.S: the weights as a read-only section `NAME_weights`, for boards that link them."""
    symbol = f"{c_name(program.name)}_weights"
    return _assembly([(symbol, "weights.bin", WEIGHT_ALIGNMENT)])


def streams_assembly(program: Program) -> str:
    """streams.S: the command streams as read-only data; empty of data for a CPU-only model."""
    return _assembly(
        [
            (f"{c_name(program.name)}_stream_{index}", f"streams/{step.symbol}.bin", 64)
            for index, step in enumerate(program.steps)
            if isinstance(step, NpuCall)
        ]
    )


def step_name(program: Program, step: KernelCall | NpuCall) -> str:
    """What a failing step is called: the operators it runs, the first few where there are many."""
    names = [str(program.operators[index]["name"]) for index in step.operators]
    return ", ".join(names[:3] + ["..."] * (len(names) > 3)) or step.symbol


def uses_npu(program: Program) -> bool:
    return any(isinstance(step, NpuCall) for step in program.steps)


def stream_files(program: Program) -> dict[str, bytes]:
    """The command streams by their place in the artifact."""
    calls = [step for step in program.steps if isinstance(step, NpuCall)]
    files = {stream_file(call.symbol): call.stream for call in calls}
    assert len(files) == len(calls), "two NPU calls of one symbol"
    return files


def _fill(template: str, program: Program, **values: object) -> str:
    name = c_name(program.name)
    text = Template((RUNTIME / template).read_text(encoding="utf-8"))
    return text.substitute(
        values, name=name, guard=f"{name.upper()}_MODEL_H", title=_comment(program.name)
    )


def _declarations(program: Program) -> Iterable[str]:
    """One a symbol; a kernel called with two counts of arguments is a mistake of ours."""
    arities: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        if isinstance(step, NpuCall):
            yield f"extern const unsigned char {c_name(program.name)}_stream_{index}[];"
            continue
        arity = len(step.arguments)
        assert arities.setdefault(step.symbol, arity) == arity, step.symbol
    for symbol, arity in sorted(arities.items()):
        yield f"extern int32_t {symbol}({'void *, ' * arity}int32_t, int32_t);"


def _call(index: int, step: KernelCall) -> str:
    arguments = "".join(f"{_pointer(argument)}, " for argument in step.arguments)
    return (
        f"static int32_t call_{index}(const void *argument, int32_t begin, int32_t end) {{\n"
        "  const tilewright_context *context = (const tilewright_context *)argument;\n"
        "  (void)context;\n"
        f"  return {step.symbol}({arguments}begin, end);\n"
        "}\n"
    )


def _pointer(reference: Reference) -> str:
    if reference.region == "weights":
        # Kernels take every buffer as void *; they only read this one.
        return f"(void *)(uintptr_t)(context->weights + {reference.offset})"
    return f"context->arena + {reference.offset}"


def _step(program: Program, index: int) -> str:
    step = program.steps[index]
    name = _string(step_name(program, step))
    if isinstance(step, KernelCall):
        return f"{{{name}, call_{index}, {step.tasks}, NULL, 0}}"
    return f"{{{name}, NULL, 0, {c_name(program.name)}_stream_{index}, {len(step.stream)}}}"


def _tensor(port: Port) -> str:
    if port.dtype not in _DTYPES or len(port.shape) > _MAX_RANK:
        raise ArtifactError(
            f"{port.name}: the C interface has no {port.dtype} tensor of rank {len(port.shape)}; "
            f"it has ranks up to {_MAX_RANK} of {', '.join(_DTYPES)}"
        )
    shape = ", ".join(str(extent) for extent in port.shape) or "0"
    scale = 0.0 if port.scale is None else port.scale
    return (
        f"{{{_string(port.name)}, TILEWRIGHT_{port.dtype.upper()}, {len(port.shape)}, "
        f"{{{shape}}}, {port.bytes}, {port.offset}, {float(scale)!r}f, {port.zero or 0}}}"
    )


def _rows(rows: Iterable[str]) -> str:
    """C has no empty table, so one of nothing stands for it."""
    return ",\n    ".join(rows) or "{0}"


def _npu_declarations(program: Program, workspace_bytes: int) -> str:
    return f"""
/* For the simulated NPU of npu_simulator.h: what the command streams are made for, and the
 * workspace they take. A program with a driver of its own leaves both unmentioned. */
struct npu_machine;
extern const struct npu_machine {machine_symbol(program)};
#define {c_name(program.name)}_NPU_WORKSPACE_BYTES {workspace_bytes}u
"""


def _port_list(ports: Iterable[Port]) -> str:
    """A line of comment a port: ` *   0  "x"  float32 1x3x224x224  NCHW`."""
    return "\n".join(
        f" *   {index}  {_comment(json.dumps(port.name))}  {port.dtype} "
        f"{'x'.join(map(str, port.shape)) or 'scalar'}  {_comment(port.layout)}".rstrip()
        for index, port in enumerate(ports)
    )


def _comment(text: str) -> str:
    """`text` for the inside of a C comment: printable ASCII that cannot end it."""
    readable = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return readable.replace("*/", "* /").replace("/*", "/ *")


def _string(text: str) -> str:
    """A C string literal; octal escapes end after three digits, whatever follows."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{plain}"'


def _assembly(blobs: Iterable[tuple[str, str, int]]) -> str:
    """Read-only data from files, for the GNU and LLVM assemblers of every ELF machine.

    `%` rather than `@` before the section types, since `@` begins a comment on Arm.
    """
    lines = ['  .section .rodata,"a",%progbits']
    for symbol, file, alignment in blobs:
        lines += [
            f"  .balign {alignment}",
            f"  .global {symbol}",
            f"  .type {symbol}, %object",
            f"{symbol}:",
            f'  .incbin "{file}"',
            f"  .size {symbol}, . - {symbol}",
        ]
    lines += ["#ifdef __linux__", '  .section .note.GNU-stack,"",%progbits', "#endif"]
    return "\n".join(lines) + "\n"
