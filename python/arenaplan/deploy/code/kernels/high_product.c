/* Returns the upper 32 bits of twice a product, rounded. */
static int32_t high_product(int32_t a, int32_t b)
{
  const int64_t product = ((int64_t)a * b + ((int64_t)1 << 30)) >> 31;
  return product > INT32_MAX ? INT32_MAX : (int32_t)product;
}
