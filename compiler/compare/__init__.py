"""Lay an artifact beside the model it came from; see `compare.py`."""

from tilewright.compiler.compare.compare import Row, Wishes, compare, compiled_source, first_below

__all__ = ["Row", "Wishes", "compare", "compiled_source", "first_below"]
