/* What the simulator's files share. */
#ifndef NPU_INTERNAL_H
#define NPU_INTERNAL_H

#include "npu_isa.h"
#include "npu_simulator.h"

#define NPU_NO_BIAS 0xFFFFFFFFu

/* A stream being run, checked as far as its header goes. */
typedef struct npu_job {
  npu_device *device;
  const npu_machine *machine;
  const uint8_t *instructions;
  uint32_t count;
  uint64_t sram_bytes, accumulators; /* declared by the header; accumulators in int32 elements */
  const uint8_t *constants;
  uint64_t constants_bytes;
  uint8_t *arena;
  uint64_t arena_bytes;
  uint8_t *sram;
  int32_t *accumulator;
  uint32_t current; /* the instruction at work, for faults */
} npu_job;

/* What an instruction does to the machine, apart from its values. */
typedef struct npu_cost {
  uint64_t cycles;
  uint64_t macs, sram_read, sram_written, dram_bytes, dram_burst_bytes;
  uint64_t banks; /* one bit a bank it touches */
} npu_cost;

/* npu_fault.c: write "instruction 12 (CONV): field = value reason", and give NPU_FAULT back. */
npu_status npu_fault(npu_job *job, const char *field, int64_t value, const char *reason);
npu_status npu_refuse(npu_device *device, npu_status status, const char *reason);

/* npu_check.c: everything a stream may get wrong, before its values are touched. */
npu_status npu_check_header(npu_job *job, const uint8_t *stream, size_t bytes);
npu_status npu_check_instruction(npu_job *job, const uint8_t *words);

/* npu_timing.c: cycles, traffic and banks of an instruction that runs alone. */
npu_cost npu_instruction_cost(const npu_job *job, const uint8_t *words);

/* npu_multiply.c, npu_vector.c, npu_move.c: what checked instructions do. */
void npu_do_conv(npu_job *job, const npu_multiply *conv);
void npu_do_depthwise(npu_job *job, const npu_multiply *conv);
npu_status npu_do_requantize(npu_job *job, const npu_requantize *step);
void npu_do_binary(npu_job *job, const npu_binary *step, int opcode);
void npu_do_lookup(npu_job *job, const npu_lookup *step);
void npu_do_pool(npu_job *job, const npu_pool *step, int opcode);
void npu_do_load(npu_job *job, const npu_transfer *move);
void npu_do_store(npu_job *job, const npu_transfer *move);
void npu_do_copy(npu_job *job, const npu_copy *move);
void npu_do_fill(npu_job *job, const npu_fill *fill);

/* The integer nearest to `value`, ties to even, whatever the rounding mode is and without the
 * mathematics library. Far beyond 8-bit results it saturates, and not-a-number is the least. */
static inline int32_t npu_round(float value) {
  float bounded = value > -1000000.0f ? value : -1000000.0f;
  float limited = bounded < 1000000.0f ? bounded : 1000000.0f;
  int32_t whole = (int32_t)limited;
  float rest = limited - (float)whole;
  int32_t odd = whole & 1;
  int32_t up = rest > 0.5f || (rest == 0.5f && odd);
  int32_t down = rest < -0.5f || (rest == -0.5f && odd);
  return whole + up - down;
}

static inline int32_t npu_clip(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}

#endif
