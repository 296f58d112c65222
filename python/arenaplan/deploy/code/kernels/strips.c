/* Rows of a value that is made inside of a step, strip by strip. */
struct rows {
  int32_t base;        /* the row at the front of its line buffer */
  int32_t made;        /* rows before this one were made */
  int32_t low;         /* the first row that a strip needs */
  int32_t start, stop; /* the rows that the strip makes */
};

/* Begins a strip, of which nothing is known yet. */
static void open_strip(struct rows *r)
{
  r->low = INT32_MAX;
  r->start = 0;
  r->stop = 0;
}

/* Notes rows that a reader needs. */
static void need_rows(struct rows *r, int32_t first, int32_t last)
{
  r->low = first < r->low ? first : r->low;
  r->stop = last > r->stop ? last : r->stop;
}

/* Returns whether rows have to be made: those that are needed and not there. */
static int make_rows(struct rows *r)
{
  r->start = r->low > r->made ? r->low : r->made;
  if (r->start >= r->stop) {
    return 0;
  }
  r->made = r->stop;
  r->low = r->low > r->base ? r->low : r->base;
  return 1;
}
