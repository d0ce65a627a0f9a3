/*
 * From the statements of a model to nodes: checks, names, shapes, parameters.
 *
 * One pass. Each type of layer has its own builder (layers.c); this file has the common parts.
 * Layers without a name get the names of torch.nn.Sequential, so that weights in files of PyTorch
 * are found. Who reads a model checks its arguments and the order of its statements. All errors of
 * shapes are found here, because kernels cannot fail.
 */
#include <ctype.h>

#include "tensor/net_internal.h"

void pl_tensor_build_bad(struct pl_builder *b, const char *fmt, ...)
{
	const struct pl_layer *l = &b->text[pl_min_size(b->at, b->n_text - 1)];
	char msg[512], place[32];
	va_list ap;

	if (b->rc < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	snprintf(place, sizeof(place), l->line ? "line %zu" : "statement %zu",
		 l->line ? (size_t)l->line : b->at + 1);
	b->rc = pl_fail(b->err, PL_EDATA, "%s: %.32s%s%.100s%s: %s", place, l->op,
			b->name ? " \"" : "", b->name ? b->name : "", b->name ? "\"" : "", msg);
}

const char *pl_tensor_build_text(struct pl_builder *b, const char *fmt, ...)
{
	char text[512];
	const char *out = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		pl_tensor_build_bad(b, "its name is longer than %zu letters", sizeof(text) - 1);
	else if (!(out = pl_arena_dup(&b->net->arena, text, (size_t)n)) && b->rc >= 0)
		b->rc = pl_fail(b->err, PL_ENOMEM, "no memory for the names of layers");
	return out ? out : "";
}

char *pl_tensor_build_dims(char *out, size_t size, int n_dims, const int *dim)
{
	size_t at = 0;

	for (int i = 0; i < n_dims && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "x" : "", dim[i]);
	return out;
}

/* ---- numbers and keys -------------------------------------------------------------------- */

int pl_tensor_build_num(const struct pl_builder *b, uint32_t i, int usual)
{
	const struct pl_layer *l = &b->text[b->at];

	return i < l->n_num ? (int)l->num[i] : usual;
}

const struct pl_layer_key *pl_tensor_build_key(const struct pl_builder *b, const char *key)
{
	const struct pl_layer *l = &b->text[b->at];

	for (uint32_t i = 0; i < l->n_keys; i++)
		if (!strcmp(l->key[i].key, key))
			return &l->key[i];
	return NULL;
}

double pl_tensor_build_real(const struct pl_builder *b, const char *key, double usual)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	return k ? k->v : usual;
}

bool pl_tensor_build_switch(const struct pl_builder *b, const char *key, bool usual)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	return !k ? usual : !*k->text || k->v == 1;
}

/* ---- nodes and tensors --------------------------------------------------------------------- */

/* The name in the statement, else the number that torch.nn.Sequential would give. */
static const char *name_layer(struct pl_builder *b)
{
	struct pl_block *open = b->depth ? &b->block[b->depth - 1] : NULL;
	const struct pl_layer_key *k = pl_tensor_build_key(b, "name");
	uint32_t number;

	if (b->op == PL_LAYER_INPUT)
		return NULL;
	if (b->op == PL_LAYER_END)
		return pl_tensor_build_text(b, "%s.add", open->name);
	number = open ? open->count++ : b->count++;
	if (k) {
		const char *s = k->text;

		while (*s && (isalnum((unsigned char)*s) || strchr("._-", *s)))
			s++;
		if (*s || !*k->text)
			pl_tensor_build_bad(b, "name=%.40s: a name is of letters, digits and . _ -",
					    k->text);
		return pl_tensor_build_text(b, "%s", k->text);
	}
	if (b->op == PL_LAYER_LOSS)
		return "loss";
	return open ? pl_tensor_build_text(b, "%s.%u", open->name, number)
		    : pl_tensor_build_text(b, "%u", number);
}

struct pl_node *pl_tensor_build_node(struct pl_builder *b, enum pl_layer_op op, const char *name)
{
	struct pl_net *net = b->net;
	struct pl_node *nd = &net->node[net->n];
	struct pl_net_layer *l = &net->layer[net->n];

