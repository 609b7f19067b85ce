/* The tables a generated model.c fills, and the code that walks them. Not for users: model.h is. */
#ifndef TILEWRIGHT_MODEL_RUNTIME_H
#define TILEWRIGHT_MODEL_RUNTIME_H

#include "tilewright_runtime.h"

/* One step: a CPU kernel cut into tasks, or (tasks == 0) a command stream for the NPU. */
typedef struct tilewright_step {
  const char *name;
  tilewright_tasks kernel; /* its argument is the context */
  int32_t tasks;
  const unsigned char *stream;
  size_t stream_bytes;
} tilewright_step;

/* Runs one command stream; on failure returns non-zero and leaves the reason in context->error. */
typedef int (*tilewright_stream_runner)(tilewright_context *context, const tilewright_step *step);

typedef struct tilewright_model {
  const char *name;
  const tilewright_tensor *inputs;
  int32_t input_count;
  const tilewright_tensor *outputs;
  int32_t output_count;
  const tilewright_step *steps;
  int32_t step_count;
  size_t arena_bytes;
  size_t arena_alignment;
  size_t weight_bytes;
  size_t weight_alignment;
  tilewright_stream_runner run_stream; /* NULL for a model that uses no NPU */
} tilewright_model;

tilewright_status tilewright_init(tilewright_context *context, const tilewright_model *model,
                                  const tilewright_resources *resources);
tilewright_status tilewright_run_until(tilewright_context *context, int32_t steps);

const tilewright_tensor *tilewright_find(const tilewright_tensor *tensors, int32_t count,
                                         const char *name);
const tilewright_tensor *tilewright_at(const tilewright_tensor *tensors, int32_t count,
                                       int32_t index);
void *tilewright_data(const tilewright_context *context, const tilewright_tensor *tensor);

/* context->error becomes the texts put together; any but the first may be NULL. */
void tilewright_fail(tilewright_context *context, const char *first, const char *second,
                     const char *third, const char *fourth);

/* runtime/npu_step.c, linked into models that use the NPU. */
int tilewright_run_stream(tilewright_context *context, const tilewright_step *step);

#endif
