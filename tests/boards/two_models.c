/* Two models on one arena and one NPU, run in turn: FIRST, SECOND, FIRST. */
#include <stdio.h>

#include "first/board/model.h"
#include "second/board/model.h"
#include "first/board/npu_simulator.h"

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)
#define OF_FIRST(name) JOIN(FIRST, name)
#define OF_SECOND(name) JOIN(SECOND, name)

/* ARENA_BYTES and WORKSPACE_BYTES are what `tilewright memory` reports for both together. */
__attribute__((aligned(64))) unsigned char model_arena[ARENA_BYTES];
__attribute__((aligned(64))) unsigned char model_npu_workspace[WORKSPACE_BYTES];
static npu_device npu;

#define RUN(of_model, context, file)                                                        \
  fread(of_model(_input_at)(context, 0), 1, of_model(_input_tensor)(0)->bytes, file) ==     \
          of_model(_input_tensor)(0)->bytes &&                                              \
      of_model(_run)(context) == TILEWRIGHT_OK &&                                           \
      fwrite(of_model(_output_at)(context, 0), 1, of_model(_output_tensor)(0)->bytes, out) == \
          of_model(_output_tensor)(0)->bytes

int main(void) {
  tilewright_context first, second;
  tilewright_resources resources = {model_arena, sizeof model_arena, OF_FIRST(_weights),
                                    OF_FIRST(_WEIGHT_BYTES), &npu, NULL, NULL};
  FILE *in = fopen("inputs.bin", "rb"), *out = fopen("outputs.bin", "wb");
  /* Both are compiled for one NPU, so either's machine does. */
  npu_simulator_init(&npu, &OF_FIRST(_npu_machine), model_npu_workspace,
                     sizeof model_npu_workspace);
  if (!in || !out || OF_FIRST(_init)(&first, &resources) != TILEWRIGHT_OK) {
    return 1;
  }
  resources.weights = OF_SECOND(_weights);
  resources.weight_bytes = OF_SECOND(_WEIGHT_BYTES);
  if (OF_SECOND(_init)(&second, &resources) != TILEWRIGHT_OK) {
    return 2;
  }
  if (!(RUN(OF_FIRST, &first, in)) || !(RUN(OF_SECOND, &second, in)) ||
      !(RUN(OF_FIRST, &first, in))) {
    return 3;
  }
  fclose(out);
  puts("done");
  return 0;
}
