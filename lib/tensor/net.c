/*
 * A network: its memory, the forward and the backward pass.
 *
 * Both passes walk the nodes in order; what a node does is with its type (layers*.c), what lies
 * where was settled before (net_plan.c). Gradients of parameters are zeroed when the backward pass
 * first comes to them, while they are about to be in the cache anyway; from then on everybody adds,
 * which is also how a weight that two layers share gets both its parts.
 */
#include <math.h>
#include <string.h>

#include "tensor/net_internal.h"

/* ---- making and freeing ------------------------------------------------------------------ */

static int slab_new(struct pl_net *net, struct pl_slab *s, bool foreign, const char *what,
		    struct pl_err *err)
{
	size_t bytes = (s->n * sizeof(float) + 63) / 64 * 64;

	s->foreign = foreign;
	s->p = foreign ? net->o.slab(net->o.slab_arg, bytes) : net->be->alloc(net->ctx, bytes);
	return s->p ? 0 : pl_fail(err, PL_ENOMEM, "no memory for %s: %zu bytes", what, bytes);
}

static void slab_free(struct pl_net *net, struct pl_slab *s)
{
	size_t bytes = (s->n * sizeof(float) + 63) / 64 * 64;

	if (s->p && s->foreign && net->o.slab_free)
		net->o.slab_free(net->o.slab_arg, s->p, bytes);
	else if (s->p && !s->foreign)
		net->be->free(net->ctx, s->p);
}

static int alloc_on(struct pl_net *net, void *out, size_t bytes, const char *what,
		    struct pl_err *err)
{
	void *p = net->be->alloc(net->ctx, bytes ? bytes : 64);

	if (!p)
		return pl_fail(err, PL_ENOMEM, "no memory for %s: %zu bytes", what, bytes);
	memcpy(out, &p, sizeof(p));
	return 0;
}

static int alloc_batch(struct pl_net *net, struct pl_err *err)
{
	size_t batch = (size_t)net->o.batch, x = batch * net->nx;
	size_t y = batch * (size_t)net->shape.rows, t = batch * (size_t)net->shape.targets;
	int rc;

	if (net->shape.vocab)
		PL_TRY(alloc_on(net, &net->ids, x * sizeof(int32_t), "the batch", err));
	else
		PL_TRY(alloc_on(net, &net->x, x * sizeof(float), "the batch", err));
	if (net->shape.classes)
		PL_TRY(alloc_on(net, &net->classes, y * sizeof(int32_t), "the batch", err));
	else
		PL_TRY(alloc_on(net, &net->target, t * sizeof(float), "the batch", err));
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_node *nd = &net->node[i];
		size_t n = nd->type == &pl_layer_conv ? net->be->conv_work(net->ctx, &nd->conv) : 0;

		if (n * sizeof(float) > net->work_bytes)
			net->work_bytes = n * sizeof(float);
	}
	PL_TRY(alloc_on(net, &net->work, net->work_bytes, "convolutions", err));
out:
	return rc;
}

