/* The driver interface of an NPU. A model's runtime calls only what is declared here.
 *
 * A vendor implements these three functions for real hardware: copy or map the command stream,
 * the constants and the arena, ring the doorbell, wait, report. `npu_device` is the driver's own,
 * made by whoever owns the NPU before a model runs. The reference driver is the simulator, which
 * npu_simulator.h sets up. Strict C99; no allocation, no files, no state outside the device.
 */
#ifndef NPU_DRIVER_H
#define NPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npu_device npu_device;

typedef enum npu_status {
  NPU_OK = 0,
  NPU_BAD_STREAM = 1,   /* no stream of this version, or damaged */
  NPU_WRONG_TARGET = 2, /* compiled for another NPU */
  NPU_TOO_SMALL = 3,    /* constants, arena, SRAM or workspace are smaller than the stream needs */
  NPU_FAULT = 4         /* an instruction is wrong; npu_error names it */
} npu_status;

/* What one engine did. Cycles are of the NPU's clock. */
typedef struct npu_engine_stats {
  uint64_t instructions;
  uint64_t busy_cycles;      /* an instruction was running, waits for data included */
  uint64_t data_wait_cycles; /* of these: waiting for the shared DRAM channel or a bank */
  uint64_t sync_wait_cycles; /* idle, the next instruction waiting for other engines */
  uint64_t bytes_in;         /* read, from DRAM by DMA_IN, else from SRAM */
  uint64_t bytes_out;        /* written, to DRAM by DMA_OUT, else to SRAM */
  uint64_t macs;
  uint64_t energy_fj; /* femtojoules, without idle power */
} npu_engine_stats;

/* What a run did; engines in the order DMA in, DMA out, MAC, vector. All zero where unknown. */
typedef struct npu_stats {
  uint64_t cycles; /* from the first issue to the end of the last instruction */
  npu_engine_stats engines[4];
  uint64_t dram_burst_bytes; /* moved over the DRAM channel, rounded to whole bursts */
  uint64_t energy_fj;        /* all engines, and idle power over all cycles */
} npu_stats;

/* Run a command stream to its end. Its constants must stay as they are while it runs; arena bytes
 * that it does not write keep their value. The stream, constants and arena need no alignment. */
npu_status npu_run(npu_device *device, const void *stream, size_t stream_bytes,
                   const void *constants, size_t constants_bytes, void *arena, size_t arena_bytes);

/* What went wrong in the last npu_run, in one line; empty when nothing did. */
const char *npu_error(const npu_device *device);

/* Counts of the last npu_run. */
const npu_stats *npu_last_stats(const npu_device *device);

#ifdef __cplusplus
}
#endif

#endif
