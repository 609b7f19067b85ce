"""Read ONNX models: `load_model`, then `prepare`, then `import_to_relax`."""

from tilewright.compiler.frontend.loading import load_model
from tilewright.compiler.frontend.prepare import prepare
from tilewright.compiler.frontend.relax_import import import_to_relax

__all__ = ["import_to_relax", "load_model", "prepare"]
