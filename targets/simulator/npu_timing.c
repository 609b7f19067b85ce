/* What an instruction costs when it runs alone; targets/timing.py states the same formulas. */
#include "npu_internal.h"

static uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Note that the instruction touches SRAM from `address` up to `end`. */
static void touch(const npu_job *job, npu_cost *cost, uint64_t address, uint64_t end) {
  uint64_t bank_bytes = job->machine->sram_bytes / job->machine->banks;
  for (uint64_t bank = address / bank_bytes; bank <= (end - 1) / bank_bytes; ++bank)
    cost->banks |= (uint64_t)1 << bank;
}

static void touch_tile(const npu_job *job, npu_cost *cost, uint32_t address, int32_t height,
                       int32_t width, uint32_t row_pitch, int32_t pixel_pitch, int32_t channels) {
  touch(job, cost, address,
        address + (uint64_t)(height - 1) * row_pitch + (uint64_t)(width - 1) * pixel_pitch +
            channels);
}

/* `full` passes that load full_rows rows of weights, and `last` that load last_rows. */
static uint64_t passes_cycles(const npu_machine *m, uint64_t rows, uint64_t pixels, uint64_t full,
                              uint64_t last, uint64_t full_rows, uint64_t last_rows) {
  uint64_t drain = rows + m->columns - 2;
  if (!m->weight_double_buffer)
    return (full + last) * (divide_up(rows, m->weight_rows_per_cycle) + drain + pixels) - 1;
  uint64_t load_full = divide_up(full_rows, m->weight_rows_per_cycle);
  uint64_t load_last = divide_up(last_rows, m->weight_rows_per_cycle);
  uint64_t first = full ? load_full : load_last;
  uint64_t follow_full = full ? full - 1 : 0, follow_last = full ? last : last - 1;
  return first + pixels + follow_full * larger(pixels, load_full) +
         follow_last * larger(pixels, load_last) + drain;
}

static uint64_t array_cycles(const npu_machine *m, uint64_t rows, uint64_t pixels, uint64_t taps,
                             uint64_t inputs, uint64_t outputs) {
  uint64_t turns = m->reduction == NPU_REDUCTION_CHANNELS ? taps : 1;
  uint64_t reduction = m->reduction == NPU_REDUCTION_CHANNELS ? inputs : taps * inputs;
  uint64_t folds = divide_up(reduction, rows), rest = (reduction - 1) % rows + 1;
  uint64_t columns = divide_up(outputs, m->columns) * turns;
  return passes_cycles(m, rows, pixels, columns * (folds - 1), columns, rows, rest);
}

static uint64_t conv_cycles(const npu_machine *m, uint64_t pixels, uint64_t taps, uint64_t inputs,
                            uint64_t outputs) {
  uint64_t whole = array_cycles(m, m->rows, pixels, taps, inputs, outputs);
  if (m->subarrays == 1) return whole;
  uint64_t parts = array_cycles(m, m->rows / m->subarrays, divide_up(pixels, m->subarrays), taps,
                                inputs, outputs);
  return smaller(whole, parts);
}

static uint64_t depthwise_cycles(const npu_machine *m, uint64_t pixels, uint64_t taps,
                                 uint64_t outputs) {
  if (m->depthwise_mode == NPU_DEPTHWISE_DIAGONAL) {
    uint64_t side = smaller(m->rows, m->columns);
    uint64_t folds = divide_up(outputs, side), rest = (outputs - 1) % side + 1;
    return passes_cycles(m, m->rows, pixels, taps * (folds - 1), taps, side, rest);
  }
  uint64_t macs = pixels * taps * outputs;
  if (m->depthwise_mode == NPU_DEPTHWISE_VECTOR)
    return m->vector_startup_cycles + divide_up(macs, m->vector_lanes);
  return divide_up(macs, m->depthwise_macs_per_cycle);
}

