/* uses: argument_of */
/* The logistic function of 16-bit numbers. */
static void logistic_s16(const struct interpolation *c, const int16_a *x, int16_a *y, int32_t count)
{
  int32_t i;
  for (i = 0; i < count; ++i) {
    const int32_t argument = argument_of(c, x[i]);
    const int32_t made = interpolated(c->table, argument, 9, 0x7FFF << 10);
    y[i] = (int16_t)((argument >= 0 ? made + (1 << 9) : (1 << 25) - made + (1 << 9) - 1) >> 10);
  }
}
