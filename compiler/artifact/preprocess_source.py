"""The C function NAME_preprocess of a model that says how its pictures are prepared."""

from __future__ import annotations

from pathlib import Path

from tilewright.compiler.artifact.layout import BOARD, c_name
from tilewright.compiler.preprocessing import ORDERS, Preprocessing
from tilewright.compiler.program import Port, Program
from tilewright.targets.errors import ModelError

HEADER = "preprocess.h"
FOLDER = Path(__file__).parent / "runtime" / "pictures"


def preprocess_declaration(program: Program) -> str:
    """What model.h says; nothing for a model without a description."""
    if program.preprocessing is None:
        return ""
    return f"""
/* Makes the input of a picture: `pixels` are RGB, height x width x 3. Returns 0, or 1 where a
 * picture of this size does not become the input's. Call it before each run. */
int {c_name(program.name)}_preprocess(const tilewright_context *context,
                               const unsigned char *pixels, int32_t height, int32_t width);
"""


def preprocess_source(program: Program) -> str:
    """What model.c holds; nothing for a model without a description."""
    how = program.preprocessing
    if how is None:
        return ""
    port = picture_input(program)
    rows, columns = port.shape[2:] if how.layout == "NCHW" else port.shape[1:3]
    height, width = (*how.resize, 0, 0)[:2]
    crop = how.crop or (0, 0)
    input_at = f"{c_name(program.name)}_input_at(context, 0)"
    return f"""
#include "{HEADER}"

static const tilewright_preprocessing preprocessing = {{
    {{{height}, {width}}}, {{{crop[0]}, {crop[1]}}}, {ORDERS.index(how.order)}, {how.channels},
    {{{_floats(how, "mean")}}}, {{{_floats(how, "scale")}}}, {int(how.layout == "NCHW")}
}};

int {c_name(program.name)}_preprocess(const tilewright_context *context,
                               const unsigned char *pixels, int32_t height, int32_t width) {{
  return tilewright_preprocess(&preprocessing, pixels, height, width, {rows}, {columns},
                               {int(port.dtype == "float32")}, {input_at});
}}
"""


def preprocess_files(program: Program) -> dict[str, bytes]:
    """What model.c includes, by its place in the artifact."""
    if program.preprocessing is None:
        return {}
    return {f"{BOARD}/{HEADER}": (FOLDER / HEADER).read_bytes()}


def picture_input(program: Program) -> Port:
    """The model's only input, which takes a picture; ModelError where it cannot."""
    how = program.preprocessing
    assert how is not None
    port = program.inputs[0]
    channel_axis = 1 if how.layout == "NCHW" else 3
    fits = len(program.inputs) == 1 and len(port.shape) == 4 and port.dtype in ("float32", "uint8")
    if not fits or port.shape[0] != 1 or port.shape[channel_axis] != how.channels:
        raise ModelError(
            f"{port.name}: {port.dtype} {list(port.shape)} takes no picture of {how.channels} "
            f"channels in {how.layout}; correct the preprocessing in the model's metadata"
        )
    return port


def _floats(how: Preprocessing, name: str) -> str:
    """float32 values in hexadecimal, so that C reads the very same numbers."""
    values = how.means() if name == "mean" else how.scales()
    return ", ".join(f"{float(value).hex()}f" for value in values)