static npu_cost multiply_cost(const npu_job *job, const npu_multiply *d, int depthwise) {
  const npu_machine *m = job->machine;
  npu_cost cost = {0};
  uint64_t pixels = (uint64_t)d->output_height * (uint64_t)d->output_width;
  uint64_t taps = (uint64_t)d->kernel_h * (uint64_t)d->kernel_w;
  uint64_t outputs = (uint64_t)d->output_channels, inputs = (uint64_t)d->input_channels;
  uint64_t reduction = depthwise ? taps : taps * inputs;
  cost.macs = pixels * reduction * outputs;
  cost.cycles = depthwise ? depthwise_cycles(m, pixels, taps, outputs)
                          : conv_cycles(m, pixels, taps, inputs, outputs);
  cost.sram_read = reduction * outputs;
  cost.sram_read +=
      depthwise ? cost.macs : divide_up(outputs, m->columns) * reduction * pixels;
  touch_tile(job, &cost, d->input_address, d->input_height, d->input_width, d->input_row_pitch,
             d->input_pixel_pitch, d->input_channels);
  touch(job, &cost, d->weight_address,
        d->weight_address + (reduction - 1) * (uint64_t)d->weight_channel_pitch + outputs);
  if (d->bias_address != NPU_NO_BIAS && !d->accumulate) {
    cost.sram_read += 4 * outputs;
    touch(job, &cost, d->bias_address, d->bias_address + 4 * outputs);
  }
  return cost;
}

static npu_cost transfer_cost(const npu_job *job, const npu_transfer *d, int stores) {
  const npu_machine *m = job->machine;
  npu_cost cost = {0};
  uint64_t run = d->run_bytes, runs = 1;
  int32_t counts[2] = {d->count_1, d->count_2};
  int32_t strides[2] = {d->dram_stride_1, d->dram_stride_2};
  for (int level = 0; level < 2; ++level) {
    if (counts[level] == 1) continue;
    if (runs == 1 && strides[level] >= 0 && (uint64_t)strides[level] == run)
      run *= (uint64_t)counts[level];
    else
      runs *= (uint64_t)counts[level];
  }
  cost.dram_bytes = run * runs;
  cost.dram_burst_bytes = runs * divide_up(run, m->burst_bytes) * m->burst_bytes;
  uint64_t rate = smaller((uint64_t)m->dma_bytes_per_cycle * 1000, m->dram_millibytes_per_cycle);
  cost.cycles = m->dma_latency_cycles + divide_up(cost.dram_burst_bytes * 1000, rate);
  if (stores)
    cost.sram_read = cost.dram_bytes;
  else
    cost.sram_written = cost.dram_bytes;
  touch(job, &cost, d->sram_address,
        d->sram_address + (uint64_t)(d->count_1 - 1) * d->sram_stride_1 +
            (uint64_t)(d->count_2 - 1) * d->sram_stride_2 + d->run_bytes);
  return cost;
}

static npu_cost vector_cost(const npu_job *job, uint64_t operations, uint64_t read,
                            uint64_t written) {
  npu_cost cost = {0};
  cost.cycles =
      job->machine->vector_startup_cycles + divide_up(operations, job->machine->vector_lanes);
  cost.sram_read = read;
  cost.sram_written = written;
  return cost;
}

static npu_cost requantize_cost(const npu_job *job, const npu_requantize *d) {
  uint64_t channels = (uint64_t)d->channels;
  uint64_t count = (uint64_t)d->height * (uint64_t)d->width * channels;
  npu_cost cost = vector_cost(job, count, 4 * channels, count);
  touch(job, &cost, d->table_address, d->table_address + 4 * channels);
  touch_tile(job, &cost, d->output_address, d->height, d->width, d->output_row_pitch,
             d->output_pixel_pitch, d->channels);
  return cost;
}

static npu_cost binary_cost(const npu_job *job, const npu_binary *d) {
  uint64_t channels = (uint64_t)d->channels, count = d->pixels * channels, last = d->pixels - 1;
  uint64_t second = d->b_pixel_pitch ? count : channels;
  npu_cost cost = vector_cost(job, count, count + second, count);
  touch(job, &cost, d->a_address, d->a_address + last * (uint64_t)d->a_pixel_pitch + channels);
  touch(job, &cost, d->b_address, d->b_address + last * (uint64_t)d->b_pixel_pitch + channels);
  touch(job, &cost, d->output_address,
        d->output_address + last * (uint64_t)d->output_pixel_pitch + channels);
  return cost;
}

