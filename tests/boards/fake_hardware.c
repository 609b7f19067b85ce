/* An NPU behind the example driver's registers: the simulator, compiled with its functions renamed
 * (-Dnpu_run=simulated_run and so on), since the driver has theirs. */
#include <stddef.h>
#include <stdint.h>

#include "npu_simulator.h" /* renamed: see renamed.h */

#include "fake_hardware.h"

static npu_device simulated;
static fake_registers *registers;
static unsigned cleaned, dropped;
static int dead;

void fake_hardware(fake_registers *block, const struct npu_machine *machine, void *workspace,
                   size_t bytes) {
  registers = block;
  npu_simulator_init(&simulated, machine, workspace, bytes);
}

void fake_hardware_dies(void) { dead = 1; }

unsigned fake_hardware_cleaned(void) { return cleaned; }

unsigned fake_hardware_dropped(void) { return dropped; }

void board_clean_cache(const void *memory, size_t bytes) { cleaned += memory && bytes; }

void board_invalidate_cache(void *memory, size_t bytes) { dropped += memory && bytes; }

int board_wait_for_npu(volatile fake_registers *block, uint32_t timeout_us) {
  npu_status status;
  if (dead || block != registers || block->doorbell != 1 || timeout_us == 0) {
    return 0;
  }
  block->doorbell = 0;
  status = npu_run(&simulated, (const void *)(uintptr_t)block->stream, block->stream_bytes,
                   (const void *)(uintptr_t)block->constants, block->constants_bytes,
                   (void *)(uintptr_t)block->arena, block->arena_bytes);
  block->cycles = (uint32_t)npu_last_stats(&simulated)->cycles;
  block->status = status == NPU_OK ? 1 : status == NPU_WRONG_TARGET ? 2 : 3;
  return 1;
}
