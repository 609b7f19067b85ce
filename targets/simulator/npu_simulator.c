/* Run a command stream: in which order instructions start, when they end, what each engine did.
 *
 * Every engine runs its own queue in order. Among the instructions that could start next, the one
 * that starts earliest runs first, so that values flow and shared resources are given away in the
 * order of time: a stream that forgets a wait computes what such hardware would.
 */
#include "npu_internal.h"

/* One engine's place in its queue and what it runs now. */
typedef struct engine_state {
  uint32_t next;      /* index in the stream of its next instruction; count when there is none */
  uint32_t issued;    /* instructions handed to its queue */
  uint32_t completed; /* instructions that ran */
  uint64_t free_at;
  uint64_t *times; /* of each instruction: when issued, and once it ran, when it ended */
  uint32_t waits[NPU_ENGINES]; /* of the next instruction, once has_waits */
  int has_waits;
  uint64_t started;
  npu_cost running;
} engine_state;

typedef struct run_state {
  npu_job *job;
  engine_state engines[NPU_ENGINES];
  uint32_t issued; /* instructions of the stream handed out */
  uint64_t issue_time;
  uint64_t channel_free_at; /* the DRAM channel both DMA engines share */
} run_state;

static const uint8_t *words_of(const npu_job *job, uint32_t index) {
  return job->instructions + (size_t)index * NPU_INSTRUCTION_BYTES;
}

static int32_t engine_of(const npu_job *job, uint32_t index) {
  return npu_kinds[words_of(job, index)[0]].engine;
}

static uint32_t next_of(const npu_job *job, int32_t engine, uint32_t index) {
  while (index < job->count && engine_of(job, index) != engine) ++index;
  return index;
}

/* Full counts that the instruction waits for; a wait that reaches forward is a fault. */
static npu_status read_waits(npu_job *job, const uint8_t *words, const uint32_t before[NPU_ENGINES],
                             uint32_t waits[NPU_ENGINES]) {
  for (int engine = 0; engine < NPU_ENGINES; ++engine) {
    waits[engine] = 0;
    if (!(words[2] >> engine & 1)) continue;
    uint32_t low = (uint32_t)npu_u16(words + 4 + 2 * engine);
    uint32_t distance = (before[engine] - low) & 0xFFFF;
    if (distance >= 32768 || distance > before[engine])
      return npu_fault(job, "wait", low, "for a later instruction: the stream would never end");
    waits[engine] = before[engine] - distance;
  }
  return NPU_OK;
}

static npu_status check_stream(npu_job *job, uint32_t counts[NPU_ENGINES]) {
  uint32_t waits[NPU_ENGINES];
  for (int engine = 0; engine < NPU_ENGINES; ++engine) counts[engine] = 0;
  for (job->current = 0; job->current < job->count; ++job->current) {
    const uint8_t *words = words_of(job, job->current);
    npu_status status = npu_check_instruction(job, words);
    if (status == NPU_OK) status = read_waits(job, words, counts, waits);
    if (status != NPU_OK) return status;
    int last = job->current + 1 == job->count;
    if (last != (words[0] == NPU_OP_END))
      return npu_fault(job, "opcode", words[0],
                       last ? "the stream does not finish with END"
                            : "END before the last instruction");
    if (!last) ++counts[npu_kinds[words[0]].engine];
  }
  return NPU_OK;
}

/* Hand out instructions in stream order, as far as the queues have room at a known time. */
static void issue(run_state *run) {
  const npu_machine *machine = run->job->machine;
  while (run->issued < run->job->count) {
    int32_t number = engine_of(run->job, run->issued);
    uint64_t time = run->issue_time + machine->issue_cycles;
    if (number < NPU_ENGINES) {
      engine_state *engine = &run->engines[number];
      uint32_t depth = machine->queue_depth;
      if (engine->issued >= engine->completed + depth) return;
      if (engine->issued >= depth && engine->times[engine->issued - depth] > time)
        time = engine->times[engine->issued - depth];
      engine->times[engine->issued++] = time;
    }
    run->issue_time = time;
    ++run->issued;
  }
}

