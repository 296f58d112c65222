/* uses: window USED */
/* A convolution of each channel by itself. */
struct depthwise_KIND {
  struct window window;
  int32_t per_channel; /* results per channel of the image */
  LAST_FIELDS
  const WEIGHT *weights; /* rows, columns, channels */
  const BIAS *bias;
};

/* Makes rows start up to stop of the result. x holds rows of the image from x_row on. */
static void depthwise_KIND(const struct depthwise_KIND *c, const NUMBER *x, int32_t x_row,
                           NUMBER *y, int32_t start, int32_t stop)
{
  const struct window w = c->window;
  const int32_t channels = w.depth * c->per_channel;
  int32_t row, column, depth, each, i, j;
  for (row = start; row < stop; ++row) {
    const int32_t top = row * w.stride_h - w.before_h;
    const int32_t i_first = first_tap(top, w.dilation_h);
    const int32_t i_last = last_tap(top, w.height, w.dilation_h, w.taps_h);
    for (column = 0; column < w.made_width; ++column) {
      const int32_t left = column * w.stride_w - w.before_w;
      const int32_t j_first = first_tap(left, w.dilation_w);
      const int32_t j_last = last_tap(left, w.width, w.dilation_w, w.taps_w);
      int32_t channel = 0;
      for (depth = 0; depth < w.depth; ++depth) {
        for (each = 0; each < c->per_channel; ++each, ++channel) {
          SUM sum = FIRST;
          for (i = i_first; i < i_last; ++i) {
            const int32_t line = top + i * w.dilation_h - x_row;
            const NUMBER *p =
                x + (line * w.width + left + j_first * w.dilation_w) * w.depth + depth;
            const WEIGHT *q = c->weights + (i * w.taps_w + j_first) * channels + channel;
            for (j = j_first; j < j_last; ++j) {
              sum += TERM;
              p += w.dilation_w * w.depth;
              q += channels;
            }
          }
          *y++ = RESULT;
        }
      }
    }
  }
}
