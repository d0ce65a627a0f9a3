/*
 * Assigns the places of activations and gradients in memory.
 *
 * The gradients of values use a few buffers by turns: a small register allocation over the backward
 * pass, done once. A residual block keeps the gradient of its end until its beginning, so the
 * number of buffers is the depth of nested blocks plus three.
 *
 * Recomputation (Chen et al., "Training deep nets with sublinear memory cost", 2016): all segments
 * share one area of memory. It holds the outputs that only nodes of their segment read, and all
 * other data that layers of a segment save. Before the backward pass of a segment, the nodes run
 * again whose outputs this pass, or another such node, reads. Their inputs and parameters are the
 * same, so the results have the same bits. Linear in the number of nodes.
 */
#include "tensor/net_internal.h"

/* ---- gradients ------------------------------------------------------------------------------- */

struct turns {
	struct pl_net *net;
	uint32_t held[PL_NET_BUFFERS + 1];
};

/* A free buffer for n floats of each sample. */
static uint8_t take(struct turns *t, size_t n)
{
	uint8_t b = 0;

	while (t->held[b])
		b++;
	t->held[b] = 1;
	n *= (size_t)t->net->o.batch;
	if (n > t->net->grad_n[b])
		t->net->grad_n[b] = n;
	return b;
}

static size_t value_size(const struct pl_net *net, uint32_t v)
{
	return v == PL_NET_INPUT ? net->nx : net->node[v].ny;
}

/* May the loss write its gradient over its input? Yes if a dense layer whose backward pass needs no
 * output made it, because no node reads it again. It is never recomputed, because it saves nothing
 * for the backward pass and the loss is in no segment. */
static bool can_overwrite(const struct pl_net *net)
{
	uint32_t x = net->node[net->n - 1].x;

	return net->o.in_place && x != PL_NET_INPUT && net->node[x].op == PL_LAYER_DENSE &&
	       net->node[x].act == PL_ACT_NONE;
}

int pl_net_plan_back(struct pl_net *net, struct pl_err *err)
{
	struct turns t = { .net = net };
	struct pl_node *nd = &net->node[net->n - 1];
	uint8_t saved[PL_NET_DEPTH], now, next;
	uint32_t depth = 0;
	int rc = 0;

	now = can_overwrite(net) ? PL_NET_LOGITS : take(&t, value_size(net, nd->x));
	t.held[PL_NET_LOGITS] = 1;
	nd->dx = now;
	for (uint32_t i = net->n - 1; i-- > net->first_back;) {
		nd = &net->node[i];
		nd->dy = nd->dx = now;
		if (nd->op == PL_LAYER_END) {
			saved[depth++] = now;
			t.held[now]++;
			continue;
		}
		if (nd->alias && nd->op != PL_LAYER_RESIDUAL)
			continue;
		nd->dx = PL_NO_GRAD;
		if (i == net->first_back && (pl_tensor_layers[nd->op].flags & PL_MAY_END))
			break;
		next = take(&t, value_size(net, nd->x));
		t.held[now]--;
		nd->dx = now = next;
		if (nd->op == PL_LAYER_RESIDUAL) {
			nd->dskip = saved[--depth];
			t.held[nd->dskip]--;
		}
	}
	for (size_t b = 0; b < PL_NET_BUFFERS && net->grad_n[b] && rc == 0; b++)
		rc = pl_net_alloc(net, &net->grad[b], net->grad_n[b] * pl_net_width(net),
				  "gradients of activations", err);
	return rc;
}

/* ---- activations ----------------------------------------------------------------------------- */

static void find_scratch(struct pl_net *net)
{
	for (uint32_t i = 0; i < net->n; i++)
		net->node[i].y_scratch = net->node[i].segment != PL_NONE;
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_node *nd = &net->node[i];
		uint32_t read[] = { nd->x, nd->skip };

		for (size_t r = 0; !nd->alias && r < PL_LEN(read); r++)
			if (read[r] != PL_NET_INPUT && net->node[read[r]].segment != nd->segment)
				net->node[read[r]].y_scratch = false;
	}
}

static bool reads(const struct pl_node *nd, unsigned what)
{
	if (nd->alias)
		return false;
	if (what == PL_READS_Y && (nd->op == PL_LAYER_DENSE || nd->op == PL_LAYER_CONV))
		return nd->act != PL_ACT_NONE;
	return pl_tensor_layers[nd->op].flags & what;
}

