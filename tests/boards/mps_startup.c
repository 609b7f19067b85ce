/* Start-up for Arm's MPS2 and MPS3 boards as QEMU has them: the vector table, floating point and
 * Helium switched on where the core has them, memory set up, main called. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern unsigned char data_load[], data_begin[], data_end[], bss_begin[], bss_end[];
extern unsigned char stack_bottom[], stack_top[];
extern void initialise_monitor_handles(void); /* librdimon: files and output by semihosting */
extern int main(void);

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
enum { STACK_PATTERN = 0xA5 };

/* The deepest the stack has been since reset, in bytes. */
size_t stack_used(void);

static void fault(void) {
  puts("the core met a fault");
  fflush(stdout);
  _exit(99);
}

void reset(void) {
  unsigned char *here = (unsigned char *)__builtin_frame_address(0) - 64;
  int status;
  CPACR |= 0xFu << 20;
  __asm__ volatile("dsb\n\tisb");
  memset(stack_bottom, STACK_PATTERN, (size_t)(here - stack_bottom));
  memcpy(data_begin, data_load, (size_t)(data_end - data_begin));
  memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
  initialise_monitor_handles();
  status = main();
  fflush(stdout);
  _exit(status);
}

size_t stack_used(void) {
  const unsigned char *place = stack_bottom;
  while (place < stack_top && *place == STACK_PATTERN) {
    ++place;
  }
  return (size_t)(stack_top - place);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};
