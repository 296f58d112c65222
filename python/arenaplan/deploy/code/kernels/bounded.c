/* Returns a number limited to a range. */
static int32_t bounded(int32_t x, int32_t low, int32_t high)
{
  return x < low ? low : (x > high ? high : x);
}
