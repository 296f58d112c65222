/* uses: real_bounded */
/* One gate: products with the input and with the hidden state. */
struct gate_f32 {
  const float *input, *hidden; /* units, features or units */
  const float *bias;
};

/* A long short-term memory of real numbers. */
struct lstm_f32 {
  int32_t batches, moments, features, units;
  int32_t x_batch, x_moment, y_batch, y_moment; /* numbers between neighbors */
  struct gate_f32 forget, enter, cell, leave;
  float clip; /* 0 for none */
};

static float sum_f32(const struct lstm_f32 *c, const struct gate_f32 *g, const real_a *x,
                     const real_a *hidden, int32_t unit)
{
  float a = 0.0f, b = 0.0f;
  int32_t k;
  for (k = 0; k < c->features; ++k) {
    a += x[k] * g->input[unit * c->features + k];
  }
  for (k = 0; k < c->units; ++k) {
    b += hidden[k] * g->hidden[unit * c->units + k];
  }
  return (a + g->bias[unit]) + b;
}

static float logistic_gate_f32(float x)
{
  return x > 16.619047164916992f ? 1.0f : x < -9.0f ? expf(x) : 1.0f / (1.0f + expf(-x));
}

static void lstm_f32(const struct lstm_f32 *c, const real_a *inputs, real_a *hidden, real_a *cell,
                     real_a *outputs)
{
  int32_t batch, moment, unit;
  for (batch = 0; batch < c->batches; ++batch, hidden += c->units, cell += c->units) {
    for (moment = 0; moment < c->moments; ++moment) {
      const real_a *const x = inputs + batch * c->x_batch + moment * c->x_moment;
      real_a *const y = outputs + batch * c->y_batch + moment * c->y_moment;
      for (unit = 0; unit < c->units; ++unit) {
        const float forget = logistic_gate_f32(sum_f32(c, &c->forget, x, hidden, unit));
        const float enter = logistic_gate_f32(sum_f32(c, &c->enter, x, hidden, unit));
        const float made = tanhf(sum_f32(c, &c->cell, x, hidden, unit));
        const float leave = logistic_gate_f32(sum_f32(c, &c->leave, x, hidden, unit));
        float state = forget * cell[unit] + enter * made;
        if (c->clip > 0.0f) {
          state = real_bounded(state, -c->clip, c->clip);
        }
        cell[unit] = state;
        y[unit] = tanhf(state) * leave;
      }
      /* The result is the new state, of which nothing was read yet. */
      (void)memcpy(hidden, y, (size_t)c->units * sizeof(*y));
    }
  }
}
