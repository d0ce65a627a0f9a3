/*
 * A network: its memory, the forward and the backward pass.
 *
 * Both passes visit the nodes in order. The type of a node computes it (layers.c); the places of
 * all values were assigned before (net_plan.c). The backward pass zeroes the gradient of a
 * parameter right before its first use, because the gradient is then needed in the cache anyway. If
 * the backend can, the first use writes the gradient instead. All later uses add to it, so a weight
 * that two layers share gets the sum of both parts.
 */
#include <math.h>

#include "tensor/net_internal.h"

/* ---- making and freeing ------------------------------------------------------------------ */

static int no_memory(const struct pl_net *net, size_t bytes, const char *what, struct pl_err *err)
{
	size_t room = 0, total = 0;

	if (!net->be->room)
		return pl_fail(err, PL_ENOMEM, "no memory for %s: %zu bytes", what, bytes);
	net->be->room(net->ctx, &room, &total);
	return pl_fail(err, PL_ENOMEM,
		       "no memory of the device for %s: %zu bytes; %zu of its %zu are free, the "
		       "network has taken %zu; a smaller batch, accumulate, or recomputation needs "
		       "less",
		       what, bytes, room, total, net->taken);
}

int pl_net_alloc(struct pl_net *net, void *out, size_t bytes, const char *what, struct pl_err *err)
{
	void *p;

	if (net->outline)
		return 0;
	p = net->be->alloc(net->ctx, bytes ? bytes : 64);
	if (!p)
		return no_memory(net, bytes, what, err);
	net->taken += bytes;
	memcpy(out, &p, sizeof(p));
	return 0;
}

/* more: numbers that follow those of the slab. */
static int slab_new(struct pl_net *net, struct pl_slab *s, size_t more, const char *what,
		    struct pl_err *err)
{
	size_t bytes = ((s->n + more) * sizeof(float) + 63) / 64 * 64;
	bool foreign = net->o.slab != NULL;

	s->foreign = foreign;
	s->bytes = bytes;
	if (!foreign)
		return pl_net_alloc(net, &s->p, bytes, what, err);
	s->p = net->o.slab(net->o.slab_arg, bytes);
	return s->p ? 0 : no_memory(net, bytes, what, err);
}

static void slab_free(struct pl_net *net, struct pl_slab *s)
{
	if (s->p && s->foreign && net->o.slab_free)
		net->o.slab_free(net->o.slab_arg, s->p, s->bytes);
	else if (s->p && !s->foreign)
		net->be->free(net->ctx, s->p);
}

static int alloc_batch(struct pl_net *net, struct pl_err *err)
{
	size_t batch = (size_t)net->o.batch, x = batch * net->nx;
	size_t y = batch * (size_t)net->shape.rows, t = batch * (size_t)net->shape.targets;

	if (net->shape.vocab)
		PL_CHECK(pl_net_alloc(net, &net->ids, x * sizeof(int32_t), "the batch", err));
	else
		PL_CHECK(pl_net_alloc(net, &net->x, x * sizeof(float), "the batch", err));
	if (net->x && net->o.store != PL_STORE_FP32)
		PL_CHECK(pl_net_alloc(net, &net->stored, x * pl_net_width(net), "the batch", err));
	if (net->shape.classes)
		PL_CHECK(pl_net_alloc(net, &net->classes, y * sizeof(int32_t), "the batch", err));
	else
		PL_CHECK(pl_net_alloc(net, &net->target, t * sizeof(float), "the batch", err));
	PL_CHECK(pl_net_alloc(net, &net->sum, (1 + PL_NET_LOSSES) * sizeof(*net->sum), "losses",
			      err));
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_node *nd = &net->node[i];
		size_t n = nd->op == PL_LAYER_CONV ? net->be->conv_work(net->ctx, &nd->conv) : 0;

		if (n * sizeof(float) > net->work_bytes)
			net->work_bytes = n * sizeof(float);
	}
	return pl_net_alloc(net, &net->work, net->work_bytes, "convolutions", err);
}