/* Find the nodes that run again; needed: [value], scratch of n. */
static void find_remakes(struct pl_net *net, bool *needed)
{
	memset(needed, 0, net->n * sizeof(*needed));
	for (uint32_t i = net->first_back; i < net->n; i++) {
		const struct pl_node *nd = &net->node[i];

		if (reads(nd, PL_READS_X) && nd->x != PL_NET_INPUT)
			needed[nd->x] = true;
		if (reads(nd, PL_READS_Y))
			needed[i] = true;
	}
	for (uint32_t i = net->n; i-- > 0;) {
		struct pl_node *nd = &net->node[i];

		nd->remake =
			!nd->alias && nd->segment != PL_NONE &&
			((nd->save_bytes && i >= net->first_back) || (nd->y_scratch && needed[i]));
		if (nd->remake && nd->x != PL_NET_INPUT)
			needed[nd->x] = true;
		if (nd->remake && nd->skip != PL_NET_INPUT)
			needed[nd->skip] = true;
	}
}

static void place(size_t *at, size_t *end, size_t bytes)
{
	*at = *end;
	*end += (bytes + 63) / 64 * 64;
}

int pl_net_plan_acts(struct pl_net *net, struct pl_err *err)
{
	size_t kept = 0, shared = 0, used = 0;
	bool *needed;

	PL_CHECK(pl_alloc(&needed, net->n, sizeof(*needed), err));
	find_scratch(net);
	find_remakes(net, needed);
	pl_free(needed);
	for (uint32_t i = 0; i + 1 < net->n; i++) {
		struct pl_node *nd = &net->node[i];
		size_t before = kept, y = nd->ny * (size_t)net->o.batch * pl_net_width(net);

		if (i == 0 || nd->segment != nd[-1].segment)
			used = 0;
		if (!nd->alias)
			place(&nd->y_at, nd->y_scratch ? &used : &kept, y);
		place(&nd->save_at, nd->segment == PL_NONE ? &kept : &used, nd->save_bytes);
		net->layer[i].act_bytes = kept - before;
		if (used > shared)
			shared = used;
	}
	for (uint32_t i = 0; i < net->n; i++) {
		struct pl_node *nd = &net->node[i];

		nd->y_at += nd->y_scratch ? kept : 0;
		nd->save_at += nd->segment == PL_NONE ? 0 : kept;
	}
	if (net->acts) {
		net->be->free(net->ctx, net->acts);
		net->taken -= net->acts_bytes;
	}
	net->acts = NULL;
	net->changes++;
	net->kept_bytes = kept;
	net->acts_bytes = kept + shared;
	return pl_net_alloc(net, &net->acts, net->acts_bytes, "activations", err);
}

/* ---- which layers are made again ----------------------------------------------------------- */

static bool is_under(const char *layer, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(layer, name, n) && layer[n] == '.';
}

/*
 * Mark nodes: 1 for a layer with its own name, `own` for those between the first and the last layer
 * under a name. A node that belongs to such a segment stays in it.
 */
static int mark_segment(struct pl_net *net, const char *name, uint32_t own, uint32_t *mark,
			struct pl_err *err)
{
	uint32_t first = PL_NONE, last = 0, n = 0;

	for (uint32_t i = 0; i + 1 < net->n; i++) {
		if (strcmp(net->layer[i].name, name) != 0 && !is_under(net->layer[i].name, name))
			continue;
		if (first == PL_NONE)
			first = i;
		last = i;
		n++;
	}
	if (!n)
		return pl_fail(
			err, PL_EDATA,
			"recomputation: no layer before the loss is called \"%.100s\" or has "
			"a name that begins with \"%.100s.\"",
			name, name);
	for (uint32_t i = first; i <= last; i++)
		if (mark[i] < 2)
			mark[i] = n == 1 ? 1 : own;
	return 0;
}

int pl_net_recompute(struct pl_net *net, const char *const *layer, size_t n, struct pl_err *err)
{
	struct pl_segment *segment = NULL;
	uint32_t *mark, n_segments = 0;
	int rc;

	PL_CHECK(pl_alloc(&mark, net->n, sizeof(*mark), err));
	PL_TRY(pl_alloc(&segment, net->n, sizeof(*segment), err));
	for (size_t i = 0; i < n; i++)
		PL_TRY(mark_segment(net, layer[i], (uint32_t)i + 2, mark, err));
	for (uint32_t i = 0; i < net->n; i++) {
		if (mark[i] && (i == 0 || mark[i] != mark[i - 1]))
			segment[n_segments++].first = i;
		if (mark[i])
			segment[n_segments - 1].last = i;
		net->node[i].segment = mark[i] ? n_segments - 1 : PL_NONE;
		net->layer[i].recompute = mark[i] != 0;
	}
	pl_free(net->segment);
	net->segment = segment;
	net->n_segments = n_segments;
	segment = NULL;
	net->can_go_back = false;
	PL_TRY(pl_net_plan_acts(net, err));
out:
	pl_free(segment);
	pl_free(mark);
	return rc;
}