int pl_net_new(const struct pl_layer *layer, size_t n, const struct pl_net_opts *o,
	       struct pl_net **out, struct pl_err *err)
{
	struct pl_net *net;
	bool foreign = o->slab != NULL;
	int rc = pl_alloc(&net, 1, sizeof(*net), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	net->o = *o;
	net->be = o->backend ? o->backend : &pl_backend_cpu;
	if (o->batch < 1) {
		rc = pl_fail(err, PL_EUSAGE, "a batch of %d samples, should be 1 or more",
			     o->batch);
		goto out;
	}
	PL_TRY(net->be->open(o->threads > 0 ? o->threads : 1, &net->ctx, err));
	net->opened = true;
	PL_TRY(pl_net_build(net, layer, n, err));
	net->grads.n = net->params.n;
	PL_TRY(slab_new(net, &net->params, foreign, "parameters", err));
	PL_TRY(slab_new(net, &net->grads, foreign, "gradients", err));
	if (net->state.n)
		PL_TRY(slab_new(net, &net->state, false, "running means", err));
	PL_TRY(alloc_batch(net, err));
	PL_TRY(pl_net_plan_back(net, err));
	PL_TRY(pl_net_plan_acts(net, err));
	PL_TRY(pl_net_init(net, err));
	*out = net;
	net = NULL;
out:
	pl_net_free(net);
	return rc;
}

void pl_net_free(struct pl_net *net)
{
	void *memory[7 + PL_NET_BUFFERS];
	size_t n = 0;

	if (!net)
		return;
	slab_free(net, &net->params);
	slab_free(net, &net->grads);
	slab_free(net, &net->state);
	memory[n++] = net->acts;
	memory[n++] = net->work;
	memory[n++] = net->x;
	memory[n++] = net->target;
	memory[n++] = net->ids;
	memory[n++] = net->classes;
	for (size_t b = 0; b < PL_NET_BUFFERS; b++)
		memory[n++] = net->grad[b];
	for (size_t i = 0; i < n; i++)
		if (memory[i])
			net->be->free(net->ctx, memory[i]);
	if (net->opened)
		net->be->close(net->ctx);
	pl_free(net->node);
	pl_free(net->layer);
	pl_free(net->tensor);
	pl_free(net->init);
	pl_free(net->state_tensor);
	pl_free(net->touched);
	pl_free(net->value);
	pl_free(net->segment);
	pl_arena_fini(&net->arena);
	pl_free(net);
}

/* ---- what there is ------------------------------------------------------------------------- */

void pl_net_hooks(struct pl_net *net, const struct pl_net_hooks *h)
{
	net->hooks = *h;
}

const struct pl_net_tensor *pl_net_tensors(const struct pl_net *net, uint32_t *n)
{
	*n = net->n_tensors;
	return net->tensor;
}

const struct pl_net_tensor *pl_net_state_tensors(const struct pl_net *net, uint32_t *n)
{
	*n = net->n_state_tensors;
	return net->state_tensor;
}

struct pl_net_layer *pl_net_layers(struct pl_net *net, uint32_t *n)
{
	*n = net->n;
	return net->layer;
}

float *pl_net_params(struct pl_net *net, size_t *n)
{
	*n = net->params.n;
	return net->params.p;
}

float *pl_net_grads(struct pl_net *net)
{
	return net->grads.p;
}

float *pl_net_state(struct pl_net *net, size_t *n)
{
	*n = net->state.n;
	return net->state.p;
}

void pl_net_shape(const struct pl_net *net, struct pl_net_shape *s)
{
	*s = net->shape;
}

void pl_net_precision(struct pl_net *net, uint32_t layer, enum pl_phase phase, enum pl_precision p)
{
	net->node[layer].precision[phase] = p;
}

bool pl_net_wants_ids(const struct pl_net *net)
{
	return net->shape.vocab > 0;
}

size_t pl_net_bytes(const struct pl_net *net)
{
	size_t batch = (size_t)net->o.batch;
	size_t floats = net->params.n + net->grads.n + net->state.n;
	size_t io = batch * (net->nx + (size_t)net->shape.rows + (size_t)net->shape.targets);

	for (size_t b = 0; b < PL_NET_BUFFERS; b++)
		floats += net->grad_n[b];
	return (floats + io) * sizeof(float) + net->acts_bytes + net->work_bytes;
}

const float *pl_net_output(const struct pl_net *net, size_t *n)
{
	const struct pl_node *loss = &net->node[net->n - 1];

	*n = (size_t)net->samples * (size_t)loss->rows * (size_t)loss->c;
	return loss->x == PL_NET_INPUT ? net->x : net->value[loss->x];
}

/* ---- forward ------------------------------------------------------------------------------- */

static int check_range(const int32_t *v, size_t n, size_t a_sample, int limit, const char *what,
		       struct pl_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (v[i] < 0 || v[i] >= limit)
			return pl_fail(
				err, PL_EDATA,
				"sample %zu of the batch, place %zu: %s %d, but the model has "
				"%d of them, from 0",
				i / a_sample, i % a_sample, what, v[i], limit);
	return 0;
}

static int put_batch(struct pl_net *net, const struct pl_batch_io *b, struct pl_err *err)
{
	const struct pl_net_shape *s = &net->shape;
	size_t n = (size_t)b->n, nx = n * net->nx, ny = n * (size_t)s->rows;
	int rc;

	if (b->n < 1 || b->n > net->o.batch)
		return pl_fail(err, PL_EUSAGE, "%d samples in a batch, should be 1 to %d", b->n,
			       net->o.batch);
	if (s->vocab ? !b->ids : !b->x)
		return pl_fail(err, PL_EUSAGE, "the model takes %s",
			       s->vocab ? "token ids, not numbers" : "numbers, not token ids");
	if (s->classes ? !b->y : !b->target)
		return pl_fail(err, PL_EUSAGE, "the loss takes %s",
			       s->classes ? "classes" : "targets, not classes");
	if (s->vocab) {
		PL_TRY(check_range(b->ids, nx, net->nx, s->vocab, "token", err));
		net->be->put(net->ctx, net->ids, b->ids, nx * sizeof(*b->ids));
	} else {
		net->be->put(net->ctx, net->x, b->x, nx * sizeof(*b->x));
	}
	if (s->classes) {
		PL_TRY(check_range(b->y, ny, (size_t)s->rows, s->classes, "class", err));
		net->be->put(net->ctx, net->classes, b->y, ny * sizeof(*b->y));
	} else {
		net->be->put(net->ctx, net->target, b->target,
			     n * (size_t)s->targets * sizeof(*b->target));
	}
	rc = 0;
out:
	return rc;
}

static void hook(const struct pl_net *net, bool begin, uint32_t layer, enum pl_phase p)
{
	if (begin && net->hooks.begin)
		net->hooks.begin(net->hooks.arg, layer, p, net->again);
	if (!begin && net->hooks.end)
		net->hooks.end(net->hooks.arg, layer, p, net->again);
}

static const float *value_of(const struct pl_net *net, uint32_t v)
{
	return v == PL_NET_INPUT ? net->x : net->value[v];
}

static void run_node(struct pl_net *net, uint32_t i)
{
	struct pl_node *nd = &net->node[i];
	const float *x = value_of(net, nd->x);
	void *y = net->acts + nd->y_at;

	if (nd->alias || (net->eval && nd->type == &pl_layer_dropout)) {
		net->value[i] = x;
		return;
	}
	net->value[i] = y;
	hook(net, true, i, PL_PHASE_FORWARD);
	net->be->precision(net->ctx, nd->precision[PL_PHASE_FORWARD]);
	nd->type->forward(net, nd, x, y, net->acts + nd->save_at);
	hook(net, false, i, PL_PHASE_FORWARD);
}

/* The gradient is made with the loss, while its exponentials are at hand. */
static void run_loss(struct pl_net *net, double *loss, int64_t *hits)
{
	const struct pl_node *nd = &net->node[net->n - 1];
	const float *x = value_of(net, nd->x);
	float *dx = net->eval ? NULL : net->grad[nd->dx];
	int n = net->samples * nd->rows;

	hook(net, true, net->n - 1, PL_PHASE_FORWARD);
	*hits = 0;
	if (nd->loss == PL_LOSS_XENT)
		net->be->softmax_xent(net->ctx, n, nd->c, x, net->classes, 1, dx, loss, hits);
	else if (nd->loss == PL_LOSS_HINGE)
		net->be->hinge(net->ctx, n, nd->c, x, net->classes, 1, dx, loss, hits);
	else
		net->be->squared(net->ctx, n, nd->c, x, net->target, 1, dx, loss);
	hook(net, false, net->n - 1, PL_PHASE_FORWARD);
}

int pl_net_forward(struct pl_net *net, const struct pl_batch_io *b, uint64_t key, bool eval,
		   double *loss, int64_t *hits, struct pl_err *err)
{
	int64_t right;
	int rc;

	net->can_go_back = false;
	if (!net->acts) /* recomputation was asked for, and failed */
		return pl_fail(err, PL_ENOMEM, "no memory for activations");
	PL_TRY(put_batch(net, b, err));
	net->samples = b->n;
	net->key = key;
	net->eval = eval;
	net->again = false;
	for (uint32_t i = 0; i + 1 < net->n; i++)
		run_node(net, i);
	run_loss(net, loss, &right);
	if (hits)
		*hits = right;
	net->can_go_back = !eval;
out:
	return rc;
}

/* ---- backward ------------------------------------------------------------------------------ */

static void touch(struct pl_net *net, uint32_t t, bool accumulate)
{
	if (t == PL_NONE || net->touched[t])
		return;
	net->touched[t] = true;
	if (!accumulate)
		pl_net_zero(net, pl_net_dweight(net, t), net->tensor[t].n);
}

static void remake(struct pl_net *net, const struct pl_segment *s)
{
	net->again = true;
	for (uint32_t i = s->first; i <= s->last; i++)
		if (net->node[i].remake)
			run_node(net, i);
	net->again = false;
}

static void back_node(struct pl_net *net, uint32_t i, bool accumulate)
{
	struct pl_node *nd = &net->node[i];
	float *dy = net->grad[nd->dy], *dx = nd->dx == PL_NO_GRAD ? NULL : net->grad[nd->dx];

	hook(net, true, i, PL_PHASE_BACKWARD);
	touch(net, nd->weight, accumulate);
	touch(net, nd->bias, accumulate);
	touch(net, nd->position, accumulate);
	net->be->precision(net->ctx, nd->precision[PL_PHASE_BACKWARD]);
	if (nd->type == &pl_layer_residual)
		net->be->add(net->ctx, nd->ny * (size_t)net->samples, net->grad[nd->dskip], dy, dx);
	else
		nd->type->backward(net, nd, value_of(net, nd->x), value_of(net, i),
				   net->acts + nd->save_at, dy, dx);
	hook(net, false, i, PL_PHASE_BACKWARD);
}

/* The tensors of a layer and of those that it computes along are final after it: nobody before it
 * shares one of them, since a weight is tied to a layer above. */
static void tell_ready(const struct pl_net *net, uint32_t i)
{
	uint32_t first = net->layer[i].first_tensor, n = net->layer[i].n_tensors;

	for (uint32_t j = i + 1; j < net->n && net->node[j].alias; j++)
		n += net->layer[j].n_tensors;
	if (n && net->hooks.ready)
		net->hooks.ready(net->hooks.arg, first, n);
}

int pl_net_backward(struct pl_net *net, float scale, bool accumulate, struct pl_err *err)
{
	uint32_t made = PL_NONE, last = net->n - 1;
	const struct pl_node *loss = &net->node[last];

	if (!net->can_go_back)
		return pl_fail(err, PL_EUSAGE,
			       "backward without a forward pass that has not been used");
	net->can_go_back = false;
	memset(net->touched, 0, net->n_tensors * sizeof(*net->touched));
	hook(net, true, last, PL_PHASE_BACKWARD);
	if (scale != 1)
		net->be->scale(net->ctx,
			       (size_t)net->samples * (size_t)loss->rows * (size_t)loss->c, scale,
			       net->grad[loss->dx]);
	hook(net, false, last, PL_PHASE_BACKWARD);
	for (uint32_t i = last; i-- > net->first_back;) {
		const struct pl_node *nd = &net->node[i];

		if (nd->segment != PL_NONE && nd->segment != made) {
			made = nd->segment;
			remake(net, &net->segment[made]);
		}
		if (nd->type == &pl_layer_residual || (!nd->alias && nd->type->backward))
			back_node(net, i, accumulate);
		if (!nd->alias)
			tell_ready(net, i);
	}
	return 0;
}
