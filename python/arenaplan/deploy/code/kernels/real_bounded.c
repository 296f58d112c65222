/* Returns a real number limited to a range. */
static float real_bounded(float x, float low, float high)
{
  const float least = x < low ? low : x;
  return high < least ? high : least;
}
