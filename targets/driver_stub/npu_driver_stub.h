/* The example driver's device, and what it asks of the board. */
#ifndef NPU_DRIVER_STUB_H
#define NPU_DRIVER_STUB_H

#include "npu_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NPU_STUB_BUSY = 0, NPU_STUB_DONE = 1, NPU_STUB_WRONG_TARGET = 2, NPU_STUB_FAULT = 3 };

/* The hardware's registers as its manual lays them out; this layout is made up. */
typedef struct npu_registers {
  uint64_t stream, constants, arena; /* bus addresses */
  uint32_t stream_bytes, constants_bytes, arena_bytes;
  uint32_t doorbell; /* writing 1 starts the stream */
  uint32_t status;
  uint32_t cycles; /* of the stream that ended last */
} npu_registers;

struct npu_device {
  volatile npu_registers *registers;
  uint32_t timeout_us;
  const char *error;
  npu_stats stats;
};

void npu_stub_init(npu_device *device, volatile npu_registers *registers, uint32_t timeout_us);

/* The board's support package: write back and drop cache lines, nothing where DMA is coherent. */
void board_clean_cache(const void *memory, size_t bytes);
void board_invalidate_cache(void *memory, size_t bytes);

/* Sleeps until the NPU's interrupt; 0 when `timeout_us` have passed without one. */
int board_wait_for_npu(volatile npu_registers *registers, uint32_t timeout_us);

#ifdef __cplusplus
}
#endif

#endif
