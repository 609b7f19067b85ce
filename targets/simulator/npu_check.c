/* Everything a command stream can get wrong, found before any of its values is touched. */
#include "npu_internal.h"

#define REQUIRE(condition, field, reason)                                       \
  do {                                                                          \
    if (!(condition)) return npu_fault(job, #field, (int64_t)d->field, reason); \
  } while (0)

#define TRY(check)                             \
  do {                                         \
    npu_status status_ = (check);              \
    if (status_ != NPU_OK) return status_;     \
  } while (0)

static const char *const zero_extent = "must be 1 or more";
static const char *const beyond_sram = "the tile reaches beyond the SRAM of the stream";
static const char *const misaligned = "not a multiple of the channel alignment";

static uint32_t crc32_of(const uint8_t *data, size_t bytes) {
  uint32_t table[16], crc = 0xFFFFFFFFu;
  for (uint32_t entry = 0; entry < 16; ++entry) {
    uint32_t value = entry;
    for (int bit = 0; bit < 4; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    table[entry] = value;
  }
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= data[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

npu_status npu_check_header(npu_job *job, const uint8_t *stream, size_t bytes) {
  npu_device *device = job->device;
  if (bytes < NPU_HEADER_BYTES || memcmp(stream, "TWNP", 4) != 0)
    return npu_refuse(device, NPU_BAD_STREAM, "does not begin with the header of one");
  if (npu_u16(stream + 4) != NPU_ISA_VERSION || npu_u16(stream + 6) != NPU_INSTRUCTION_BYTES)
    return npu_refuse(device, NPU_BAD_STREAM, "is of another version; compile the model again");
  job->instructions = stream + NPU_HEADER_BYTES;
  job->count = npu_u32(stream + 16);
  if (bytes - NPU_HEADER_BYTES != (uint64_t)job->count * NPU_INSTRUCTION_BYTES || !job->count)
    return npu_refuse(device, NPU_BAD_STREAM, "is truncated: its length is not its header's");
  if (crc32_of(job->instructions, bytes - NPU_HEADER_BYTES) != npu_u32(stream + 36))
    return npu_refuse(device, NPU_BAD_STREAM, "is damaged: its checksum differs");
  for (int i = 40; i < NPU_HEADER_BYTES; ++i)
    if (stream[i]) return npu_refuse(device, NPU_BAD_STREAM, "has nonzero reserved header bytes");
  if (memcmp(stream + 8, job->machine->digest, 8) != 0)
    return npu_refuse(device, NPU_WRONG_TARGET,
                      "was compiled for another NPU: the target's digest differs");
  job->sram_bytes = npu_u32(stream + 20);
  if (job->sram_bytes > job->machine->sram_bytes)
    return npu_refuse(device, NPU_TOO_SMALL, "needs more SRAM than this NPU has");
  job->accumulators = npu_u32(stream + 24) / 4;
  if (npu_u32(stream + 24) > job->machine->accumulator_bytes)
    return npu_refuse(device, NPU_TOO_SMALL, "needs more accumulators than this NPU has");
  if (npu_u32(stream + 28) > job->constants_bytes)
    return npu_refuse(device, NPU_TOO_SMALL, "needs more constants than were given");
  if (npu_u32(stream + 32) > job->arena_bytes)
    return npu_refuse(device, NPU_TOO_SMALL, "needs a larger arena than was given");
  job->constants_bytes = npu_u32(stream + 28);
  job->arena_bytes = npu_u32(stream + 32);
  return NPU_OK;
}

/* Where an activation tile lies, and the name of the field that holds its address. */
typedef struct tile {
  const char *field;
  uint32_t address;
  int64_t height, width, channels;
  uint32_t row_pitch, pixel_pitch;
} tile;

static int64_t end_of(tile t) {
  return t.address + (t.height - 1) * t.row_pitch + (t.width - 1) * t.pixel_pitch + t.channels;
}

/* Extents, alignment of address and pitches, and that whole groups of channels lie in the SRAM. */
static npu_status check_tile(npu_job *job, tile t) {
  uint32_t group = job->machine->channel_alignment;
  if (t.address % group) return npu_fault(job, t.field, t.address, misaligned);
  if (t.row_pitch % group || t.pixel_pitch % group)
    return npu_fault(job, t.field, t.address,
                     "the tile's pitches are no multiples of the channel alignment");
  t.channels = (t.channels + group - 1) / group * group;
  if (end_of(t) > (int64_t)job->sram_bytes)
    return npu_fault(job, t.field, t.address, beyond_sram);
  return NPU_OK;
}

/* Channels of two tiles that take turns in the same pixels, as the parts of a concat do. */
static int interleave(tile input, tile output) {
  int64_t pitch = output.pixel_pitch;
  if (!pitch || (input.pixel_pitch && input.pixel_pitch != output.pixel_pitch)) return 0;
  if (input.row_pitch % pitch || output.row_pitch % pitch) return 0;
  int64_t apart = (((int64_t)output.address - input.address) % pitch + pitch) % pitch;
  return apart >= input.channels && apart + output.channels <= pitch;
}

/* An output may replace an element-wise input in place; it must not run over what is yet to be
 * read. */
static npu_status check_overlap(npu_job *job, tile input, tile output, int in_place) {
  if (end_of(input) <= output.address || end_of(output) <= input.address) return NPU_OK;
  if (in_place && input.address == output.address && input.row_pitch == output.row_pitch &&
      input.pixel_pitch == output.pixel_pitch)
    return NPU_OK;
  if (interleave(input, output)) return NPU_OK;
  return npu_fault(job, output.field, output.address, "the tile overlaps what is yet to be read");
}

static npu_status check_table(npu_job *job, const char *field, uint32_t address, int64_t bytes) {
  if (address % job->machine->table_alignment)
    return npu_fault(job, field, address, "the table is misaligned");
  if (address + bytes > (int64_t)job->sram_bytes)
    return npu_fault(job, field, address,
                     "the table is short: with whole columns it reaches beyond the SRAM");
  return NPU_OK;
}

static npu_status check_accumulators(npu_job *job, uint32_t address, int64_t pixels,
                                     int32_t pitch, int32_t channels) {
  if (pitch < channels)
    return npu_fault(job, "accumulator_pitch", pitch, "less than the channels of a pixel");
  if (address + (pixels - 1) * pitch + channels > (int64_t)job->accumulators)
    return npu_fault(job, "accumulator_address", address,
                     "the tile reaches beyond the accumulators of the stream");
  return NPU_OK;
}

static npu_status check_zero(npu_job *job, const char *field, int32_t zero, int32_t is_unsigned) {
  if (zero < (is_unsigned ? 0 : -128) || zero > (is_unsigned ? 255 : 127))
    return npu_fault(job, field, zero, "no value of the data's type");
  return NPU_OK;
}

static npu_status check_scale(npu_job *job, const char *field, float scale) {
  if (!(scale > 0.0f && scale <= 3.4028234663852886e38f))
    return npu_fault(job, field, 0, "the scale is not positive and finite");
  return NPU_OK;
}

static npu_status check_output(npu_job *job, int32_t zero, int32_t low, int32_t high,
                               int32_t is_unsigned) {
  TRY(check_zero(job, "output_zero", zero, is_unsigned));
  TRY(check_zero(job, "clip_low", low, is_unsigned));
  TRY(check_zero(job, "clip_high", high, is_unsigned));
  if (low > high) return npu_fault(job, "clip_low", low, "greater than clip_high");
  return NPU_OK;
}

/* Where the DMA gathers no single channels, tensors lie in DRAM in whole groups of them. */
static npu_status check_dram_channels(npu_job *job, const npu_transfer *d) {
  int32_t group = (int32_t)job->machine->dram_channels_multiple;
  REQUIRE(d->dram_offset % (uint32_t)group == 0, dram_offset, "no whole group of channels");
  REQUIRE(d->run_bytes % (uint32_t)group == 0, run_bytes, "no whole groups of channels");
  REQUIRE(d->count_1 == 1 || d->dram_stride_1 % group == 0, dram_stride_1,
          "no whole groups of channels");
  REQUIRE(d->count_2 == 1 || d->dram_stride_2 % group == 0, dram_stride_2,
          "no whole groups of channels");
  return NPU_OK;
}

static npu_status check_transfer(npu_job *job, const npu_transfer *d, int stores) {
  REQUIRE(d->region <= 1, region, "neither constants (0) nor arena (1)");
  REQUIRE(!stores || d->region == 1, region, "only the arena (1) can be written");
  REQUIRE(d->run_bytes, run_bytes, zero_extent);
  REQUIRE(d->count_1, count_1, zero_extent);
  REQUIRE(d->count_2, count_2, zero_extent);
  if (d->region == 1) TRY(check_dram_channels(job, d));
  int64_t reach_1 = (int64_t)d->dram_stride_1 * (d->count_1 - 1);
  int64_t reach_2 = (int64_t)d->dram_stride_2 * (d->count_2 - 1);
  int64_t low = d->dram_offset + (reach_1 < 0 ? reach_1 : 0) + (reach_2 < 0 ? reach_2 : 0);
  int64_t high = d->dram_offset + (reach_1 > 0 ? reach_1 : 0) + (reach_2 > 0 ? reach_2 : 0);
  uint64_t room = d->region ? job->arena_bytes : job->constants_bytes;
  REQUIRE(low >= 0, dram_offset, "the transfer reaches before the start of its region");
  REQUIRE((uint64_t)high + d->run_bytes <= room, dram_offset,
          d->region ? "the transfer reaches beyond the arena"
                    : "the transfer reaches beyond the constants");
  uint64_t sram_end = d->sram_address + (uint64_t)d->sram_stride_1 * (uint32_t)(d->count_1 - 1) +
                      (uint64_t)d->sram_stride_2 * (uint32_t)(d->count_2 - 1) + d->run_bytes;
  REQUIRE(sram_end <= job->sram_bytes, sram_address,
          "the transfer reaches beyond the SRAM of the stream");
  return NPU_OK;
}

static npu_status check_multiply(npu_job *job, const npu_multiply *d, int depthwise) {
  REQUIRE(d->input_height, input_height, zero_extent);
  REQUIRE(d->input_width, input_width, zero_extent);
  REQUIRE(d->input_channels, input_channels, zero_extent);
  REQUIRE(d->output_height, output_height, zero_extent);
  REQUIRE(d->output_width, output_width, zero_extent);
  REQUIRE(d->output_channels, output_channels, zero_extent);
  REQUIRE(d->kernel_h, kernel_h, zero_extent);
  REQUIRE(d->kernel_w, kernel_w, zero_extent);
  REQUIRE(d->stride_h, stride_h, zero_extent);
  REQUIRE(d->stride_w, stride_w, zero_extent);
  REQUIRE(d->dilation_h, dilation_h, zero_extent);
  REQUIRE(d->dilation_w, dilation_w, zero_extent);
  if (depthwise) {
    REQUIRE(d->channel_multiplier, channel_multiplier, zero_extent);
    REQUIRE(d->output_channels == d->input_channels * d->channel_multiplier, output_channels,
            "not input_channels times channel_multiplier");
  }
  tile input = {"input_address", d->input_address, d->input_height, d->input_width,
                d->input_channels, d->input_row_pitch, (uint32_t)d->input_pixel_pitch};
  TRY(check_tile(job, input));
  REQUIRE(d->weight_channel_pitch >= d->output_channels, weight_channel_pitch,
          "less than the output channels");
  int64_t rows = (int64_t)d->kernel_h * d->kernel_w * (depthwise ? 1 : d->input_channels);
  REQUIRE(d->weight_address + (rows - 1) * d->weight_channel_pitch + d->output_channels <=
              (int64_t)job->sram_bytes,
          weight_address, "the weights reach beyond the SRAM of the stream");
  TRY(check_accumulators(job, d->accumulator_address, (int64_t)d->output_height * d->output_width,
                         d->accumulator_pitch, d->output_channels));
  TRY(check_zero(job, "input_zero", d->input_zero, d->input_unsigned));
  TRY(check_zero(job, "weight_zero", d->weight_zero, d->weight_unsigned));
  if (d->bias_address == NPU_NO_BIAS || d->accumulate) return NPU_OK;
  int64_t multiple = job->machine->table_channels_multiple;
  int64_t entries = (d->output_channels + multiple - 1) / multiple * multiple;
  return check_table(job, "bias_address", d->bias_address, 4 * entries);
}

static npu_status check_requantize(npu_job *job, const npu_requantize *d) {
  REQUIRE(d->height, height, zero_extent);
  REQUIRE(d->width, width, zero_extent);
  REQUIRE(d->channels, channels, zero_extent);
  REQUIRE(d->table_channels >= d->channels, table_channels,
          "the table is short: fewer than channels");
  REQUIRE(d->table_channels % (int32_t)job->machine->table_channels_multiple == 0, table_channels,
          "the table is short: not whole columns of the array");
  TRY(check_table(job, "table_address", d->table_address, 4 * (int64_t)d->table_channels));
  TRY(check_accumulators(job, d->accumulator_address, (int64_t)d->height * d->width,
                         d->accumulator_pitch, d->channels));
  tile output = {"output_address", d->output_address, d->height, d->width, d->channels,
                 d->output_row_pitch, (uint32_t)d->output_pixel_pitch};
  TRY(check_tile(job, output));
  if (!d->premultiplied) TRY(check_scale(job, "output_scale", d->output_scale));
  return check_output(job, d->output_zero, d->clip_low, d->clip_high, d->output_unsigned);
}

static npu_status check_binary(npu_job *job, const npu_binary *d) {
  REQUIRE(d->pixels, pixels, zero_extent);
  REQUIRE(d->channels, channels, zero_extent);
  tile a = {"a_address", d->a_address, 1, d->pixels, d->channels, 0, (uint32_t)d->a_pixel_pitch};
  tile b = {"b_address", d->b_address, 1, d->pixels, d->channels, 0, (uint32_t)d->b_pixel_pitch};
  tile output = {"output_address", d->output_address, 1, d->pixels,
                 d->channels,      0,                 (uint32_t)d->output_pixel_pitch};
  TRY(check_tile(job, a));
  TRY(check_tile(job, b));
  TRY(check_tile(job, output));
  TRY(check_overlap(job, a, output, 1));
  TRY(check_overlap(job, b, output, 1));
  TRY(check_scale(job, "a_scale", d->a_scale));
  TRY(check_scale(job, "b_scale", d->b_scale));
  TRY(check_scale(job, "output_scale", d->output_scale));
  TRY(check_zero(job, "a_zero", d->a_zero, d->a_unsigned));
  TRY(check_zero(job, "b_zero", d->b_zero, d->b_unsigned));
  return check_output(job, d->output_zero, d->clip_low, d->clip_high, d->output_unsigned);
}

static npu_status check_lookup(npu_job *job, const npu_lookup *d) {
  REQUIRE(d->height, height, zero_extent);
  REQUIRE(d->width, width, zero_extent);
  REQUIRE(d->channels, channels, zero_extent);
  tile input = {"input_address", d->input_address, d->height, d->width, d->channels,
                d->input_row_pitch, (uint32_t)d->input_pixel_pitch};
  tile output = {"output_address", d->output_address, d->height, d->width, d->channels,
                 d->output_row_pitch, (uint32_t)d->output_pixel_pitch};
  tile table = {"table_address", d->table_address, 1, 1, 256, 0, 0};
  TRY(check_tile(job, input));
  TRY(check_tile(job, output));
  TRY(check_overlap(job, input, output, 1));
  TRY(check_table(job, table.field, table.address, table.channels));
  return check_overlap(job, table, output, 0);
}

static npu_status check_pool(npu_job *job, const npu_pool *d, int average) {
  REQUIRE(d->input_height, input_height, zero_extent);
  REQUIRE(d->input_width, input_width, zero_extent);
  REQUIRE(d->channels, channels, zero_extent);
  REQUIRE(d->output_height, output_height, zero_extent);
  REQUIRE(d->output_width, output_width, zero_extent);
  REQUIRE(d->kernel_h, kernel_h, zero_extent);
  REQUIRE(d->kernel_w, kernel_w, zero_extent);
  REQUIRE(d->stride_h, stride_h, zero_extent);
  REQUIRE(d->stride_w, stride_w, zero_extent);
  REQUIRE(d->pad_top < d->kernel_h, pad_top, "the first window would see no input");
  REQUIRE(d->pad_left < d->kernel_w, pad_left, "the first window would see no input");
  REQUIRE((int64_t)(d->output_height - 1) * d->stride_h - d->pad_top < d->input_height,
          output_height, "the last window would see no input");
  REQUIRE((int64_t)(d->output_width - 1) * d->stride_w - d->pad_left < d->input_width,
          output_width, "the last window would see no input");
  tile input = {"input_address", d->input_address, d->input_height, d->input_width, d->channels,
                d->input_row_pitch, (uint32_t)d->input_pixel_pitch};
  tile output = {"output_address", d->output_address, d->output_height, d->output_width,
                 d->channels, d->output_row_pitch, (uint32_t)d->output_pixel_pitch};
  TRY(check_tile(job, input));
  TRY(check_tile(job, output));
  TRY(check_overlap(job, input, output, 0));
  if (average) {
    TRY(check_scale(job, "input_scale", d->input_scale));
    TRY(check_scale(job, "output_scale", d->output_scale));
  } else {
    REQUIRE(d->input_unsigned == d->output_unsigned, output_unsigned,
            "a maximum keeps the type of its input");
  }
  return check_output(job, d->output_zero, d->clip_low, d->clip_high, d->output_unsigned);
}

static uint64_t walk_end(uint32_t address, uint32_t run, int32_t count_1, int32_t count_2,
                         uint32_t stride_1, uint32_t stride_2) {
  return address + (uint64_t)stride_1 * (uint32_t)(count_1 - 1) +
         (uint64_t)stride_2 * (uint32_t)(count_2 - 1) + run;
}

static npu_status check_copy(npu_job *job, const npu_copy *d) {
  REQUIRE(d->run_bytes, run_bytes, zero_extent);
  REQUIRE(d->count_1, count_1, zero_extent);
  REQUIRE(d->count_2, count_2, zero_extent);
  REQUIRE(walk_end(d->source_address, d->run_bytes, d->count_1, d->count_2, d->source_stride_1,
                   d->source_stride_2) <= job->sram_bytes,
          source_address, "the copy reaches beyond the SRAM of the stream");
  REQUIRE(walk_end(d->destination_address, d->run_bytes, d->count_1, d->count_2,
                   d->destination_stride_1, d->destination_stride_2) <= job->sram_bytes,
          destination_address, "the copy reaches beyond the SRAM of the stream");
  return NPU_OK;
}

static npu_status check_fill(npu_job *job, const npu_fill *d) {
  REQUIRE(d->run_bytes, run_bytes, zero_extent);
  REQUIRE(d->count_1, count_1, zero_extent);
  REQUIRE(d->count_2, count_2, zero_extent);
  REQUIRE(walk_end(d->address, d->run_bytes, d->count_1, d->count_2, d->stride_1, d->stride_2) <=
              job->sram_bytes,
          address, "the fill reaches beyond the SRAM of the stream");
  return NPU_OK;
}

static npu_status check_reserved(npu_job *job, const uint8_t *w) {
  const npu_kind *kind = &npu_kinds[w[0]];
  if (w[1] >> kind->flags) return npu_fault(job, "flags", w[1], "reserved bits are set");
  if (w[2] >> NPU_ENGINES) return npu_fault(job, "wait_mask", w[2], "reserved bits are set");
  if (w[3]) return npu_fault(job, "core", w[3], "this NPU has one core, number 0");
  for (int engine = 0; engine < NPU_ENGINES; ++engine)
    if (!(w[2] >> engine & 1) && npu_u16(w + 4 + 2 * engine))
      return npu_fault(job, "wait", npu_u16(w + 4 + 2 * engine), "set, but not in wait_mask");
  for (int i = NPU_INSTRUCTION_BYTES - NPU_PAYLOAD_BYTES + kind->payload_bytes;
       i < NPU_INSTRUCTION_BYTES; ++i)
    if (w[i]) return npu_fault(job, "reserved", w[i], "bytes after the fields must be zero");
  return NPU_OK;
}

npu_status npu_check_instruction(npu_job *job, const uint8_t *w) {
  if (w[0] >= NPU_OPCODES) return npu_fault(job, "opcode", w[0], "unknown");
  TRY(check_reserved(job, w));
  if (w[0] == NPU_OP_LOAD || w[0] == NPU_OP_STORE) {
    npu_transfer d = npu_transfer_fields(w);
    return check_transfer(job, &d, w[0] == NPU_OP_STORE);
  } else if (w[0] == NPU_OP_CONV || w[0] == NPU_OP_DEPTHWISE) {
    npu_multiply d = npu_multiply_fields(w);
    return check_multiply(job, &d, w[0] == NPU_OP_DEPTHWISE);
  } else if (w[0] == NPU_OP_REQUANTIZE) {
    npu_requantize d = npu_requantize_fields(w);
    return check_requantize(job, &d);
  } else if (w[0] == NPU_OP_ADD || w[0] == NPU_OP_SUBTRACT || w[0] == NPU_OP_MULTIPLY) {
    npu_binary d = npu_binary_fields(w);
    return check_binary(job, &d);
  } else if (w[0] == NPU_OP_LOOKUP) {
    npu_lookup d = npu_lookup_fields(w);
    return check_lookup(job, &d);
  } else if (w[0] == NPU_OP_MAX_POOL || w[0] == NPU_OP_AVERAGE_POOL) {
    npu_pool d = npu_pool_fields(w);
    return check_pool(job, &d, w[0] == NPU_OP_AVERAGE_POOL);
  } else if (w[0] == NPU_OP_COPY) {
    npu_copy d = npu_copy_fields(w);
    return check_copy(job, &d);
  } else if (w[0] == NPU_OP_FILL) {
    npu_fill d = npu_fill_fields(w);
    return check_fill(job, &d);
  }
  return NPU_OK;
}
