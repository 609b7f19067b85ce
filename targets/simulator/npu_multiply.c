/* Convolution and depthwise convolution, int8 or uint8 into int32 accumulators.
 *
 * A raw byte is read as (raw ^ flip) - bias, with the zero point folded into bias: one form for
 * signed and unsigned. Differences fit int16, whose products compilers vectorise everywhere; sums
 * are unsigned, so that overflow wraps as it does in the hardware.
 */
#include "npu_internal.h"

enum { LANES = 16, PIXELS = 8 };

typedef struct reading {
  uint8_t flip;
  int32_t bias;
} reading;

static reading reading_of(int32_t is_unsigned, int32_t zero) {
  reading r = {is_unsigned ? 0 : 0x80, is_unsigned ? zero : zero + 128};
  return r;
}

static int16_t difference(uint8_t raw, reading r) { return (int16_t)((raw ^ r.flip) - r.bias); }

static int32_t *accumulator_of(const npu_job *job, const npu_multiply *d, int32_t pixel) {
  return job->accumulator + d->accumulator_address + (size_t)pixel * (uint32_t)d->accumulator_pitch;
}

/* What sum `lane` of a pixel begins with: the bias, zero, or what the accumulator held. */
static void begin(const npu_job *job, const npu_multiply *d, const int32_t *held, int32_t channel,
                  int32_t lanes, uint32_t *sums) {
  const uint8_t *bias = job->sram + d->bias_address;
  for (int32_t lane = 0; lane < LANES; ++lane) sums[lane] = 0;
  if (d->accumulate) {
    for (int32_t lane = 0; lane < lanes; ++lane) sums[lane] = (uint32_t)held[channel + lane];
  } else if (d->bias_address != NPU_NO_BIAS) {
    for (int32_t lane = 0; lane < lanes; ++lane) sums[lane] = npu_u32(bias + 4 * (channel + lane));
  }
}

static void multiply_lanes(uint32_t *restrict sums, int16_t input, const int16_t *restrict row) {
  for (int lane = 0; lane < LANES; ++lane) sums[lane] += (uint32_t)((int32_t)input * row[lane]);
}

/* LANES output channels of up to PIXELS output pixels of row y, from column x on. */
static void conv_block(const npu_job *job, const npu_multiply *d, int32_t y, int32_t x,
                       int32_t pixels, int32_t channel, int32_t lanes) {
  uint32_t sums[PIXELS][LANES];
  int16_t row[LANES] = {0};
  reading input = reading_of(d->input_unsigned, d->input_zero);
  reading weight = reading_of(d->weight_unsigned, d->weight_zero);
  const uint8_t *weights = job->sram + d->weight_address + channel;
  for (int32_t p = 0; p < pixels; ++p)
    begin(job, d, accumulator_of(job, d, y * d->output_width + x + p), channel, lanes, sums[p]);
  for (int32_t tap_y = 0; tap_y < d->kernel_h; ++tap_y) {
    int32_t iy = y * d->stride_h - d->pad_top + tap_y * d->dilation_h;
    if (iy < 0 || iy >= d->input_height) continue;
    for (int32_t tap_x = 0; tap_x < d->kernel_w; ++tap_x) {
      const uint8_t *source[PIXELS];
      int32_t inside = 0, where[PIXELS];
      for (int32_t p = 0; p < pixels; ++p) {
        int32_t ix = (x + p) * d->stride_w - d->pad_left + tap_x * d->dilation_w;
        if (ix < 0 || ix >= d->input_width) continue;
        source[inside] = job->sram + d->input_address + (size_t)iy * d->input_row_pitch +
                         (size_t)ix * (uint32_t)d->input_pixel_pitch;
        where[inside++] = p;
      }
      if (!inside) continue;
      const uint8_t *tap = weights + ((size_t)tap_y * (uint32_t)d->kernel_w + (uint32_t)tap_x) *
                                         (uint32_t)d->input_channels *
                                         (uint32_t)d->weight_channel_pitch;
      for (int32_t c = 0; c < d->input_channels; ++c, tap += d->weight_channel_pitch) {
        for (int32_t lane = 0; lane < lanes; ++lane) row[lane] = difference(tap[lane], weight);
        for (int32_t i = 0; i < inside; ++i)
          multiply_lanes(sums[where[i]], difference(source[i][c], input), row);
      }
    }
  }
  for (int32_t p = 0; p < pixels; ++p) {
    int32_t *held = accumulator_of(job, d, y * d->output_width + x + p) + channel;
    for (int32_t lane = 0; lane < lanes; ++lane) held[lane] = (int32_t)sums[p][lane];
  }
}

