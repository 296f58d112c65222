/* Channels of images, each with a factor and a summand. */
struct planes_scaled {
  int32_t images, channels, plane;
  const float *factors;
  const float *summands;
};

static void planes_scaled(const struct planes_scaled *c, const real_a *x, real_a *y)
{
  int32_t image, channel, k;
  for (image = 0; image < c->images; ++image) {
    for (channel = 0; channel < c->channels; ++channel) {
      for (k = 0; k < c->plane; ++k) {
        *y++ = *x++ * c->factors[channel] + c->summands[channel];
      }
    }
  }
}
