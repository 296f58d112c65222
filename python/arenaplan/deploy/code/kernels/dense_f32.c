/* uses: real_bounded */
/* A product of real numbers with a constant matrix. */
struct dense_f32 {
  int32_t rows, depth, channels;
  float low, high;
  const float *weights; /* channels, depth */
  const float *bias;
};

static void dense_f32(const struct dense_f32 *c, const real_a *x, real_a *y)
{
  int32_t row, channel, k;
  for (row = 0; row < c->rows; ++row, x += c->depth) {
    const float *q = c->weights;
    for (channel = 0; channel < c->channels; ++channel, q += c->depth) {
      float sum = 0.0f;
      for (k = 0; k < c->depth; ++k) {
        sum += x[k] * q[k];
      }
      *y++ = real_bounded(sum + (c->bias != NULL ? c->bias[channel] : 0.0f), c->low, c->high);
    }
  }
}