	*nd = (struct pl_node){ .op = op,
				.x = net->n ? net->node[net->n - 1].y : PL_NET_INPUT,
				.y = net->n,
				.skip = PL_NET_INPUT,
				.weight = PL_NONE,
				.bias = PL_NONE,
				.position = PL_NONE,
				.segment = PL_NONE,
				.rows = 1,
				.ny = 1 };
	l->op = pl_tensor_layers[op].name;
	l->name = (char *)(name ? name : b->name);
	l->n_dims = b->n_dims;
	memcpy(l->dim, b->dim, sizeof(l->dim));
	for (int i = 0; i < b->n_dims && nd->ny <= INT32_MAX; i++) /* larger sizes are refused */
		nd->ny *= (size_t)b->dim[i];
	l->first_tensor = net->n_tensors;
	l->statement = (uint32_t)b->at;
	l->flops = pl_tensor_layers[op].flops * (double)nd->ny;
	net->n++;
	return nd;
}

struct pl_node *pl_tensor_build_alias(struct pl_builder *b)
{
	struct pl_node *nd = pl_tensor_build_node(b, b->op, NULL);

	nd->alias = true;
	nd->y = nd->x;
	return nd;
}

static void put_tensor(struct pl_builder *b, struct pl_net_tensor *t, const char *what, int n_dims,
		       const int *dim, struct pl_slab *slab)
{
	struct pl_net *net = b->net;

	*t = (struct pl_net_tensor){ .n_dims = n_dims,
				     .offset = slab->n,
				     .n = 1,
				     .layer = net->n - 1,
				     .decay = n_dims >= 2 };
	for (int i = 0; i < n_dims && t->n <= PL_NET_FLOAT_MAX; i++) {
		t->dim[i] = dim[i];
		t->n *= (size_t)dim[i];
	}
	if (t->n > PL_NET_FLOAT_MAX)
		pl_tensor_build_bad(b, "%s is 2^31 numbers or more", what);
	slab->n += pl_net_round(t->n);
	t->name = (char *)pl_tensor_build_text(b, "%s.%s", net->layer[net->n - 1].name, what);
}

uint32_t pl_tensor_build_tensor(struct pl_builder *b, const char *what, int n_dims, const int *dim,
				struct pl_init init)
{
	struct pl_net *net = b->net;

	put_tensor(b, &net->tensor[net->n_tensors], what, n_dims, dim, &net->params);
	net->init[net->n_tensors] = init;
	net->layer[net->n - 1].n_tensors++;
	return net->n_tensors++;
}

size_t pl_tensor_build_state(struct pl_builder *b, const char *what, int n)
{
	struct pl_net_tensor *t = &b->net->state_tensor[b->net->n_state_tensors++];

	put_tensor(b, t, what, 1, &n, &b->net->state);
	return t->offset;
}

/* ---- all statements ------------------------------------------------------------------------ */

/* The names of the layers from `before` on must be unique. */
static void check_names(struct pl_builder *b, uint32_t before)
{
	const struct pl_net *net = b->net;

	for (uint32_t i = before; i < net->n && b->rc >= 0; i++) {
		const char *name = net->layer[i].name;
		size_t seen = b->names.n;
		pl_id id = PL_NONE;

		b->rc = pl_intern_add(&b->names, name, strlen(name), &id, b->err);
		if (id < seen)
			pl_tensor_build_bad(b, "two layers have the name \"%.100s\"; say name=...",
					    name);
	}
}

static void build_statement(struct pl_builder *b)
{
	uint32_t before = b->net->n, op = 0;

	b->name = NULL;
	while (op < PL_LAYER_COUNT_ && strcmp(pl_tensor_layers[op].name, b->text[b->at].op) != 0)
		op++;
	if (op == PL_LAYER_COUNT_) {
		pl_tensor_build_bad(b, "there is no such layer");
		return;
	}
	b->op = (enum pl_layer_op)op;
	b->name = name_layer(b);
	if (b->rc >= 0)
		pl_tensor_layers[op].build(b);
	for (uint32_t i = before; i < b->net->n; i++)
		if (b->net->node[i].ny > (size_t)INT32_MAX / (size_t)b->net->o.batch)
			pl_tensor_build_bad(b,
					    "a batch of %d samples has more than 2^31 outputs "
					    "here",
					    b->net->o.batch);
	check_names(b, before);
}

