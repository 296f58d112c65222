/* Copies parts of an operand to other places. */
struct move {
  int32_t dims[6];
  int32_t from[6], to[6]; /* bytes between indices */
  int32_t bytes;          /* that stay together */
};

static void move(const struct move *c, const uint8_t *x, uint8_t *y)
{
  int32_t h, i, j, k, l, m;
  for (h = 0; h < c->dims[0]; ++h) {
    for (i = 0; i < c->dims[1]; ++i) {
      for (j = 0; j < c->dims[2]; ++j) {
        for (k = 0; k < c->dims[3]; ++k) {
          for (l = 0; l < c->dims[4]; ++l) {
            const uint8_t *p = x + h * c->from[0] + i * c->from[1] + j * c->from[2] +
                               k * c->from[3] + l * c->from[4];
            uint8_t *q = y + h * c->to[0] + i * c->to[1] + j * c->to[2] + k * c->to[3] +
                         l * c->to[4];
            for (m = 0; m < c->dims[5]; ++m) {
              (void)memcpy(q + m * c->to[5], p + m * c->from[5], (size_t)c->bytes);
            }
          }
        }
      }
    }
  }
}
