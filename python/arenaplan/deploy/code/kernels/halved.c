/* Returns x divided by a power of two, halves away from zero; exponents from 0 to 31. */
static int32_t halved(int32_t x, int32_t exponent)
{
  const int64_t half = ((int64_t)1 << exponent) >> 1;
  return (int32_t)((x + half - (half > 0 && x < 0)) >> exponent);
}
