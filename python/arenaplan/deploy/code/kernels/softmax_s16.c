/* uses: scaled looked_up bounded */
/* Softmax of rows of 16-bit numbers, by tables. */
struct softmax_s16 {
  int32_t rows, depth;
  int32_t multiplier, shift;
  const int16_t *exps;     /* of 513 numbers */
  const int16_t *inverses; /* 1 / (1 + x) of 513 numbers */
};

static int32_t exp_s16(const struct softmax_s16 *c, int32_t difference)
{
  const int32_t at = scaled(difference, c->multiplier, c->shift);
  return looked_up(bounded(at, -65535, 0) + 32767, c->exps);
}

static void softmax_s16(const struct softmax_s16 *c, const int16_a *x, int16_a *y)
{
  int32_t row, k;
  for (row = 0; row < c->rows; ++row, x += c->depth, y += c->depth) {
    int32_t most = x[0], total = 0, free_bits = 0, inverse, right;
    uint32_t bits;
    for (k = 1; k < c->depth; ++k) {
      most = x[k] > most ? x[k] : most;
    }
    for (k = 0; k < c->depth; ++k) {
      total += exp_s16(c, x[k] - most);
    }
    for (bits = (uint32_t)total; (bits & 0x80000000u) == 0; bits <<= 1) {
      ++free_bits;
    }
    inverse = (int32_t)((((int64_t)total << (free_bits - 1)) + (1 << 13)) >> 14);
    inverse = looked_up(bounded(inverse - (1 << 15) - (1 << 16), -32768, 32767), c->inverses);
    right = 31 - free_bits;
    for (k = 0; k < c->depth; ++k) {
      const int32_t product = exp_s16(c, x[k] - most) * inverse;
      const int64_t half = ((int64_t)1 << right) >> 1;
      y[k] = (int16_t)bounded((int32_t)((product + half) >> right), 0, 32767);
    }
  }
}
