/* uses: window USED */
/* A convolution. */
struct conv_KIND {
  struct window window;
  int32_t groups, group_channels, group_depth;
  LAST_FIELDS
  const WEIGHT *weights; /* channels, rows, columns, depth of a group */
  const BIAS *bias;
};

/* Makes rows start up to stop of the result. x holds rows of the image from x_row on. */
static void conv_KIND(const struct conv_KIND *c, const NUMBER *x, int32_t x_row, NUMBER *y,
                      int32_t start, int32_t stop)
{
  const struct window w = c->window;
  const int32_t inner = c->group_depth;
  const int32_t filter = w.taps_h * w.taps_w * inner;
  const int32_t is_dense = w.dilation_w == 1 && inner == w.depth;
  int32_t row, column, group, each, i, j, k;
  for (row = start; row < stop; ++row) {
    const int32_t top = row * w.stride_h - w.before_h;
    const int32_t i_first = first_tap(top, w.dilation_h);
    const int32_t i_last = last_tap(top, w.height, w.dilation_h, w.taps_h);
    for (column = 0; column < w.made_width; ++column) {
      const int32_t left = column * w.stride_w - w.before_w;
      const int32_t j_first = first_tap(left, w.dilation_w);
      const int32_t j_last = last_tap(left, w.width, w.dilation_w, w.taps_w);
      const int32_t spans = is_dense ? (j_first < j_last) : j_last - j_first;
      const int32_t count = is_dense ? (j_last - j_first) * inner : inner;
      const int32_t at = left + j_first * w.dilation_w;
      int32_t channel = 0;
      for (group = 0; group < c->groups; ++group) {
        for (each = 0; each < c->group_channels; ++each, ++channel) {
          const WEIGHT *const weights = c->weights + channel * filter + j_first * inner;
          SUM sum = FIRST;
          for (i = i_first; i < i_last; ++i) {
            const int32_t line = top + i * w.dilation_h - x_row;
            const NUMBER *p = x + (line * w.width + at) * w.depth + group * inner;
            const WEIGHT *q = weights + i * w.taps_w * inner;
            for (j = 0; j < spans; ++j) {
              for (k = 0; k < count; ++k) {
                sum += TERM;
              }
              p += w.dilation_w * w.depth;
              q += inner;
            }
          }
          *y++ = RESULT;
        }
      }
    }
  }
}
