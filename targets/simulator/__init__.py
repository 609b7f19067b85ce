"""The simulated NPU: C sources with the driver's interface, and `Simulator` to run them here."""

from tilewright.targets.simulator.build import HEADERS, SOURCES
from tilewright.targets.simulator.machine import machine_source, machine_struct
from tilewright.targets.simulator.run import Device, EngineStatistics, Simulator, Statistics

__all__ = [
    "HEADERS",
    "SOURCES",
    "Device",
    "EngineStatistics",
    "Simulator",
    "Statistics",
    "machine_source",
    "machine_struct",
]
