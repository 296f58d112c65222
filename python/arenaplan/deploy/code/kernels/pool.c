/* uses: window USED */
/* WHAT, of each channel by itself. */
struct NAME_KIND {
  struct window window;
  FIELDS
};

/* Makes rows start up to stop of the result. x holds rows of the image from x_row on. */
static void NAME_KIND(const struct NAME_KIND *c, const NUMBER *x, int32_t x_row, NUMBER *y,
                         int32_t start, int32_t stop)
{
  const struct window w = c->window;
  int32_t row, column, depth, i, j;
  for (row = start; row < stop; ++row) {
    const int32_t top = row * w.stride_h - w.before_h;
    const int32_t i_first = first_tap(top, 1), i_last = last_tap(top, w.height, 1, w.taps_h);
    for (column = 0; column < w.made_width; ++column) {
      const int32_t left = column * w.stride_w - w.before_w;
      const int32_t j_first = first_tap(left, 1), j_last = last_tap(left, w.width, 1, w.taps_w);
      for (depth = 0; depth < w.depth; ++depth) {
        SUM found = FIRST;
        for (i = i_first; i < i_last; ++i) {
          const NUMBER *p = x + ((top + i - x_row) * w.width + left + j_first) * w.depth + depth;
          for (j = j_first; j < j_last; ++j, p += w.depth) {
            TAKE
          }
        }
        FINISH
      }
    }
  }
}
