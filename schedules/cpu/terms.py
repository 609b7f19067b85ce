"""The types the CPU templates are written in; TVM itself is untyped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import tvm
from tvm import tirx

Expr: TypeAlias = tvm.ir.Expr
Variable: TypeAlias = tirx.Var

# Where something is: a value for each axis variable.
Point: TypeAlias = Mapping[Variable, Expr]
