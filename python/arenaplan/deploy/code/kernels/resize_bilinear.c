/* Each pixel is a mean of four. */
struct resize_bilinear_KIND {
  int32_t images, height, width, depth, made_height, made_width;
  const int16_t *row_low, *row_high, *column_low, *column_high;
  const WEIGHT *row_near, *row_far, *column_near, *column_far;
};

static void resize_bilinear_KIND(const struct resize_bilinear_KIND *c, const NUMBER *x, NUMBER *y)
{
  int32_t image, row, column, k;
  for (image = 0; image < c->images; ++image, x += c->height * c->width * c->depth) {
    for (row = 0; row < c->made_height; ++row) {
      const NUMBER *const above = x + c->row_low[row] * c->width * c->depth;
      const NUMBER *const below = x + c->row_high[row] * c->width * c->depth;
      for (column = 0; column < c->made_width; ++column) {
        const int32_t low = c->column_low[column] * c->depth;
        const int32_t high = c->column_high[column] * c->depth;
        for (k = 0; k < c->depth; ++k) {
          const SUM sum =
              above[low + k] * (SUM)c->row_near[row] * c->column_near[column] +
              below[low + k] * (SUM)c->row_far[row] * c->column_near[column] +
              above[high + k] * (SUM)c->row_near[row] * c->column_far[column] +
              below[high + k] * (SUM)c->row_far[row] * c->column_far[column];
          *y++ = ROUNDED;
        }
      }
    }
  }
}