/* Instructions of every engine that stand in the stream before `index`; all are issued. */
static void counts_before(const run_state *run, uint32_t index, uint32_t counts[NPU_ENGINES]) {
  for (int engine = 0; engine < NPU_ENGINES; ++engine) {
    counts[engine] = run->engines[engine].completed;
    for (uint32_t i = run->engines[engine].next; i < index; ++i)
      counts[engine] += engine_of(run->job, i) == engine;
  }
}

/* When an engine's next instruction can start, if that is known yet. `ready` is when engine and
 * instruction were there, waits aside. */
static int start_time(run_state *run, int number, uint64_t *ready, uint64_t *start) {
  engine_state *engine = &run->engines[number];
  if (engine->completed >= engine->issued) return 0;
  if (!engine->has_waits) {
    uint32_t before[NPU_ENGINES];
    counts_before(run, engine->next, before);
    read_waits(run->job, words_of(run->job, engine->next), before, engine->waits);
    engine->has_waits = 1;
  }
  *ready = engine->times[engine->completed];
  if (engine->free_at > *ready) *ready = engine->free_at;
  *start = *ready;
  for (int other = 0; other < NPU_ENGINES; ++other) {
    uint32_t wait = engine->waits[other];
    if (wait > run->engines[other].completed) return 0;
    if (wait && run->engines[other].times[wait - 1] > *start)
      *start = run->engines[other].times[wait - 1];
  }
  return 1;
}

static uint64_t bits_of(uint64_t set) {
  uint64_t bits = 0;
  for (; set; set &= set - 1) ++bits;
  return bits;
}

/* Cycles an instruction loses to those of other engines in its banks: over the time both run,
 * what their traffic in the shared banks exceeds these banks' bandwidth by. Traffic is taken to
 * be even over an instruction's cycles and banks. */
static uint64_t conflict_cycles(const run_state *run, int number, const npu_cost *cost,
                                uint64_t start) {
  uint64_t lost = 0;
  for (int other = 0; other < NPU_ENGINES; ++other) {
    const engine_state *engine = &run->engines[other];
    uint64_t shared = cost->banks & engine->running.banks;
    if (other == number || !shared || engine->free_at <= start || !cost->cycles) continue;
    uint64_t overlap = engine->free_at - start;
    if (overlap > cost->cycles) overlap = cost->cycles;
    uint64_t theirs = engine->running.sram_read + engine->running.sram_written;
    uint64_t ours = cost->sram_read + cost->sram_written;
    theirs = theirs * bits_of(shared) / bits_of(engine->running.banks);
    ours = ours * bits_of(shared) / bits_of(cost->banks);
    uint64_t traffic = ours * overlap / cost->cycles +
                       theirs * overlap / (engine->free_at - engine->started);
    uint64_t bandwidth = bits_of(shared) * run->job->machine->bank_bytes_per_cycle;
    if (traffic > bandwidth * overlap) lost += (traffic - bandwidth * overlap) / bandwidth;
  }
  return lost;
}

/* Cycles a DMA waits for the channel after its latency, taking the channel for its bytes. */
static uint64_t channel_cycles(run_state *run, const npu_cost *cost, uint64_t start) {
  const npu_machine *machine = run->job->machine;
  uint64_t rate = machine->dram_millibytes_per_cycle;
  uint64_t wanted = start + machine->dma_latency_cycles;
  uint64_t begin = run->channel_free_at > wanted ? run->channel_free_at : wanted;
  run->channel_free_at = begin + (cost->dram_burst_bytes * 1000 + rate - 1) / rate;
  return begin - wanted;
}

