/*
 * From the statements of a model to nodes: checks, names, shapes, parameters.
 *
 * One pass. Each type of layer has its own builder (layers*.c); this file has the common parts.
 * Layers without a name get the names of torch.nn.Sequential, so that weights in files of PyTorch
 * are found. All errors of a model are found here, because kernels cannot fail.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

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

int pl_tensor_build_num(struct pl_builder *b, uint32_t i, const char *what)
{
	const struct pl_layer *l = &b->text[b->at];
	double d = i < l->n_num ? l->num[i] : NAN;

	if (d >= 1 && d <= PL_NET_DIM_MAX && d == floor(d))
		return (int)d;
	if (i >= l->n_num)
		pl_tensor_build_bad(b, "%s is missing", what);
	pl_tensor_build_bad(b, "%s is %g, should be a whole number from 1 to %d", what, d,
			    PL_NET_DIM_MAX);
	return 1;
}

const struct pl_layer_key *pl_tensor_build_key(const struct pl_builder *b, const char *key)
{
	const struct pl_layer *l = &b->text[b->at];

	for (uint32_t i = 0; i < l->n_keys; i++)
		if (!strcmp(l->key[i].key, key))
			return &l->key[i];
	return NULL;
}

double pl_tensor_build_real(struct pl_builder *b, const char *key, double hi, double usual)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	if (k && !(k->v >= 0 && k->v <= hi))
		pl_tensor_build_bad(b, "%s=%.40s, should be a number from 0 to %g", key,
				    k->text ? k->text : "", hi);
	return k && b->rc >= 0 ? k->v : usual;
}

int pl_tensor_build_int(struct pl_builder *b, const char *key, int lo, int usual)
{
	double d = pl_tensor_build_real(b, key, PL_NET_DIM_MAX, usual);

	if (d >= lo && d == floor(d))
		return (int)d;
	pl_tensor_build_bad(b, "%s=%g, should be a whole number from %d", key, d, lo);
	return usual;
}

bool pl_tensor_build_switch(struct pl_builder *b, const char *key, bool usual)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	if (!k)
		return usual;
	if (!k->text || !*k->text)
		return true;
	if (k->v != 0 && k->v != 1)
		pl_tensor_build_bad(b, "%s=%.40s, should be 0 or 1", key, k->text);
	return k->v == 1;
}

/* ---- nodes and tensors --------------------------------------------------------------------- */

/* As the statement says, else as torch.nn.Sequential counts. */
static const char *name_layer(struct pl_builder *b, const struct pl_layer_type *t)
{
	struct pl_block *open = b->depth ? &b->block[b->depth - 1] : NULL;
	const struct pl_layer_key *k = pl_tensor_build_key(b, "name");
	const char *s = k && k->text ? k->text : "";
	uint32_t number;

	if (t == &pl_tensor_layer_input)
		return NULL;
	if (t == &pl_tensor_layer_end && open)
		return pl_tensor_build_text(b, "%s.add", open->name);
	number = open ? open->count++ : b->count++;
	if (k) {
		while (*s && (isalnum((unsigned char)*s) || strchr("._-", *s)))
			s++;
		if (*s || !k->text || !*k->text)
			pl_tensor_build_bad(b, "name=%.40s: a name is of letters, digits and . _ -",
					    k->text ? k->text : "");
		return pl_tensor_build_text(b, "%s", k->text ? k->text : "");
	}
	if (t == &pl_tensor_layer_loss)
		return "loss";
	return open ? pl_tensor_build_text(b, "%s.%u", open->name, number)
		    : pl_tensor_build_text(b, "%u", number);
}

struct pl_node *pl_tensor_build_node(struct pl_builder *b, const struct pl_layer_type *type,
				     const char *name)
{
	struct pl_net *net = b->net;
	struct pl_node *nd = &net->node[net->n];
	struct pl_net_layer *l = &net->layer[net->n];

	*nd = (struct pl_node){ .type = type,
				.x = net->n ? net->node[net->n - 1].y : PL_NET_INPUT,
				.y = net->n,
				.skip = PL_NET_INPUT,
				.weight = PL_NONE,
				.bias = PL_NONE,
				.position = PL_NONE,
				.segment = PL_NONE,
				.rows = 1,
				.ny = 1 };
	l->op = type->op;
	l->name = (char *)(name ? name : b->name);
	l->n_dims = b->n_dims;
	memcpy(l->dim, b->dim, sizeof(l->dim));
	for (int i = 0; i < b->n_dims && nd->ny <= INT32_MAX; i++) /* above, it is refused */
		nd->ny *= (size_t)b->dim[i];
	l->first_tensor = net->n_tensors;
	l->statement = (uint32_t)b->at;
	l->flops = (double)nd->ny;
	net->n++;
	return nd;
}

