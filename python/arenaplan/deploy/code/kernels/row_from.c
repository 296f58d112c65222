/* Returns the row that a window begins with, inside of the image. */
static int32_t row_from(int32_t row, int32_t stride, int32_t before, int32_t rows)
{
  const int32_t first = row * stride - before;
  return first < 0 ? 0 : (first < rows ? first : rows);
}
