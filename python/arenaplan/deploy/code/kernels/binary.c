/* uses: USED */
/* WHAT, of two operands that are broadcast. */
struct NAME_KIND {
  int32_t dims[5];
  int32_t a_steps[5], b_steps[5]; /* numbers between indices, 0 where an operand is repeated */
  FIELDS
};

/* Makes so many rows, which are counted along dimension AXIS. */
static void NAME_KIND(const struct NAME_KIND *c, const NUMBER *a, const NUMBER *b, MADE *y,
                      int32_t rows)
{
  int32_t i, j, k, l, m;
  for (i = 0; i < c->dims[0]; ++i) {
    for (j = 0; j < rows; ++j) {
      for (k = 0; k < c->dims[2]; ++k) {
        for (l = 0; l < c->dims[3]; ++l) {
          const NUMBER *p = a + i * c->a_steps[0] + j * c->a_steps[1] + k * c->a_steps[2] +
                            l * c->a_steps[3];
          const NUMBER *q = b + i * c->b_steps[0] + j * c->b_steps[1] + k * c->b_steps[2] +
                            l * c->b_steps[3];
          for (m = 0; m < c->dims[4]; ++m, p += c->a_steps[4], q += c->b_steps[4]) {
            BODY
          }
        }
      }
    }
  }
}
