/* uses: USED */
/* A transposed convolution: each number of the result gathers the pixels whose windows hold it. */
struct transpose_conv_KIND {
  int32_t height, width, depth; /* of the image */
  int32_t made_height, made_width, channels;
  int32_t taps_h, taps_w, stride_h, stride_w, before_h, before_w;
  LAST_FIELDS
  const WEIGHT *weights; /* channels, rows, columns, depth */
  const BIAS *bias;
};

static void transpose_conv_KIND(const struct transpose_conv_KIND *c, const NUMBER *x, NUMBER *y)
{
  int32_t row, column, channel, i, j, k;
  for (row = 0; row < c->made_height; ++row) {
    for (column = 0; column < c->made_width; ++column) {
      for (channel = 0; channel < c->channels; ++channel) {
        SUM sum = FIRST;
        for (i = 0; i < c->height; ++i) {
          const int32_t tap_h = row + c->before_h - i * c->stride_h;
          if (tap_h < 0 || tap_h >= c->taps_h) {
            continue;
          }
          for (j = 0; j < c->width; ++j) {
            const int32_t tap_w = column + c->before_w - j * c->stride_w;
            const NUMBER *p = x + (i * c->width + j) * c->depth;
            const WEIGHT *q;
            if (tap_w < 0 || tap_w >= c->taps_w) {
              continue;
            }
            q = c->weights + ((channel * c->taps_h + tap_h) * c->taps_w + tap_w) * c->depth;
            for (k = 0; k < c->depth; ++k) {
              sum += TERM;
            }
          }
        }
        *y++ = RESULT;
      }
    }
  }
}
