/* The vector engine: requantisation, element-wise operations, look-up tables and pooling.
 *
 * Every float step is one IEEE float32 operation, in the order of targets/operators.py. Compilers
 * must not contract them into fused ones: in strict C99 mode they do not.
 */
#include "npu_internal.h"

static uint8_t *pixel_of(const npu_job *job, uint32_t address, int32_t y, uint32_t row_pitch,
                         int32_t x, int32_t pixel_pitch) {
  return job->sram + address + (size_t)y * row_pitch + (size_t)x * (uint32_t)pixel_pitch;
}

static int32_t value_of(uint8_t raw, int32_t is_unsigned) {
  return is_unsigned ? raw : (int8_t)raw;
}

static npu_status check_multipliers(npu_job *job, const npu_requantize *d) {
  const uint8_t *table = job->sram + d->table_address;
  for (int32_t c = 0; c < d->channels; ++c)
    if ((npu_u32(table + 4 * c) & 0x7F800000u) == 0x7F800000u)
      return npu_fault(job, "table_address", d->table_address,
                       "holds a multiplier that is not finite");
  return NPU_OK;
}

/* Channels that are worked on at once. */
enum { PORTION = 64 };

static void requantize_portion(npu_job *job, const npu_requantize *d, int32_t first,
                               int32_t count) {
  float multipliers[PORTION];
  const uint8_t *table = job->sram + d->table_address + 4 * first;
  for (int32_t c = 0; c < count; ++c) multipliers[c] = npu_f32(table + 4 * c);
  for (int32_t y = 0; y < d->height; ++y) {
    for (int32_t x = 0; x < d->width; ++x) {
      const int32_t *held = job->accumulator + d->accumulator_address + first +
                            (size_t)(y * d->width + x) * (uint32_t)d->accumulator_pitch;
      uint8_t *output = first + pixel_of(job, d->output_address, y, d->output_row_pitch, x,
                                         d->output_pixel_pitch);
      for (int32_t c = 0; c < count; ++c) {
        float value = (float)held[c] * multipliers[c];
        if (!d->premultiplied) value = value / d->output_scale;
        output[c] = (uint8_t)npu_clip(npu_round(value) + d->output_zero, d->clip_low, d->clip_high);
      }
    }
  }
}

npu_status npu_do_requantize(npu_job *job, const npu_requantize *d) {
  npu_status status = check_multipliers(job, d);
  if (status != NPU_OK) return status;
  for (int32_t first = 0; first < d->channels; first += PORTION) {
    int32_t rest = d->channels - first;
    requantize_portion(job, d, first, rest < PORTION ? rest : PORTION);
  }
  return NPU_OK;
}

void npu_do_binary(npu_job *job, const npu_binary *d, int opcode) {
  for (size_t p = 0; p < d->pixels; ++p) {
    const uint8_t *a = job->sram + d->a_address + p * (uint32_t)d->a_pixel_pitch;
    const uint8_t *b = job->sram + d->b_address + p * (uint32_t)d->b_pixel_pitch;
    uint8_t *output = job->sram + d->output_address + p * (uint32_t)d->output_pixel_pitch;
    for (int32_t c = 0; c < d->channels; ++c) {
      float left = (float)(value_of(a[c], d->a_unsigned) - d->a_zero) * d->a_scale;
      float right = (float)(value_of(b[c], d->b_unsigned) - d->b_zero) * d->b_scale;
      float value = opcode == NPU_OP_ADD        ? left + right
                    : opcode == NPU_OP_SUBTRACT ? left - right
                                                : left * right;
      int32_t whole = npu_round(value / d->output_scale) + d->output_zero;
      output[c] = (uint8_t)npu_clip(whole, d->clip_low, d->clip_high);
    }
  }
}

void npu_do_lookup(npu_job *job, const npu_lookup *d) {
  const uint8_t *table = job->sram + d->table_address;
  for (int32_t y = 0; y < d->height; ++y)
    for (int32_t x = 0; x < d->width; ++x) {
      const uint8_t *input =
          pixel_of(job, d->input_address, y, d->input_row_pitch, x, d->input_pixel_pitch);
      uint8_t *output =
          pixel_of(job, d->output_address, y, d->output_row_pitch, x, d->output_pixel_pitch);
      for (int32_t c = 0; c < d->channels; ++c) output[c] = table[input[c]];
    }
}

/* A positive float32 as mantissa times a power of two. */
typedef struct binary_float {
  int64_t mantissa;
  int32_t exponent;
} binary_float;

