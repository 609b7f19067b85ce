"""Make int8 models of float ones; docs/quantization.md says how and why."""

from tilewright.compiler.quantize.quantize import Quantized, QuantizeOptions, quantize_model

__all__ = ["QuantizeOptions", "Quantized", "quantize_model"]
