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

int pl_tensor_build_bad(const struct pl_builder *b, struct pl_err *err, const char *fmt, ...)
{
	const struct pl_layer *l = &b->text[pl_min_size(b->at, b->n_text - 1)];
	char msg[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (l->line)
		return pl_fail(err, PL_EDATA, "line %u: %.32s%s%.100s%s: %s", l->line, l->op,
			       b->name ? " \"" : "", b->name ? b->name : "", b->name ? "\"" : "",
			       msg);
	return pl_fail(err, PL_EDATA, "statement %zu: %.32s%s%.100s%s: %s", b->at + 1, l->op,
		       b->name ? " \"" : "", b->name ? b->name : "", b->name ? "\"" : "", msg);
}

int pl_tensor_build_text(struct pl_builder *b, const char **out, struct pl_err *err,
			 const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		return pl_tensor_build_bad(b, err, "its name is longer than %zu letters",
					   sizeof(text) - 1);
	*out = pl_arena_dup(&b->net->arena, text, (size_t)n);
	return *out ? 0 : pl_fail(err, PL_ENOMEM, "no memory for the names of layers");
}

char *pl_tensor_build_dims(char *out, size_t size, int n_dims, const int *dim)
{
	size_t at = 0;

	for (int i = 0; i < n_dims && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "x" : "", dim[i]);
	return out;
}

/* ---- numbers and keys -------------------------------------------------------------------- */

int pl_tensor_build_num(struct pl_builder *b, uint32_t i, const char *what, int *v,
			struct pl_err *err)
{
	double d = b->text[b->at].num[i];

	if (!(d >= 1 && d <= PL_NET_DIM_MAX && d == floor(d)))
		return pl_tensor_build_bad(b, err,
					   "%s is %g, should be a whole number from 1 to %d", what,
					   d, PL_NET_DIM_MAX);
	*v = (int)d;
	return 0;
}

const struct pl_layer_key *pl_tensor_build_key(const struct pl_builder *b, const char *key)
{
	const struct pl_layer *l = &b->text[b->at];

	for (uint32_t i = 0; i < l->n_keys; i++)
		if (!strcmp(l->key[i].key, key))
			return &l->key[i];
	return NULL;
}

int pl_tensor_build_real(struct pl_builder *b, const char *key, double lo, double hi, double *v,
			 struct pl_err *err)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	if (!k)
		return 0;
	if (!(k->v >= lo && k->v <= hi))
		return pl_tensor_build_bad(b, err, "%s=%.40s, should be a number from %g to %g",
					   key, k->text ? k->text : "", lo, hi);
	*v = k->v;
	return 0;
}

int pl_tensor_build_int(struct pl_builder *b, const char *key, int lo, int *v, struct pl_err *err)
{
	double d = *v;
	int rc = pl_tensor_build_real(b, key, lo, PL_NET_DIM_MAX, &d, err);

	if (rc < 0)
		return rc;
	if (d != floor(d))
		return pl_tensor_build_bad(b, err, "%s=%g, should be a whole number", key, d);
	*v = (int)d;
	return 0;
}

int pl_tensor_build_switch(struct pl_builder *b, const char *key, bool *v, struct pl_err *err)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, key);

	if (!k)
		return 0;
	if (!k->text || !*k->text) {
		*v = true;
		return 0;
	}
	if (k->v != 0 && k->v != 1)
		return pl_tensor_build_bad(b, err, "%s=%.40s, should be 0 or 1", key, k->text);
	*v = k->v == 1;
	return 0;
}

