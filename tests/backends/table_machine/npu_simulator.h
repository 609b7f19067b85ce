/* A memory-to-memory machine that knows nothing but tables, behind the driver's interface. */
#ifndef TABLE_MACHINE_H
#define TABLE_MACHINE_H

#include "npu_driver.h"

typedef struct npu_machine {
  uint32_t lanes;
} npu_machine;

struct npu_device {
  const npu_machine *machine;
  npu_stats stats;
  const char *error;
};

void npu_simulator_init(npu_device *device, const npu_machine *machine, void *workspace,
                        size_t workspace_bytes);

#endif
