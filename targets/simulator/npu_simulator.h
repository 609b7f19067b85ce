/* The reference driver: a simulated NPU in memory that the caller lends. */
#ifndef NPU_SIMULATOR_H
#define NPU_SIMULATOR_H

#include "npu_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NPU_REDUCTION_FLATTENED = 0, NPU_REDUCTION_CHANNELS = 1 };
enum { NPU_DEPTHWISE_DIAGONAL = 0, NPU_DEPTHWISE_VECTOR = 1, NPU_DEPTHWISE_UNIT = 2 };

/* A target description's [npu], as machine.py writes it. */
typedef struct npu_machine {
  uint32_t rows, columns, reduction, subarrays;
  uint32_t weight_double_buffer, weight_rows_per_cycle;
  uint32_t depthwise_mode, depthwise_macs_per_cycle;
  uint32_t vector_lanes, vector_startup_cycles;
  uint32_t sram_bytes, banks, bank_bytes_per_cycle, accumulator_bytes;
  uint32_t dma_bytes_per_cycle, dram_millibytes_per_cycle, dma_latency_cycles, burst_bytes;
  uint32_t queue_depth, issue_cycles;
  uint32_t channel_alignment, dram_channels_multiple, table_alignment, table_channels_multiple;
  uint64_t mac_fj, sram_byte_fj, dram_byte_fj, idle_fj_per_cycle;
  uint8_t digest[8];
} npu_machine;

/* When an instruction ran: from start up to end. */
typedef struct npu_span {
  uint64_t start, end;
} npu_span;

/* Fill with npu_simulator_init; the fields are the simulator's own, but for the trace. */
struct npu_device {
  const npu_machine *machine;
  void *workspace;
  size_t workspace_bytes;
  npu_span *trace;     /* one span an instruction, in stream order; NULL: none */
  size_t trace_length; /* spans that fit */
  npu_stats stats;
  char error[160];
};

/* Bytes of workspace that running a stream takes: SRAM, accumulators, and a time for each
 * instruction. At most the sum for all: machine->sram_bytes + machine->accumulator_bytes +
 * NPU_WORKSPACE_BYTES_PER_INSTRUCTION * instructions. */
enum { NPU_WORKSPACE_BYTES_PER_INSTRUCTION = 8 };
size_t npu_workspace_bytes(const npu_machine *machine, const void *stream, size_t stream_bytes);

/* `workspace` is aligned to 8 bytes and stays the device's; npu_run says when it is too small. */
void npu_simulator_init(npu_device *device, const npu_machine *machine, void *workspace,
                        size_t workspace_bytes);

#ifdef __cplusplus
}
#endif

#endif