static npu_status execute(npu_job *job, const uint8_t *w) {
  if (w[0] == NPU_OP_LOAD || w[0] == NPU_OP_STORE) {
    npu_transfer d = npu_transfer_fields(w);
    if (w[0] == NPU_OP_LOAD)
      npu_do_load(job, &d);
    else
      npu_do_store(job, &d);
  } else if (w[0] == NPU_OP_CONV || w[0] == NPU_OP_DEPTHWISE) {
    npu_multiply d = npu_multiply_fields(w);
    if (w[0] == NPU_OP_CONV)
      npu_do_conv(job, &d);
    else
      npu_do_depthwise(job, &d);
  } else if (w[0] == NPU_OP_REQUANTIZE) {
    npu_requantize d = npu_requantize_fields(w);
    return npu_do_requantize(job, &d);
  } else if (w[0] == NPU_OP_ADD || w[0] == NPU_OP_SUBTRACT || w[0] == NPU_OP_MULTIPLY) {
    npu_binary d = npu_binary_fields(w);
    npu_do_binary(job, &d, w[0]);
  } else if (w[0] == NPU_OP_LOOKUP) {
    npu_lookup d = npu_lookup_fields(w);
    npu_do_lookup(job, &d);
  } else if (w[0] == NPU_OP_MAX_POOL || w[0] == NPU_OP_AVERAGE_POOL) {
    npu_pool d = npu_pool_fields(w);
    npu_do_pool(job, &d, w[0]);
  } else if (w[0] == NPU_OP_COPY) {
    npu_copy d = npu_copy_fields(w);
    npu_do_copy(job, &d);
  } else if (w[0] == NPU_OP_FILL) {
    npu_fill d = npu_fill_fields(w);
    npu_do_fill(job, &d);
  }
  return NPU_OK;
}

static void count(run_state *run, int number, const npu_cost *cost, uint64_t cycles,
                  uint64_t data_wait, uint64_t sync_wait) {
  npu_stats *stats = &run->job->device->stats;
  npu_engine_stats *engine = &stats->engines[number];
  const npu_machine *machine = run->job->machine;
  ++engine->instructions;
  engine->busy_cycles += cycles;
  engine->data_wait_cycles += data_wait;
  engine->sync_wait_cycles += sync_wait;
  engine->bytes_in += number == NPU_ENGINE_DMA_IN ? cost->dram_bytes : cost->sram_read;
  engine->bytes_out += number == NPU_ENGINE_DMA_OUT ? cost->dram_bytes : cost->sram_written;
  engine->macs += cost->macs;
  engine->energy_fj += cost->macs * machine->mac_fj +
                       (cost->sram_read + cost->sram_written) * machine->sram_byte_fj +
                       cost->dram_burst_bytes * machine->dram_byte_fj;
  stats->dram_burst_bytes += cost->dram_burst_bytes;
}

/* Run the next instruction of an engine, which starts now. */
static npu_status advance(run_state *run, int number, uint64_t ready, uint64_t start) {
  npu_job *job = run->job;
  engine_state *engine = &run->engines[number];
  const uint8_t *words = words_of(job, engine->next);
  npu_cost cost = npu_instruction_cost(job, words);
  uint64_t data_wait = conflict_cycles(run, number, &cost, start);
  if (number == NPU_ENGINE_DMA_IN || number == NPU_ENGINE_DMA_OUT)
    data_wait += channel_cycles(run, &cost, start);
  uint64_t cycles = cost.cycles + data_wait, end = start + cycles;
  count(run, number, &cost, cycles, data_wait, start - ready);
  job->current = engine->next;
  npu_status status = execute(job, words);
  if (job->device->trace && engine->next < job->device->trace_length) {
    job->device->trace[engine->next].start = start;
    job->device->trace[engine->next].end = end;
  }
  engine->times[engine->completed++] = end;
  engine->started = start;
  engine->free_at = end;
  engine->running = cost;
  engine->has_waits = 0;
  engine->next = next_of(job, number, engine->next + 1);
  return status;
}