static int open_backend(struct pl_net *net, struct pl_err *err)
{
	const struct pl_backend_opts o = { .threads = net->o.threads, .store = net->o.store };
	int rc = 0;

	net->be = net->o.backend ? net->o.backend : &pl_backend_cpu;
	net->ctx = net->o.ctx;
	if (!net->ctx) {
		rc = net->be->open(&o, &net->ctx, err);
		net->opened = rc >= 0;
	}
	return rc;
}

int pl_net_new(const struct pl_layer *layer, size_t n, const struct pl_net_opts *o,
	       struct pl_net **out, struct pl_err *err)
{
	struct pl_net *net;
	int rc = pl_alloc(&net, 1, sizeof(*net), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	net->o = *o;
	net->scale = 1;
	if (o->batch < 1) {
		rc = pl_fail(err, PL_EUSAGE, "a batch of %d samples, should be 1 or more",
			     o->batch);
		goto out;
	}
	PL_TRY(open_backend(net, err));
	PL_TRY(pl_net_build(net, layer, n, err));
	net->grads.n = net->params.n;
	PL_TRY(slab_new(net, &net->params, net->state.n, "parameters", err));
	PL_TRY(slab_new(net, &net->grads, 0, "gradients", err));
	if (net->state.n)
		net->state.p = net->params.p + net->params.n;
	PL_TRY(alloc_batch(net, err));
	PL_TRY(pl_net_plan_back(net, err));
	PL_TRY(pl_net_plan_acts(net, err));
	PL_TRY(pl_net_init(net, err));
	pl_net_changed(net);
	*out = net;
	net = NULL;
out:
	pl_net_free(net);
	return rc;
}

int pl_net_outline(const struct pl_layer *layer, size_t n, int batch, struct pl_net **out,
		   struct pl_err *err)
{
	struct pl_net *net;
	int rc;

