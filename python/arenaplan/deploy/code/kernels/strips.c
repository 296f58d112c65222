/* Returns the row that a window begins with, inside of the image. */
static int32_t row_from(int32_t row, int32_t stride, int32_t before, int32_t rows)
{
  const int32_t first = row * stride - before;
  return first < 0 ? 0 : (first < rows ? first : rows);
}

/* Returns the smaller number. */
static int32_t smaller(int32_t a, int32_t b)
{
  return a < b ? a : b;
}

/* Returns the larger number. */
static int32_t larger(int32_t a, int32_t b)
{
  return a > b ? a : b;
}

/* Moves rows to the front of a line buffer: "rows" of them that begin "shift" rows behind it. */
static void move_rows(void *buffer, int32_t row_bytes, int32_t shift, int32_t rows)
{
  uint8_t *const to = (uint8_t *)buffer;
  int32_t row;
  for (row = 0; shift > 0 && row < rows; ++row) {
    (void)memcpy(to + row * row_bytes, to + (row + shift) * row_bytes, (size_t)row_bytes);
  }
}
