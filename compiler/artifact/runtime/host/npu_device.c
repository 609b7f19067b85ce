/* For the Python loader, which makes a simulated NPU in memory of its own. */
#include "npu_simulator.h"

size_t tilewright_npu_device_bytes(void) { return sizeof(npu_device); }
