/*
 * Operations of streams, and their launches.
 *
 * A device operation is one node; communication is two, the arrival and the transfer. Operations of
 * a stream follow one another in the order of their starts. Profilers round: an overlap of a few
 * microseconds shortens the earlier one; a real overlap (programmatic launch, branches of a CUDA
 * graph shown on one stream) becomes a start-to-start edge.
 *
 * A launch edge leads from the runtime call with the same correlation. It leads from the end of the
 * call, because in a long call (loading of a module, preemption of the thread) the submission comes
 * last. If the operation began before the call returned, the edge leads from the start of the call.
 * All kernels of one CUDA graph have one correlation. An operation of the graph on another stream
 * follows the latest kernel that had ended; this edge is inferred, because the profile has no edges
 * of CUDA graphs. An operation without a recorded layer belongs to the layer of its launch.
 *
 * A thread that only communicates (a worker of gloo) is treated as a stream. Its launches are the
 * host operators that issue its communication. They are found by correlation or record function
 * id, or, if neither was recorded, by order among the operators with the same collective and sizes,
 * or with the same collective.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define DIMS_MAX 512 /* length of the text */

/* How far two neighbours may overlap and still count as one after the other. */
static pl_ns slack(pl_ns dur)
{
	return pl_max_i64(2000, pl_min_i64(50000, dur / 20));
}

static uint8_t role_of(uint8_t kind)
{
	switch (kind) {
	case PL_K_COPY:
	case PL_K_SET:
		return PL_RO_COPY;
	case PL_K_KERNEL:
		return PL_RO_COMPUTE;
	default:
		return PL_RO_HOST;
	}
}

static int op_nodes(struct gb *b, uint32_t res, struct op *op, struct pl_err *err)
{
	struct node n;
	int rc = pl_derive_node_of(b, op, res, true, &n, err);

	if (rc < 0)
		return rc;
	if (!pl_trace_kind_is_comm(n.kind)) {
		n.role = role_of(n.kind);
		rc = pl_derive_node(b, &n, &op->node, err);
		op->last = op->node;
		return rc;
	}
	n.role = PL_RO_TRANSFER;
	n.flags |= PL_NF_MISSING; /* until comm.c finds the partners */
	n.dur = 0;
	n.role = PL_RO_ARRIVE;
	if ((rc = pl_derive_node(b, &n, &op->node, err)) < 0)
		return rc;
	n.role = PL_RO_TRANSFER;
	n.dur = op->end - op->start;
	if ((rc = pl_derive_node(b, &n, &op->last, err)) < 0)
		return rc;
	if ((rc = pl_derive_add_arrival(b, op, err)) < 0)
		return rc;
	return pl_derive_edge(b, op->node, op->last, PL_E_SEQ, err);
}

/* The operation before `i` that had ended when i started, looking back a little. */
static struct op *ended_before(struct resinfo *ri, uint32_t i)
{
	for (uint32_t k = i; k-- > 0 && i - k < 64;)
		if (ri->op[k].node != PL_NONE && ri->op[k].end <= ri->op[i].start)
			return &ri->op[k];
	return NULL;
}

static int follow(struct gb *b, struct resinfo *ri, uint32_t i, struct op *prev, struct pl_err *err)
{
	struct op *op = &ri->op[i], *done;
	pl_ns over = prev->end - op->start;
	int rc;

	if (over > 0 && over <= slack(prev->end - prev->start) && b->node[prev->last].dur >= over) {
		b->node[prev->last].dur -= over;
		prev->end = op->start;
		over = 0;
	}
	if (over <= 0)
		return pl_derive_edge(b, prev->last, op->node, PL_E_SEQ, err);
	if ((rc = pl_derive_edge(b, prev->node, op->node, PL_E_START, err)) < 0)
		return rc;
	done = ended_before(ri, i);
	return done ? pl_derive_edge(b, done->last, op->node, PL_E_SEQ, err) : 0;
}

static int one_stream(struct gb *b, uint32_t res, struct pl_err *err)
{
	struct resinfo *ri = &b->ri[res];
	struct op *prev = NULL;
	int rc;

	ri->node0 = (uint32_t)b->n_nodes;
	for (uint32_t i = 0; i < ri->n; i++) {
		struct op *op = &ri->op[i];

		if (b->t->seg[op->seg]->kind[op->ev] == PL_K_STEP)
			continue;
		if ((rc = op_nodes(b, res, op, err)) < 0)
			return rc;
		if (prev && (rc = follow(b, ri, i, prev, err)) < 0)
			return rc;
		prev = op;
	}
	ri->node1 = (uint32_t)b->n_nodes;
	return 0;
}

/* ---- launches by correlation
 * -------------------------------------------------------------------------- */

PL_COMPARATOR(by_key, struct corrkey, corr, call);

