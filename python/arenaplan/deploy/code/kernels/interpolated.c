/* The factor to arguments of a table, and how far right it shifts. */
struct interpolation {
  int32_t multiplier, shift;
  const uint16_t *table; /* the logistic function of 256 numbers from 0 on, with 16 bits */
};

/* Returns what lies between two entries, so many bits apart; "most" behind the last one. */
static int32_t interpolated(const uint16_t *table, int32_t argument, int32_t bits, int32_t most)
{
  const int32_t size = argument < 0 ? -argument : argument;
  const int32_t at = size >> bits, rest = size & ((1 << bits) - 1);
  if (at >= 255) {
    return most;
  }
  return (table[at] * (1 << bits)) + rest * (table[at + 1] - table[at]);
}
