/* Writes one number to all places. */
static void fill(uint8_t *y, const uint8_t *number, int32_t bytes, int32_t count)
{
  int32_t i;
  for (i = 0; i < count; ++i) {
    (void)memcpy(y + i * bytes, number, (size_t)bytes);
  }
}
