/* A model on an NPU behind the example driver: the outputs, then what a dead NPU is called. */
#include <stdio.h>

#include "fake_hardware.h"
#include "model.h"
#include "npu_driver_stub.h"

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)
#define OF_MODEL(name) JOIN(MODEL, name)

__attribute__((aligned(64))) static unsigned char arena[OF_MODEL(_ARENA_BYTES)];
static uint64_t workspace[OF_MODEL(_NPU_WORKSPACE_BYTES) / 8 + 1];
static fake_registers registers;
static npu_device npu;

int main(void) {
  tilewright_context context;
  tilewright_resources resources = {arena, sizeof arena, OF_MODEL(_weights),
                                    OF_MODEL(_WEIGHT_BYTES), &npu, NULL, NULL};
  size_t bytes = OF_MODEL(_input_tensor)(0)->bytes;
  FILE *file = fopen("inputs.bin", "rb");

  fake_hardware(&registers, &OF_MODEL(_npu_machine), workspace, sizeof workspace);
  npu_stub_init(&npu, (volatile npu_registers *)&registers, 1000);
  if (OF_MODEL(_init)(&context, &resources) != TILEWRIGHT_OK || file == NULL ||
      fread(OF_MODEL(_input_at)(&context, 0), 1, bytes, file) != bytes) {
    return 1;
  }
  fclose(file);
  if (OF_MODEL(_run)(&context) != TILEWRIGHT_OK) {
    printf("%s\n", OF_MODEL(_error)(&context));
    return 1;
  }
  file = fopen("outputs.bin", "wb");
  bytes = OF_MODEL(_output_tensor)(0)->bytes;
  if (file == NULL || fwrite(OF_MODEL(_output_at)(&context, 0), 1, bytes, file) != bytes) {
    return 1;
  }
  fclose(file);
  printf("%lu cycles\n", (unsigned long)OF_MODEL(_npu_totals)(&context).cycles);
  printf("%u %u\n", fake_hardware_cleaned(), fake_hardware_dropped());
  fake_hardware_dies();
  printf("%d ", (int)OF_MODEL(_run)(&context));
  printf("%s\n", OF_MODEL(_error)(&context));
  return 0;
}
