/* uses: scaled bounded encoded */
/* A filter of rank 1 over features, and one over time of which the state is the memory. */
struct svdf_KIND {
  int32_t images, features, units, rank, memory;
  int32_t x_zero, state_zero, y_zero;
  int32_t first_multiplier, first_shift, last_multiplier, last_shift;
  const int8_t *by_feature; /* units and ranks, features */
  const NUMBER *by_time;    /* units and ranks, memory */
  const int32_t *bias;
};

static void svdf_KIND(const struct svdf_KIND *c, const int8_t *x, STATE *state, int8_t *y)
{
  int32_t image, unit, rank, k;
  for (image = 0; image < c->images; ++image, x += c->features) {
    const int8_t *feature = c->by_feature;
    const NUMBER *time = c->by_time;
    for (unit = 0; unit < c->units; ++unit) {
      int32_t total = c->bias != NULL ? c->bias[unit] : 0;
      for (rank = 0; rank < c->rank; ++rank) {
        int32_t sum = 0;
        for (k = 0; k < c->features; ++k) {
          sum += feature[k] * (x[k] - c->x_zero);
        }
        for (k = 0; k + 1 < c->memory; ++k) {
          state[k] = state[k + 1];
        }
        sum = scaled(sum, c->first_multiplier, c->first_shift);
        state[c->memory - 1] = (STATE)(bounded(sum, LOW, HIGH) + c->state_zero);
        for (k = 0; k < c->memory; ++k) {
          total += time[k] * (state[k] - c->state_zero);
        }
        feature += c->features;
        time += c->memory;
        state += c->memory;
      }
      *y++ = (int8_t)encoded(scaled(total, c->last_multiplier, c->last_shift), c->y_zero, -128,
                             127);
    }
  }
}
