/* uses: USED */
/* WHAT along some dimensions. */
struct NAME_KIND {
  int32_t dims[4], steps[4];       /* of the result: numbers of the operand between indices */
  int32_t inner_dims[4], inner_steps[4]; /* the dimensions that are left out */
  FIELDS
};

static void NAME_KIND(const struct NAME_KIND *c, const NUMBER *x, NUMBER *y)
{
  int32_t at[4], in[4];
  for (at[0] = 0; at[0] < c->dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < c->dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < c->dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < c->dims[3]; ++at[3]) {
          const NUMBER *p = x + at[0] * c->steps[0] + at[1] * c->steps[1] + at[2] * c->steps[2] +
                            at[3] * c->steps[3];
          SUM sum = FIRST;
          for (in[0] = 0; in[0] < c->inner_dims[0]; ++in[0]) {
            for (in[1] = 0; in[1] < c->inner_dims[1]; ++in[1]) {
              for (in[2] = 0; in[2] < c->inner_dims[2]; ++in[2]) {
                for (in[3] = 0; in[3] < c->inner_dims[3]; ++in[3]) {
                  const NUMBER number =
                      p[in[0] * c->inner_steps[0] + in[1] * c->inner_steps[1] +
                        in[2] * c->inner_steps[2] + in[3] * c->inner_steps[3]];
                  sum = NEXT;
                }
              }
            }
          }
          *y++ = LAST;
        }
      }
    }
  }
}
