/* Moves rows to the front of a line buffer: "rows" of them that begin "shift" rows behind it. */
static void move_rows(void *buffer, int32_t row_bytes, int32_t shift, int32_t rows)
{
  uint8_t *const to = (uint8_t *)buffer;
  int32_t row;
  for (row = 0; shift > 0 && row < rows; ++row) {
    (void)memcpy(to + row * row_bytes, to + (row + shift) * row_bytes, (size_t)row_bytes);
  }
}
