/* What moves bytes: DMA in and out, copies and fills inside the SRAM. */
#include "npu_internal.h"

void npu_do_load(npu_job *job, const npu_transfer *d) {
  const uint8_t *region = d->region ? job->arena : job->constants;
  for (int32_t outer = 0; outer < d->count_2; ++outer)
    for (int32_t inner = 0; inner < d->count_1; ++inner) {
      int64_t from = d->dram_offset + (int64_t)outer * d->dram_stride_2 +
                     (int64_t)inner * d->dram_stride_1;
      size_t to = d->sram_address + (size_t)outer * d->sram_stride_2 +
                  (size_t)inner * d->sram_stride_1;
      memcpy(job->sram + to, region + from, d->run_bytes);
    }
}

void npu_do_store(npu_job *job, const npu_transfer *d) {
  for (int32_t outer = 0; outer < d->count_2; ++outer)
    for (int32_t inner = 0; inner < d->count_1; ++inner) {
      int64_t to = d->dram_offset + (int64_t)outer * d->dram_stride_2 +
                   (int64_t)inner * d->dram_stride_1;
      size_t from = d->sram_address + (size_t)outer * d->sram_stride_2 +
                    (size_t)inner * d->sram_stride_1;
      memcpy(job->arena + to, job->sram + from, d->run_bytes);
    }
}

void npu_do_copy(npu_job *job, const npu_copy *d) {
  for (int32_t outer = 0; outer < d->count_2; ++outer)
    for (int32_t inner = 0; inner < d->count_1; ++inner) {
      size_t from = d->source_address + (size_t)outer * d->source_stride_2 +
                    (size_t)inner * d->source_stride_1;
      size_t to = d->destination_address + (size_t)outer * d->destination_stride_2 +
                  (size_t)inner * d->destination_stride_1;
      memmove(job->sram + to, job->sram + from, d->run_bytes);
    }
}

void npu_do_fill(npu_job *job, const npu_fill *d) {
  for (int32_t outer = 0; outer < d->count_2; ++outer)
    for (int32_t inner = 0; inner < d->count_1; ++inner)
      memset(job->sram + d->address + (size_t)outer * d->stride_2 + (size_t)inner * d->stride_1,
             d->value, d->run_bytes);
}
