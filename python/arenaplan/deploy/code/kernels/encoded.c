/* uses: bounded */
/* Returns a number plus a zero point, limited to a range, without overflow. */
static int32_t encoded(int32_t x, int32_t zero, int32_t low, int32_t high)
{
  return bounded(x, low - zero, high - zero) + zero;
}
