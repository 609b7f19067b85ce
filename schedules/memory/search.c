/* Fit rectangles of fixed time and free address under a capacity: see search.py for the method.
 *
 * Time is cut into sections in which the same items live. Items come in compressed rows:
 * item i lives in sections first[i]..last[i]; section s holds items[start[s]]..items[start[s+1]].
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum rule { TIGHTEST, LOWEST_THEN_TIGHTEST, LOWEST_THEN_BLAMED };
enum outcome { GAVE_UP = -1, IMPOSSIBLE = 0, FOUND = 1, NO_MEMORY = 2 };

typedef struct {
  int32_t count, sections;
  const int32_t *first, *last, *start, *items;
  const int64_t *size, *key;
  int64_t capacity, nodes_left;
  int32_t rule;
  int64_t *blame; /* of each section: how often it had no room */
  int64_t *offset;
} problem;

/* One level of the search; the arrays of all levels lie in one block. */
typedef struct {
  int64_t *floor;  /* of each section: no item to come lies lower */
  int64_t *rest;   /* of each section: bytes to come */
  int64_t *top;    /* of each section: the least end of an item to come; scratch, as the next two */
  int64_t *second; /* the least end of the others */
  int64_t *owner;  /* whose end `top` is */
  int64_t *lowest; /* of each item to come: its least offset */
  int8_t *placed;
  int8_t *raised; /* of each item: it rests on an item to come */
  int32_t left;
} level;

static int no_room(problem *p, int32_t first, int32_t last) {
  for (int32_t s = first; s <= last; s++) p->blame[s]++;
  return 0;
}

/* Lowest offsets follow from floors and floors from lowest offsets, until nothing changes. */
static int propagate(problem *p, level *at) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (int32_t i = 0; i < p->count; i++) {
      if (at->placed[i]) continue;
      int64_t low = at->lowest[i];
      for (int32_t s = p->first[i]; s <= p->last[i]; s++)
        if (at->floor[s] > low) low = at->floor[s];
      at->lowest[i] = low;
      if (low + p->size[i] > p->capacity) return no_room(p, p->first[i], p->last[i]);
    }
    for (int32_t s = 0; s < p->sections; s++) {
      if (at->rest[s] == 0) continue;
      int64_t low = INT64_MAX, top = INT64_MAX, second = INT64_MAX, owner = -1;
      for (int32_t k = p->start[s]; k < p->start[s + 1]; k++) {
        int32_t i = p->items[k];
        if (at->placed[i]) continue;
        int64_t end = at->lowest[i] + p->size[i];
        if (at->lowest[i] < low) low = at->lowest[i];
        if (end < top) {
          second = top;
          top = end;
          owner = i;
        } else if (end < second) {
          second = end;
        }
      }
      at->floor[s] = low;
      at->top[s] = top;
      at->second[s] = second;
      at->owner[s] = owner;
      if (low + at->rest[s] > p->capacity) return no_room(p, s, s);
    }
    for (int32_t i = 0; i < p->count; i++) {
      if (at->placed[i] || !at->raised[i]) continue;
      int64_t low = INT64_MAX;
      for (int32_t s = p->first[i]; s <= p->last[i]; s++) {
        int64_t end = at->owner[s] == i ? at->second[s] : at->top[s];
        if (end < low) low = end;
      }
      if (low == INT64_MAX) return 0; /* nothing is left that it could rest on */
      if (low > at->lowest[i]) {
        at->lowest[i] = low;
        changed = 1;
      }
    }
  }
  return 1;
}

