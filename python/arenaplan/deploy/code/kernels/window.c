/* A window that slides over an image. */
struct window {
  int32_t height, width, depth; /* of the image */
  int32_t made_width;           /* pixels in a row of the result */
  int32_t taps_h, taps_w;
  int32_t stride_h, stride_w;
  int32_t dilation_h, dilation_w;
  int32_t before_h, before_w; /* padding before the image */
};

/* Returns the first tap of a window that is inside of the image, in one dimension. */
static int32_t first_tap(int32_t start, int32_t dilation)
{
  return start < 0 ? (dilation - 1 - start) / dilation : 0;
}

/* Returns the tap after the last one inside of the image. */
static int32_t last_tap(int32_t start, int32_t size, int32_t dilation, int32_t taps)
{
  const int32_t inside = size > start ? (size - start + dilation - 1) / dilation : 0;
  return inside < taps ? inside : taps;
}
