/* Returns x times multiplier / 2^31 * 2^shift, of sums with up to 48 bits. */
static int32_t scaled_wide(int64_t x, int32_t multiplier, int32_t shift)
{
  const int32_t reduced = multiplier < 0x7FFF0000 ? (multiplier + (1 << 15)) >> 16 : 0x7FFF;
  const int32_t right = 15 - shift;
  return (int32_t)((x * reduced + ((int64_t)1 << (right - 1))) >> right);
}
