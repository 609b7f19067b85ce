#define _POSIX_C_SOURCE 200112L

#include "thread_pool.h"

#include <pthread.h>

/* Each thread takes about this many turns at a step, so that a slow one does not hold up the rest
 * and taking turns costs little. */
enum { TURNS = 4 };

struct tilewright_pool {
  pthread_mutex_t lock;
  pthread_cond_t work_arrived;
  pthread_cond_t work_done;
  pthread_mutex_t one_caller;
  int32_t threads;
  int32_t stopping;
  tilewright_tasks tasks;
  const void *argument;
  int32_t count;   /* tasks of the current step; 0 between steps */
  int32_t next;    /* first task nobody has taken */
  int32_t turn;    /* tasks taken at a time */
  int32_t working; /* threads at work on a turn */
  int32_t error;
  pthread_t *workers;
};

size_t tilewright_pool_bytes(int32_t threads) {
  return sizeof(tilewright_pool) + (threads > 1 ? (size_t)(threads - 1) : 0) * sizeof(pthread_t);
}

/* Takes turns until none is left. Called and left with the lock held. */
static void take_turns(tilewright_pool *pool) {
  while (pool->next < pool->count) {
    int32_t begin = pool->next;
    int32_t left = pool->count - begin;
    int32_t end = begin + (left < pool->turn ? left : pool->turn);
    int32_t error;
    pool->next = end;
    pool->working += 1;
    pthread_mutex_unlock(&pool->lock);
    error = pool->tasks(pool->argument, begin, end);
    pthread_mutex_lock(&pool->lock);
    pool->working -= 1;
    if (error != 0) {
      pool->error = error;
      pool->next = pool->count;
    }
  }
}

static void *work(void *argument) {
  tilewright_pool *pool = (tilewright_pool *)argument;
  pthread_mutex_lock(&pool->lock);
  while (!pool->stopping) {
    if (pool->next < pool->count) {
      take_turns(pool);
      if (pool->working == 0) {
        pthread_cond_signal(&pool->work_done);
      }
    } else {
      pthread_cond_wait(&pool->work_arrived, &pool->lock);
    }
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

tilewright_pool *tilewright_pool_start(void *memory, size_t bytes, int32_t threads) {
  tilewright_pool *pool = (tilewright_pool *)memory;
  if (memory == NULL || threads < 1 || bytes < tilewright_pool_bytes(threads)) {
    return NULL;
  }
  pthread_mutex_init(&pool->lock, NULL);
  pthread_mutex_init(&pool->one_caller, NULL);
  pthread_cond_init(&pool->work_arrived, NULL);
  pthread_cond_init(&pool->work_done, NULL);
  pool->threads = 1;
  pool->stopping = 0;
  pool->tasks = NULL;
  pool->argument = NULL;
  pool->count = pool->next = pool->turn = pool->working = pool->error = 0;
  pool->workers = (pthread_t *)(void *)(pool + 1);
  while (pool->threads < threads) {
    if (pthread_create(&pool->workers[pool->threads - 1], NULL, work, pool) != 0) {
      tilewright_pool_stop(pool);
      return NULL;
    }
    pool->threads += 1;
  }
  return pool;
}

void tilewright_pool_stop(tilewright_pool *pool) {
  int32_t worker;
  pthread_mutex_lock(&pool->lock);
  pool->stopping = 1;
  pthread_cond_broadcast(&pool->work_arrived);
  pthread_mutex_unlock(&pool->lock);
  for (worker = 0; worker < pool->threads - 1; ++worker) {
    pthread_join(pool->workers[worker], NULL);
  }
  pthread_cond_destroy(&pool->work_done);
  pthread_cond_destroy(&pool->work_arrived);
  pthread_mutex_destroy(&pool->one_caller);
  pthread_mutex_destroy(&pool->lock);
}

int32_t tilewright_pool_run(void *runner_data, tilewright_tasks tasks, const void *argument,
                            int32_t count) {
  tilewright_pool *pool = (tilewright_pool *)runner_data;
  int32_t error;
  pthread_mutex_lock(&pool->one_caller);
  pthread_mutex_lock(&pool->lock);
  pool->tasks = tasks;
  pool->argument = argument;
  pool->count = count;
  pool->next = 0;
  pool->turn = count / (pool->threads * TURNS) + 1;
  pool->error = 0;
  pthread_cond_broadcast(&pool->work_arrived);
  take_turns(pool);
  while (pool->working > 0) {
    pthread_cond_wait(&pool->work_done, &pool->lock);
  }
  error = pool->error;
  pool->count = pool->next = 0;
  pthread_mutex_unlock(&pool->lock);
  pthread_mutex_unlock(&pool->one_caller);
  return error;
}
