/* One-line error messages, put together without the standard library's printing. */
#include "npu_internal.h"

static size_t append_text(char *line, size_t used, size_t room, const char *text) {
  while (*text && used + 1 < room) line[used++] = *text++;
  line[used] = 0;
  return used;
}

static size_t append_number(char *line, size_t used, size_t room, int64_t number) {
  char digits[21];
  size_t first = sizeof digits - 1;
  uint64_t rest = number < 0 ? 0u - (uint64_t)number : (uint64_t)number;
  digits[first] = 0;
  do {
    digits[--first] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest);
  if (number < 0) used = append_text(line, used, room, "-");
  return append_text(line, used, room, digits + first);
}

npu_status npu_fault(npu_job *job, const char *field, int64_t value, const char *reason) {
  char *line = job->device->error;
  size_t room = sizeof job->device->error, used = 0;
  uint8_t opcode = job->instructions[(size_t)job->current * NPU_INSTRUCTION_BYTES];
  used = append_text(line, used, room, "instruction ");
  used = append_number(line, used, room, job->current);
  if (opcode < NPU_OPCODES) {
    used = append_text(line, used, room, " (");
    used = append_text(line, used, room, npu_kinds[opcode].name);
    used = append_text(line, used, room, ")");
  }
  used = append_text(line, used, room, ": ");
  used = append_text(line, used, room, field);
  used = append_text(line, used, room, " = ");
  used = append_number(line, used, room, value);
  used = append_text(line, used, room, ": ");
  append_text(line, used, room, reason);
  return NPU_FAULT;
}

npu_status npu_refuse(npu_device *device, npu_status status, const char *reason) {
  size_t used = append_text(device->error, 0, sizeof device->error, "command stream: ");
  append_text(device->error, used, sizeof device->error, reason);
  return status;
}
