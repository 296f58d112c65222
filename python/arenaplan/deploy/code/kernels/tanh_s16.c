/* uses: argument_of */
/* The hyperbolic tangent of 16-bit numbers. */
static void tanh_s16(const struct interpolation *c, const int16_a *x, int16_a *y, int32_t count)
{
  const int32_t one = 1 << 23;
  int32_t i;
  for (i = 0; i < count; ++i) {
    const int32_t argument = argument_of(c, x[i]);
    const int32_t made = interpolated(c->table, argument, 8, 0xFFFF << 8);
    y[i] = (int16_t)((argument >= 0 ? made - one + (1 << 7) : one - made + (1 << 7) - 1) >> 8);
  }
}
