/* A transposed convolution of an image whose channels are stored one after the other. */
struct transposed_planes {
  int32_t height, width; /* of the image */
  int32_t made_height, made_width;
  int32_t taps_h, taps_w, stride_h, stride_w, dilation_h, dilation_w, before_h, before_w;
  int32_t groups, group_channels, group_depth;
  const float *weights; /* depth, channels of a group, rows, columns */
  const float *bias;
};

static void transposed_planes(const struct transposed_planes *c, const real_a *x, real_a *y)
{
  const int32_t plane = c->height * c->width, taps = c->taps_h * c->taps_w;
  int32_t group, each, row, column, depth, i, j, channel = 0;
  for (group = 0; group < c->groups; ++group) {
    for (each = 0; each < c->group_channels; ++each, ++channel) {
      for (row = 0; row < c->made_height; ++row) {
        for (column = 0; column < c->made_width; ++column) {
          float sum = c->bias != NULL ? c->bias[channel] : 0.0f;
          for (i = 0; i < c->taps_h; ++i) {
            const int32_t down = row + c->before_h - i * c->dilation_h;
            if (down < 0 || down % c->stride_h != 0 || down / c->stride_h >= c->height) {
              continue;
            }
            for (j = 0; j < c->taps_w; ++j) {
              const int32_t across = column + c->before_w - j * c->dilation_w;
              const real_a *p;
              const float *q;
              if (across < 0 || across % c->stride_w != 0 || across / c->stride_w >= c->width) {
                continue;
              }
              p = x + group * c->group_depth * plane + down / c->stride_h * c->width +
                  across / c->stride_w;
              q = c->weights + (group * c->group_depth * c->group_channels + each) * taps +
                  i * c->taps_w + j;
              for (depth = 0; depth < c->group_depth; ++depth) {
                sum += p[depth * plane] * q[depth * c->group_channels * taps];
              }
            }
          }
          *y++ = sum;
        }
      }
    }
  }
}
