/* How a vendor writes npu_driver.h for an NPU behind a block of registers; docs/driver.md walks
 * through it. What differs from chip to chip is in board_*: three functions the board's support
 * package has anyway. Strict C99; no allocation, no state outside the device. */
#include "npu_driver_stub.h"

#include <string.h>

static npu_status fail(npu_device *device, npu_status status, const char *reason) {
  device->error = reason;
  return status;
}

void npu_stub_init(npu_device *device, volatile npu_registers *registers, uint32_t timeout_us) {
  device->registers = registers;
  device->timeout_us = timeout_us;
  device->error = "";
  memset(&device->stats, 0, sizeof device->stats); /* what it cannot count stays 0 */
}

npu_status npu_run(npu_device *device, const void *stream, size_t stream_bytes,
                   const void *constants, size_t constants_bytes, void *arena,
                   size_t arena_bytes) {
  volatile npu_registers *registers = device->registers;
  uint32_t status;

  device->error = "";
  device->stats.cycles = 0;
  /* What the CPU wrote must be in memory before the NPU reads it. Stream and constants never
   * change: a board that cleans them once, at start-up, can leave them out here. */
  board_clean_cache(stream, stream_bytes);
  board_clean_cache(constants, constants_bytes);
  board_clean_cache(arena, arena_bytes);

  registers->stream = (uint64_t)(uintptr_t)stream;
  registers->stream_bytes = (uint32_t)stream_bytes;
  registers->constants = (uint64_t)(uintptr_t)constants;
  registers->constants_bytes = (uint32_t)constants_bytes;
  registers->arena = (uint64_t)(uintptr_t)arena;
  registers->arena_bytes = (uint32_t)arena_bytes;
  registers->status = NPU_STUB_BUSY;
  registers->doorbell = 1; /* the last write: it starts the NPU */

  if (!board_wait_for_npu(registers, device->timeout_us)) {
    return fail(device, NPU_FAULT, "the NPU did not answer in time; reset it");
  }
  /* What the NPU wrote must not be hidden by what the cache still holds. */
  board_invalidate_cache(arena, arena_bytes);

  device->stats.cycles = registers->cycles;
  status = registers->status;
  if (status == NPU_STUB_DONE) {
    return NPU_OK;
  }
  if (status == NPU_STUB_WRONG_TARGET) {
    return fail(device, NPU_WRONG_TARGET, "the command stream is for another NPU");
  }
  return fail(device, NPU_FAULT, "the NPU stopped at an instruction it cannot run");
}

const char *npu_error(const npu_device *device) { return device->error; }

const npu_stats *npu_last_stats(const npu_device *device) { return &device->stats; }
