/*
 * What each layer of a model makes and costs: its output, parameters, floating point operations and
 * bytes, for one sample in the forward pass.
 *
 * A product of matrices counts two operations for each multiplication and addition. The other
 * factors count the operations of a formula (gelu: 12 for each number). Causal attention computes
 * half of the scores, so it counts half. Bytes are those that a layer reads and writes if each
 * operation stands alone and all numbers are float32: what comes in, what goes out, parameters. The
 * backward pass of layers with products takes twice the operations. Linear.
 */
#include <string.h>

#include "plan/model.h"

/* The statement at hand, and the shape that comes in, which its row turns into what goes out. */
struct site {
	const struct pl_layer *l;
	struct pl_model_work *w;
	int64_t numbers; /* that come in */
	int64_t read;	 /* parameters that are read; below 0: all */
};

static int64_t key_number(const struct site *s, const char *key, int64_t usual)
{
	for (uint32_t i = 0; i < s->l->n_keys; i++)
		if (!strcmp(s->l->key[i].key, key))
			return *s->l->key[i].text ? (int64_t)s->l->key[i].v : 1;
	return usual;
}

static int64_t number(const struct site *s, uint32_t i, int64_t usual)
{
	return i < s->l->n_num ? (int64_t)s->l->num[i] : usual;
}

static int64_t numbers_of(const struct pl_model_work *w)
{
	int64_t n = 1;

	for (int i = 0; i < w->n_dims; i++)
		n *= w->dim[i];
	return n;
}

static void input(struct site *s)
{
	s->w->n_dims = (int)s->l->n_num;
	for (uint32_t i = 0; i < s->l->n_num; i++)
		s->w->dim[i] = number(s, i, 1);
	s->numbers = 0;
}

static void dense(struct site *s)
{
	int64_t *last = &s->w->dim[s->w->n_dims - 1], c = *last, k = number(s, 0, 1);

	*last = k;
	s->w->flops = 2.0 * (double)s->numbers * (double)k;
	s->w->params = (pl_model_key(s->l, "tie") ? 0 : c * k) + (key_number(s, "bias", 1) ? k : 0);
}

static int64_t windows(int64_t in, int64_t size, int64_t stride, int64_t pad)
{
	return in + 2 * pad < size ? 0 : (in + 2 * pad - size) / stride + 1;
}

/* Windows of r x t over images; returns the numbers that go out for each channel. */
static int64_t cut_windows(struct site *s, int64_t r, int64_t t, int64_t stride)
{
	const char *pad = pl_model_key(s->l, "pad");
	int64_t around = pad && !strcmp(pad, "same") ? (r - 1) / 2 : key_number(s, "pad", 0);

	s->w->n_dims = s->w->n_dims == 3 ? 3 : 0; /* 0: refused */
	s->w->dim[1] = windows(s->w->dim[1], r, stride, around);
	s->w->dim[2] = windows(s->w->dim[2], t, stride, around);
	return s->w->dim[1] * s->w->dim[2];
}

static void conv(struct site *s)
{
	int64_t k = number(s, 0, 1), r = number(s, 1, 1), t = number(s, 2, r);
	int64_t taps = s->w->dim[0] * r * t, places;

	places = cut_windows(s, r, t, key_number(s, "stride", 1));
	s->w->dim[0] = k;
	s->w->flops = 2.0 * (double)taps * (double)k * (double)places;
	s->w->params = taps * k + (key_number(s, "bias", 1) ? k : 0);
}

static void pool(struct site *s)
{
	int64_t r = number(s, 0, 1), places = cut_windows(s, r, r, key_number(s, "stride", r));

	s->w->flops = (double)s->w->dim[0] * (double)places * (double)(r * r);
}

static void batchnorm(struct site *s)
{
	s->w->params = 2 * s->w->dim[0];
}

static void layernorm(struct site *s)
{
	s->w->params = 2 * s->w->dim[s->w->n_dims - 1];
}

static void embedding(struct site *s)
{
	s->w->n_dims = s->w->n_dims == 1 ? 2 : 0;
	s->w->dim[1] = number(s, 1, 1);
	s->w->params = number(s, 0, 1) * s->w->dim[1];
	s->w->flops = (double)numbers_of(s->w);
	s->read = numbers_of(s->w); /* a row of the table for each token */
}

static void position(struct site *s)
{
	s->w->params = s->numbers;
}

static void attention(struct site *s)
{
	double t = (double)s->w->dim[0], c = (double)s->w->dim[1], heads = (double)number(s, 0, 1);
	int64_t width = s->w->dim[1];

	s->w->n_dims = s->w->n_dims == 2 ? 2 : 0;
	s->w->flops = 8 * t * c * c + 2 * t * t * c + 5 * t * t * heads / 2;
	s->w->params = 4 * width * width + (key_number(s, "bias", 1) ? 4 * width : 0);
}

static void flatten(struct site *s)
{
	s->w->n_dims = 1;
	s->w->dim[0] = s->numbers;
}

static void loss(struct site *s)
{
	s->w->flops =
		(pl_model_key(s->l, "softmax-cross-entropy") ? 8.0 : 3.0) * (double)s->numbers;
	s->w->n_dims = 1;
	s->w->dim[0] = 1;
}

static const struct {
	const char *op;
	double flops; /* for each number that goes out, unless the function says more */
	void (*work)(struct site *s);
} rows[] = {
	{ "input", 0, input },	       { "dense", 0, dense },	      { "conv", 0, conv },
	{ "maxpool", 0, pool },	       { "avgpool", 0, pool },	      { "batchnorm", 8, batchnorm },
	{ "layernorm", 8, layernorm }, { "embedding", 0, embedding }, { "position", 1, position },
	{ "attention", 0, attention }, { "relu", 1, NULL },	      { "gelu", 12, NULL },
	{ "tanh", 8, NULL },	       { "sigmoid", 8, NULL },	      { "dropout", 1, NULL },
	{ "flatten", 0, flatten },     { "residual", 0, NULL },	      { "end", 1, NULL },
	{ "loss", 0, loss },
};

int pl_model_work(const struct pl_model *m, struct pl_model_work *work, struct pl_err *err)
{
	struct pl_model_work shape = { 0 };

	for (size_t i = 0; i < m->n_layers; i++) {
		struct pl_model_work *w = &work[i];
		struct site s = {
			.l = &m->layer[i], .w = w, .numbers = numbers_of(&shape), .read = -1
		};
		size_t k = 0;
		int64_t out;

		while (k < PL_LEN(rows) && strcmp(rows[k].op, s.l->op) != 0)
			k++;
		*w = (struct pl_model_work){ .n_dims = shape.n_dims };
		memcpy(w->dim, shape.dim, sizeof(w->dim));
		if (k < PL_LEN(rows) && rows[k].work)
			rows[k].work(&s);
		out = numbers_of(w);
		if (k == PL_LEN(rows) || !w->n_dims || out < 1)
			return pl_fail(err, PL_EDATA, "line %u: %s does not fit what comes in",
				       s.l->line, s.l->op);
		if (rows[k].flops > 0)
			w->flops = rows[k].flops * (double)out;
		if (w->flops > 0) {
			bool pair = !strcmp(s.l->op, "end"); /* adds two values */

			w->bytes = 4.0 * (double)((pair ? 2 : 1) * s.numbers + out +
						  (s.read < 0 ? w->params : s.read));
		}
		shape = *w;
	}
	return 0;
}
