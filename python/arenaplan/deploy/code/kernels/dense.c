/* uses: encoded RESCALE */
/* A product with a constant matrix. */
struct dense_KIND {
  int32_t rows, depth, channels;
  int32_t offset, weight_offset;
  int32_t zero, low, high;
  const int8_t *weights; /* channels, depth */
  const BIAS *bias;
  const int32_t *multipliers;
  const int8_t *shifts;
  int32_t step; /* 1 if each channel has a multiplier, else 0 */
};

static void dense_KIND(const struct dense_KIND *c, const NUMBER *x, NUMBER *y)
{
  const int32_t depth = c->depth, offset = c->offset, weight_offset = c->weight_offset;
  int32_t row, channel, k;
  for (row = 0; row < c->rows; ++row, x += depth) {
    const int8_t *q = c->weights;
    for (channel = 0; channel < c->channels; ++channel, q += depth) {
      SUM sum = c->bias != NULL ? c->bias[channel] : 0;
      for (k = 0; k < depth; ++k) {
        sum += (x[k] + offset) * (q[k] + weight_offset);
      }
      *y++ = (NUMBER)encoded(
          RESCALE(sum, c->multipliers[channel * c->step], c->shifts[channel * c->step]), c->zero,
          c->low, c->high);
    }
  }
}
