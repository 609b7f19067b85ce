/* An optional runner for boards with POSIX threads: the caller and `threads - 1` workers share the
 * tasks of a step. Workers sleep between steps. The caller gives the memory. */
#ifndef TILEWRIGHT_THREAD_POOL_H
#define TILEWRIGHT_THREAD_POOL_H

#include "tilewright_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tilewright_pool tilewright_pool;

size_t tilewright_pool_bytes(int32_t threads);

/* A pool in `memory` (tilewright_pool_bytes of it, aligned as malloc would), or NULL when the
 * memory is short or the system starts no thread. */
tilewright_pool *tilewright_pool_start(void *memory, size_t bytes, int32_t threads);

/* Waits until the workers have ended; the memory is the caller's again. */
void tilewright_pool_stop(tilewright_pool *pool);

/* A tilewright_runner whose runner_data is the pool. Callers on several threads take turns. */
int32_t tilewright_pool_run(void *pool, tilewright_tasks tasks, const void *argument,
                            int32_t count);

#ifdef __cplusplus
}
#endif

#endif
