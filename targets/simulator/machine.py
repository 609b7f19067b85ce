"""A target description's [npu] as the C structure `npu_machine` that the simulator takes."""

from __future__ import annotations

import ctypes

from tilewright.targets.groups import Npu
from tilewright.targets.timing import dram_millibytes_per_cycle

_REDUCTIONS = ("flattened", "channels")
_DEPTHWISE_MODES = ("diagonal", "vector", "unit")


class Machine(ctypes.Structure):
    """`npu_machine` of npu_simulator.h, field by field."""

    _fields_ = [
        *(
            (name, ctypes.c_uint32)
            for name in (
                "rows", "columns", "reduction", "subarrays",
                "weight_double_buffer", "weight_rows_per_cycle",
                "depthwise_mode", "depthwise_macs_per_cycle",
                "vector_lanes", "vector_startup_cycles",
                "sram_bytes", "banks", "bank_bytes_per_cycle", "accumulator_bytes",
                "dma_bytes_per_cycle", "dram_millibytes_per_cycle", "dma_latency_cycles",
                "burst_bytes", "queue_depth", "issue_cycles",
                "channel_alignment", "dram_channels_multiple", "table_alignment",
                "table_channels_multiple",
            )
        ),
        *(
            (name, ctypes.c_uint64)
            for name in ("mac_fj", "sram_byte_fj", "dram_byte_fj", "idle_fj_per_cycle")
        ),
        ("digest", ctypes.c_uint8 * 8),
    ]  # fmt: skip


def machine_values(npu: Npu) -> dict[str, int]:
    """The integers of `npu_machine` by field, all but the digest."""
    array, memory, energy = npu.array, npu.memory, npu.energy
    return {
        "rows": array.rows,
        "columns": array.columns,
        "reduction": _REDUCTIONS.index(array.reduction),
        "subarrays": array.subarrays,
        "weight_double_buffer": int(array.weight_double_buffer),
        "weight_rows_per_cycle": array.weight_rows_per_cycle,
        "depthwise_mode": _DEPTHWISE_MODES.index(npu.depthwise.mode),
        "depthwise_macs_per_cycle": npu.depthwise.macs_per_cycle,
        "vector_lanes": npu.vector.lanes,
        "vector_startup_cycles": npu.vector.startup_cycles,
        "sram_bytes": npu.sram_bytes,
        "banks": memory.banks,
        "bank_bytes_per_cycle": memory.bank_bytes_per_cycle,
        "accumulator_bytes": npu.accumulator_bytes,
        "dma_bytes_per_cycle": memory.dma_bytes_per_cycle,
        "dram_millibytes_per_cycle": dram_millibytes_per_cycle(npu),
        "dma_latency_cycles": memory.dma_latency_cycles,
        "burst_bytes": memory.burst_bytes,
        "queue_depth": npu.dispatch.queue_depth,
        "issue_cycles": npu.dispatch.issue_cycles,
        "channel_alignment": npu.layout.channel_alignment,
        "dram_channels_multiple": npu.layout.dram_channels_multiple,
        "table_alignment": npu.tables.alignment,
        "table_channels_multiple": npu.tables.channels_multiple,
        "mac_fj": round(energy.mac_pj * 1000),
        "sram_byte_fj": round(energy.sram_byte_pj * 1000),
        "dram_byte_fj": round(energy.dram_byte_pj * 1000),
        # 1 mW at 1 MHz is 1 nJ a cycle.
        "idle_fj_per_cycle": round(energy.idle_mw * 1e6 / npu.clock_mhz),
    }


def machine_struct(npu: Npu) -> Machine:
    """The structure for ctypes."""
    return Machine(**machine_values(npu), digest=(ctypes.c_uint8 * 8)(*npu.digest[:8]))


def machine_source(npu: Npu, name: str) -> str:
    """A C definition of `const npu_machine name`; the file must include npu_simulator.h."""
    lines = [f"  .{field} = {value}u," for field, value in machine_values(npu).items()]
    digest = ", ".join(f"0x{byte:02x}" for byte in npu.digest[:8])
    return "\n".join(
        [f"const npu_machine {name} = {{", *lines, f"  .digest = {{{digest}}},", "};", ""]
    )
