"""The tables of a board description as classes: every field is one key of the TOML file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property

from tilewright.targets.schema import key

BUNDLED_BACKEND = "tilewright"
OPERATOR_KINDS = (
    "conv2d", "depthwise", "matmul", "add", "sub", "mul", "lookup", "max_pool", "average_pool",
    "pad", "copy",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Array:
    """[npu.array] The systolic MAC array and how a convolution maps onto it."""

    rows: int = key("reduction lanes", 1, 1024)
    columns: int = key("output channels at once", 1, 1024)
    reduction: str = key(
        "what fills the rows: kernel taps x channels, or channels with the taps in turn",
        choices=("flattened", "channels"),
    )
    subarrays: int = key("parts that take different pixels", 1, 64, default=1)
    weight_double_buffer: bool = key("the next weights load under the current pass", default=True)
    weight_rows_per_cycle: int = key("rows of weights loaded a cycle", 1, 1024, default=1)


@dataclass(frozen=True, kw_only=True)
class DepthwiseMapping:
    """[npu.depthwise] Where depthwise convolution runs."""

    mode: str = key(
        "on the array's diagonal, with the vector lanes, or on a unit of its own",
        choices=("diagonal", "vector", "unit"),
    )
    macs_per_cycle: int = key("of the unit; only for mode unit", 0, 65536, default=0)


@dataclass(frozen=True, kw_only=True)
class Vector:
    """[npu.vector] The engine for everything that is not a multiply-accumulate."""

    lanes: int = key("elements a cycle", 1, 4096)
    startup_cycles: int = key("cycles before the first result", 0, 10000)


@dataclass(frozen=True, kw_only=True)
class NpuMemory:
    """[npu.memory] Scratchpad, accumulators, and the way to DRAM."""

    sram_kib: int = key("scratchpad", 1, 65536)
    banks: int = key("equal contiguous parts of the scratchpad", 1, 64)
    bank_bytes_per_cycle: int = key("one bank serves all engines with", 1, 4096)
    accumulator_kib: int = key("int32 accumulators", 1, 16384)
    dram_gb_per_s: float = key("DRAM bandwidth the NPU gets", 0.01, 2000)
    dma_bytes_per_cycle: int = key("one DMA engine's port", 1, 4096)
    dma_latency_cycles: int = key("from the start of a transfer to its first byte", 0, 10000)
    burst_bytes: int = key("every contiguous run moves whole bursts", 1, 4096)


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """[npu.dispatch] How instructions reach the engines' queues."""

    queue_depth: int = key("instructions an engine's queue holds", 1, 1024)
    issue_cycles: int = key("cycles between two instructions", 1, 1000)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """[npu.layout] What the hardware reads and writes at once."""

    channel_alignment: int = key("channels (bytes) of a group; pitches are multiples", 1, 256)
    dram_channels_multiple: int = key(
        "a tensor in DRAM holds a whole multiple of this many channels; 1: the DMA gathers any",
        1, 256, default=1,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tables:
    """[npu.tables] Biases, multipliers and look-up tables in SRAM."""

    alignment: int = key("bytes, of a table's address", 1, 4096)
    channels_multiple: int = key("a table holds a whole multiple of this many channels", 1, 1024)
    order: str = key(
        "which of an operator's tables lies first in the constants",
        choices=("bias_first", "multiplier_first"),
        default="bias_first",
    )


@dataclass(frozen=True, kw_only=True)
class ConvolutionLimits:
    """[npu.support.conv2d] Also for depthwise."""

    max_kernel: int = key("taps along one side", 1, 255)
    max_stride: int = key("pixels", 1, 255)
    max_dilation: int = key("pixels", 1, 255, default=1)
    grouped: bool = key("other groups than one and depthwise", default=True)
    weight_zero_points: bool = key("weights with a zero point other than 0", default=True)


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """[npu.support.pool] Windows as large as the image are global pooling."""

    max_kernel: int = key("taps along one side", 1, 65535)
    max_stride: int = key("pixels", 1, 255)


@dataclass(frozen=True, kw_only=True)
class Support:
    """[npu.support] What the NPU takes; everything else stays on the CPU."""

    operators: tuple[str, ...] = key("kinds of operators", choices=OPERATOR_KINDS)
    dtypes: tuple[str, ...] = key("of activations", choices=("int8", "uint8"))
    conv2d: ConvolutionLimits
    pool: PoolLimits
    max_extent: int = key("height, width or channels of a tensor", 1, 65535, default=65535)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """[npu.arithmetic] How accumulators become int8."""

    requantize: str = key(
        "float32: multiply, divide, round half to even", choices=("float32",), default="float32"
    )


@dataclass(frozen=True, kw_only=True)
class Energy:
    """[npu.energy]"""

    mac_pj: float = key("one int8 multiply-accumulate", 0, 1000)
    sram_byte_pj: float = key("one byte read or written in the scratchpad", 0, 10000)
    dram_byte_pj: float = key("one byte moved to or from DRAM", 0, 100000)
    idle_mw: float = key("leakage and clock tree, drawn all the time", 0, 100000)


@dataclass(frozen=True, kw_only=True)
class Thermal:
    """[npu.thermal] How the NPU warms up, as one lump, and where it is slowed down.

    Between two throttle points the clock follows a straight line.
    """

    resistance_k_per_w: float = key("from the NPU to the air around", 0.001, 10000)
    capacity_j_per_k: float = key("of the chip and what it is mounted on", 0.0001, 100000)
    ambient_c: float = key("of the air around", -60, 150, default=25.0)
    throttle_c: tuple[float, ...] = key("temperatures of the throttle points, rising", -60, 200)
    throttle_clock_percent: tuple[float, ...] = key(
        "of the clock at each of these points, falling; the first is 100", 1, 100
    )


@dataclass(frozen=True, kw_only=True)
class Npu:
    """[npu] One NPU core."""

    backend: str = key(
        "the instruction set: the bundled one, or that of a plug-in", default=BUNDLED_BACKEND
    )
    clock_mhz: float = key("of the NPU", 1, 10000)
    array: Array
    depthwise: DepthwiseMapping
    vector: Vector
    memory: NpuMemory
    dispatch: Dispatch
    layout: Layout
    tables: Tables
    support: Support
    energy: Energy
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    thermal: Thermal | None = None

    @property
    def macs_per_cycle(self) -> int:
        return self.array.rows * self.array.columns

    @property
    def depthwise_macs_per_cycle(self) -> int:
        """The most the depthwise mapping can reach."""
        if self.depthwise.mode == "unit":
            return self.depthwise.macs_per_cycle
        if self.depthwise.mode == "vector":
            return self.vector.lanes
        return min(self.array.rows, self.array.columns)

    @property
    def peak_tops(self) -> float:
        """10^12 int8 operations a second, a multiply-accumulate being two."""
        return 2 * self.macs_per_cycle * self.clock_mhz / 1e6

    @property
    def sram_bytes(self) -> int:
        return self.memory.sram_kib * 1024

    @property
    def accumulator_bytes(self) -> int:
        return self.memory.accumulator_kib * 1024

    @property
    def dram_bytes_per_cycle(self) -> float:
        return self.memory.dram_gb_per_s * 1000 / self.clock_mhz

    @property
    def channel_alignment(self) -> int:
        return self.layout.channel_alignment

    def aligned_channels(self, channels: int) -> int:
        """Channels a tile in SRAM holds for `channels`: whole hardware groups."""
        return round_up(channels, self.layout.channel_alignment)

    def table_channels(self, channels: int) -> int:
        """Entries a per-channel table holds for `channels`."""
        return round_up(channels, self.tables.channels_multiple)

    @cached_property
    def digest(self) -> bytes:
        """sha256 of the canonical [npu]: two boards with one digest run each other's streams."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).digest()


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """[cpu] What runs the fallback; "native" stands for the machine the compiler runs on."""

    triple: str = key('LLVM target triple, or "native"')
    cpu: str = key('LLVM name of the CPU, or "native"')
    features: str = key('LLVM features, as "+neon,+dotprod", or "native"', default="")
    cores: int = key("left out on a native CPU: counted", 1, 1024, default=0)
    clock_mhz: float = key("sustained", 1, 10000)
    vector_bits: int = key("width of a vector register; 0 without", 0, 4096)
    flops_per_cycle: float = key("float32 operations of one core, an FMA being two", 0.01, 1024)
    int8_macs_per_cycle: float = key("int8 multiply-accumulates of one core", 0.01, 4096)
    dram_gb_per_s: float = key("DRAM bandwidth of all cores", 0.01, 2000)
    c_compiler: str | None = key("command that compiles C for the board", default=None)
    crossing_us: float = key("handing work to the NPU and waiting for it", 0, 100000, default=0.0)

    @property
    def is_native(self) -> bool:
        return self.triple == "native"

    @property
    def peak_gflops(self) -> float:
        return self.cores * self.flops_per_cycle * self.clock_mhz / 1000


@dataclass(frozen=True, kw_only=True)
class Memory:
    """[memory] What the artifact may take of the board's DRAM and flash."""

    arena_limit_kib: int | None = key("the arena's largest size", 1, 2**30, default=None)
    flash_limit_kib: int | None = key(
        "weights, command streams and kernels at most", 1, 2**30, default=None
    )
    reserve_percent: float = key("of the limits to leave free", 0, 90, default=0.0)

    @property
    def arena_limit_bytes(self) -> int | None:
        return self._less_reserve(self.arena_limit_kib)

    @property
    def flash_limit_bytes(self) -> int | None:
        return self._less_reserve(self.flash_limit_kib)

    def _less_reserve(self, limit_kib: int | None) -> int | None:
        return (
            None if limit_kib is None else int(limit_kib * 1024 * (1 - self.reserve_percent / 100))
        )


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
