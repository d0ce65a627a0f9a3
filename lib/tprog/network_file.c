/* A network of tensor programs as parts of payloads: paceline-costmodel(5), PNET and PNAD. */
#include <math.h>

#include "io/record.h"
#include "learn/moments.h"
#include "tprog/network_internal.h"

struct pl_tprog_settings pl_tprog_network_settings(const struct pl_tprog_network *t)
{
	struct pl_tprog_settings s = t->settings;

	s.power = t->power;
	return s;
}

static void put_params(const struct pl_tprog_network *t, const float *params, struct pl_buf *b)
{
	size_t n = pl_net_view(t->net).n_params;

	pl_io_put_varint(b, n);
	for (size_t i = 0; i < n; i++)
		pl_io_put_f32(b, params[i]);
}

void pl_tprog_network_put(const struct pl_tprog_network *t, struct pl_buf *b)
{
	const struct pl_tprog_settings *s = &t->settings;

	pl_io_put_str(b, (const char *)t->text.p, t->text.n);
	pl_io_put_varint(b, (uint64_t)s->layers);
	pl_io_put_varint(b, (uint64_t)s->heads);
	pl_io_put_varint(b, (uint64_t)s->width);
	pl_io_put_varint(b, (uint64_t)s->latent);
	pl_io_put_varint(b, (uint64_t)s->batch);
	pl_io_put_f64(b, s->rate);
	pl_io_put_f64(b, s->relative);
	pl_io_put_f64(b, t->power);
	pl_io_put_f64(b, t->mean);
	pl_io_put_f64(b, t->deviation);
	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		pl_io_put_f32(b, t->least[k]);
		pl_io_put_f32(b, t->range[k]);
	}
	for (size_t k = 0; k < PL_MOMENTS * (size_t)s->latent; k++)
		pl_io_put_f64(b, t->moments[k]);
	put_params(t, t->base ? t->base : pl_net_view(t->net).params, b);
}

bool pl_tprog_network_put_adapted(const struct pl_tprog_network *t, struct pl_buf *b)
{
	if (t->base)
		put_params(t, pl_net_view(t->net).params, b);
	return t->base != NULL;
}

static int get_int(struct pl_cur *c)
{
	uint64_t v = pl_io_get_varint(c);

	c->bad |= v > INT32_MAX;
	return c->bad ? 0 : (int)v;
}

static float get_float(struct pl_cur *c)
{
	float v = pl_io_get_f32(c);

	c->bad |= !isfinite(v);
	return v;
}

static double get_real(struct pl_cur *c)
{
	double v = pl_io_get_f64(c);

	c->bad |= !isfinite(v);
	return v;
}

static int get_params(struct pl_tprog_network *t, struct pl_cur *c, struct pl_err *err)
{
	struct pl_net_view v = pl_net_view(t->net);
	uint64_t n = pl_io_get_varint(c);

	if (!c->bad && n != v.n_params)
		return pl_fail(err, PL_EDATA, "the number of parameters is not %zu", v.n_params);
	for (size_t i = 0; i < v.n_params && !c->bad; i++)
		v.params[i] = get_float(c);
	pl_net_changed(t->net);
	return c->bad ? pl_record_get_short(err) : 0;
}

static void get_settings(struct pl_tprog_network *t, struct pl_cur *c)
{
	struct pl_tprog_settings *s = &t->settings;

	s->layers = get_int(c);
	s->heads = get_int(c);
	s->width = get_int(c);
	s->latent = get_int(c);
	s->batch = get_int(c);
	s->rate = get_real(c);
	s->relative = get_real(c);
	s->power = t->power = get_real(c);
	t->mean = get_real(c);
	t->deviation = get_real(c);
	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		t->least[k] = get_float(c);
		t->range[k] = get_float(c);
		c->bad |= !(t->range[k] > 0);
	}
	c->bad |= !pl_tprog_settings_good(s) || !(t->deviation > 0);
}

int pl_tprog_network_get(struct pl_cur *c, struct pl_tprog_network **net, struct pl_err *err)
{
	struct pl_tprog_network *t;
	const char *s;
	size_t n;
	int rc;

	*net = NULL;
	PL_CHECK(pl_alloc(&t, 1, sizeof(*t), err));
	s = pl_io_get_str(c, &n);
	get_settings(t, c);
	if (c->bad || !s)
		PL_TRY(pl_record_get_short(err));
	PL_TRY(pl_tprog_network_make(t, 1, 0, err));
	if (n != t->text.n || memcmp(s, t->text.p, n) != 0)
		PL_TRY(pl_fail(err, PL_EDATA,
			       "its network is of another version of this program: train it "
			       "again"));
	for (size_t k = 0; k < PL_MOMENTS * (size_t)t->settings.latent; k++)
		t->moments[k] = get_real(c);
	PL_TRY(get_params(t, c, err));
	*net = t;
	t = NULL;
out:
	pl_tprog_network_free(t);
	return rc;
}

int pl_tprog_network_get_adapted(struct pl_cur *c, struct pl_tprog_network *t, struct pl_err *err)
{
	pl_tprog_network_reset(t);
	PL_CHECK(pl_tprog_network_keep(t, err));
	return get_params(t, c, err);
}
