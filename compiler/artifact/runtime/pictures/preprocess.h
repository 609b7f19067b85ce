/* A picture becomes a model's input: docs/quantization.md defines every step to the bit. Included
 * by a generated model.c whose model says how its pictures are prepared. */
#ifndef TILEWRIGHT_PREPROCESS_H
#define TILEWRIGHT_PREPROCESS_H

#include "tilewright_runtime.h"

enum { TILEWRIGHT_RGB, TILEWRIGHT_BGR, TILEWRIGHT_GRAY };

typedef struct tilewright_preprocessing {
  int32_t resize[2]; /* height and width; {shorter side, 0}; {0, 0} leaves the size alone */
  int32_t crop[2];   /* height and width of the middle; {0, 0} takes all */
  int32_t order;
  int32_t channels;
  float mean[3];
  float scale[3];
  int32_t is_nchw;
} tilewright_preprocessing;

typedef struct tilewright_place {
  int64_t first;    /* the pixel before the place */
  int64_t second;   /* the one after it */
  int64_t fraction; /* of 2048, from the first to the second */
} tilewright_place;

static tilewright_place tilewright_place_of(int64_t output, int64_t outputs, int64_t inputs) {
  tilewright_place place;
  int64_t parts = (2 * output + 1) * inputs * 1024 / outputs - 1024;
  const int64_t last = (inputs - 1) * 2048;
  parts = parts < 0 ? 0 : parts > last ? last : parts;
  place.first = parts / 2048;
  place.second = place.first + 1 < inputs ? place.first + 1 : inputs - 1;
  place.fraction = parts % 2048;
  return place;
}

static int32_t tilewright_pixel(const uint8_t *pixels, int64_t width, tilewright_place row,
                                tilewright_place column, int32_t channel) {
  const uint8_t *upper = pixels + row.first * width * 3 + channel;
  const uint8_t *lower = pixels + row.second * width * 3 + channel;
  const int64_t a = (2048 - column.fraction) * upper[column.first * 3] +
                    column.fraction * upper[column.second * 3];
  const int64_t b = (2048 - column.fraction) * lower[column.first * 3] +
                    column.fraction * lower[column.second * 3];
  return (int32_t)(((2048 - row.fraction) * a + row.fraction * b + 2097152) >> 22);
}

static int32_t tilewright_channel(const tilewright_preprocessing *how, const uint8_t *pixels,
                                  int64_t width, tilewright_place row, tilewright_place column,
                                  int32_t channel) {
  if (how->order == TILEWRIGHT_GRAY) {
    return (77 * tilewright_pixel(pixels, width, row, column, 0) +
            150 * tilewright_pixel(pixels, width, row, column, 1) +
            29 * tilewright_pixel(pixels, width, row, column, 2) + 128) >> 8;
  }
  return tilewright_pixel(pixels, width, row, column,
                          how->order == TILEWRIGHT_BGR ? 2 - channel : channel);
}

/* 0, or 1 where the picture does not give the `rows` x `columns` that the model takes. */
static int tilewright_preprocess(const tilewright_preprocessing *how, const uint8_t *pixels,
                                 int32_t height, int32_t width, int32_t rows, int32_t columns,
                                 int is_float, void *input) {
  const int32_t shorter = height < width ? height : width;
  int64_t resized_height = height, resized_width = width, y, x;
  int32_t channel;
  if (height < 1 || width < 1) {
    return 1;
  }
  if (how->resize[1] > 0) {
    resized_height = how->resize[0];
    resized_width = how->resize[1];
  } else if (how->resize[0] > 0) {
    resized_height = (int64_t)height * how->resize[0] / shorter;
    resized_width = (int64_t)width * how->resize[0] / shorter;
  }
  if (how->crop[0] > 0 ? how->crop[0] != rows || how->crop[1] != columns ||
                             resized_height < rows || resized_width < columns
                       : resized_height != rows || resized_width != columns) {
    return 1;
  }
  for (y = 0; y < rows; ++y) {
    const tilewright_place row =
        tilewright_place_of(y + (resized_height - rows) / 2, resized_height, height);
    for (x = 0; x < columns; ++x) {
      const tilewright_place column =
          tilewright_place_of(x + (resized_width - columns) / 2, resized_width, width);
      for (channel = 0; channel < how->channels; ++channel) {
        const int32_t pixel = tilewright_channel(how, pixels, width, row, column, channel);
        const int64_t at = how->is_nchw ? (channel * (int64_t)rows + y) * columns + x
                                        : (y * columns + x) * how->channels + channel;
        if (is_float) {
          const float centred = (float)pixel - how->mean[channel];
          ((float *)input)[at] = centred * how->scale[channel];
        } else {
          ((uint8_t *)input)[at] = (uint8_t)pixel;
        }
      }
    }
  }
  return 0;
}

#endif