static int alloc_tables(struct pl_net *net, size_t n, struct pl_err *err)
{
	/* attention has the most: three layers and four tensors */
	PL_CHECK(pl_alloc(&net->node, 3 * n, sizeof(*net->node), err));
	PL_CHECK(pl_alloc(&net->layer, 3 * n, sizeof(*net->layer), err));
	PL_CHECK(pl_alloc(&net->tensor, 4 * n, sizeof(*net->tensor), err));
	PL_CHECK(pl_alloc(&net->init, 4 * n, sizeof(*net->init), err));
	PL_CHECK(pl_alloc(&net->state_tensor, 2 * n, sizeof(*net->state_tensor), err));
	PL_CHECK(pl_alloc(&net->touched, 4 * n, sizeof(*net->touched), err));
	return pl_alloc(&net->value, 3 * n, sizeof(*net->value), err);
}

/* Set the values that need all statements. */
static void finish(struct pl_builder *b)
{
	struct pl_net *net = b->net;

	b->at = b->n_text - 1;
	for (uint32_t i = net->n; i-- > 0;) {
		if (net->layer[i].n_tensors)
			net->first_back = i;
		net->layer[i].fused = net->node[i].alias;
	}
	if (!net->n_tensors)
		pl_tensor_build_bad(b, "no layer above has parameters: nothing to train");
}

int pl_net_build(struct pl_net *net, const struct pl_layer *layer, size_t n, struct pl_err *err)
{
	struct pl_builder b = { .net = net, .text = layer, .n_text = n, .err = err };

	b.rc = alloc_tables(net, n, err);
	for (; b.rc >= 0 && b.at < n; b.at++)
		build_statement(&b);
	if (b.rc >= 0)
		finish(&b);
	pl_intern_fini(&b.names);
	return b.rc;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Adds one layer of the statement. A layer without operations moves no bytes. */
static void add_work(const struct pl_net *net, uint32_t i, struct pl_net_work *w)
{
	const struct pl_net_layer *l = &net->layer[i];
	const struct pl_node *nd = &net->node[i];

	if (!w->name[0] && l->name)
		snprintf(w->name, sizeof(w->name), "%s", l->name);
	w->flops += l->flops;
	for (uint32_t t = l->first_tensor; t < l->first_tensor + l->n_tensors; t++)
		w->params += (int64_t)net->tensor[t].n;
	w->n_dims = l->n_dims;
	memcpy(w->dim, l->dim, sizeof(w->dim));
	/* of a table, only the rows of the tokens are read */
	w->bytes = nd->op == PL_LAYER_EMBEDDING ? (double)nd->ny : (double)w->params;
}

int pl_net_work(const struct pl_layer *layer, size_t n, struct pl_net_work *work,
		struct pl_err *err)
{
	struct pl_net *net;
	double in = 0;

	PL_CHECK(pl_net_outline(layer, n, 1, &net, err));
	memset(work, 0, n * sizeof(*work));
	work[0].n_dims = net->shape.n_dims;
	memcpy(work[0].dim, net->shape.dim, sizeof(work[0].dim));
	for (uint32_t i = 0; i < net->n; i++)
		add_work(net, i, &work[net->layer[i].statement]);
	for (size_t i = 0; i < n; i++) {
		struct pl_net_work *w = &work[i];
		bool pair = !strcmp(layer[i].op, "end"); /* adds two values */
		double out = 1;

		for (int k = 0; k < w->n_dims; k++)
			out *= w->dim[k];
		w->bytes = w->flops > 0 ? 4 * ((pair ? 2 : 1) * in + out + w->bytes) : 0;
		in = out;
	}
	pl_net_free(net);
	return 0;
}
