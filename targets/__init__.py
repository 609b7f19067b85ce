"""Boards and chips as plain data: descriptions, support, instruction set and simulator."""

from tilewright.targets.description import Cpu, Memory, Npu, Target, list_targets, load_target

__all__ = ["Cpu", "Memory", "Npu", "Target", "list_targets", "load_target"]
