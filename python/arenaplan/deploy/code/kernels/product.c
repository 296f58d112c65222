/* Products of matrices. */
struct product {
  int32_t dims[4];                /* of the result, but for the last two */
  int32_t a_steps[4], b_steps[4]; /* numbers between indices, 0 where an operand is repeated */
  int32_t rows, depth, columns;
  int32_t a_row, a_depth, b_depth, b_column, bias_row, bias_column;
  float alpha, beta;
};

static void product(const struct product *c, const real_a *a, const real_a *b, const real_a *bias,
                    real_a *y)
{
  int32_t at[4], row, column, k;
  for (at[0] = 0; at[0] < c->dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < c->dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < c->dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < c->dims[3]; ++at[3]) {
          const real_a *const p = a + at[0] * c->a_steps[0] + at[1] * c->a_steps[1] +
                                  at[2] * c->a_steps[2] + at[3] * c->a_steps[3];
          const real_a *const q = b + at[0] * c->b_steps[0] + at[1] * c->b_steps[1] +
                                  at[2] * c->b_steps[2] + at[3] * c->b_steps[3];
          for (row = 0; row < c->rows; ++row) {
            for (column = 0; column < c->columns; ++column) {
              float sum = 0.0f;
              for (k = 0; k < c->depth; ++k) {
                sum += p[row * c->a_row + k * c->a_depth] *
                       q[k * c->b_depth + column * c->b_column];
              }
              sum *= c->alpha;
              if (bias != NULL) {
                sum += c->beta * bias[row * c->bias_row + column * c->bias_column];
              }
              *y++ = sum;
            }
          }
        }
      }
    }
  }
}
