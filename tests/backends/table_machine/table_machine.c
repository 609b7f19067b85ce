/* Byte code: "TAB1", then runs of six little-endian words:
 *
 *   kind      0: out = a, 1: out = table[a], 2: out = table[256 * a + b]
 *   a, b, out bytes from the start of the arena
 *   table     bytes from the start of the constants
 *   count     bytes of the run
 */
#include "npu_simulator.h"

#include <string.h>

enum { WORDS = 6, COPY = 0, UNARY = 1, BINARY = 2 };

static uint32_t word(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

static void run(const uint32_t *w, const uint8_t *constants, uint8_t *arena) {
  const uint8_t *table = constants + w[4];
  uint32_t i;
  for (i = 0; i < w[5]; ++i) {
    uint8_t a = arena[w[1] + i];
    arena[w[3] + i] = w[0] == COPY    ? a
                      : w[0] == UNARY ? table[a]
                                      : table[256u * a + arena[w[2] + i]];
  }
}

npu_status npu_run(npu_device *device, const void *stream, size_t stream_bytes,
                   const void *constants, size_t constants_bytes, void *arena, size_t arena_bytes) {
  const uint8_t *at = (const uint8_t *)stream, *end = at + stream_bytes;
  uint32_t w[WORDS], i;
  memset(&device->stats, 0, sizeof device->stats);
  device->error = "";
  if (stream_bytes < 4 || memcmp(at, "TAB1", 4) != 0) {
    device->error = "no byte code of a table machine";
    return NPU_BAD_STREAM;
  }
  for (at += 4; at < end; at += 4 * WORDS) {
    for (i = 0; i < WORDS; ++i) w[i] = word(at + 4 * i);
    if (w[0] > BINARY || w[1] + w[5] > arena_bytes || w[3] + w[5] > arena_bytes ||
        (w[0] != COPY && w[4] + (w[0] == UNARY ? 256u : 65536u) > constants_bytes)) {
      device->error = "a run reaches outside";
      return NPU_FAULT;
    }
    run(w, (const uint8_t *)constants, (uint8_t *)arena);
    device->stats.cycles += (w[5] + device->machine->lanes - 1) / device->machine->lanes;
  }
  return NPU_OK;
}

void npu_simulator_init(npu_device *device, const npu_machine *machine, void *workspace,
                        size_t workspace_bytes) {
  (void)workspace;
  (void)workspace_bytes;
  memset(device, 0, sizeof *device);
  device->machine = machine;
}

const char *npu_error(const npu_device *device) { return device->error; }

const npu_stats *npu_last_stats(const npu_device *device) { return &device->stats; }
