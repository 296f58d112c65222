/* Returns a number between two entries of a table of 513. */
static int32_t looked_up(int32_t x, const int16_t *table)
{
  const int32_t at = (x >> 7) + 256;
  return table[at] + (((table[at + 1] - table[at]) * (x & 0x7F) + (1 << 6)) >> 7);
}