static binary_float take_apart(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  int32_t exponent = (int32_t)(bits >> 23 & 0xFF);
  int64_t mantissa = bits & 0x7FFFFF;
  binary_float parts = {exponent ? mantissa | 0x800000 : mantissa, (exponent ? exponent : 1) - 150};
  return parts;
}

/* sum * input_scale / (count * output_scale), exact, rounded once, ties to even. Results outside
 * of +-65536 saturate there. */
static int32_t average_of(int64_t sum, int64_t count, binary_float input, binary_float output) {
  uint64_t numerator = (uint64_t)(sum < 0 ? -sum : sum) * (uint64_t)input.mantissa;
  uint64_t denominator = (uint64_t)count * (uint64_t)output.mantissa;
  int32_t shift = input.exponent - output.exponent;
  for (; shift > 0 && numerator < (uint64_t)1 << 62; --shift) numerator <<= 1;
  for (; shift < 0 && denominator < (uint64_t)1 << 62; ++shift) denominator <<= 1;
  uint64_t whole = numerator / denominator, rest = numerator % denominator;
  if (shift > 0 && numerator) whole = 65536;
  if (shift < 0) whole = rest = 0;
  if (rest > denominator - rest || (rest == denominator - rest && (whole & 1))) ++whole;
  if (whole > 65536) whole = 65536;
  return sum < 0 ? -(int32_t)whole : (int32_t)whole;
}

/* Taps of a window along one side: [first, last) of the tile, and how many count as padding. */
typedef struct window {
  int32_t first, last, padded;
} window;

static window window_at(int32_t position, int32_t stride, int32_t kernel, int32_t pad_before,
                        int32_t extent, int32_t pad_after) {
  int32_t start = position * stride - pad_before, end = start + kernel;
  int32_t limit = extent + pad_after;
  window w = {start < 0 ? 0 : start, end > extent ? extent : end, 0};
  w.padded = (end > limit ? limit : end) - start;
  return w;
}

/* Sum and maximum of a window over `count` channels, PORTION at most, from channel `first` on. */
static void pool_window(const npu_job *job, const npu_pool *d, window rows, window columns,
                        int32_t first, int32_t count, int64_t *sums, int32_t *most) {
  for (int32_t c = 0; c < count; ++c) sums[c] = 0, most[c] = -128;
  for (int32_t y = rows.first; y < rows.last; ++y)
    for (int32_t x = columns.first; x < columns.last; ++x) {
      const uint8_t *pixel = first + pixel_of(job, d->input_address, y, d->input_row_pitch, x,
                                              d->input_pixel_pitch);
      for (int32_t c = 0; c < count; ++c) {
        int32_t value = value_of(pixel[c], d->input_unsigned);
        sums[c] += value - d->input_zero;
        most[c] = value > most[c] ? value : most[c];
      }
    }
}

static void pool_portion(npu_job *job, const npu_pool *d, int opcode, int32_t first,
                         int32_t count) {
  binary_float input = take_apart(d->input_scale), output = take_apart(d->output_scale);
  int64_t sums[PORTION];
  int32_t most[PORTION];
  for (int32_t y = 0; y < d->output_height; ++y)
    for (int32_t x = 0; x < d->output_width; ++x) {
      window rows = window_at(y, d->stride_h, d->kernel_h, d->pad_top, d->input_height,
                              d->pad_bottom);
      window columns = window_at(x, d->stride_w, d->kernel_w, d->pad_left, d->input_width,
                                 d->pad_right);
      int64_t seen = (int64_t)(rows.last - rows.first) * (columns.last - columns.first);
      int64_t taps = d->count_include_pad ? (int64_t)rows.padded * columns.padded : seen;
      uint8_t *result = first + pixel_of(job, d->output_address, y, d->output_row_pitch, x,
                                         d->output_pixel_pitch);
      pool_window(job, d, rows, columns, first, count, sums, most);
      for (int32_t c = 0; c < count; ++c) {
        int32_t value = opcode == NPU_OP_MAX_POOL
                            ? most[c]
                            : average_of(sums[c], taps, input, output) + d->output_zero;
        result[c] = (uint8_t)npu_clip(value, d->clip_low, d->clip_high);
      }
    }
}

void npu_do_pool(npu_job *job, const npu_pool *d, int opcode) {
  for (int32_t first = 0; first < d->channels; first += PORTION) {
    int32_t rest = d->channels - first;
    pool_portion(job, d, opcode, first, rest < PORTION ? rest : PORTION);
  }
}
