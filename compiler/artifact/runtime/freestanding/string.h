/* For compilers that come without a C library: what the simulator asks of one. */
#ifndef TILEWRIGHT_STRING_H
#define TILEWRIGHT_STRING_H

#include <stddef.h>

int memcmp(const void *left, const void *right, size_t bytes);
void *memcpy(void *target, const void *source, size_t bytes);
void *memmove(void *target, const void *source, size_t bytes);
void *memset(void *target, int value, size_t bytes);

#endif
