/* Rows of numbers with mean 0 and variance 1, times a scale. */
struct layer_norm {
  int32_t rows, depth;
  float epsilon;
};

static void layer_norm(const struct layer_norm *c, const real_a *x, const real_a *scale,
                       const real_a *bias, real_a *y)
{
  int32_t row, k;
  for (row = 0; row < c->rows; ++row, x += c->depth, y += c->depth) {
    float mean = 0.0f, variance = 0.0f, factor;
    for (k = 0; k < c->depth; ++k) {
      mean += x[k];
    }
    mean /= (float)c->depth;
    for (k = 0; k < c->depth; ++k) {
      variance += (x[k] - mean) * (x[k] - mean);
    }
    factor = 1.0f / sqrtf(variance / (float)c->depth + c->epsilon);
    for (k = 0; k < c->depth; ++k) {
      y[k] = (x[k] - mean) * factor * scale[k] + (bias != NULL ? bias[k] : 0.0f);
    }
  }
}
