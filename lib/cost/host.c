/*
 * Hosts that launch the operations of a graph that nobody recorded.
 *
 * The nodes of a rank are in the order of its program. So one pass finds them, and each host is a
 * chain: an operation follows its own launch, and that the launch before. A host waits for the
 * device at the ends of a step alone: the first launch follows the mark that begins it. O(nodes).
 */
#include <math.h>

#include "cost/host.h"

const struct pl_cost_host pl_cost_host_usual = { .ns = 40e3, .low = 20e3, .high = 120e3 };

struct rank_host {
	uint32_t res;	     /* PL_NONE: not yet made */
	uint32_t mark, last; /* nodes of the step: its begin, the last launch; PL_NONE */
	bool recorded;	     /* the graph has threads of this rank */
};

static bool is_launched(const struct pl_edit *e, const struct pl_enode *n)
{
	bool computes = n->role == PL_RO_COMPUTE && n->work != PL_NONE;

	return !n->dead && (computes || n->role == PL_RO_ARRIVE) && n->res != PL_NONE &&
	       e->res[n->res].track_type == PL_T_STREAM;
}

/* Numbers of 4 bytes that an optimizer reads and writes for a parameter; 0: not known. */
static double numbers_of(const struct pl_edit *e, const struct pl_gwork *w)
{
	long long n;

	if (w->bytes < 0 || w->dims == PL_NONE ||
	    sscanf(pl_edit_name(e, w->dims), "[[%lld]]", &n) != 1 || n < 1)
		return 0;
	return (double)w->bytes / 4 / (double)n;
}

/*
 * How many calls launch a node: 1, but for optimizers. Theirs are the calls of PyTorch's foreach
 * functions in a step, whatever the number of parameters, counted in PyTorch 2.15 (one that is told
 * fused=True makes 1 or 2). SGD with momentum has 5 numbers of a parameter, without it 3.
 */
static double calls_of(const struct pl_edit *e, uint32_t node)
{
	const struct pl_gwork *w = pl_edit_work(e, node);
	const char *name = pl_edit_name(e, e->node[node].name);

	if (!w || w->op != PL_OP_UPDATE)
		return 1;
	if (strstr(name, "adamw"))
		return 9;
	if (strstr(name, "adam"))
		return 8;
	return numbers_of(e, w) > 3 ? 3 : 1;
}

static int32_t ppm(double ns, double end)
{
	double x = ns > 0 ? 1e6 * fabs(end - ns) / ns : 0;

	return x < INT32_MAX ? (int32_t)x : INT32_MAX;
}

static int make_host(struct pl_edit *e, struct rank_host *h, const struct pl_resource *of,
		     struct pl_err *err)
{
	struct pl_resource r = *of;

	r.track_type = PL_T_THREAD;
	r.discipline = PL_DS_fifo;
	r.capacity = 1;
	r.device = -1;
	r.launch_ns = r.dispatch_ns = r.early_ns = 0;
	PL_CHECK(pl_edit_add_name(e, "host", &r.name, err));
	return pl_edit_add_resource(e, &r, &h->res, err);
}

/* The launch of a node. */
static int add_launch(struct pl_edit *e, struct rank_host *h, uint32_t node,
		      const struct pl_cost_host *host, pl_id name, struct pl_err *err)
{
	struct pl_enode x = pl_edit_blank_node();
	const struct pl_enode *of = &e->node[node];
	uint32_t before = h->last != PL_NONE ? h->last : h->mark, id;

	x.type = PL_N_OP;
	x.role = PL_RO_HOST;
	x.kind = PL_K_RUNTIME;
	x.flags = PL_NF_IN_STEP;
	x.res = h->res;
	x.name = name;
	x.step = of->step;
	x.phase = of->phase;
	x.module = of->module;
	x.layer = of->layer;
	x.mb = of->mb;
	x.chunk = of->chunk;
	x.dur = (pl_ns)llround(host->ns * calls_of(e, node));
	if (host->low < host->ns || host->high > host->ns) {
		x.below = ppm(host->ns, host->low);
		x.above = ppm(host->ns, host->high);
	}
	PL_CHECK(pl_edit_add_node(e, &x, before != PL_NONE ? before : node, &id, err));
	if (before != PL_NONE)
		PL_CHECK(pl_edit_add_edge(e, before, id, PL_E_SEQ, 0, err));
	h->last = id;
	return pl_edit_add_edge(e, id, node, PL_E_LAUNCH, 0, err);
}

static void find_recorded(const struct pl_edit *e, struct rank_host *v)
{
	for (size_t i = 0; i < e->n_res; i++) {
		uint32_t at = pl_graph_rank_index(e->g, e->res[i].rank);

		if (at != PL_NONE && e->res[i].track_type == PL_T_THREAD)
			v[at].recorded = true;
	}
}

int pl_cost_add_hosts(struct pl_edit *e, const struct pl_cost_host *host, size_t *n,
		      struct pl_err *err)
{
	uint32_t nodes = (uint32_t)e->n_nodes, step = PL_NONE;
	size_t ranks = (size_t)e->g->n_ranks;
	struct rank_host *v;
	pl_id name;
	int rc;

	*n = 0;
	PL_CHECK(pl_alloc(&v, ranks + 1, sizeof(*v), err));
	for (size_t i = 0; i < ranks; i++)
		v[i] = (struct rank_host){ PL_NONE, PL_NONE, PL_NONE, false };
	find_recorded(e, v);
	PL_TRY(pl_edit_add_name(e, PL_GRAPH_LAUNCH, &name, err));
	for (uint32_t i = 0; i < nodes; i++) {
		const struct pl_enode *x = &e->node[i];
		uint32_t at = x->res == PL_NONE ? PL_NONE
						: pl_graph_rank_index(e->g, e->res[x->res].rank);

		for (size_t k = 0; x->step != step && k < ranks; k++)
			v[k].mark = v[k].last = PL_NONE;
		step = x->step;
		if (at == PL_NONE || v[at].recorded)
			continue;
		if (x->role == PL_RO_MARK && (x->flags & PL_NF_STEP_BEGIN))
			v[at].mark = i;
		if (!is_launched(e, x))
			continue;
		if (v[at].res == PL_NONE)
			PL_TRY(make_host(e, &v[at], &e->res[x->res], err));
		PL_TRY(add_launch(e, &v[at], i, host, name, err));
		++*n;
	}
	rc = 0;
out:
	pl_free(v);
	return rc;
}
