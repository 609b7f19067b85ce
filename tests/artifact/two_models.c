/* Two models of different shape, and a failing one, in one program; the pool is shared. */
#include <stdio.h>
#include <string.h>

#include "thread_pool.h"

#include "row_sums/board/model.h"
#include "failing/board/model.h"

static double arenas[2][128];
static double pool_memory[128];

static int refuses(const char *what, const tilewright_resources *resources) {
  tilewright_context context;
  if (row_sums_init(&context, resources) == TILEWRIGHT_OK) {
    printf("%s was accepted\n", what);
    return 0;
  }
  printf("%s\n", row_sums_error(&context));
  return row_sums_run(&context) == TILEWRIGHT_BAD_RESOURCES &&
         row_sums_input(&context, "x") == NULL;
}

int main(void) {
  tilewright_pool *pool = tilewright_pool_start(pool_memory, sizeof pool_memory, 2);
  char *start = (char *)arenas + (64 - (size_t)arenas % 64) % 64;
  tilewright_resources good = {start, row_sums_ARENA_BYTES, row_sums_weights,
                               row_sums_WEIGHT_BYTES, NULL, tilewright_pool_run, pool};
  tilewright_resources other = {start + 512, failing_ARENA_BYTES, failing_weights,
                                failing_WEIGHT_BYTES, NULL, NULL, NULL};
  tilewright_resources bad;
  tilewright_context sums, failing;
  if (row_sums_init(&sums, &good) != TILEWRIGHT_OK || failing_init(&failing, &other) != 0) {
    return 1;
  }
  memset(row_sums_input_at(&sums, 0), 0, row_sums_input_tensor(0)->bytes);
  if (failing_run(&failing) != TILEWRIGHT_KERNEL_FAILED || row_sums_run(&sums) != 0) {
    return 2;
  }
  printf("%s\n", failing_error(&failing));
  if (((const float *)row_sums_output_at(&sums, 0))[5] != 5.0f) {
    return 3;
  }
  if (row_sums_input(&sums, "z") != NULL || row_sums_input_at(&sums, 1) != NULL ||
      row_sums_output_tensor(-1) != NULL) {
    return 4;
  }
  bad = good, bad.arena = NULL;
  if (!refuses("no arena", &bad)) return 5;
  bad = good, bad.arena_bytes -= 1;
  if (!refuses("a short arena", &bad)) return 6;
  bad = good, bad.arena = start + 8;
  if (!refuses("a crooked arena", &bad)) return 7;
  bad = good, bad.weights = NULL;
  if (!refuses("no weights", &bad)) return 8;
  bad = good, bad.weight_bytes += 1;
  if (!refuses("other weights", &bad)) return 9;
  tilewright_pool_stop(pool);
  return 0;
}