/* The item to place or raise next, by the rule; -1 where none is left that may lie lowest. */
static int32_t choose(const problem *p, const level *at) {
  int32_t best = -1;
  int64_t best_rank[3] = {0, 0, 0};
  for (int32_t i = 0; i < p->count; i++) {
    if (at->placed[i] || at->raised[i]) continue;
    int64_t room = INT64_MAX, blame = 0, top = INT64_MAX;
    for (int32_t s = p->first[i]; s <= p->last[i]; s++) {
      int64_t here = p->capacity - at->floor[s] - at->rest[s];
      if (here < room) room = here;
      if (at->top[s] < top) top = at->top[s];
      blame += p->blame[s];
    }
    if (top <= at->lowest[i]) continue; /* another item fits below it */
    int64_t rank[3] = {at->lowest[i], room, p->key[i]};
    if (p->rule == TIGHTEST) {
      rank[0] = room;
      rank[1] = at->lowest[i];
    } else if (p->rule == LOWEST_THEN_BLAMED) {
      rank[1] = -blame;
    }
    int less = best < 0;
    for (int k = 0; k < 3 && !less && rank[k] <= best_rank[k]; k++) less = rank[k] < best_rank[k];
    if (less) {
      best = i;
      memcpy(best_rank, rank, sizeof rank);
    }
  }
  return best;
}

static void place(problem *p, const level *from, level *to, int32_t item) {
  size_t items = (size_t)p->count, sections = (size_t)p->sections;
  memcpy(to->floor, from->floor, sections * sizeof *to->floor);
  memcpy(to->rest, from->rest, sections * sizeof *to->rest);
  memcpy(to->lowest, from->lowest, items * sizeof *to->lowest);
  memcpy(to->placed, from->placed, items);
  memcpy(to->raised, from->raised, items);
  to->left = from->left - 1;
  to->placed[item] = 1;
  p->offset[item] = from->lowest[item];
  for (int32_t s = p->first[item]; s <= p->last[item]; s++) {
    to->floor[s] = from->lowest[item] + p->size[item];
    to->rest[s] -= p->size[item];
    for (int32_t k = p->start[s]; k < p->start[s + 1]; k++) to->raised[p->items[k]] = 0;
  }
}

/* Depth first without recursion: a level is done when its last choice has failed too. */
static int search(problem *p, level *levels) {
  for (int32_t depth = 0; depth >= 0;) {
    level *at = &levels[depth];
    if (p->nodes_left-- <= 0) return GAVE_UP;
    int32_t item = -1;
    if (propagate(p, at)) {
      if (at->left == 0) return FOUND;
      item = choose(p, at);
    }
    if (item >= 0) {
      place(p, at, &levels[depth + 1], item);
      at->raised[item] = 1; /* for when we come back */
      depth++;
    } else {
      depth--;
    }
  }
  return IMPOSSIBLE;
}

/* One try of at most `nodes` steps; fills `offset` when FOUND, and adds to `blame`. */
int tilewright_fit(int32_t count, int32_t sections, const int32_t *first, const int32_t *last,
                   const int32_t *start, const int32_t *items, const int64_t *size,
                   const int64_t *key, int64_t capacity, int64_t nodes, int32_t rule,
                   int64_t *blame, int64_t *offset) {
  problem p = {count, sections, first,    last,  start, items, size,
               key,   capacity, nodes,    rule,  blame, offset};
  size_t levels = (size_t)count + 1;
  size_t numbers = 5 * (size_t)sections + (size_t)count;
  level *stack = malloc(levels * sizeof *stack);
  int64_t *block = calloc(levels * numbers, sizeof *block);
  int8_t *flags = calloc(levels * 2 * (size_t)count, 1);
  int outcome = NO_MEMORY;
  if (stack && block && flags) {
    for (size_t depth = 0; depth < levels; depth++) {
      int64_t *own = block + depth * numbers;
      int8_t *own_flags = flags + depth * 2 * (size_t)count;
      stack[depth] = (level){
          .floor = own, .rest = own + sections, .top = own + 2 * sections,
          .second = own + 3 * sections, .owner = own + 4 * sections,
          .lowest = own + 5 * sections, .placed = own_flags, .raised = own_flags + count,
          .left = count,
      };
    }
    for (int32_t i = 0; i < count; i++)
      for (int32_t s = first[i]; s <= last[i]; s++) stack[0].rest[s] += size[i];
    outcome = search(&p, stack);
  }
  free(stack);
  free(block);
  free(flags);
  return outcome;
}
