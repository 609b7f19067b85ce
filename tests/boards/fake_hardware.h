/* What stands where a board has its NPU, for programs that do not see the simulator. */
#ifndef FAKE_HARDWARE_H
#define FAKE_HARDWARE_H

#include <stddef.h>
#include <stdint.h>

struct npu_machine;

/* npu_registers of npu_driver_stub.h, whose header cannot stand beside the simulator's. */
typedef struct fake_registers {
  uint64_t stream, constants, arena;
  uint32_t stream_bytes, constants_bytes, arena_bytes, doorbell, status, cycles;
} fake_registers;

void fake_hardware(fake_registers *block, const struct npu_machine *machine, void *workspace,
                   size_t bytes);
void fake_hardware_dies(void); /* from now on it answers nothing */
unsigned fake_hardware_cleaned(void);
unsigned fake_hardware_dropped(void);

#endif
