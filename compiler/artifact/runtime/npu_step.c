/* The one place where the runtime meets the NPU's driver. */
#include "model_runtime.h"
#include "npu_driver.h"

static void add_counts(tilewright_npu_totals *totals, const npu_stats *stats) {
  int engine;
  totals->cycles += stats->cycles;
  totals->dram_bytes += stats->dram_burst_bytes;
  totals->energy_fj += stats->energy_fj;
  for (engine = 0; engine < 4; ++engine) {
    totals->macs += stats->engines[engine].macs;
  }
}

int tilewright_run_stream(tilewright_context *context, const tilewright_step *step) {
  npu_status status = npu_run(context->npu, step->stream, step->stream_bytes, context->weights,
                              context->model->weight_bytes, context->arena,
                              context->model->arena_bytes);
  add_counts(&context->npu_totals, npu_last_stats(context->npu));
  if (status != NPU_OK) {
    tilewright_fail(context, step->name, ": ", npu_error(context->npu), NULL);
  }
  return (int)status;
}
