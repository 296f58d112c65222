/* uses: high_product */
/* Returns 1 / (1 + a) of numbers from 0 to 1, which have no bit before the point. */
static int32_t reciprocal(int32_t a)
{
  const int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) >> 1);
  int32_t x = 1515870810 + high_product(half, -1010580540);
  int32_t i;
  for (i = 0; i < 3; ++i) {
    const int64_t rest = (1 << 29) - high_product(half, x);
    const int64_t step = (int64_t)high_product(x, (int32_t)rest) * 4;
    x += step > INT32_MAX ? INT32_MAX : (step < INT32_MIN ? INT32_MIN : (int32_t)step);
  }
  return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}
