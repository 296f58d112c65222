/* uses: interpolated */
/* Returns the logistic function, of an argument of the table. */
static int32_t logistic_gate(const uint16_t *table, int32_t argument)
{
  const int32_t made = interpolated(table, argument, 9, 0x7FFF << 10);
  return (argument >= 0 ? made + (1 << 9) : (1 << 25) - made + (1 << 9) - 1) >> 10;
}

/* Returns the hyperbolic tangent in the same way. */
static int32_t tanh_gate(const uint16_t *table, int32_t argument)
{
  const int32_t one = 1 << 23;
  const int32_t made = interpolated(table, argument, 8, 0xFFFF << 8);
  return (argument >= 0 ? made - one + (1 << 7) : one - made + (1 << 7) - 1) >> 8;
}