	*out = NULL;
	PL_CHECK(pl_alloc(&net, 1, sizeof(*net), err));
	net->be = &pl_backend_cpu;
	net->o = (struct pl_net_opts){ .batch = batch, .in_place = true };
	net->outline = true;
	PL_TRY(pl_net_build(net, layer, n, err));
	PL_TRY(pl_net_plan_back(net, err));
	PL_TRY(pl_net_plan_acts(net, err));
	*out = net;
	net = NULL;
out:
	pl_net_free(net);
	return rc;
}

void pl_net_free(struct pl_net *net)
{
	void *memory[8 + PL_NET_BUFFERS];
	size_t n = 0;

	if (!net)
		return;
	if (net->params.p && net->be->weights)
		net->be->weights(net->ctx, net->params.p, 0);
	pl_free(net->own);
	pl_free(net->term_host);
	slab_free(net, &net->params);
	slab_free(net, &net->grads);
	memory[n++] = net->acts;
	memory[n++] = net->work;
	memory[n++] = net->x;
	memory[n++] = net->stored;
	memory[n++] = net->sum;
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

struct pl_net_view pl_net_view(const struct pl_net *net)
{
	return (struct pl_net_view){ .be = net->be,
				     .ctx = net->ctx,
				     .shape = net->shape,
				     .layer = net->layer,
				     .tensor = net->tensor,
				     .params = net->params.p,
				     .grads = net->grads.p,
				     .state_tensor = net->state_tensor,
				     .state = net->state.p,
				     .n_params = net->params.n,
				     .n_state = net->state.n,
				     .n_layers = net->n,
				     .n_tensors = net->n_tensors,
				     .n_state_tensors = net->n_state_tensors };
}

struct pl_net_sizes pl_net_sizes(const struct pl_net *net, uint32_t layer)
{
	const struct pl_net_layer *l = &net->layer[layer];
	const struct pl_node *nd = &net->node[layer];
	double batch = net->o.batch;
	struct pl_net_sizes s = { .columns = l->n_dims ? l->dim[l->n_dims - 1] : 1,
				  .ends = nd->dx == PL_NO_GRAD };

	s.runs[PL_PHASE_FORWARD] = !nd->alias;
	s.runs[PL_PHASE_BACKWARD] =
		layer >= net->first_back && layer + 1 < net->n &&
		(nd->op == PL_LAYER_RESIDUAL || (!nd->alias && pl_tensor_layers[nd->op].backward));
	s.rows = batch * (double)nd->ny / s.columns;
	if (nd->op == PL_LAYER_DENSE) {
		s.batch = 1;
		s.m = batch * nd->rows;
		s.n = nd->k;
		s.k = nd->c;
	} else if (nd->op == PL_LAYER_CONV) {
		s.batch = batch;
		s.m = batch * nd->conv.p * nd->conv.q;
		s.in = nd->conv.c;
		s.size = sqrt((double)nd->conv.h * nd->conv.w);
		s.kernel = sqrt((double)nd->conv.r * nd->conv.s);
		s.stride = nd->conv.stride;
		s.padding = nd->conv.pad;
		s.n = nd->conv.k;
		s.k = (double)nd->conv.c * nd->conv.r * nd->conv.s;
	} else if (nd->op == PL_LAYER_MAXPOOL || nd->op == PL_LAYER_AVGPOOL) {
		s.kernel = nd->pool.r;
		s.stride = nd->pool.stride;
		s.padding = nd->pool.pad;
	} else if (nd->op == PL_LAYER_LOSS) {
		s.rows = batch * net->shape.rows;
		s.columns = net->shape.classes ? net->shape.classes : net->shape.targets;
	} else if (nd->op == PL_LAYER_ATTENTION) {
		s.batch = batch * nd->attn.heads;
		s.m = s.n = nd->attn.t;
		s.k = (double)nd->attn.c / nd->attn.heads;
	}
	return s;
}

void pl_net_kernel_name(const struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
			char *out, size_t size)
{
	static const char *const word[] = { "forward", "backward" };
	const struct pl_net_sizes s = pl_net_sizes(net, layer);
	const char *op = net->layer[layer].op;
	bool window = s.kernel > 0 && s.k <= 0, ends = phase && s.ends && s.k > 0;

	if (window) /* it decides how long pooling takes */
		snprintf(out, size, "%s%.0f.%s", op, s.kernel, word[phase]);
	else
		snprintf(out, size, "%s.%s%s", op, word[phase], ends ? "_end" : "");
}

/* In the backward pass the gradient of the output comes first, as in PyTorch. */
static void describe_convolution(const struct pl_net_sizes *s, bool back, struct pl_net_op *op)
{
	double out = sqrt(s->m / s->batch);
	char gradient[64] = "";

	if (back)
		snprintf(gradient, sizeof(gradient), "[%.0f,%.0f,%.0f,%.0f],", s->batch, s->n, out,
			 out);
	snprintf(op->dims, sizeof(op->dims), "[%s[%.0f,%.0f,%.0f,%.0f],[%.0f,%.0f,%.0f,%.0f]]",
		 gradient, s->batch, s->in, s->size, s->size, s->n, s->in, s->kernel, s->kernel);
	op->bytes = s->batch * s->in * s->size * s->size + s->n * (s->m + s->k);
}

/* The gradient of a dense layer's output comes first, too; attention has two products in any pass.
 */
static void describe_product(const struct pl_net_sizes *s, bool gradient, struct pl_net_op *op)
{
	if (gradient)
		snprintf(op->dims, sizeof(op->dims), "[[%.0f,%.0f],[%.0f,%.0f],[%.0f,%.0f]]", s->m,
			 s->n, s->m, s->k, s->k, s->n);
	else if (s->batch > 1)
		snprintf(op->dims, sizeof(op->dims), "[[%.0f,%.0f,%.0f],[%.0f,%.0f,%.0f]]",
			 s->batch, s->m, s->k, s->batch, s->k, s->n);
	else
		snprintf(op->dims, sizeof(op->dims), "[[%.0f,%.0f],[%.0f,%.0f]]", s->m, s->k, s->k,
			 s->n);
	op->bytes = s->batch * (s->m * s->k + s->k * s->n + s->m * s->n);
}

struct pl_net_op pl_net_op(const struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
			   double element)
{
	const struct pl_net_sizes s = pl_net_sizes(net, layer);
	unsigned kind = net->node[layer].op;
	struct pl_net_op op = { .bytes = -1 };

	pl_net_kernel_name(net, layer, phase, op.name, sizeof(op.name));
	if (s.k > 0) { /* two products each: attention, and a backward pass with both gradients */
		if (kind == PL_LAYER_CONV)
			describe_convolution(&s, phase == PL_PHASE_BACKWARD, &op);
		else
			describe_product(&s, kind == PL_LAYER_DENSE && phase == PL_PHASE_BACKWARD,
					 &op);
		double products = (kind == PL_LAYER_ATTENTION ? 2 : 1) *
				  (phase == PL_PHASE_FORWARD || s.ends ? 1 : 2);

		op.flops = 2 * (kind == PL_LAYER_CONV ? 1 : s.batch) * s.m * s.n * s.k * products;
		op.bytes *= element * products;
	} else if (kind == PL_LAYER_EMBEDDING || kind == PL_LAYER_POSITION) {
		snprintf(op.dims, sizeof(op.dims), "[[%.0f]]", s.rows);
		op.bytes = 2 * element * s.rows * s.columns;
	} else {
		snprintf(op.dims, sizeof(op.dims), "[[%.0f,%.0f]]", s.rows, s.columns);
		op.flops = s.rows * s.columns;
	}
	return op;
}

void pl_net_precision(struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
		      enum pl_precision p)
{
	net->layer[layer].precision[phase] = p;
	net->changes++;
}

void pl_net_scale(struct pl_net *net, float scale)
{
	net->changes += net->scale != scale;
	net->scale = scale;
}

void pl_net_changed(struct pl_net *net)
{
	if (net->be->weights)
		net->be->weights(net->ctx, net->params.p, net->params.n);
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
		PL_CHECK(check_range(b->ids, nx, net->nx, s->vocab, "token", err));
		net->be->put(net->ctx, net->ids, b->ids, nx * sizeof(*b->ids));
	} else {
		net->be->put(net->ctx, net->x, b->x, nx * sizeof(*b->x));
	}
	if (s->classes) {
		PL_CHECK(check_range(b->y, ny, (size_t)s->rows, s->classes, "class", err));
		net->be->put(net->ctx, net->classes, b->y, ny * sizeof(*b->y));
	} else {
		net->be->put(net->ctx, net->target, b->target,
			     n * (size_t)s->targets * sizeof(*b->target));
	}
	return 0;
}

static void hook(const struct pl_net *net, bool begin, uint32_t layer, enum pl_net_phase p)
{
	if (begin && net->hooks.begin)
		net->hooks.begin(net->hooks.arg, layer, p, net->again);
	if (!begin && net->hooks.end)
		net->hooks.end(net->hooks.arg, layer, p, net->again);
}

static struct pl_pass pass_of(struct pl_net *net, const struct pl_node *nd)
{
	return (struct pl_pass){ .x = pl_net_value(net, nd->x),
				 .y = (float *)(void *)(net->acts + nd->y_at),
				 .save = net->acts + nd->save_at,
				 .weight = pl_net_weight(net, nd->weight),
				 .bias = pl_net_weight(net, nd->bias),
				 .dweight = pl_net_dweight(net, nd->weight),
				 .dbias = pl_net_dweight(net, nd->bias),
				 .n = nd->ny * (size_t)net->samples,
				 .rows = net->samples * nd->rows };
}

static void run_node(struct pl_net *net, uint32_t i)
{
	struct pl_node *nd = &net->node[i];
	struct pl_pass p = pass_of(net, nd);

	if (nd->alias || (net->eval && nd->op == PL_LAYER_DROPOUT)) {
		net->value[i] = p.x;
		return;
	}
	net->value[i] = p.y;
	hook(net, true, i, PL_PHASE_FORWARD);
	net->be->precision(net->ctx, net->layer[i].precision[PL_PHASE_FORWARD]);
	pl_tensor_layers[nd->op].forward(net, nd, &p);
	hook(net, false, i, PL_PHASE_FORWARD);
}

/* The layernorm that reads the sum of a block, if one kernel computes both; PL_NONE: none. */
static uint32_t fused_layernorm(const struct pl_net *net, uint32_t end)
{
	uint32_t i = end + 1;

	if (!net->be->add_layernorm || net->node[end].op != PL_LAYER_END)
		return PL_NONE;
	while (i + 1 < net->n && net->node[i].alias)
		i++;
	return net->node[i].op == PL_LAYER_LAYERNORM && net->node[i].x == end ? i : PL_NONE;
}

/* The time of both counts as the time of the layernorm. */
static void run_add_layernorm(struct pl_net *net, uint32_t end, uint32_t norm)
{
	const struct pl_node *e = &net->node[end], *nd = &net->node[norm];
	float *sum = (float *)(void *)(net->acts + e->y_at);
	struct pl_pass p;

	hook(net, true, end, PL_PHASE_FORWARD);
	hook(net, false, end, PL_PHASE_FORWARD);
	for (uint32_t i = end; i < norm; i++)
		net->value[i] = sum;
	p = pass_of(net, nd);
	net->value[norm] = p.y;
	hook(net, true, norm, PL_PHASE_FORWARD);
	net->be->add_layernorm(net->ctx, p.rows, nd->c, pl_net_value(net, e->skip),
			       pl_net_value(net, e->x), sum, p.weight, p.bias, nd->eps, p.save,
			       p.y);
	hook(net, false, norm, PL_PHASE_FORWARD);
}

int pl_net_own_loss(struct pl_net *net, pl_net_loss *loss, void *arg, struct pl_err *err)
{
	const struct pl_node *nd = &net->node[net->n - 1];

	if (nd->loss != PL_LOSS_SQUARED || net->o.graphs)
		return pl_fail(err, PL_EINTERNAL, "a loss of the caller in such a network");
	pl_free(net->own);
	net->own = NULL;
	PL_CHECK(pl_alloc(&net->own, 3 * (size_t)net->o.batch * (size_t)nd->rows * (size_t)nd->c,
			  sizeof(*net->own), err));
	net->own_loss = loss;
	net->own_loss_arg = arg;
	return 0;
}

/* Host and device exchange outputs, targets and gradients. */
static void run_own_loss(struct pl_net *net, size_t n, const float *x, float *dx)
{
	float *host = net->own;
	struct pl_loss_sum sum = { .hits = 0 };
	struct pl_err ignore = { 0 }; /* a failure of the device stays with it */
	int rc;

	net->be->get(net->ctx, host, x, n * sizeof(*x));
	net->be->get(net->ctx, host + n, net->target, n * sizeof(*x));
	rc = net->be->sync(net->ctx, &ignore);
	sum.loss = rc < 0 ? NAN
			  : net->own_loss(net->own_loss_arg, host, host + n, n, net->scale,
					  dx ? host + 2 * n : NULL);
	if (dx)
		net->be->put(net->ctx, dx, host + 2 * n, n * sizeof(*dx));
	net->be->put(net->ctx, net->sum, &sum, sizeof(sum));
}

/* Does the gradient of the output belong to this layer alone, and is the output there when it is?
 */
static bool can_have_term(const struct pl_net *net, uint32_t layer)
{
	const struct pl_node *nd = &net->node[layer], *next = nd + 1;

	if (nd->op != PL_LAYER_DENSE || nd->act == PL_ACT_GELU || nd->segment != PL_NONE ||
	    nd->dy == PL_NET_LOGITS || net->o.graphs || net->o.store != PL_STORE_FP32)
		return false;
	while (next->alias)
		next++;
	return next->op != PL_LAYER_END && next->op != PL_LAYER_LOSS;
}

int pl_net_own_term(struct pl_net *net, uint32_t layer, pl_net_term *term, void *arg,
		    struct pl_err *err)
{
	pl_free(net->term_host);
	net->term_host = NULL;
	net->term = NULL;
	if (!term)
		return 0;
	if (layer >= net->n || !can_have_term(net, layer))
		return pl_fail(err, PL_EINTERNAL, "a term of the caller on such a layer");
	PL_CHECK(pl_alloc(&net->term_host, 2 * (size_t)net->o.batch * net->node[layer].ny,
			  sizeof(*net->term_host), err));
	net->term = term;
	net->term_arg = arg;
	net->term_layer = layer;
	return 0;
}

static void run_own_term(struct pl_net *net, uint32_t i)
{
	const struct pl_node *nd = &net->node[i];
	size_t n = (size_t)net->samples * nd->ny;
	struct pl_err ignore = { 0 }; /* a failure of the device stays with it */
	float *y = net->term_host, *dy = y + n;

	net->be->get(net->ctx, y, pl_net_value(net, i), n * sizeof(*y));
	net->be->get(net->ctx, dy, net->grad[nd->dy], n * sizeof(*dy));
	if (net->be->sync(net->ctx, &ignore) < 0)
		return;
	net->term(net->term_arg, y, (size_t)net->samples, nd->ny, net->scale, dy);
	net->be->put(net->ctx, net->grad[nd->dy], dy, n * sizeof(*dy));
}

/* The gradient is computed with the loss, because both need the same exponentials. */
static void run_loss(struct pl_net *net)
{
	const struct pl_node *nd = &net->node[net->n - 1];
	const float *x = pl_net_value(net, nd->x);
	float *dx, s = net->scale;
	int n = net->samples * nd->rows;

	if (nd->dx == PL_NET_LOGITS)
		net->grad[PL_NET_LOGITS] = (float *)x;
	dx = net->eval ? NULL : net->grad[nd->dx];
	hook(net, true, net->n - 1, PL_PHASE_FORWARD);
	if (net->own_loss)
		run_own_loss(net, (size_t)n * (size_t)nd->c, x, dx);
	else if (nd->loss == PL_LOSS_XENT)
		net->be->softmax_xent(net->ctx, n, nd->c, x, net->classes, s, dx, net->sum);
	else if (nd->loss == PL_LOSS_HINGE)
		net->be->hinge(net->ctx, n, nd->c, x, net->classes, s, dx, net->sum);
	else
		net->be->squared(net->ctx, n, nd->c, x, net->target, s, dx, net->sum);
	hook(net, false, net->n - 1, PL_PHASE_FORWARD);
}

void pl_net_record(struct pl_net *net, int pass, uint64_t arg)
{
	uint64_t what[] = { (uint64_t)pass, arg, net->changes, (uint64_t)(uintptr_t)net };
	bool whole = pass == PL_NET_OPTIM || (net->samples == net->o.batch && !net->eval);

	if (net->o.graphs && net->be->graph)
		net->be->graph(net->ctx, pass && whole ? pl_hash(what, sizeof(what)) | 1 : 0);
}

static int get_value(struct pl_net *net, uint32_t value, size_t n, float *y, struct pl_err *err)
{
	if (!net->eval || net->o.store != PL_STORE_FP32)
		return pl_fail(err, PL_EINTERNAL, "outputs of a pass that was no evaluation");
	net->be->get(net->ctx, y, pl_net_value(net, value), n * sizeof(*y));
	return net->be->sync(net->ctx, err);
}

int pl_net_outputs(struct pl_net *net, float *y, struct pl_err *err)
{
	const struct pl_node *nd = &net->node[net->n - 1];

	return get_value(net, nd->x, (size_t)net->samples * (size_t)nd->rows * (size_t)nd->c, y,
			 err);
}

int pl_net_layer_outputs(struct pl_net *net, uint32_t layer, float *y, struct pl_err *err)
{
	if (net->node[layer].y_scratch)
		return pl_fail(err, PL_EINTERNAL, "outputs of a layer that is computed again");
	return get_value(net, layer, (size_t)net->samples * net->node[layer].ny, y, err);
}

int pl_net_losses(struct pl_net *net, uint32_t n, struct pl_loss_sum *sum, struct pl_err *err)
{
	struct pl_loss_sum last[PL_NET_LOSSES];

	if (n > PL_NET_LOSSES || n > net->n_losses)
		return pl_fail(err, PL_EINTERNAL, "losses of %u passes asked for, there are %u", n,
			       net->n_losses);
	net->be->get(net->ctx, last, net->sum + 1, sizeof(last));
	for (uint32_t i = 0; i < n; i++)
		sum[i] = last[(net->n_losses - n + i) % PL_NET_LOSSES];
	return net->be->sync(net->ctx, err);
}

/* Masks depend on the seed of the network and on the pass; each layer adds its number. */
static uint64_t mask_key(const struct pl_net *net, uint64_t key)
{
	uint64_t state = net->o.seed;

	key ^= pl_rng_next(&state);
	return pl_rng_next(&key);
}

int pl_net_forward(struct pl_net *net, const struct pl_batch_io *b, uint64_t key, bool eval,
		   double *loss, int64_t *hits, struct pl_err *err)
{
	struct pl_loss_sum sum = { 0 };

	net->can_go_back = false;
	if (!net->acts) /* pl_net_recompute() failed */
		return pl_fail(err, PL_ENOMEM, "no memory for activations");
	PL_CHECK(put_batch(net, b, err));
	net->samples = b->n;
	net->vary.key = mask_key(net, key);
	net->be->vary(net->ctx, &net->vary);
	net->eval = eval;
	net->again = false;
	pl_net_record(net, PL_NET_FORWARD, 0);
	if (net->stored)
		net->be->load(net->ctx, (size_t)b->n * net->nx, net->x, net->stored);
	for (uint32_t i = 0; i + 1 < net->n; i++) {
		uint32_t norm = fused_layernorm(net, i);

		if (norm == PL_NONE) {
			run_node(net, i);
		} else {
			run_add_layernorm(net, i, norm);
			i = norm;
		}
	}
	run_loss(net);
	pl_net_record(net, 0, 0);
	net->be->copy(net->ctx, &net->sum[1 + net->n_losses++ % PL_NET_LOSSES], net->sum,
		      sizeof(sum));
	if (loss)
		PL_CHECK(pl_net_losses(net, 1, &sum, err));
	if (loss)
		*loss = sum.loss;
	if (loss && hits)
		*hits = sum.hits;
	net->can_go_back = !eval;
	return 0;
}

/* ---- backward ------------------------------------------------------------------------------ */

static void touch(struct pl_net *net, const struct pl_node *nd, bool accumulate)
{
	const uint32_t tensor[] = { nd->weight, nd->bias, nd->position };
	bool put = net->be->adds && !accumulate &&
		   (nd->op == PL_LAYER_DENSE || nd->op == PL_LAYER_LAYERNORM);

	for (size_t i = 0; i < PL_LEN(tensor); i++)
		put = put && (tensor[i] == PL_NONE || !net->touched[tensor[i]]);
	if (net->be->adds)
		net->be->adds(net->ctx, !put);
	for (size_t i = 0; i < PL_LEN(tensor); i++) {
		uint32_t t = tensor[i];

		if (t == PL_NONE || net->touched[t])
			continue;
		net->touched[t] = true;
		if (!accumulate && !put)
			net->be->zero(net->ctx, pl_net_dweight(net, t),
				      net->tensor[t].n * sizeof(float));
	}
}

static void remake(struct pl_net *net, const struct pl_segment *s)
{
	net->again = true;
	for (uint32_t i = s->first; i <= s->last; i++)
		if (net->node[i].remake)
			run_node(net, i);
	net->again = false;
}

/* Does the layernorm at the start of this block also add the gradient that bypassed the block? */
static bool layernorm_adds_skip(const struct pl_net *net, uint32_t i)
{
	return net->be->layernorm_back_add && net->node[i].op == PL_LAYER_RESIDUAL &&
	       net->node[i + 1].op == PL_LAYER_LAYERNORM;
}

static void back_node(struct pl_net *net, uint32_t i, bool accumulate)
{
	struct pl_node *nd = &net->node[i];
	const struct pl_node *block =
		i > net->first_back && layernorm_adds_skip(net, i - 1) ? nd - 1 : NULL;
	struct pl_pass p = pass_of(net, nd);

	p.y = (float *)pl_net_value(net, i);
	p.dy = net->grad[nd->dy];
	p.dx = nd->dx == PL_NO_GRAD ? NULL : net->grad[nd->dx];
	hook(net, true, i, PL_PHASE_BACKWARD);
	if (net->term && i == net->term_layer)
		run_own_term(net, i);
	touch(net, nd, accumulate);
	net->be->precision(net->ctx, net->layer[i].precision[PL_PHASE_BACKWARD]);
	if (block)
		net->be->layernorm_back_add(net->ctx, p.rows, nd->c, p.x, p.weight, p.save, p.dy,
					    net->grad[block->dskip], net->grad[block->dx],
					    p.dweight, p.dbias);
	else if (nd->op != PL_LAYER_RESIDUAL)
		pl_tensor_layers[nd->op].backward(net, nd, &p);
	else if (!layernorm_adds_skip(net, i))
		net->be->add(net->ctx, p.n, net->grad[nd->dskip], p.dy, p.dx);
	hook(net, false, i, PL_PHASE_BACKWARD);
}

/* After a layer, its tensors and those of the layers that it computes are final: no earlier layer
 * shares them, because a weight is tied only to an earlier layer's. */
static void tell_ready(const struct pl_net *net, uint32_t i)
{
	uint32_t first = net->layer[i].first_tensor, n = net->layer[i].n_tensors;

	for (uint32_t j = i + 1; j < net->n && net->node[j].alias; j++)
		n += net->layer[j].n_tensors;
	if (n && net->hooks.ready)
		net->hooks.ready(net->hooks.arg, first, n);
}

int pl_net_backward(struct pl_net *net, bool accumulate, struct pl_err *err)
{
	uint32_t made = PL_NONE, last = net->n - 1;

	if (!net->can_go_back)
		return pl_fail(err, PL_EUSAGE,
			       "backward without a forward pass that has not been used");
	net->can_go_back = false;
	memset(net->touched, 0, net->n_tensors * sizeof(*net->touched));
	pl_net_record(net, PL_NET_BACKWARD, accumulate);
	hook(net, true, last, PL_PHASE_BACKWARD);
	hook(net, false, last, PL_PHASE_BACKWARD);
	for (uint32_t i = last; i-- > net->first_back;) {
		const struct pl_node *nd = &net->node[i];

		if (nd->segment != PL_NONE && nd->segment != made) {
			made = nd->segment;
			remake(net, &net->segment[made]);
		}
		if (nd->op == PL_LAYER_RESIDUAL ||
		    (!nd->alias && pl_tensor_layers[nd->op].backward))
			back_node(net, i, accumulate);
		if (!nd->alias)
			tell_ready(net, i);
	}
	pl_net_record(net, 0, 0);
	return 0;
}
