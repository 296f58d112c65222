/* Each pixel is that of the image at its place. */
struct resize_nearest {
  int32_t images, image_bytes, row_bytes, pixel_bytes, made_height, made_width;
  const int16_t *rows, *columns;
};

static void resize_nearest(const struct resize_nearest *c, const uint8_t *x, uint8_t *y)
{
  int32_t image, row, column;
  for (image = 0; image < c->images; ++image, x += c->image_bytes) {
    for (row = 0; row < c->made_height; ++row) {
      const uint8_t *const line = x + c->rows[row] * c->row_bytes;
      for (column = 0; column < c->made_width; ++column, y += c->pixel_bytes) {
        (void)memcpy(y, line + c->columns[column] * c->pixel_bytes, (size_t)c->pixel_bytes);
      }
    }
  }
}