/* The words of one statement: neither too few nor too many, none unknown, none twice. */
static int check_words(struct pl_builder *b, const struct pl_layer_type *t, struct pl_err *err)
{
	const struct pl_layer *l = &b->text[b->at];

	if (l->n_num < t->min_num || l->n_num > t->max_num)
		return pl_tensor_build_bad(b, err, "%u numbers behind it; usage: %s %s", l->n_num,
					   t->op, t->usage);
	for (uint32_t i = 0; i < l->n_keys; i++) {
		bool known = !strcmp(l->key[i].key, "name");

		for (uint32_t j = 0; t->key[j] && !known; j++)
			known = !strcmp(l->key[i].key, t->key[j]);
		if (!known)
			return pl_tensor_build_bad(b, err, "it has no \"%.40s\"; usage: %s %s",
						   l->key[i].key, t->op, t->usage);
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(l->key[i].key, l->key[j].key))
				return pl_tensor_build_bad(b, err, "\"%.40s\" is said twice",
							   l->key[i].key);
	}
	return 0;
}

/* ---- nodes and tensors --------------------------------------------------------------------- */

/* As the statement says, else as torch.nn.Sequential counts. */
static int name_layer(struct pl_builder *b, const struct pl_layer_type *t, struct pl_err *err)
{
	struct pl_block *open = b->depth ? &b->block[b->depth - 1] : NULL;
	const struct pl_layer_key *k = pl_tensor_build_key(b, "name");
	uint32_t number;

	b->name = NULL;
	if (t == &pl_tensor_layer_input)
		return 0;
	if (t == &pl_tensor_layer_end && open)
		return pl_tensor_build_text(b, &b->name, err, "%s.add", open->name);
	number = open ? open->count++ : b->count++;
	if (k) {
		const char *s = k->text ? k->text : "";

		for (; *s && (isalnum((unsigned char)*s) || strchr("._-", *s)); s++)
			;
		if (*s || !k->text || !*k->text)
			return pl_tensor_build_bad(
				b, err, "name=%.40s: a name is of letters, digits and . _ -",
				k->text ? k->text : "");
		return pl_tensor_build_text(b, &b->name, err, "%s", k->text);
	}
	if (t == &pl_tensor_layer_loss)
		return pl_tensor_build_text(b, &b->name, err, "loss");
	if (open)
		return pl_tensor_build_text(b, &b->name, err, "%s.%u", open->name, number);
	return pl_tensor_build_text(b, &b->name, err, "%u", number);
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
	for (int i = 0; i < b->n_dims; i++)
		nd->ny *= (size_t)b->dim[i];
	l->first_tensor = net->n_tensors;
	l->flops = (double)nd->ny;
	net->n++;
	return nd;
}

static int put_tensor(struct pl_builder *b, struct pl_net_tensor *t, const char *what, int n_dims,
		      const int *dim, struct pl_slab *slab, struct pl_err *err)
{
	struct pl_net *net = b->net;

	*t = (struct pl_net_tensor){ .n_dims = n_dims,
				     .offset = slab->n,
				     .n = 1,
				     .layer = net->n - 1,
				     .decay = n_dims >= 2 };
	for (int i = 0; i < n_dims; i++) {
		t->dim[i] = dim[i];
		t->n *= (size_t)dim[i];
		if (t->n > PL_NET_FLOAT_MAX)
			return pl_tensor_build_bad(b, err, "%s is 2^31 numbers or more", what);
	}
	slab->n += pl_net_round(t->n);
	return pl_tensor_build_text(b, (const char **)&t->name, err, "%s.%s",
				    net->layer[net->n - 1].name, what);
}

int pl_tensor_build_tensor(struct pl_builder *b, const char *what, int n_dims, const int *dim,
			   struct pl_init init, uint32_t *index, struct pl_err *err)
{
	struct pl_net *net = b->net;
	int rc = put_tensor(b, &net->tensor[net->n_tensors], what, n_dims, dim, &net->params, err);

	if (rc < 0)
		return rc;
	net->init[net->n_tensors] = init;
	net->layer[net->n - 1].n_tensors++;
	*index = net->n_tensors++;
	return 0;
}

int pl_tensor_build_state(struct pl_builder *b, const char *what, int n, size_t *at,
			  struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_net_tensor *t = &net->state_tensor[net->n_state_tensors];
	int rc = put_tensor(b, t, what, 1, &n, &net->state, err);

	if (rc < 0)
		return rc;
	*at = t->offset;
	net->n_state_tensors++;
	return 0;
}

