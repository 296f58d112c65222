/* Parts of an operand, by indices that a run brings. */
struct gather_KIND {
  int32_t outer, count, size, bytes; /* number of indices, of parts, bytes of a part */
};

/* Returns 1 if an index is none of the operand, and else 0. */
static int gather_KIND(const struct gather_KIND *c, const uint8_t *x, const NUMBER *indices,
                       uint8_t *y)
{
  int32_t i, j;
  for (j = 0; j < c->count; ++j) {
    if (indices[j] < -c->size || indices[j] >= c->size) {
      return 1;
    }
  }
  for (i = 0; i < c->outer; ++i, x += c->size * c->bytes) {
    for (j = 0; j < c->count; ++j, y += c->bytes) {
      const int32_t at = (int32_t)indices[j] + (indices[j] < 0 ? c->size : 0);
      (void)memcpy(y, x + at * c->bytes, (size_t)c->bytes);
    }
  }
  return 0;
}
