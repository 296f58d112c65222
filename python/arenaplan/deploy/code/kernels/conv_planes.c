/* uses: window */
/* A convolution of an image whose channels are stored one after the other. */
struct conv_planes {
  struct window window;
  int32_t made_height, groups, group_channels, group_depth;
  const float *weights; /* channels, depth of a group, rows, columns */
  const float *bias;
};

static void conv_planes(const struct conv_planes *c, const real_a *x, real_a *y)
{
  const struct window w = c->window;
  const int32_t plane = w.height * w.width, taps = w.taps_h * w.taps_w;
  const float *weights = c->weights;
  int32_t group, each, row, column, depth, i, j, channel = 0;
  for (group = 0; group < c->groups; ++group, x += c->group_depth * plane) {
    for (each = 0; each < c->group_channels; ++each, ++channel, weights += c->group_depth * taps) {
      for (row = 0; row < c->made_height; ++row) {
        const int32_t top = row * w.stride_h - w.before_h;
        const int32_t i_first = first_tap(top, w.dilation_h);
        const int32_t i_last = last_tap(top, w.height, w.dilation_h, w.taps_h);
        for (column = 0; column < w.made_width; ++column) {
          const int32_t left = column * w.stride_w - w.before_w;
          const int32_t j_first = first_tap(left, w.dilation_w);
          const int32_t j_last = last_tap(left, w.width, w.dilation_w, w.taps_w);
          float sum = c->bias != NULL ? c->bias[channel] : 0.0f;
          for (depth = 0; depth < c->group_depth; ++depth) {
            for (i = i_first; i < i_last; ++i) {
              const real_a *const p = x + depth * plane + (top + i * w.dilation_h) * w.width + left;
              const float *const q = weights + depth * taps + i * w.taps_w;
              for (j = j_first; j < j_last; ++j) {
                sum += p[j * w.dilation_w] * q[j];
              }
            }
          }
          *y++ = sum;
        }
      }
    }
  }
}
