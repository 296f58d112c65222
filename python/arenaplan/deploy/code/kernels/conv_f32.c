/* uses: window real_bounded */
/* A convolution of real numbers. */
struct conv_f32 {
  struct window window;
  int32_t groups, group_channels, group_depth;
  float low, high;
  const float *weights; /* channels, rows, columns, depth of a group */
  const float *bias;
};

/* Makes rows start up to stop of the result. x holds rows of the image from x_row on. */
static void conv_f32(const struct conv_f32 *c, const real_a *x, int32_t x_row, real_a *y,
                     int32_t start, int32_t stop)
{
  const struct window w = c->window;
  const int32_t inner = c->group_depth;
  const int32_t filter = w.taps_h * w.taps_w * inner;
  int32_t row, column, group, each, i, j, k;
  for (row = start; row < stop; ++row) {
    const int32_t top = row * w.stride_h - w.before_h;
    const int32_t i_first = first_tap(top, w.dilation_h);
    const int32_t i_last = last_tap(top, w.height, w.dilation_h, w.taps_h);
    for (column = 0; column < w.made_width; ++column) {
      const int32_t left = column * w.stride_w - w.before_w;
      const int32_t j_first = first_tap(left, w.dilation_w);
      const int32_t j_last = last_tap(left, w.width, w.dilation_w, w.taps_w);
      int32_t channel = 0;
      for (group = 0; group < c->groups; ++group) {
        for (each = 0; each < c->group_channels; ++each, ++channel) {
          float sum = 0.0f;
          for (i = i_first; i < i_last; ++i) {
            const int32_t line = top + i * w.dilation_h - x_row;
            for (j = j_first; j < j_last; ++j) {
              const real_a *p =
                  x + (line * w.width + left + j * w.dilation_w) * w.depth + group * inner;
              const float *q = c->weights + channel * filter + (i * w.taps_w + j) * inner;
              for (k = 0; k < inner; ++k) {
                sum += p[k] * q[k];
              }
            }
          }
          *y++ = real_bounded(sum + (c->bias != NULL ? c->bias[channel] : 0.0f), c->low, c->high);
        }
      }
    }
  }
}
