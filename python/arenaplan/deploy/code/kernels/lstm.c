/* uses: gates scaled bounded encoded RESCALE */
/* One gate: products with the input and with the hidden state. */
struct gate_KIND {
  const int8_t *input, *hidden; /* units, features or units */
  const SUM *bias;
  int32_t input_zero, input_multiplier, input_shift;
  int32_t hidden_zero, hidden_multiplier, hidden_shift;
};

/* A long short-term memory. */
struct lstm_KIND {
  int32_t batches, moments, features, units;
  int32_t x_batch, x_moment, y_batch, y_moment; /* numbers between neighbors */
  int32_t x_offset, hidden_offset;
  struct gate_KIND forget, enter, cell, leave;
  int32_t forget_multiplier, forget_shift;
  int32_t enter_multiplier, enter_shift;
  int32_t shown_multiplier, shown_shift;
  int32_t tanh_multiplier, tanh_shift;
  int32_t clip; /* 0 for none */
  int32_t zero, low, high;
  const uint16_t *table;
};

static int32_t sum_KIND(const struct lstm_KIND *c, const struct gate_KIND *g, const NUMBER *x,
                        const NUMBER *hidden, int32_t unit)
{
  const int8_t *const input = g->input + unit * c->features;
  const int8_t *const recurrent = g->hidden + unit * c->units;
  SUM a = g->bias[unit], b = 0;
  int32_t k, first, last;
  for (k = 0; k < c->features; ++k) {
    a += (x[k] + c->x_offset) * (input[k] - g->input_zero);
  }
  for (k = 0; k < c->units; ++k) {
    b += (hidden[k] + c->hidden_offset) * (recurrent[k] - g->hidden_zero);
  }
  first = bounded(RESCALE(a, g->input_multiplier, g->input_shift), -32768, 32767);
  last = bounded(RESCALE(b, g->hidden_multiplier, g->hidden_shift), -32768, 32767);
  return bounded(first + last, -32768, 32767);
}

static void lstm_KIND(const struct lstm_KIND *c, const NUMBER *inputs, NUMBER *hidden,
                      int16_a *cell, NUMBER *outputs)
{
  int32_t batch, moment, unit;
  for (batch = 0; batch < c->batches; ++batch, hidden += c->units, cell += c->units) {
    for (moment = 0; moment < c->moments; ++moment) {
      const NUMBER *const x = inputs + batch * c->x_batch + moment * c->x_moment;
      NUMBER *const y = outputs + batch * c->y_batch + moment * c->y_moment;
      const int32_t half = c->tanh_shift > 0 ? 1 << (c->tanh_shift - 1) : 0;
      for (unit = 0; unit < c->units; ++unit) {
        const int32_t forget =
            logistic_gate(c->table, 3 * sum_KIND(c, &c->forget, x, hidden, unit));
        const int32_t enter = logistic_gate(c->table, 3 * sum_KIND(c, &c->enter, x, hidden, unit));
        const int32_t made = tanh_gate(c->table, 3 * sum_KIND(c, &c->cell, x, hidden, unit));
        const int32_t leave = logistic_gate(c->table, 3 * sum_KIND(c, &c->leave, x, hidden, unit));
        const int32_t kept =
            bounded(scaled(forget * cell[unit], c->forget_multiplier, c->forget_shift), -32768,
                    32767);
        const int32_t fresh = bounded(
            scaled(enter * made, c->enter_multiplier, c->enter_shift), -32768, 32767);
        int32_t state = bounded(kept + fresh, -32768, 32767);
        if (c->clip > 0) {
          state = bounded(state, -c->clip, c->clip);
        }
        cell[unit] = (int16_t)state;
        state = tanh_gate(c->table, (state * c->tanh_multiplier + half) >> c->tanh_shift) * leave;
        y[unit] = (NUMBER)encoded(scaled(state, c->shown_multiplier, c->shown_shift), c->zero,
                                  c->low, c->high);
      }
      /* The result is the new state, of which nothing was read yet. */
      (void)memcpy(hidden, y, (size_t)c->units * sizeof(*y));
    }
  }
}
