/* Moves the rows that stay to the front of a line buffer, if a strip makes new ones. */
static void move_rows(struct rows *r, void *buffer, int32_t row_bytes)
{
  uint8_t *const to = (uint8_t *)buffer;
  const int32_t shift = r->low - r->base;
  int32_t row;
  if (r->start >= r->stop) {
    return;
  }
  for (row = 0; shift > 0 && row < r->start - r->low; ++row) {
    (void)memcpy(to + row * row_bytes, to + (row + shift) * row_bytes, (size_t)row_bytes);
  }
  r->base = r->low;
}