struct pl_node *pl_tensor_build_alias(struct pl_builder *b, const struct pl_layer_type *type)
{
	struct pl_node *nd = pl_tensor_build_node(b, type, NULL);

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

void pl_tensor_build_norm(struct pl_builder *b, struct pl_node *nd)
{
	nd->weight =
		pl_tensor_build_tensor(b, "weight", 1, &nd->c, (struct pl_init){ PL_INIT_ONE, 0 });
	nd->bias =
		pl_tensor_build_tensor(b, "bias", 1, &nd->c, (struct pl_init){ PL_INIT_ZERO, 0 });
}

size_t pl_tensor_build_state(struct pl_builder *b, const char *what, int n)
{
	struct pl_net_tensor *t = &b->net->state_tensor[b->net->n_state_tensors++];

	put_tensor(b, t, what, 1, &n, &b->net->state);
	return t->offset;
}

/* ---- all statements ------------------------------------------------------------------------ */

/* The layers from `before` on have names that no other has. */
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

static void check_place(struct pl_builder *b, const struct pl_layer_type *t)
{
	if (b->at == 0 && t != &pl_tensor_layer_input)
		pl_tensor_build_bad(b, "a model begins with what goes in, as in \"input 784\"");
	if (b->at > 0 && t == &pl_tensor_layer_input)
		pl_tensor_build_bad(b, "only the first statement says what goes in");
	if (t == &pl_tensor_layer_loss && b->at + 1 < b->n_text)
		pl_tensor_build_bad(b, "nothing may stand behind the loss");
	if (t == &pl_tensor_layer_loss && b->depth)
		pl_tensor_build_bad(b, "the block \"%.100s\" is open; close it with \"end\"",
				    b->block[b->depth - 1].name);
}

static void build_statement(struct pl_builder *b)
{
	const struct pl_layer_type *t = pl_tensor_layer_find(b->text[b->at].op);
	uint32_t before = b->net->n;

	b->name = NULL;
	if (!t) {
		pl_tensor_build_bad(
			b, "there is no such layer; there are input dense conv maxpool avgpool "
			   "batchnorm layernorm embedding position attention relu gelu tanh "
			   "sigmoid dropout flatten residual end loss");
		return;
	}
	check_place(b, t);
	b->name = name_layer(b, t);
	if (b->rc >= 0)
		t->build(b);
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
	int rc;

	/* attention is three layers and four tensors; nothing is more */
	PL_TRY(pl_alloc(&net->node, 3 * n, sizeof(*net->node), err));
	PL_TRY(pl_alloc(&net->layer, 3 * n, sizeof(*net->layer), err));
	PL_TRY(pl_alloc(&net->tensor, 4 * n, sizeof(*net->tensor), err));
	PL_TRY(pl_alloc(&net->init, 4 * n, sizeof(*net->init), err));
	PL_TRY(pl_alloc(&net->state_tensor, 2 * n, sizeof(*net->state_tensor), err));
	PL_TRY(pl_alloc(&net->touched, 4 * n, sizeof(*net->touched), err));
	PL_TRY(pl_alloc(&net->value, 3 * n, sizeof(*net->value), err));
out:
	return rc;
}

/* What can be said when all statements are read. */
static void finish(struct pl_builder *b)
{
	struct pl_net *net = b->net;

	b->at = b->n_text - 1;
	if (net->node[net->n - 1].type != &pl_tensor_layer_loss)
		pl_tensor_build_bad(
			b, "a model ends with its loss, as in \"loss softmax-cross-entropy\"");
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

	if (n < 2 || n > PL_NET_TEXT_MAX)
		return pl_fail(err, PL_EDATA,
			       "the model has %zu statements, should be 2 (input, loss) to %d", n,
			       PL_NET_TEXT_MAX);
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

	w->flops += l->flops;
	for (uint32_t t = l->first_tensor; t < l->first_tensor + l->n_tensors; t++)
		w->params += (int64_t)net->tensor[t].n;
	w->n_dims = l->n_dims;
	memcpy(w->dim, l->dim, sizeof(w->dim));
	/* of a table only the rows of the tokens are read */
	w->bytes = nd->type == &pl_tensor_layer_embedding ? (double)nd->ny : (double)w->params;
}

int pl_net_work(const struct pl_layer *layer, size_t n, struct pl_net_work *work,
		struct pl_err *err)
{
	struct pl_net *net;
	double in = 0;
	int rc = pl_alloc(&net, 1, sizeof(*net), err);

	if (rc < 0)
		return rc;
	net->be = &pl_backend_cpu;
	net->o.batch = 1;
	PL_TRY(pl_net_build(net, layer, n, err));
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
out:
	pl_net_free(net);
	return rc;
}
