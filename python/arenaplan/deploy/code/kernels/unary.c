/* uses: USED */
/* WHAT. */
struct NAME_KIND {
  FIELDS
};

static void NAME_KIND(const struct NAME_KIND *c, const NUMBER *x, MADE *y, int32_t count)
{
  int32_t i;
  for (i = 0; i < count; ++i) {
    BODY
  }
}
