/* What a board's firmware does with a model: lend memory, write inputs, run, read outputs. */
#include <stdio.h>

#include "model.h"

#ifdef __cplusplus
alignas(row_sums_ARENA_ALIGNMENT)
#else
__extension__ __attribute__((aligned(row_sums_ARENA_ALIGNMENT)))
#endif
static unsigned char arena[row_sums_ARENA_BYTES];

int main(void) {
  tilewright_context context;
  tilewright_resources resources = {arena, sizeof arena, row_sums_weights,
                                    row_sums_WEIGHT_BYTES, NULL, NULL, NULL};
  float *x;
  const float *y;
  int32_t index;

  if (row_sums_init(&context, &resources) != TILEWRIGHT_OK) {
    printf("%s\n", row_sums_error(&context));
    return 1;
  }
  x = (float *)row_sums_input(&context, "x");
  for (index = 0; index < 30; ++index) {
    x[index] = (float)index;
  }
  if (row_sums_run(&context) != TILEWRIGHT_OK) {
    printf("%s\n", row_sums_error(&context));
    return 1;
  }
  y = (const float *)row_sums_output(&context, "y");
  for (index = 0; index < row_sums_output_tensor(0)->shape[0]; ++index) {
    printf("%g ", (double)y[index]);
  }
  return 0;
}
