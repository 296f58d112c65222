/* Looks each number up. */
static void table_KIND(const ENTRY *table, const void *numbers, MADE *y, int32_t count)
{
  const uint8_t *const x = (const uint8_t *)numbers;
  int32_t i;
  for (i = 0; i < count; ++i) {
    y[i] = table[x[i]];
  }
}