uint32_t pl_derive_call_by_corr(const struct rankinfo *rk, int64_t corr)
{
	const struct corrkey *k = rk->by_corr;
	size_t i = 0;

	PL_LOWER_BOUND(i, rk->n_by_corr, k[i].corr < corr);
	return i < rk->n_by_corr && k[i].corr == corr ? k[i].call : PL_NONE;
}

static int launch(struct gb *b, struct rankinfo *rk, struct op *op, uint32_t call,
		  struct pl_err *err)
{
	struct call *c = &rk->call[call];
	const struct call_context *x = &rk->context[c->context];
	int rc;

	if (op->start < c->start) { /* profilers show this case; the call is then no predecessor */
		b->g->dropped_edges++;
		return 0;
	}
	op->call = call;
	if (!pl_trace_kind_is_comm(op->kind) &&
	    (rc = pl_derive_set_context(b, op->node, op->last, x->phase, x->module, x->work, err)) <
		    0)
		return rc;
	c->n_ops++;
	rk->n_by_call++;
	if (x->layer >= 0 && !pl_trace_kind_is_comm(op->kind) &&
	    b->attr[b->node[op->node].attr].layer < 0 &&
	    (rc = pl_derive_set_layer(b, op->node, op->last, x->layer, err)) < 0)
		return rc;
	if (op->start < c->end)
		return pl_derive_edge(b, c->node, op->node, PL_E_EARLY, err);
	return pl_derive_edge(b, c->node, op->node, PL_E_LAUNCH, err);
}

static int launches(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	int rc = pl_alloc(&rk->by_corr, rk->n_calls, sizeof(*rk->by_corr), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rk->n_calls; i++)
		if (rk->context[rk->call[i].context].corr != INT64_MIN)
			rk->by_corr[rk->n_by_corr++] =
				(struct corrkey){ rk->context[rk->call[i].context].corr,
						  (uint32_t)i };
	pl_sort(rk->by_corr, rk->n_by_corr, sizeof(*rk->by_corr), by_key);
	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; ri->device && i < ri->n; i++) {
			struct op *op = &ri->op[i];
			const struct pl_events *e = b->t->seg[op->seg];
			uint32_t call = PL_NONE;

			if (op->node != PL_NONE && e->corr && e->corr[op->ev] > 0)
				call = pl_derive_call_by_corr(rk, e->corr[op->ev]);
			if (call != PL_NONE && (rc = launch(b, rk, op, call, err)) < 0)
				return rc;
		}
	}
	return 0;
}

static int by_op_start(const void *pa, const void *pb)
{
	const struct op *a = *(struct op *const *)pa, *c = *(struct op *const *)pb;

	return PL_COMPARE_FIELDS(a, c, start, node);
}

/* Lists of device operations by call, each in order of start. */
static int group_by_call(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	uint32_t at = 0;
	int rc = pl_alloc(&rk->by_call, rk->n_by_call, sizeof(*rk->by_call), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rk->n_calls; i++) {
		rk->call[i].first_op = at;
		at += rk->call[i].n_ops;
		rk->call[i].n_ops = 0;
	}
	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; i < ri->n; i++) {
			struct call *c =
				ri->op[i].call == PL_NONE ? NULL : &rk->call[ri->op[i].call];

			if (c)
				rk->by_call[c->first_op + c->n_ops++] = &ri->op[i];
		}
	}
	for (size_t i = 0; i < rk->n_calls; i++)
		if (rk->call[i].n_ops > 1)
			pl_sort(rk->by_call + rk->call[i].first_op, rk->call[i].n_ops,
				sizeof(*rk->by_call), by_op_start);
	return 0;
}

/* Branches of a CUDA graph on several streams. */
static int graph_branches(struct gb *b, struct rankinfo *rk, const struct call *c,
			  struct pl_err *err)
{
	for (uint32_t i = 1; i < c->n_ops; i++) {
		struct op *op = rk->by_call[c->first_op + i], *best = NULL;
		uint32_t res = b->node[op->node].res;
		int rc;

		for (uint32_t k = i; k-- > 0 && i - k < 64;) {
			struct op *p = rk->by_call[c->first_op + k];

			if (b->node[p->node].res != res && p->end <= op->start &&
			    (!best || p->end > best->end))
				best = p;
		}
		if (best && (rc = pl_derive_edge(b, best->last, op->node, PL_E_WAIT | PL_E_INFERRED,
						 err)) < 0)
			return rc;
	}
	return 0;
}

/* ---- launches of communicating threads
 * ------------------------------------------------------------------ */

struct issue {
	struct op *op;
	const char *coll, *dims; /* dims: NULL not recorded */
	int64_t rf, corr;
};

static int by_issue(const void *pa, const void *pb)
{
	const struct issue *a = pa, *c = pb;

	return by_op_start(&a->op, &c->op);
}

static const char *dims_of(const struct pl_events *e, uint64_t ev)
{
	return e->dims && e->dims[ev] != PL_NONE ? pl_intern_get(&e->seg.str, e->dims[ev]) : NULL;
}

