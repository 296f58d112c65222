/* Returns a quotient, halves away from zero; the divisor is positive. */
static int32_t rounded_quotient(int32_t x, int32_t by)
{
  return (x < 0 ? x - by / 2 : x + by / 2) / by;
}
