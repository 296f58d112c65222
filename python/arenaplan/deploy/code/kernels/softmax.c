/* uses: high_product halved bounded reciprocal */
/* Softmax of rows; exponentials of all differences to the largest number are in a table. */
struct softmax_KIND {
  int32_t rows, depth;
  const int32_t *exps; /* of differences from 0 on */
  int32_t count;       /* of exponentials: those of larger differences are 0 */
};

static void softmax_KIND(const struct softmax_KIND *c, const int8_t *x, NUMBER *y)
{
  int32_t row, k;
  for (row = 0; row < c->rows; ++row, x += c->depth, y += c->depth) {
    int32_t most = x[0], total = 0, free_bits = 0, inverse, shift;
    uint32_t scaled_total;
    for (k = 1; k < c->depth; ++k) {
      most = x[k] > most ? x[k] : most;
    }
    for (k = 0; k < c->depth; ++k) {
      if (most - x[k] < c->count) {
        total += halved(c->exps[most - x[k]], 12);
      }
    }
    scaled_total = (uint32_t)total;
    while ((scaled_total & 0x80000000u) == 0) {
      scaled_total <<= 1;
      ++free_bits;
    }
    inverse = reciprocal((int32_t)(scaled_total - 0x80000000u));
    shift = 12 - free_bits + 31 - BITS;
    for (k = 0; k < c->depth; ++k) {
      const int32_t difference = most - x[k];
      y[k] = LOW;
      if (difference < c->count) {
        y[k] = (NUMBER)(bounded(halved(high_product(inverse, c->exps[difference]), shift), 0,
                                2 * HIGH + 1) + LOW);
      }
    }
  }
}
