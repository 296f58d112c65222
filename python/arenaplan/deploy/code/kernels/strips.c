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
