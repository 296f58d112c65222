/* uses: real_bounded */
/* A filter of rank 1 over features, and one over time of which the state is the memory. */
struct svdf_f32 {
  int32_t images, features, units, rank, memory;
  float low, high;
  const float *by_feature; /* units and ranks, features */
  const float *by_time;    /* units and ranks, memory */
  const float *bias;
};

static void svdf_f32(const struct svdf_f32 *c, const real_a *x, real_a *state, real_a *y)
{
  int32_t image, unit, rank, k;
  for (image = 0; image < c->images; ++image, x += c->features) {
    const float *feature = c->by_feature;
    const float *time = c->by_time;
    for (unit = 0; unit < c->units; ++unit) {
      float total = c->bias != NULL ? c->bias[unit] : 0.0f;
      for (rank = 0; rank < c->rank; ++rank) {
        float sum = 0.0f;
        for (k = 0; k + 1 < c->memory; ++k) {
          state[k] = state[k + 1];
        }
        for (k = 0; k < c->features; ++k) {
          sum += feature[k] * x[k];
        }
        state[c->memory - 1] = sum;
        sum = 0.0f;
        for (k = 0; k < c->memory; ++k) {
          sum += time[k] * state[k];
        }
        total += sum;
        feature += c->features;
        time += c->memory;
        state += c->memory;
      }
      *y++ = real_bounded(total, c->low, c->high);
    }
  }
}
