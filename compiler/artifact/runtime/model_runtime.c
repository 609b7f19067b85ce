/* Freestanding C99: boards without a C library run it too. */
#include "model_runtime.h"

static const tilewright_npu_totals no_totals = {0, 0, 0, 0};

static size_t append(char *text, size_t used, const char *more) {
  while (more != NULL && *more != '\0' && used + 1 < TILEWRIGHT_ERROR_BYTES) {
    text[used++] = *more++;
  }
  text[used] = '\0';
  return used;
}

void tilewright_fail(tilewright_context *context, const char *first, const char *second,
                     const char *third, const char *fourth) {
  size_t used = append(context->error, 0, first);
  used = append(context->error, used, second);
  used = append(context->error, used, third);
  append(context->error, used, fourth);
}

/* `value` in decimal; `digits` holds at least 24 characters. */
static const char *decimal(int64_t value, char *digits) {
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  char *place = digits + 23;
  *place = '\0';
  do {
    *--place = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  if (value < 0) {
    *--place = '-';
  }
  return place;
}

static int is_same(const char *left, const char *right) {
  while (*left != '\0' && *left == *right) {
    ++left;
    ++right;
  }
  return *left == *right;
}

static int is_aligned(const void *pointer, size_t alignment) {
  return (uintptr_t)pointer % alignment == 0;
}

/* Why the lent memory does not do, or NULL. */
static const char *refusal(const tilewright_model *model, const tilewright_resources *resources) {
  if (resources->arena == NULL && model->arena_bytes > 0) {
    return "no arena was given";
  }
  if (resources->arena_bytes < model->arena_bytes) {
    return "the arena is smaller than the model's ARENA_BYTES";
  }
  if (!is_aligned(resources->arena, model->arena_alignment)) {
    return "the arena is not aligned to the model's ARENA_ALIGNMENT";
  }
  if (resources->weights == NULL && model->weight_bytes > 0) {
    return "no weights were given";
  }
  if (resources->weight_bytes != model->weight_bytes) {
    return "the weights are not the model's: WEIGHT_BYTES differs";
  }
  if (!is_aligned(resources->weights, model->weight_alignment)) {
    return "the weights are not aligned to the model's WEIGHT_ALIGNMENT";
  }
  if (model->run_stream != NULL && resources->npu == NULL) {
    return "no NPU device was given";
  }
  return NULL;
}

tilewright_status tilewright_init(tilewright_context *context, const tilewright_model *model,
                                  const tilewright_resources *resources) {
  const char *reason = refusal(model, resources);
  context->model = reason == NULL ? model : NULL; /* a refused context runs nothing */
  context->arena = (unsigned char *)resources->arena;
  context->weights = (const unsigned char *)resources->weights;
  context->npu = resources->npu;
  context->runner = resources->runner;
  context->runner_data = resources->runner_data;
  context->npu_totals = no_totals;
  context->error[0] = '\0';
  if (reason != NULL) {
    tilewright_fail(context, model->name, ": ", reason, NULL);
    return TILEWRIGHT_BAD_RESOURCES;
  }
  return TILEWRIGHT_OK;
}

static tilewright_status run_kernel(tilewright_context *context, const tilewright_step *step) {
  char digits[24];
  int32_t error;
  if (context->runner != NULL && step->tasks > 1) {
    error = context->runner(context->runner_data, step->kernel, context, step->tasks);
  } else {
    error = step->kernel(context, 0, step->tasks);
  }
  if (error == 0) {
    return TILEWRIGHT_OK;
  }
  tilewright_fail(context, step->name, ": the kernel failed with ", decimal(error, digits), NULL);
  return TILEWRIGHT_KERNEL_FAILED;
}

static tilewright_status run_step(tilewright_context *context, const tilewright_step *step) {
  if (step->stream == NULL) {
    return run_kernel(context, step);
  }
  return context->model->run_stream(context, step) == 0 ? TILEWRIGHT_OK : TILEWRIGHT_NPU_FAILED;
}

tilewright_status tilewright_run_until(tilewright_context *context, int32_t steps) {
  const tilewright_model *model = context->model;
  int32_t index;
  if (model == NULL) {
    tilewright_fail(context, "the context was not initialised", NULL, NULL, NULL);
    return TILEWRIGHT_BAD_RESOURCES;
  }
  if (steps < 0 || steps > model->step_count) {
    char asked[24];
    tilewright_fail(context, model->name, ": has no step ", decimal(steps, asked), NULL);
    return TILEWRIGHT_BAD_STEP;
  }
  context->error[0] = '\0';
  context->npu_totals = no_totals;
  for (index = 0; index < steps; ++index) {
    tilewright_status status = run_step(context, &model->steps[index]);
    if (status != TILEWRIGHT_OK) {
      return status;
    }
  }
  return TILEWRIGHT_OK;
}

const tilewright_tensor *tilewright_find(const tilewright_tensor *tensors, int32_t count,
                                         const char *name) {
  int32_t index;
  for (index = 0; index < count; ++index) {
    if (is_same(tensors[index].name, name)) {
      return &tensors[index];
    }
  }
  return NULL;
}

const tilewright_tensor *tilewright_at(const tilewright_tensor *tensors, int32_t count,
                                       int32_t index) {
  return index >= 0 && index < count ? &tensors[index] : NULL;
}

void *tilewright_data(const tilewright_context *context, const tilewright_tensor *tensor) {
  return tensor == NULL || context->model == NULL ? NULL : context->arena + tensor->offset;
}
