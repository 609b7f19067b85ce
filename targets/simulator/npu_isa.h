/* The instruction set; written by isa_header.py from targets/isa/instructions.py. */
#ifndef NPU_ISA_H
#define NPU_ISA_H

#include <stdint.h>
#include <string.h>

static inline int32_t npu_u8(const uint8_t *p) { return p[0]; }
static inline int32_t npu_u16(const uint8_t *p) { return p[0] | p[1] << 8; }
static inline int32_t npu_i16(const uint8_t *p) { return (int16_t)npu_u16(p); }
static inline uint32_t npu_u32(const uint8_t *p) {
  return (uint32_t)npu_u16(p) | (uint32_t)npu_u16(p + 2) << 16;
}
static inline int32_t npu_i32(const uint8_t *p) { return (int32_t)npu_u32(p); }
static inline float npu_f32(const uint8_t *p) {
  uint32_t bits = npu_u32(p);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

enum {
  NPU_ISA_VERSION = 1,
  NPU_HEADER_BYTES = 64,
  NPU_INSTRUCTION_BYTES = 64,
  NPU_PAYLOAD_BYTES = 52
};
enum {
  NPU_OP_END = 0,
  NPU_OP_LOAD = 1,
  NPU_OP_STORE = 2,
  NPU_OP_CONV = 3,
  NPU_OP_DEPTHWISE = 4,
  NPU_OP_REQUANTIZE = 5,
  NPU_OP_ADD = 6,
  NPU_OP_SUBTRACT = 7,
  NPU_OP_MULTIPLY = 8,
  NPU_OP_LOOKUP = 9,
  NPU_OP_MAX_POOL = 10,
  NPU_OP_AVERAGE_POOL = 11,
  NPU_OP_COPY = 12,
  NPU_OP_FILL = 13,
  NPU_OPCODES = 14
};
enum {
  NPU_ENGINE_DMA_IN = 0,
  NPU_ENGINE_DMA_OUT = 1,
  NPU_ENGINE_MAC = 2,
  NPU_ENGINE_VECTOR = 3,
  NPU_ENGINES = 4
};

typedef struct {
  const char *name;
  int32_t engine, payload_bytes, flags;
} npu_kind;
static const npu_kind npu_kinds[NPU_OPCODES] = {
  {"END", 4, 0, 0},
  {"LOAD", 0, 33, 0},
  {"STORE", 1, 33, 0},
  {"CONV", 2, 50, 3},
  {"DEPTHWISE", 2, 51, 3},
  {"REQUANTIZE", 3, 38, 2},
  {"ADD", 3, 46, 3},
  {"SUBTRACT", 3, 46, 3},
  {"MULTIPLY", 3, 46, 3},
  {"LOOKUP", 3, 30, 0},
  {"MAX_POOL", 3, 52, 3},
  {"AVERAGE_POOL", 3, 52, 3},
  {"COPY", 3, 32, 0},
  {"FILL", 3, 21, 0},
};

typedef struct {
  int32_t region;
  uint32_t dram_offset;
  uint32_t sram_address;
  uint32_t run_bytes;
  int32_t count_1;
  int32_t count_2;
  int32_t dram_stride_1;
  int32_t dram_stride_2;
  uint32_t sram_stride_1;
  uint32_t sram_stride_2;
} npu_transfer;
static inline npu_transfer npu_transfer_fields(const uint8_t *w) {
  npu_transfer d;
  d.region = npu_u8(w + 12);
  d.dram_offset = npu_u32(w + 13);
  d.sram_address = npu_u32(w + 17);
  d.run_bytes = npu_u32(w + 21);
  d.count_1 = npu_u16(w + 25);
  d.count_2 = npu_u16(w + 27);
  d.dram_stride_1 = npu_i32(w + 29);
  d.dram_stride_2 = npu_i32(w + 33);
  d.sram_stride_1 = npu_u32(w + 37);
  d.sram_stride_2 = npu_u32(w + 41);
  return d;
}

typedef struct {
  uint32_t input_address;
  uint32_t input_row_pitch;
  int32_t input_pixel_pitch;
  int32_t input_height;
  int32_t input_width;
  int32_t input_channels;
  uint32_t weight_address;
  int32_t weight_channel_pitch;
  uint32_t accumulator_address;
  int32_t accumulator_pitch;
  int32_t output_height;
  int32_t output_width;
  int32_t output_channels;
  int32_t kernel_h;
  int32_t kernel_w;
  int32_t stride_h;
  int32_t stride_w;
  int32_t dilation_h;
  int32_t dilation_w;
  int32_t pad_top;
  int32_t pad_left;
  int32_t input_zero;
  int32_t weight_zero;
  uint32_t bias_address;
  int32_t channel_multiplier;
  int32_t accumulate;
  int32_t input_unsigned;
  int32_t weight_unsigned;
} npu_multiply;
static inline npu_multiply npu_multiply_fields(const uint8_t *w) {
  npu_multiply d;
  d.input_address = npu_u32(w + 12);
  d.input_row_pitch = npu_u32(w + 16);
  d.input_pixel_pitch = npu_u16(w + 20);
  d.input_height = npu_u16(w + 22);
  d.input_width = npu_u16(w + 24);
  d.input_channels = npu_u16(w + 26);
  d.weight_address = npu_u32(w + 28);
  d.weight_channel_pitch = npu_u16(w + 32);
  d.accumulator_address = npu_u32(w + 34);
  d.accumulator_pitch = npu_u16(w + 38);
  d.output_height = npu_u16(w + 40);
  d.output_width = npu_u16(w + 42);
  d.output_channels = npu_u16(w + 44);
  d.kernel_h = npu_u8(w + 46);
  d.kernel_w = npu_u8(w + 47);
  d.stride_h = npu_u8(w + 48);
  d.stride_w = npu_u8(w + 49);
  d.dilation_h = npu_u8(w + 50);
  d.dilation_w = npu_u8(w + 51);
  d.pad_top = npu_u8(w + 52);
  d.pad_left = npu_u8(w + 53);
  d.input_zero = npu_i16(w + 54);
  d.weight_zero = npu_i16(w + 56);
  d.bias_address = npu_u32(w + 58);
  d.channel_multiplier = npu_u8(w + 62);
  d.accumulate = w[1] >> 0 & 1;
  d.input_unsigned = w[1] >> 1 & 1;
  d.weight_unsigned = w[1] >> 2 & 1;
  return d;
}

typedef struct {
  uint32_t accumulator_address;
  int32_t accumulator_pitch;
  int32_t height;
  int32_t width;
  int32_t channels;
  uint32_t output_address;
  uint32_t output_row_pitch;
  int32_t output_pixel_pitch;
  uint32_t table_address;
  int32_t table_channels;
  float output_scale;
  int32_t output_zero;
  int32_t clip_low;
  int32_t clip_high;
  int32_t premultiplied;
  int32_t output_unsigned;
} npu_requantize;
static inline npu_requantize npu_requantize_fields(const uint8_t *w) {
  npu_requantize d;
  d.accumulator_address = npu_u32(w + 12);
  d.accumulator_pitch = npu_u16(w + 16);
  d.height = npu_u16(w + 18);
  d.width = npu_u16(w + 20);
  d.channels = npu_u16(w + 22);
  d.output_address = npu_u32(w + 24);
  d.output_row_pitch = npu_u32(w + 28);
  d.output_pixel_pitch = npu_u16(w + 32);
  d.table_address = npu_u32(w + 34);
  d.table_channels = npu_u16(w + 38);
  d.output_scale = npu_f32(w + 40);
  d.output_zero = npu_i16(w + 44);
  d.clip_low = npu_i16(w + 46);
  d.clip_high = npu_i16(w + 48);
  d.premultiplied = w[1] >> 0 & 1;
  d.output_unsigned = w[1] >> 1 & 1;
  return d;
}

typedef struct {
  uint32_t a_address;
  uint32_t b_address;
  uint32_t output_address;
  uint32_t pixels;
  int32_t channels;
  int32_t a_pixel_pitch;
  int32_t b_pixel_pitch;
  int32_t output_pixel_pitch;
  float a_scale;
  float b_scale;
  float output_scale;
  int32_t a_zero;
  int32_t b_zero;
  int32_t output_zero;
  int32_t clip_low;
  int32_t clip_high;
  int32_t a_unsigned;
  int32_t b_unsigned;
  int32_t output_unsigned;
} npu_binary;
static inline npu_binary npu_binary_fields(const uint8_t *w) {
  npu_binary d;
  d.a_address = npu_u32(w + 12);
  d.b_address = npu_u32(w + 16);
  d.output_address = npu_u32(w + 20);
  d.pixels = npu_u32(w + 24);
  d.channels = npu_u16(w + 28);
  d.a_pixel_pitch = npu_u16(w + 30);
  d.b_pixel_pitch = npu_u16(w + 32);
  d.output_pixel_pitch = npu_u16(w + 34);
  d.a_scale = npu_f32(w + 36);
  d.b_scale = npu_f32(w + 40);
  d.output_scale = npu_f32(w + 44);
  d.a_zero = npu_i16(w + 48);
  d.b_zero = npu_i16(w + 50);
  d.output_zero = npu_i16(w + 52);
  d.clip_low = npu_i16(w + 54);
  d.clip_high = npu_i16(w + 56);
  d.a_unsigned = w[1] >> 0 & 1;
  d.b_unsigned = w[1] >> 1 & 1;
  d.output_unsigned = w[1] >> 2 & 1;
  return d;
}

typedef struct {
  uint32_t input_address;
  uint32_t input_row_pitch;
  int32_t input_pixel_pitch;
  uint32_t output_address;
  uint32_t output_row_pitch;
  int32_t output_pixel_pitch;
  int32_t height;
  int32_t width;
  int32_t channels;
  uint32_t table_address;
} npu_lookup;
static inline npu_lookup npu_lookup_fields(const uint8_t *w) {
  npu_lookup d;
  d.input_address = npu_u32(w + 12);
  d.input_row_pitch = npu_u32(w + 16);
  d.input_pixel_pitch = npu_u16(w + 20);
  d.output_address = npu_u32(w + 22);
  d.output_row_pitch = npu_u32(w + 26);
  d.output_pixel_pitch = npu_u16(w + 30);
  d.height = npu_u16(w + 32);
  d.width = npu_u16(w + 34);
  d.channels = npu_u16(w + 36);
  d.table_address = npu_u32(w + 38);
  return d;
}

typedef struct {
  uint32_t input_address;
  uint32_t input_row_pitch;
  int32_t input_pixel_pitch;
  int32_t input_height;
  int32_t input_width;
  int32_t channels;
  uint32_t output_address;
  uint32_t output_row_pitch;
  int32_t output_pixel_pitch;
  int32_t output_height;
  int32_t output_width;
  int32_t kernel_h;
  int32_t kernel_w;
  int32_t stride_h;
  int32_t stride_w;
  int32_t pad_top;
  int32_t pad_left;
  int32_t pad_bottom;
  int32_t pad_right;
  float input_scale;
  float output_scale;
  int32_t input_zero;
  int32_t output_zero;
  int32_t clip_low;
  int32_t clip_high;
  int32_t count_include_pad;
  int32_t input_unsigned;
  int32_t output_unsigned;
} npu_pool;
static inline npu_pool npu_pool_fields(const uint8_t *w) {
  npu_pool d;
  d.input_address = npu_u32(w + 12);
  d.input_row_pitch = npu_u32(w + 16);
  d.input_pixel_pitch = npu_u16(w + 20);
  d.input_height = npu_u16(w + 22);
  d.input_width = npu_u16(w + 24);
  d.channels = npu_u16(w + 26);
  d.output_address = npu_u32(w + 28);
  d.output_row_pitch = npu_u32(w + 32);
  d.output_pixel_pitch = npu_u16(w + 36);
  d.output_height = npu_u16(w + 38);
  d.output_width = npu_u16(w + 40);
  d.kernel_h = npu_u16(w + 42);
  d.kernel_w = npu_u16(w + 44);
  d.stride_h = npu_u8(w + 46);
  d.stride_w = npu_u8(w + 47);
  d.pad_top = npu_u8(w + 48);
  d.pad_left = npu_u8(w + 49);
  d.pad_bottom = npu_u8(w + 50);
  d.pad_right = npu_u8(w + 51);
  d.input_scale = npu_f32(w + 52);
  d.output_scale = npu_f32(w + 56);
  d.input_zero = w[1] >> 1 & 1 ? w[60] : (int8_t)w[60];
  d.output_zero = w[1] >> 2 & 1 ? w[61] : (int8_t)w[61];
  d.clip_low = w[1] >> 2 & 1 ? w[62] : (int8_t)w[62];
  d.clip_high = w[1] >> 2 & 1 ? w[63] : (int8_t)w[63];
  d.count_include_pad = w[1] >> 0 & 1;
  d.input_unsigned = w[1] >> 1 & 1;
  d.output_unsigned = w[1] >> 2 & 1;
  return d;
}

typedef struct {
  uint32_t source_address;
  uint32_t destination_address;
  uint32_t run_bytes;
  int32_t count_1;
  int32_t count_2;
  uint32_t source_stride_1;
  uint32_t source_stride_2;
  uint32_t destination_stride_1;
  uint32_t destination_stride_2;
} npu_copy;
static inline npu_copy npu_copy_fields(const uint8_t *w) {
  npu_copy d;
  d.source_address = npu_u32(w + 12);
  d.destination_address = npu_u32(w + 16);
  d.run_bytes = npu_u32(w + 20);
  d.count_1 = npu_u16(w + 24);
  d.count_2 = npu_u16(w + 26);
  d.source_stride_1 = npu_u32(w + 28);
  d.source_stride_2 = npu_u32(w + 32);
  d.destination_stride_1 = npu_u32(w + 36);
  d.destination_stride_2 = npu_u32(w + 40);
  return d;
}

typedef struct {
  uint32_t address;
  uint32_t run_bytes;
  int32_t count_1;
  int32_t count_2;
  uint32_t stride_1;
  uint32_t stride_2;
  int32_t value;
} npu_fill;
static inline npu_fill npu_fill_fields(const uint8_t *w) {
  npu_fill d;
  d.address = npu_u32(w + 12);
  d.run_bytes = npu_u32(w + 16);
  d.count_1 = npu_u16(w + 20);
  d.count_2 = npu_u16(w + 22);
  d.stride_1 = npu_u32(w + 24);
  d.stride_2 = npu_u32(w + 28);
  d.value = npu_u8(w + 32);
  return d;
}

#endif