static npu_status run_engines(run_state *run) {
  for (;;) {
    int first = -1;
    uint64_t ready = 0, start = 0, time_ready, time_start;
    issue(run);
    for (int number = 0; number < NPU_ENGINES; ++number) {
      if (run->engines[number].next >= run->job->count) continue;
      if (!start_time(run, number, &time_ready, &time_start)) continue;
      if (first >= 0 && time_start >= start) continue;
      first = number;
      ready = time_ready;
      start = time_start;
    }
    if (first < 0) return NPU_OK;
    npu_status status = advance(run, first, ready, start);
    if (status != NPU_OK) return status;
  }
}

static void finish(run_state *run) {
  npu_stats *stats = &run->job->device->stats;
  npu_device *device = run->job->device;
  stats->cycles = run->issue_time;
  for (int number = 0; number < NPU_ENGINES; ++number) {
    if (run->engines[number].free_at > stats->cycles)
      stats->cycles = run->engines[number].free_at;
    stats->energy_fj += stats->engines[number].energy_fj;
  }
  stats->energy_fj += stats->cycles * run->job->machine->idle_fj_per_cycle;
  if (device->trace && run->job->count - 1 < device->trace_length) {
    device->trace[run->job->count - 1].start = stats->cycles;
    device->trace[run->job->count - 1].end = stats->cycles;
  }
}

static size_t round_to_word(size_t bytes) { return (bytes + 7) / 8 * 8; }

size_t npu_workspace_bytes(const npu_machine *machine, const void *stream, size_t stream_bytes) {
  (void)stream;
  size_t count = stream_bytes < NPU_HEADER_BYTES
                     ? 0
                     : (stream_bytes - NPU_HEADER_BYTES) / NPU_INSTRUCTION_BYTES;
  return round_to_word(machine->sram_bytes) + round_to_word(machine->accumulator_bytes) +
         NPU_WORKSPACE_BYTES_PER_INSTRUCTION * count;
}

void npu_simulator_init(npu_device *device, const npu_machine *machine, void *workspace,
                        size_t workspace_bytes) {
  memset(device, 0, sizeof *device);
  device->machine = machine;
  device->workspace = workspace;
  device->workspace_bytes = workspace_bytes;
}

npu_status npu_run(npu_device *device, const void *stream, size_t stream_bytes,
                   const void *constants, size_t constants_bytes, void *arena,
                   size_t arena_bytes) {
  const npu_machine *machine = device->machine;
  npu_job job = {0};
  run_state run = {0};
  uint32_t counts[NPU_ENGINES];
  memset(&device->stats, 0, sizeof device->stats);
  device->error[0] = 0;
  job.device = device;
  job.machine = machine;
  job.constants = (const uint8_t *)constants;
  job.constants_bytes = constants_bytes;
  job.arena = (uint8_t *)arena;
  job.arena_bytes = arena_bytes;
  npu_status status = npu_check_header(&job, (const uint8_t *)stream, stream_bytes);
  if (status != NPU_OK) return status;
  if (device->workspace_bytes < npu_workspace_bytes(machine, stream, stream_bytes))
    return npu_refuse(device, NPU_TOO_SMALL, "needs a larger workspace; see npu_workspace_bytes");
  status = check_stream(&job, counts);
  if (status != NPU_OK) return status;

  size_t sram = round_to_word(machine->sram_bytes);
  size_t accumulators = round_to_word(machine->accumulator_bytes);
  job.sram = (uint8_t *)device->workspace;
  job.accumulator = (int32_t *)(job.sram + sram);
  /* Nothing may depend on what an earlier run left. */
  memset(job.sram, 0xA5, sram + accumulators);
  run.job = &job;
  uint64_t *times = (uint64_t *)(job.sram + sram + accumulators);
  for (int engine = 0; engine < NPU_ENGINES; ++engine) {
    run.engines[engine].times = times;
    run.engines[engine].next = next_of(&job, engine, 0);
    times += counts[engine];
  }
  status = run_engines(&run);
  if (status == NPU_OK) finish(&run);
  return status;
}

const char *npu_error(const npu_device *device) { return device->error; }

const npu_stats *npu_last_stats(const npu_device *device) { return &device->stats; }
