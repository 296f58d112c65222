/* uses: USED */
/* WHAT. */
static void NAME_KIND(const NUMBER *x, MADE *y, int32_t count)
{
  int32_t i;
  for (i = 0; i < count; ++i) {
    BODY
  }
}
