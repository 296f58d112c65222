/* Softmax of rows of real numbers, whose numbers are `inner` apart. */
struct softmax_f32 {
  int32_t rows, depth, inner;
  float beta;
};

static void softmax_f32(const struct softmax_f32 *c, const real_a *x, real_a *y)
{
  const int32_t step = c->inner;
  int32_t row, k;
  for (row = 0; row < c->rows; ++row) {
    const int32_t first = row / step * step * c->depth + row % step;
    const real_a *const p = x + first;
    real_a *const q = y + first;
    float most = p[0], total = 0.0f;
    for (k = 1; k < c->depth; ++k) {
      most = p[k * step] > most ? p[k * step] : most;
    }
    for (k = 0; k < c->depth; ++k) {
      q[k * step] = expf((p[k * step] - most) * c->beta);
      total += q[k * step];
    }
    for (k = 0; k < c->depth; ++k) {
      q[k * step] /= total;
    }
  }
}