void npu_do_conv(npu_job *job, const npu_multiply *d) {
  for (int32_t channel = 0; channel < d->output_channels; channel += LANES) {
    int32_t lanes = d->output_channels - channel < LANES ? d->output_channels - channel : LANES;
    for (int32_t y = 0; y < d->output_height; ++y)
      for (int32_t x = 0; x < d->output_width; x += PIXELS) {
        int32_t pixels = d->output_width - x < PIXELS ? d->output_width - x : PIXELS;
        conv_block(job, d, y, x, pixels, channel, lanes);
      }
  }
}

/* LANES output channels of one output pixel. */
static void depthwise_block(const npu_job *job, const npu_multiply *d, int32_t y, int32_t x,
                            int32_t channel, int32_t lanes) {
  uint32_t sums[LANES];
  int16_t values[LANES] = {0}, row[LANES] = {0};
  reading input = reading_of(d->input_unsigned, d->input_zero);
  reading weight = reading_of(d->weight_unsigned, d->weight_zero);
  int32_t *held = accumulator_of(job, d, y * d->output_width + x);
  begin(job, d, held, channel, lanes, sums);
  for (int32_t tap_y = 0; tap_y < d->kernel_h; ++tap_y) {
    int32_t iy = y * d->stride_h - d->pad_top + tap_y * d->dilation_h;
    if (iy < 0 || iy >= d->input_height) continue;
    for (int32_t tap_x = 0; tap_x < d->kernel_w; ++tap_x) {
      int32_t ix = x * d->stride_w - d->pad_left + tap_x * d->dilation_w;
      if (ix < 0 || ix >= d->input_width) continue;
      const uint8_t *source = job->sram + d->input_address + (size_t)iy * d->input_row_pitch +
                              (size_t)ix * (uint32_t)d->input_pixel_pitch;
      const uint8_t *tap = job->sram + d->weight_address + channel +
                           (size_t)(tap_y * d->kernel_w + tap_x) *
                               (uint32_t)d->weight_channel_pitch;
      if (d->channel_multiplier == 1) {
        for (int32_t lane = 0; lane < lanes; ++lane)
          values[lane] = difference(source[channel + lane], input);
      } else {
        for (int32_t lane = 0; lane < lanes; ++lane)
          values[lane] = difference(source[(channel + lane) / d->channel_multiplier], input);
      }
      for (int32_t lane = 0; lane < lanes; ++lane) row[lane] = difference(tap[lane], weight);
      for (int lane = 0; lane < LANES; ++lane)
        sums[lane] += (uint32_t)((int32_t)values[lane] * row[lane]);
    }
  }
  for (int32_t lane = 0; lane < lanes; ++lane) held[channel + lane] = (int32_t)sums[lane];
}

void npu_do_depthwise(npu_job *job, const npu_multiply *d) {
  for (int32_t y = 0; y < d->output_height; ++y)
    for (int32_t x = 0; x < d->output_width; ++x)
      for (int32_t channel = 0; channel < d->output_channels; channel += LANES) {
        int32_t rest = d->output_channels - channel;
        depthwise_block(job, d, y, x, channel, rest < LANES ? rest : LANES);
      }
}