/* ---- all statements ------------------------------------------------------------------------ */

/* The layers from `before` on have names that no other has. */
static int check_names(struct pl_builder *b, uint32_t before, struct pl_err *err)
{
	const struct pl_net *net = b->net;
	int rc = 0;

	for (uint32_t i = before; i < net->n; i++) {
		const char *name = net->layer[i].name;
		size_t seen = b->names.n;
		pl_id id;

		PL_TRY(pl_intern_add(&b->names, name, strlen(name), &id, err));
		if (id < seen)
			return pl_tensor_build_bad(
				b, err, "two layers have the name \"%.100s\"; say name=...", name);
	}
out:
	return rc;
}

static int check_place(struct pl_builder *b, const struct pl_layer_type *t, struct pl_err *err)
{
	if (b->at == 0 && t != &pl_tensor_layer_input)
		return pl_tensor_build_bad(b, err,
					   "a model begins with what goes in, as in \"input 784\"");
	if (b->at > 0 && t == &pl_tensor_layer_input)
		return pl_tensor_build_bad(b, err, "only the first statement says what goes in");
	if (t == &pl_tensor_layer_loss && b->at + 1 < b->n_text)
		return pl_tensor_build_bad(b, err, "nothing may stand behind the loss");
	if (t == &pl_tensor_layer_loss && b->depth)
		return pl_tensor_build_bad(b, err,
					   "the block \"%.100s\" is open; close it with \"end\"",
					   b->block[b->depth - 1].name);
	return 0;
}

static int build_statement(struct pl_builder *b, struct pl_err *err)
{
	const struct pl_layer_type *t = pl_tensor_layer_find(b->text[b->at].op);
	uint32_t before = b->net->n;
	int rc;

	b->name = NULL;
	if (!t)
		return pl_tensor_build_bad(
			b, err,
			"there is no such layer; there are input dense conv maxpool avgpool "
			"batchnorm "
			"layernorm embedding position attention relu gelu tanh sigmoid dropout "
			"flatten residual end loss");
	PL_TRY(check_place(b, t, err));
	PL_TRY(name_layer(b, t, err));
	PL_TRY(check_words(b, t, err));
	PL_TRY(t->build(b, err));
	for (uint32_t i = before; i < b->net->n; i++)
		if (b->net->node[i].ny > (size_t)INT32_MAX / (size_t)b->net->o.batch)
			return pl_tensor_build_bad(
				b, err, "a batch of %d samples has more than 2^31 outputs here",
				b->net->o.batch);
	PL_TRY(check_names(b, before, err));
out:
	return rc;
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
static int finish(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;

	b->at = b->n_text - 1;
	if (net->node[net->n - 1].type != &pl_tensor_layer_loss)
		return pl_tensor_build_bad(
			b, err, "a model ends with its loss, as in \"loss softmax-cross-entropy\"");
	for (uint32_t i = net->n; i-- > 0;) {
		if (net->layer[i].n_tensors)
			net->first_back = i;
		net->layer[i].fused = net->node[i].alias;
	}
	if (!net->n_tensors)
		return pl_tensor_build_bad(b, err,
					   "no layer above has parameters: nothing to train");
	return 0;
}

int pl_net_build(struct pl_net *net, const struct pl_layer *layer, size_t n, struct pl_err *err)
{
	struct pl_builder b = { .net = net, .text = layer, .n_text = n };
	int rc;

	if (n < 2 || n > PL_NET_TEXT_MAX)
		return pl_fail(err, PL_EDATA,
			       "the model has %zu statements, should be 2 (input, loss) to %d", n,
			       PL_NET_TEXT_MAX);
	PL_TRY(alloc_tables(net, n, err));
	for (; b.at < n; b.at++)
		PL_TRY(build_statement(&b, err));
	PL_TRY(finish(&b, err));
out:
	pl_intern_fini(&b.names);
	return rc;
}
