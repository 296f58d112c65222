/* uses: high_product halved */
/* Returns x times multiplier / 2^31 * 2^shift. */
static int32_t scaled(int32_t x, int32_t multiplier, int32_t shift)
{
  if (shift > 0) {
    return high_product((int32_t)((uint32_t)x << shift), multiplier);
  }
  return halved(high_product(x, multiplier), -shift);
}
