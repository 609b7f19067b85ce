/* The one place where the runtime meets the NPU's driver. */
#include "model_runtime.h"
#include "npu_driver.h"

int tilewright_run_stream(tilewright_context *context, const tilewright_step *step) {
  npu_status status = npu_run(context->npu, step->stream, step->stream_bytes, context->weights,
                              context->model->weight_bytes, context->arena,
                              context->model->arena_bytes);
  if (status != 0) {
    tilewright_fail(context, step->name, ": ", npu_error(context->npu), NULL);
  }
  return (int)status;
}
