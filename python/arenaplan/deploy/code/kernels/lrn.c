/* Numbers divided by a power of the sum of squares in neighboring channels. */
struct lrn {
  int32_t images, channels, plane, below, above;
  float factor, exponent, bias;
};

static void lrn(const struct lrn *c, const real_a *x, real_a *y)
{
  int32_t image, channel, k, other;
  for (image = 0; image < c->images; ++image, x += c->channels * c->plane) {
    for (channel = 0; channel < c->channels; ++channel) {
      const int32_t low = channel > c->below ? channel - c->below : 0;
      const int32_t rest = c->channels - 1 - channel;
      const int32_t high = channel + (rest < c->above ? rest : c->above);
      for (k = 0; k < c->plane; ++k) {
        float sum = 0.0f;
        for (other = low; other <= high; ++other) {
          sum += x[other * c->plane + k] * x[other * c->plane + k];
        }
        *y++ = x[channel * c->plane + k] / powf(c->bias + sum * c->factor, c->exponent);
      }
    }
  }
}
