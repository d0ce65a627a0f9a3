/* net_fixture.h - models from text, random batches, and steps over them, for tests of networks. */
#ifndef PL_NET_FIXTURE_H
#define PL_NET_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "../oracle/plain.h"
#include "tap.h"
#include "tensor/net.h"

#define FIX_LAYERS 96
#define FIX_WORDS  8

struct fix_model {
	char text[4096];
	struct pl_layer layer[FIX_LAYERS];
	struct pl_layer_key key[FIX_LAYERS][FIX_WORDS];
	double num[FIX_LAYERS][FIX_WORDS];
	size_t n;
};

/* "input 5 / dense 3 name=a / loss squared": statements end with '/' or a newline. */
static void fix_parse(struct fix_model *m, const char *text)
{
	char *rest, *line, *word, *words;

	memset(m, 0, sizeof(*m));
	snprintf(m->text, sizeof(m->text), "%s", text);
	for (rest = m->text; (line = strsep(&rest, "/\n"));) {
		struct pl_layer *l = &m->layer[m->n];

		*l = (struct pl_layer){ .num = m->num[m->n], .key = m->key[m->n], .line = 0 };
		for (words = line; (word = strsep(&words, " "));) {
			struct pl_layer_key *k = &m->key[m->n][l->n_keys];
			char *equal = strchr(word, '='), *end;

			if (!*word)
				continue;
			if (!l->op) {
				l->op = word;
				continue;
			}
			m->num[m->n][l->n_num] = strtod(word, &end);
			if (end != word && !*end) {
				l->n_num++;
				continue;
			}
			*k = (struct pl_layer_key){ word, equal ? equal + 1 : "", (double)NAN };
			if (equal) {
				*equal = '\0';
				k->v = strtod(k->text, &end);
				if (end == k->text || *end)
					k->v = (double)NAN;
			}
			l->n_keys++;
		}
		if (l->op)
			l->line = (uint32_t)++m->n;
	}
}

/* Uniform from -1 to 1. */
static double fix_random(uint64_t *state)
{
	return (double)(pl_rng_next(state) >> 11) * 0x1p-52 - 1;
}

struct fix_batch { /* some of everything that a net might want */
	float *x, *target;
	int32_t *ids, *y;
	struct pl_batch_io io;
};

__attribute__((unused)) static void fix_batch(struct fix_batch *b, const struct pl_net *net, int n,
					      uint64_t seed)
{
	struct pl_net_shape s;
	size_t nx = (size_t)n, ny, nt;

	pl_net_shape(net, &s);
	for (int i = 0; i < s.n_dims; i++)
		nx *= (size_t)s.dim[i];
	ny = (size_t)n * (size_t)s.rows;
	nt = (size_t)n * (size_t)s.targets;
	b->x = malloc(nx * sizeof(*b->x));
	b->ids = malloc(nx * sizeof(*b->ids));
	b->y = malloc(ny * sizeof(*b->y));
	b->target = malloc((nt ? nt : 1) * sizeof(*b->target));
	for (size_t i = 0; i < nx; i++) {
		b->x[i] = (float)fix_random(&seed);
		b->ids[i] = s.vocab ? (int32_t)(pl_rng_next(&seed) % (unsigned)s.vocab) : 0;
	}
	for (size_t i = 0; i < ny; i++)
		b->y[i] = s.classes ? (int32_t)(pl_rng_next(&seed) % (unsigned)s.classes) : 0;
	for (size_t i = 0; i < nt; i++)
		b->target[i] = (float)fix_random(&seed);
	b->io = (struct pl_batch_io){ s.vocab ? NULL : b->x, s.vocab ? b->ids : NULL,
				      s.classes ? b->y : NULL, s.targets ? b->target : NULL, n };
}

__attribute__((unused)) static void fix_batch_free(struct fix_batch *b)
{
	free(b->x);
	free(b->ids);
	free(b->y);
	free(b->target);
}

/* NULL and a failed test if it cannot be built. */
__attribute__((unused)) static struct pl_net *
fix_net(const char *text, const struct pl_backend *backend, int batch, uint64_t seed)
{
	static struct fix_model m;
	struct pl_net_opts o = { .backend = backend, .batch = batch, .seed = seed, .threads = 1 };
	struct pl_err err = { 0 };
	struct pl_net *net;

	fix_parse(&m, text);
	if (pl_net_new(m.layer, m.n, &o, &net, &err) < 0)
		ok(false, "a net can be built: %s", err.msg);
	return net;
}

