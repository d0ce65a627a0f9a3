/* net_fixture.h - models from text, random batches, and steps over them, for tests of networks. */
#ifndef PL_NET_FIXTURE_H
#define PL_NET_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "../oracle/plain.h"
#include "plan/model.h"
#include "tap.h"
#include "tensor/net_internal.h"

/* Parts of a network, one at a time. */
__attribute__((unused)) static const struct pl_net_tensor *fix_tensors(const struct pl_net *net,
								       uint32_t *n)
{
	*n = net->n_tensors;
	return net->tensor;
}

__attribute__((unused)) static const struct pl_net_tensor *
fix_state_tensors(const struct pl_net *net, uint32_t *n)
{
	*n = net->n_state_tensors;
	return net->state_tensor;
}

__attribute__((unused)) static const struct pl_net_layer *fix_layers(const struct pl_net *net,
								     uint32_t *n)
{
	*n = net->n;
	return net->layer;
}

__attribute__((unused)) static float *fix_params(const struct pl_net *net, size_t *n)
{
	*n = net->params.n;
	return net->params.p;
}

__attribute__((unused)) static float *fix_grads(const struct pl_net *net)
{
	return net->grads.p;
}

__attribute__((unused)) static float *fix_state(const struct pl_net *net, size_t *n)
{
	*n = net->state.n;
	return net->state.p;
}

__attribute__((unused)) static void fix_shape(const struct pl_net *net, struct pl_net_shape *s)
{
	*s = net->shape;
}

/* All memory. */
__attribute__((unused)) static size_t fix_bytes(const struct pl_net *net)
{
	size_t batch = (size_t)net->o.batch;
	size_t floats = net->params.n + net->grads.n + net->state.n, stored = 0;
	size_t io = batch * (net->nx + (size_t)net->shape.rows + (size_t)net->shape.targets);

	for (size_t b = 0; b < PL_NET_BUFFERS; b++)
		stored += net->grad_n[b];
	if (net->stored)
		stored += batch * net->nx;
	return (floats + io) * sizeof(float) + stored * pl_net_width(net) + net->acts_bytes +
	       net->work_bytes;
}

/* What the last forward() put into the loss, n numbers a batch: in memory of the backend, as the
 * context stores activations. */
__attribute__((unused)) static const float *fix_output(const struct pl_net *net, size_t *n)
{
	const struct pl_node *loss = &net->node[net->n - 1];

	*n = (size_t)net->samples * (size_t)loss->rows * (size_t)loss->c;
	return pl_net_value(net, loss->x);
}

struct fix_model {
	struct pl_model read;
	struct pl_layer *layer;
	size_t n;
	struct pl_err err;
};

/* "input 5 / dense 3 name=a / loss squared": statements end with '/' or a newline. */
static void fix_parse(struct fix_model *m, const char *text)
{
	char lines[4096];
	struct pl_in *in;

	snprintf(lines, sizeof(lines), "%s", text);
	for (char *at = lines; (at = strchr(at, '/'));)
		*at = '\n';
	pl_model_fini(&m->read);
	memset(m, 0, sizeof(*m));
	in = pl_in_open_mem("model", lines, strlen(lines), &m->err);
	if (in && pl_model_read(in, "model", &m->read, &m->err) == 0) {
		m->layer = m->read.layer;
		m->n = m->read.n_layers;
	}
	pl_in_close(in);
}

/* A network of the text; the error is that of the reader or of the network. */
static int fix_build(struct fix_model *m, const char *text, const struct pl_net_opts *o,
		     struct pl_net **net, struct pl_err *err)
{
	*net = NULL;
	fix_parse(m, text);
	if (m->err.code)
		*err = m->err;
	return m->err.code ? m->err.code : pl_net_new(m->layer, m->n, o, net, err);
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

	fix_shape(net, &s);
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

	if (fix_build(&m, text, &o, &net, &err) < 0)
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

	if (fix_build(&m, text, &o, &net, &err) < 0 &&
	    (err.code != PL_EDATA || !strstr(err.msg, "line ")))
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