static int collect_issues(struct gb *b, struct rankinfo *rk, bool service, struct issue **v,
			  size_t *n, struct pl_err *err)
{
	size_t cap = 0;
	int rc;

	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		if (!ri->thread || ri->service != service)
			continue;
		for (uint32_t i = 0; i < ri->n; i++) {
			struct op *op = &ri->op[i];
			const struct pl_events *e = b->t->seg[op->seg];
			pl_id name = e->name[op->ev];
			const char *coll = pl_trace_coll_from_name(pl_intern_get(&e->seg.str, name),
								   e->seg.str.len[name]);

			/* the recorded collective is more reliable than the name */
			if (!coll && op->kind == PL_K_HOST_OP && e->coll && e->corr &&
			    e->corr[op->ev] != INT64_MIN && e->coll[op->ev] != PL_NONE)
				coll = pl_intern_get(&e->seg.str, e->coll[op->ev]);
			if (!coll || op->node == PL_NONE)
				continue;
			if ((rc = pl_grow(v, &cap, *n + 1, sizeof(**v), err)) < 0)
				return rc;
			(*v)[(*n)++] = (struct issue){ op, coll, dims_of(e, op->ev),
						       e->record ? e->record[op->ev] : INT64_MIN,
						       e->corr ? e->corr[op->ev] : INT64_MIN };
		}
	}
	pl_sort(*v, *n, sizeof(**v), by_issue);
	return 0;
}

static bool same_dims(const struct issue *host, const struct issue *work)
{
	char x[DIMS_MAX], y[DIMS_MAX];

	if (!host->dims || !work->dims)
		return false;
	pl_trace_dims_text(host->dims, true, x, sizeof(x));
	pl_trace_dims_text(work->dims, false, y, sizeof(y));
	return !strcmp(x, y);
}

/* The operator that issued `work`, among the unused operators from `next` on. nh: not known. */
static size_t find_issue(const struct issue *host, size_t nh, const bool *used, size_t next,
			 const struct issue *work)
{
	size_t hit = nh;

	for (size_t k = next; k < nh && work->corr != INT64_MIN; k++)
		if (!used[k] && host[k].corr == work->corr)
			return k;
	for (size_t k = next; k < nh && work->rf > 0; k++) /* 0: not counted */
		if (!used[k] && host[k].rf == work->rf - 1 && host[k].op->start <= work->op->start)
			return k;
	for (size_t k = next; k < nh && host[k].op->start <= work->op->start; k++) {
		if (used[k] || strcmp(host[k].coll, work->coll))
			continue;
		if (same_dims(&host[k], work))
			return k;
		hit = hit == nh ? k : hit;
	}
	return hit;
}

static int service_launches(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	struct issue *host = NULL, *work = NULL;
	size_t nh = 0, nw = 0, next = 0;
	bool *used = NULL, recorded;
	int rc;

	PL_TRY(collect_issues(b, rk, true, &work, &nw, err));
	if (!nw)
		goto out;
	PL_TRY(collect_issues(b, rk, false, &host, &nh, err));
	PL_TRY(pl_alloc(&used, nh, sizeof(*used), err));
	for (size_t i = 0; i < nw; i++) {
		size_t hit = find_issue(host, nh, used, next, &work[i]);

		if (hit == nh)
			continue;
		used[hit] = true;
		while (next < nh && used[next])
			next++;
		recorded = work[i].corr != INT64_MIN && host[hit].corr == work[i].corr;
		PL_TRY(pl_derive_edge(b, host[hit].op->node, work[i].op->node,
				      PL_E_EARLY | (recorded ? 0 : PL_E_INFERRED), err));
	}
out:
	pl_free(host);
	pl_free(work);
	pl_free(used);
	return rc;
}

/* On a rank without a device, host operators are the computation. */
static void host_is_compute(struct gb *b, const struct rankinfo *rk)
{
	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = ri->node0; i < ri->node1; i++)
			if (b->node[i].role == PL_RO_HOST && b->node[i].kind == PL_K_HOST_OP)
				b->node[i].role = PL_RO_COMPUTE;
	}
}

int pl_derive_device(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	int rc = 0;

	for (size_t k = 0; k < rk->n_res; k++)
		if (b->ri[rk->res[k]].device || b->ri[rk->res[k]].service)
			PL_TRY(one_stream(b, rk->res[k], err));
	PL_TRY(launches(b, rk, err));
	PL_TRY(group_by_call(b, rk, err));
	for (size_t c = 0; c < rk->n_calls; c++)
		if (rk->call[c].n_ops > 1)
			PL_TRY(graph_branches(b, rk, &rk->call[c], err));
	if (rk->comm_threads)
		PL_TRY(service_launches(b, rk, err));
	if (!rk->has_device)
		host_is_compute(b, rk);
out:
	return rc;
}