/* Some model of small layers; most can be built. */
__attribute__((unused)) static void fix_random_model(uint64_t seed, char *out, size_t size)
{
	static const char *const begin[] = { "input 6", "input 3 4", "input 2 6 5",
					     "input 4 / embedding 7 4",
					     "input 4 / embedding 5 6 / position" };
	static const char *const layer[] = {
		"dense 4",
		"dense 6",
		"dense 4 bias=0",
		"relu",
		"gelu",
		"tanh",
		"sigmoid",
		"layernorm",
		"batchnorm",
		"dropout 0.3",
		"attention 2",
		"flatten",
		"conv 3 3 pad=same",
		"conv 2 2",
		"maxpool 2",
		"avgpool 2 stride=1",
		"residual",
		"residual",
		"end",
		"end / end",
		"residual / layernorm / dense 6 / gelu / dense 4 / end",
		"residual / conv 3 3 pad=same / relu / end"
	};
	static const char *const loss[] = { "softmax-cross-entropy", "squared", "hinge" };
	size_t at = 0, n = pl_rng_next(&seed) % 9;

	at += (size_t)snprintf(out, size, "%s", begin[pl_rng_next(&seed) % PL_LEN(begin)]);
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, size - at, " / %s",
				       layer[pl_rng_next(&seed) % PL_LEN(layer)]);
	if (pl_rng_next(&seed) % 2)
		at += (size_t)snprintf(out + at, size - at, " / flatten");
	snprintf(out + at, size - at, " / dense 4 / loss %s",
		 loss[pl_rng_next(&seed) % PL_LEN(loss)]);
}

/* NULL if it cannot be built: then the message must say where. */
__attribute__((unused)) static struct pl_net *fix_try(const char *text,
						      const struct pl_backend *backend, int batch)
{
	static struct fix_model m;
	struct pl_net_opts o = { .backend = backend, .batch = batch, .seed = 3, .threads = 1 };
	struct pl_err err = { 0 };
	struct pl_net *net;

	fix_parse(&m, text);
	if (pl_net_new(m.layer, m.n, &o, &net, &err) < 0 &&
	    (err.code != PL_EDATA || strncmp(err.msg, "line ", 5) != 0))
		ok(false, "%s: refused with its line: %s", text, err.msg);
	return net;
}

/* Models with something of everything. */
__attribute__((unused)) static const char *const fix_gpt =
	"input 6 / embedding 9 8 std=0.02 name=wte / position std=0.02 name=wpe / dropout 0.1 / "
	"residual name=h.0.r1 / layernorm name=h.0.ln_1 / attention 2 name=h.0.attn / "
	"dropout 0.1 name=h.0.d / end / residual name=h.0.r2 / layernorm name=h.0.ln_2 / "
	"dense 32 conv1d name=h.0.fc / gelu name=h.0.act / dense 8 name=h.0.proj / end / "
	"residual name=h.1.r1 / layernorm name=h.1.ln_1 / attention 2 name=h.1.attn / end / "
	"residual name=h.1.r2 / layernorm name=h.1.ln_2 / dense 32 name=h.1.fc / gelu "
	"name=h.1.act / dense 8 name=h.1.proj / tanh name=h.1.t / end / layernorm name=ln_f / "
	"dense 9 bias=0 tie=wte name=lm_head / loss softmax-cross-entropy";
__attribute__((unused)) static const char *const fix_cnn =
	"input 3 8 8 / conv 4 3 pad=same / relu / maxpool 2 / batchnorm / conv 5 3 / gelu / "
	"dropout 0.2 / flatten / dense 7 / relu / dense 3 / loss softmax-cross-entropy";
__attribute__((unused)) static const char *const fix_mlp =
	"input 10 / dense 12 / relu / dense 9 / tanh / dense 4 / loss softmax-cross-entropy";

/* Forward and backward. */
__attribute__((unused)) static bool fix_pass(struct pl_net *net, const struct pl_batch_io *io,
					     uint64_t key, float scale, bool accumulate,
					     double *loss)
{
	struct pl_err err = { 0 };

	pl_net_scale(net, scale);
	return pl_net_forward(net, io, key, false, loss, NULL, &err) == 0 &&
	       pl_net_backward(net, accumulate, &err) == 0;
}

#endif
