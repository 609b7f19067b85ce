/* A board's firmware for any model: -DMODEL=<its C name>. Reads inputs.bin into the arena, runs the
 * model, writes outputs.bin, and prints what the NPU counted. On a board without an operating
 * system the files are the host's, by semihosting. */
#include <stdio.h>

#include "model.h"
#ifdef MODEL_USES_NPU
#include "npu_simulator.h"
#endif

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)
#define OF_MODEL(name) JOIN(MODEL, name)

/* Named, so that the linker's map and the tests can tell them from the rest of the memory. */
__attribute__((aligned(64))) unsigned char model_arena[OF_MODEL(_ARENA_BYTES)];
tilewright_context model_context;
#ifdef MODEL_USES_NPU
__attribute__((aligned(64))) unsigned char model_npu_workspace[OF_MODEL(_NPU_WORKSPACE_BYTES)];
npu_device model_npu_device;
#endif

/* Where the start-up code can tell: the deepest the stack has been. */
__attribute__((weak)) size_t stack_used(void);

static int fail(const char *what) {
  printf("%s\n", what);
  return 1;
}

int main(void) {
  tilewright_resources resources = {model_arena, sizeof model_arena, OF_MODEL(_weights),
                                    OF_MODEL(_WEIGHT_BYTES), NULL, NULL, NULL};
  FILE *file = fopen("inputs.bin", "rb");
  tilewright_npu_totals totals;
  int32_t index;
#ifdef MODEL_USES_NPU
  npu_simulator_init(&model_npu_device, &OF_MODEL(_npu_machine), model_npu_workspace,
                     sizeof model_npu_workspace);
  resources.npu = &model_npu_device;
#endif
  if (OF_MODEL(_init)(&model_context, &resources) != TILEWRIGHT_OK) {
    return fail(OF_MODEL(_error)(&model_context));
  }
  for (index = 0; index < OF_MODEL(_INPUT_COUNT); ++index) {
    size_t bytes = OF_MODEL(_input_tensor)(index)->bytes;
    if (!file || fread(OF_MODEL(_input_at)(&model_context, index), 1, bytes, file) != bytes) {
      return fail("inputs.bin is short");
    }
  }
  fclose(file);
  if (OF_MODEL(_run)(&model_context) != TILEWRIGHT_OK) {
    return fail(OF_MODEL(_error)(&model_context));
  }
  file = fopen("outputs.bin", "wb");
  for (index = 0; index < OF_MODEL(_OUTPUT_COUNT); ++index) {
    size_t bytes = OF_MODEL(_output_tensor)(index)->bytes;
    if (!file || fwrite(OF_MODEL(_output_at)(&model_context, index), 1, bytes, file) != bytes) {
      return fail("outputs.bin cannot be written");
    }
  }
  fclose(file);
  totals = OF_MODEL(_npu_totals)(&model_context);
  printf("%lu cycles %lu stack\n", (unsigned long)totals.cycles,
         stack_used ? (unsigned long)stack_used() : 0ul);
  return 0;
}
