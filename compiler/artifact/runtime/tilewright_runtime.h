/* What every Tilewright model shares: tensors, the memory a caller lends, and how steps run.
 *
 * A model owns nothing: no allocation, no file, no state outside the context. One context runs one
 * inference at a time; several contexts, of one model or of several, are independent as long as
 * each has its own arena.
 */
#ifndef TILEWRIGHT_RUNTIME_H
#define TILEWRIGHT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TILEWRIGHT_MAX_RANK = 8, TILEWRIGHT_ERROR_BYTES = 256 };

typedef enum tilewright_status {
  TILEWRIGHT_OK = 0,
  TILEWRIGHT_BAD_RESOURCES = 1, /* init: the arena or the weights do not fit the model */
  TILEWRIGHT_BAD_STEP = 2,      /* run_until: no such step */
  TILEWRIGHT_KERNEL_FAILED = 3,
  TILEWRIGHT_NPU_FAILED = 4
} tilewright_status;

typedef enum tilewright_dtype {
  TILEWRIGHT_BOOL,
  TILEWRIGHT_INT8,
  TILEWRIGHT_UINT8,
  TILEWRIGHT_INT16,
  TILEWRIGHT_UINT16,
  TILEWRIGHT_INT32,
  TILEWRIGHT_UINT32,
  TILEWRIGHT_INT64,
  TILEWRIGHT_UINT64,
  TILEWRIGHT_FLOAT16,
  TILEWRIGHT_FLOAT32,
  TILEWRIGHT_FLOAT64
} tilewright_dtype;

/* An input or output, dense and row-major. real = scale * (stored - zero) where quantised. */
typedef struct tilewright_tensor {
  const char *name;
  tilewright_dtype dtype;
  int32_t rank;
  int32_t shape[TILEWRIGHT_MAX_RANK];
  size_t bytes;
  size_t offset;    /* bytes from the start of the arena */
  float scale;      /* 0 where the tensor is not quantised */
  int32_t zero;
} tilewright_tensor;

/* Does the tasks begin..end of one step; returns 0, or the kernel's own error. */
typedef int32_t (*tilewright_tasks)(const void *argument, int32_t begin, int32_t end);

/* Does the tasks 0..count in any split, side by side or one after another, and returns once all
 * are done: 0, or the error of one that failed. tilewright_pool_run is one; an RTOS can bring its
 * own. */
typedef int32_t (*tilewright_runner)(void *runner_data, tilewright_tasks tasks,
                                     const void *argument, int32_t count);

struct npu_device; /* npu_driver.h */

/* What the caller lends to one context, for as long as it is used. */
typedef struct tilewright_resources {
  void *arena;
  size_t arena_bytes;
  const void *weights;
  size_t weight_bytes;
  struct npu_device *npu;   /* NULL for a model that uses no NPU */
  tilewright_runner runner; /* NULL: every step on the calling thread */
  void *runner_data;
} tilewright_resources;

struct tilewright_model;

/* What the NPU counted over the streams of one run; all zero where its driver counts nothing. */
typedef struct tilewright_npu_totals {
  uint64_t cycles;
  uint64_t macs;
  uint64_t dram_bytes; /* whole bursts */
  uint64_t energy_fj;  /* femtojoules */
} tilewright_npu_totals;

/* Written by init; the fields are the runtime's own. Place it wherever it suits. */
typedef struct tilewright_context {
  const struct tilewright_model *model;
  unsigned char *arena;
  const unsigned char *weights;
  struct npu_device *npu;
  tilewright_runner runner;
  void *runner_data;
  tilewright_npu_totals npu_totals;
  char error[TILEWRIGHT_ERROR_BYTES];
} tilewright_context;

#ifdef __cplusplus
}
#endif

#endif
