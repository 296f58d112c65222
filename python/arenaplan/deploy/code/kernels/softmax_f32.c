/* Softmax of rows of real numbers. */
struct softmax_f32 {
  int32_t rows, depth;
  float beta;
};

static void softmax_f32(const struct softmax_f32 *c, const real_a *x, real_a *y)
{
  int32_t row, k;
  for (row = 0; row < c->rows; ++row, x += c->depth, y += c->depth) {
    float most = x[0], total = 0.0f;
    for (k = 1; k < c->depth; ++k) {
      most = x[k] > most ? x[k] : most;
    }
    for (k = 0; k < c->depth; ++k) {
      y[k] = expf((x[k] - most) * c->beta);
      total += y[k];
    }
    for (k = 0; k < c->depth; ++k) {
      y[k] /= total;
    }
  }
}
