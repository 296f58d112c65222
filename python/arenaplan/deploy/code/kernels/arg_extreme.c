/* The first position of the extreme along one dimension of "count" numbers. */
static void NAME_KIND(const NUMBER *x, int32_a *y, int32_t outer, int32_t count, int32_t inner)
{
  int32_t i, j, k;
  for (i = 0; i < outer; ++i) {
    for (k = 0; k < inner; ++k) {
      const NUMBER *const line = x + i * count * inner + k;
      int32_t best = 0;
      for (j = 1; j < count; ++j) {
        if (line[j * inner] SIGN line[best * inner]) {
          best = j;
        }
      }
      *y++ = best;
    }
  }
}
