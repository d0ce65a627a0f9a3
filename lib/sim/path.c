/*
 * The critical path, from the operation that ends the last step back to the start of the first
 * step. The walk always goes to the latest predecessor (if several are equal: the first in the list
 * of the node). Every ns of the path belongs to a node, to a modelled latency or to unexplained
 * time, so the parts sum to the length.
 */
#include "sim/internal.h"

static int add(struct pl_path *p, size_t step, uint32_t node, enum pl_path_part part, pl_ns start,
	       pl_ns ns, struct pl_err *err)
{
	struct pl_path_item x = { (uint32_t)step, node, (uint8_t)part, start, ns };

	if (ns <= 0)
		return 0;
	if (part == PL_PP_LATENCY)
		p->latency += ns;
	if (part == PL_PP_UNEXPLAINED)
		p->unexplained += ns;
	if (part == PL_PP_LATE)
		p->late += ns;
	return pl_append(&p->item, &p->n, &p->cap, &x, sizeof(x), err);
}

/* The node with which the last reported step ends. */
static void last_node(const struct pl_sim *s, const struct pl_run *r, size_t *step, uint32_t *node)
{
	pl_ns best = INT64_MIN;

	*step = 0;
	*node = PL_NONE;
	for (size_t k = 0; k < r->n_steps; k++) {
		const struct pl_shape *sh = &s->g->shape[s->g->step[k].shape];

		if (!s->step[k].reported)
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			pl_ns end = r->start[k][i] + pl_sim_run_dur(s, r, k, i);

			if (sh->flags[i] & PL_NF_IN_STEP && end > best) {
				best = end;
				*step = k;
				*node = i;
			}
		}
	}
}

static void reverse(struct pl_path *p)
{
	for (size_t i = 0, k = p->n; i + 1 < k; i++) {
		struct pl_path_item t = p->item[i];

		p->item[i] = p->item[--k];
		p->item[k] = t;
	}
}

/* Who had the shared resource until the node got it: it ended last, at or before `t`. */
static uint32_t holder(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node,
		       pl_ns t)
{
	const struct pl_shape *sh = &s->g->shape[s->g->step[step].shape];
	uint32_t best = PL_NONE;
	pl_ns best_end = INT64_MIN;

	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		pl_ns end = r->start[step][i] + pl_sim_run_dur(s, r, step, i);

		if (i == node || sh->res[i] != sh->res[node] || sh->type[i] != PL_N_RESOURCE ||
		    end > t || end <= best_end || r->start[step][i] >= t)
			continue;
		best = i;
		best_end = end;
	}
	return best_end == t ? best : PL_NONE;
}

struct walk {
	const struct pl_sim *s;
	const struct pl_run *r;
	struct pl_path *p;
	size_t step;
	uint32_t node;
	pl_ns until, t0; /* what lies behind `until` is explained */
};

static int part(struct walk *w, enum pl_path_part what, pl_ns ns, struct pl_err *err)
{
	ns = pl_max_i64(0, pl_min_i64(ns, w->until - w->t0));
	w->until -= ns;
	return add(w->p, w->step, w->node, what, w->until, ns, err);
}

/* From the node's start to the end (or start) of what it followed. False: it followed nothing. */
static int before(struct walk *w, bool *more, struct pl_err *err)
{
	const struct pl_shape *sh = &w->s->g->shape[w->s->g->step[w->step].shape];
	const pl_ns *resource_gap = w->s->step[w->step].resource_gap;
	bool shared = resource_gap && sh->type[w->node] == PL_N_RESOURCE;
	pl_ns t, lat, gap;
	uint32_t e = pl_sim_binding(w->s, w->r, w->step, w->node, &t), other;

	*more = e != PL_NONE && w->until > w->t0;
	if (!*more)
		return 0;
	if (shared) {
		PL_CHECK(part(w, PL_PP_UNEXPLAINED, resource_gap[w->node], err));
		other = t < w->until ? holder(w->s, w->r, w->step, w->node, w->until) : PL_NONE;
		if (other != PL_NONE) {
			w->node = other;
			return 0;
		}
		PL_CHECK(part(w, PL_PP_LATENCY, w->until - t, err));
	}
	pl_sim_delay(w->s, w->step, w->node, e, &lat, &gap);
	PL_CHECK(part(w, PL_PP_UNEXPLAINED, gap, err));
	PL_CHECK(part(w, PL_PP_LATENCY, lat, err));
	w->node = sh->src[e];
	return 0;
}

int pl_sim_path_find(const struct pl_sim *s, const struct pl_run *r, struct pl_path *p,
		     struct pl_err *err)
{
	struct walk w = { .s = s, .r = r, .p = p };
	bool more = true;
	pl_ns end;
	int rc = 0;

	memset(p, 0, sizeof(*p));
	pl_sim_span(s, r, &w.t0, &end);
	last_node(s, r, &w.step, &w.node);
	if (w.node == PL_NONE)
		return 0;
	w.until = r->start[w.step][w.node] + pl_sim_run_dur(s, r, w.step, w.node);
	p->length = w.until - w.t0;
	while (more && w.until > w.t0) {
		if (w.node < s->g->shape[s->g->step[w.step].shape].n_entries) {
			uint64_t x = r->from[w.step][w.node];

			if (x == UINT64_MAX) /* before the trace: nothing is known */
				break;
			w.step = (size_t)(x >> 32);
			w.node = (uint32_t)x;
			continue;
		}
		PL_TRY(part(&w, PL_PP_NODE, w.until - r->start[w.step][w.node], err));
		PL_TRY(before(&w, &more, err));
	}
	/* what is left lies before a node that has no cause in the recording: its rank began late
	 */
	PL_TRY(part(&w, PL_PP_LATE, w.until - w.t0, err));
	reverse(p);
out:
	if (rc < 0)
		pl_sim_path_fini(p);
	return rc;
}

void pl_sim_path_fini(struct pl_path *p)
{
	pl_free(p->item);
	memset(p, 0, sizeof(*p));
}
