/* uses: interpolated */
/* Returns the argument of the table for a number. */
static int32_t argument_of(const struct interpolation *c, int32_t x)
{
  const int32_t half = c->shift > 0 ? 1 << (c->shift - 1) : 0;
  return (x * c->multiplier + half) >> c->shift;
}