static npu_cost lookup_cost(const npu_job *job, const npu_lookup *d) {
  uint64_t count = (uint64_t)d->height * (uint64_t)d->width * (uint64_t)d->channels;
  npu_cost cost = vector_cost(job, count, count + 256, count);
  touch_tile(job, &cost, d->input_address, d->height, d->width, d->input_row_pitch,
             d->input_pixel_pitch, d->channels);
  touch_tile(job, &cost, d->output_address, d->height, d->width, d->output_row_pitch,
             d->output_pixel_pitch, d->channels);
  touch(job, &cost, d->table_address, d->table_address + (uint64_t)256);
  return cost;
}

static npu_cost pool_cost(const npu_job *job, const npu_pool *d) {
  uint64_t count =
      (uint64_t)d->output_height * (uint64_t)d->output_width * (uint64_t)d->channels;
  uint64_t reads = count * (uint64_t)d->kernel_h * (uint64_t)d->kernel_w;
  npu_cost cost = vector_cost(job, reads, reads, count);
  touch_tile(job, &cost, d->input_address, d->input_height, d->input_width, d->input_row_pitch,
             d->input_pixel_pitch, d->channels);
  touch_tile(job, &cost, d->output_address, d->output_height, d->output_width,
             d->output_row_pitch, d->output_pixel_pitch, d->channels);
  return cost;
}

static npu_cost copy_cost(const npu_job *job, const npu_copy *d) {
  uint64_t inner = (uint64_t)d->count_1 - 1, outer = (uint64_t)d->count_2 - 1;
  uint64_t count = d->run_bytes * (inner + 1) * (outer + 1);
  npu_cost cost = vector_cost(job, count, count, count);
  touch(job, &cost, d->source_address,
        d->source_address + inner * d->source_stride_1 + outer * d->source_stride_2 +
            d->run_bytes);
  touch(job, &cost, d->destination_address,
        d->destination_address + inner * d->destination_stride_1 +
            outer * d->destination_stride_2 + d->run_bytes);
  return cost;
}

static npu_cost fill_cost(const npu_job *job, const npu_fill *d) {
  uint64_t inner = (uint64_t)d->count_1 - 1, outer = (uint64_t)d->count_2 - 1;
  uint64_t count = d->run_bytes * (inner + 1) * (outer + 1);
  npu_cost cost = vector_cost(job, count, 0, count);
  touch(job, &cost, d->address,
        d->address + inner * d->stride_1 + outer * d->stride_2 + d->run_bytes);
  return cost;
}

npu_cost npu_instruction_cost(const npu_job *job, const uint8_t *w) {
  npu_cost nothing = {0};
  if (w[0] == NPU_OP_LOAD || w[0] == NPU_OP_STORE) {
    npu_transfer d = npu_transfer_fields(w);
    return transfer_cost(job, &d, w[0] == NPU_OP_STORE);
  } else if (w[0] == NPU_OP_CONV || w[0] == NPU_OP_DEPTHWISE) {
    npu_multiply d = npu_multiply_fields(w);
    return multiply_cost(job, &d, w[0] == NPU_OP_DEPTHWISE);
  } else if (w[0] == NPU_OP_REQUANTIZE) {
    npu_requantize d = npu_requantize_fields(w);
    return requantize_cost(job, &d);
  } else if (w[0] == NPU_OP_ADD || w[0] == NPU_OP_SUBTRACT || w[0] == NPU_OP_MULTIPLY) {
    npu_binary d = npu_binary_fields(w);
    return binary_cost(job, &d);
  } else if (w[0] == NPU_OP_LOOKUP) {
    npu_lookup d = npu_lookup_fields(w);
    return lookup_cost(job, &d);
  } else if (w[0] == NPU_OP_MAX_POOL || w[0] == NPU_OP_AVERAGE_POOL) {
    npu_pool d = npu_pool_fields(w);
    return pool_cost(job, &d);
  } else if (w[0] == NPU_OP_COPY) {
    npu_copy d = npu_copy_fields(w);
    return copy_cost(job, &d);
  } else if (w[0] == NPU_OP_FILL) {
    npu_fill d = npu_fill_fields(w);
    return fill_cost(job, &d);
  }
  return nothing;
}
