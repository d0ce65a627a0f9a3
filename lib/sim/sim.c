/*
 * The simulator.
 *
 * Program order and stream order are edges, and nodes are stored in topological order. Therefore a
 * replay is one pass over the nodes: start = max over predecessors + delay of the edge. Only graphs
 * with RESOURCE nodes (shared links, servers) need decisions during the replay; these use shared.c.
 *
 * Preparation derives the delays from the recorded times. A delay is the typical latency of the
 * resource, or less if the recording shows less. The edge from the latest predecessor also has the
 * unexplained time. Each edge stores the sum as one 32-bit number, so that the pass reads little
 * memory; pl_sim_delay() separates the two parts when a report needs them.
 *
 * Cost: 10-15 ns for each operation with 2.5 edges; besides the graph 4 bytes for each edge, 8 for
 * each operation of a step with other durations, and 8 for each operation of a step that is kept
 * and starts at other times than it was recorded.
 */
#include <math.h>

#include "sim/internal.h"

#define OVERLAP 0.01 /* of the time of the steps: then a step is longer than its period */

static bool is_message(const struct pl_shape *sh, uint32_t node)
{
	return sh->flags[node] & PL_NF_MESSAGE && sh->kind[node] == PL_K_RECV;
}

/* The typical latency, at most `room`. Of transfers only messages on their way have one. */
static pl_ns latency_of(const struct pl_graph *g, const struct pl_shape *sh, uint32_t node,
			uint8_t type, pl_ns room)
{
	bool transfer = sh->role[node] == PL_RO_TRANSFER;
	const struct pl_resource *res;
	pl_ns lat = 0;

	if (room <= 0 || sh->res[node] == PL_NONE)
		return 0;
	res = &g->res[sh->res[node]];
	switch (PL_E_TYPE(type)) {
	case PL_E_DATA:
		lat = transfer && is_message(sh, node) ? res->launch_ns : 0;
		break;
	case PL_E_LAUNCH:
		lat = transfer ? 0 : res->launch_ns;
		break;
	case PL_E_EARLY:
		lat = transfer ? 0 : res->early_ns;
		break;
	case PL_E_SEQ:
	case PL_E_WAIT:
		lat = transfer ? 0 : res->dispatch_ns;
		break;
	default:
		break;
	}
	return pl_max_i64(0, pl_min_i64(pl_min_i64(lat, room), INT32_MAX));
}

/* ---- preparation ---------------------------------------------------------------------------- */

static pl_ns recorded_time(const struct pl_gstep *st, uint32_t src, uint8_t type)
{
	return edge_from_start(type) ? st->start[src] : st->start[src] + st->dur[src];
}

/* The modelled delay of an edge: the delay set by an edit, or else the typical latency. */
static pl_ns edge_latency(const struct pl_graph *g, const struct pl_gstep *st, uint32_t node,
			  uint32_t e)
{
	const struct pl_shape *sh = &g->shape[st->shape];

	if (st->lag)
		return st->lag[e];
	return latency_of(g, sh, node, sh->etype[e],
			  st->start[node] - recorded_time(st, sh->src[e], sh->etype[e]));
}

/* Fills the latencies of the node's edges; the edge that comes last, and when. */
static uint32_t latencies(const struct pl_graph *g, const struct pl_gstep *st, uint32_t i,
			  int32_t *w, pl_ns *last)
{
	const struct pl_shape *sh = &g->shape[st->shape];
	uint32_t bind = PL_NONE;

	*last = INT64_MIN;
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		pl_ns t;

		w[e] = (int32_t)edge_latency(g, st, i, e);
		t = recorded_time(st, sh->src[e], sh->etype[e]) + w[e];
		if (t > *last) {
			*last = t;
			bind = e;
		}
	}
	return bind;
}

static int put_gap(struct prep *p, uint32_t node, uint32_t edge, pl_ns gap, struct pl_err *err)
{
	struct long_gap x = { node, edge, gap };

	if (gap > INT32_MAX - p->w[edge])
		return pl_append(&p->long_gap, &p->n_long_gaps, &p->cap_long_gaps, &x, sizeof(x),
				 err);
	p->w[edge] += (int32_t)gap;
	return 0;
}

static int prepare(struct pl_sim *s, size_t k, struct resource_places *x, struct pl_err *err)
{
	const struct pl_gstep *st = &s->g->step[k];
	const struct pl_shape *sh = &s->g->shape[st->shape];
	struct prep *p = &s->step[k];

	PL_CHECK(pl_alloc(&p->w, sh->n_edges, sizeof(*p->w), err));
	if (s->has_shared)
		PL_CHECK(pl_alloc(&p->resource_gap, sh->n_nodes, sizeof(pl_ns), err));
	p->rec_start = INT64_MAX;
	p->rec_end = INT64_MIN;
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		pl_ns last;
		uint32_t bind = latencies(s->g, st, i, p->w, &last);

		s->total += (double)st->dur[i];
		if (last != INT64_MIN)
			s->total += (double)pl_max_i64(0, st->start[i] - last) + (double)p->w[bind];
		if (sh->type[i] == PL_N_RESOURCE && sh->res[i] != PL_NONE)
			p->resource_gap[i] = last;
		else if (bind != PL_NONE && st->start[i] > last &&
			 (sh->type[i] != PL_N_RENDEZVOUS || sh->role[i] == PL_RO_MARK))
			PL_CHECK(put_gap(p, i, bind, st->start[i] - last, err));
		if (sh->flags[i] & PL_NF_STEP_BEGIN)
			p->rec_start = pl_min_i64(p->rec_start, st->start[i]);
		if (sh->flags[i] & PL_NF_IN_STEP)
			p->rec_end = pl_max_i64(p->rec_end, st->start[i] + st->dur[i]);
	}
	p->reported = st->number != INT64_MIN && p->rec_start <= p->rec_end;
	return s->has_shared ? pl_sim_shared_unexplained(p, s->g, st, x, err) : 0;
}

static int prepare_all(struct pl_sim *s, struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	struct resource_places x = { 0 };
	bool any = false;
	int rc;

	for (size_t i = 0; i < g->n_shapes; i++) {
		if (memchr(g->shape[i].type, PL_N_POLICY, g->shape[i].n_nodes))
			return pl_fail(
				err, PL_EABSENT,
				"the graph has policy nodes, which this version cannot replay");
		s->has_shared |=
			memchr(g->shape[i].type, PL_N_RESOURCE, g->shape[i].n_nodes) != NULL;
	}
	if (s->has_shared)
		PL_TRY(pl_sim_slots_init(g->res, g->n_res, &x, err));
	PL_TRY(pl_alloc(&s->step, g->n_steps, sizeof(*s->step), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		PL_TRY(prepare(s, k, &x, err));
		any |= s->step[k].reported;
	}
	if (!any)
		rc = pl_fail(err, PL_EDATA, "the graph has no step with a beginning and an end");
	else if (s->total > SIM_TOTAL_MAX)
		rc = pl_fail(err, PL_ELIMIT, "the graph's durations sum to more than 2^61 ns");
out:
	pl_sim_slots_fini(&x);
	return rc;
}

bool pl_sim_run_overlaps(const struct pl_sim *s, const struct pl_run *r)
{
	double overlap = 0, length = 0;
	size_t before = SIZE_MAX;

	for (size_t k = 0; k < s->g->n_steps; k++) {
		pl_ns start = r ? r->step_start[k] : s->step[k].rec_start,
		      end = r ? r->step_end[k] : s->step[k].rec_end;

		if (!s->step[k].reported)
			continue;
		if (before != SIZE_MAX && s->g->step[k].number == s->g->step[before].number + 1)
			overlap += (double)pl_max_i64(
				0, (r ? r->step_end[before] : s->step[before].rec_end) - start);
		length += (double)(end - start);
		before = k;
	}
	return overlap > OVERLAP * length;
}

struct pl_sim *pl_sim_new(const struct pl_graph *g, struct pl_err *err)
{
	struct pl_sim *s;

	if (pl_alloc(&s, 1, sizeof(*s), err) < 0)
		return NULL;
	s->g = g;
	s->latency_by = 1;
	s->latency_to = -1;
	if (prepare_all(s, err) < 0) {
		pl_sim_free(s);
		return NULL;
	}
	s->overlap = pl_sim_run_overlaps(s, NULL);
	return s;
}

void pl_sim_free(struct pl_sim *s)
{
	if (!s)
		return;
	for (size_t k = 0; s->step && k < s->g->n_steps; k++) {
		pl_free(s->step[k].w);
		pl_free(s->step[k].long_gap);
		pl_free(s->step[k].resource_gap);
		pl_free(s->step[k].work);
		pl_free(s->step[k].dur);
		pl_free(s->step[k].exact);
		pl_free(s->step[k].k);
	}
	pl_free(s->step);
	pl_free(s);
}

bool pl_sim_reported(const struct pl_sim *s, size_t step)
{
	return s->step[step].reported;
}

void pl_sim_recorded(const struct pl_sim *s, size_t step, pl_ns *start, pl_ns *end)
{
	*start = s->step[step].rec_start;
	*end = s->step[step].rec_end;
}

/* ---- other durations ------------------------------------------------------------------------- */

const pl_ns *pl_sim_durations(const struct pl_sim *s, size_t step)
{
	const struct prep *p = &s->step[step];

	return p->dur ? p->dur : p->work ? p->work : s->g->step[step].dur;
}

int pl_sim_set_durations(struct pl_sim *s, size_t step, const double *ns, struct pl_err *err)
{
	size_t n = s->g->shape[s->g->step[step].shape].n_nodes;
	struct prep *p = &s->step[step];
	double total = s->total;

	for (size_t i = 0; i < n; i++)
		total += ns[i] - (double)pl_sim_durations(s, step)[i];
	if (!(total <= SIM_TOTAL_MAX)) /* not a number: neither */
		return pl_fail(err, PL_ELIMIT, SIM_TOO_LONG);
	if (!p->dur)
		PL_CHECK(pl_alloc(&p->dur, n, sizeof(*p->dur), err));
	for (size_t i = 0; i < n; i++)
		p->dur[i] = (pl_ns)(ns[i] + 0.5);
	for (size_t i = 0; i < n && !p->exact; i++)
		if (ns[i] != (double)p->dur[i])
			PL_CHECK(pl_alloc(&p->exact, n, sizeof(*p->exact), err));
	if (p->exact)
		memcpy(p->exact, ns, n * sizeof(*ns));
	s->total = total;
	return 0;
}

/* The present latency of a message that was on its way for so long in the recording. */
static pl_ns latency_now(const struct pl_sim *s, pl_ns recorded)
{
	double ns = s->latency_to >= 0 ? (double)s->latency_to : (double)recorded;

	return recorded <= 0 ? recorded : (pl_ns)fmin(ns * s->latency_by, INT32_MAX / 2);
}

void pl_sim_set_latency(struct pl_sim *s, pl_ns to, double by)
{
	s->latency_to = to;
	s->latency_by = by;
	for (size_t k = 0; k < s->g->n_steps; k++) {
		const struct pl_gstep *st = &s->g->step[k];
		const struct pl_shape *sh = &s->g->shape[st->shape];
		int32_t *w = s->step[k].w;

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			for (uint32_t e = sh->off[i]; is_message(sh, i) && e < sh->off[i + 1];
			     e++) {
				pl_ns was = edge_latency(s->g, st, i, e);

				w[e] = (int32_t)pl_min_i64(INT32_MAX,
							   w[e] + latency_now(s, was) - was);
			}
	}
}

void pl_sim_delay(const struct pl_sim *s, size_t step, uint32_t node, uint32_t e, pl_ns *lat,
		  pl_ns *gap)
{
	const struct pl_gstep *st = &s->g->step[step];
	const struct prep *p = &s->step[step];
	size_t i = 0;

	*lat = edge_latency(s->g, st, node, e);
	if (is_message(&s->g->shape[st->shape], node))
		*lat = latency_now(s, *lat);
	*gap = p->w[e] - *lat;
	PL_LOWER_BOUND(i, p->n_long_gaps, p->long_gap[i].node < node);
	if (i < p->n_long_gaps && p->long_gap[i].edge == e)
		*gap += p->long_gap[i].gap;
}

pl_ns pl_sim_unexplained(const struct pl_sim *s, size_t step, uint32_t node)
{
	const struct pl_shape *sh = &s->g->shape[s->g->step[step].shape];
	pl_ns lat, gap, sum = s->step[step].resource_gap ? s->step[step].resource_gap[node] : 0;

	for (uint32_t e = sh->off[node]; e < sh->off[node + 1]; e++) {
		pl_sim_delay(s, step, node, e, &lat, &gap);
		sum += gap;
	}
	return sum;
}

/* ---- one pass ------------------------------------------------------------------------------- */

/* What a pass is for. The compiler makes a loop of each, because each mode is a constant there. */
enum mode {
	STORE,	 /* the ends of the nodes */
	SCALE,	 /* the same where the durations of p->select are scaled */
	COMPARE, /* do all nodes start when they were recorded? Up to the first that does not */
};

static inline enum mode mode_of(const struct pass *p)
{
	return p->select ? SCALE : p->recorded ? COMPARE : STORE;
}

static inline pl_ns duration(const struct pass *p, const struct pl_shape *sh, uint32_t i,
			     enum mode mode)
{
	const float factor[2] = { 1, p->factor };

	if (mode != SCALE)
		return p->dur[i];
	return sim_scaled(p->dur, p->exact, i, factor[pl_graph_selects(p->select, sh, i)]);
}

/* When edge e lets its destination start. Only ends are kept: few edges count from a start. */
static inline pl_ns arrival(const struct pass *p, const struct pl_shape *sh, const int32_t *w,
			    uint32_t e, enum mode mode)
{
	uint32_t src = sh->src[e];
	bool from_start = edge_from_start(sh->etype[e]);

	if (mode == COMPARE)
		return p->recorded[src] + (PL_UNLIKELY(from_start) ? 0 : p->dur[src]) + w[e];
	return p->end[src] - (PL_UNLIKELY(from_start) ? duration(p, sh, src, mode) : 0) + w[e];
}

/* Time at which the k-th predecessor in time lets a rendezvous fire. */
static pl_ns kth_arrival(const struct pass *p, const struct pl_shape *sh, uint32_t node)
{
	uint32_t n = sh->off[node + 1] - sh->off[node];
	uint32_t want = sim_kth(&p->s->step[p->k], sh, node);
	const int32_t *w = p->s->step[p->k].w;
	pl_ns below = INT64_MIN, t = INT64_MIN;

	/* k is small: find the smallest value that at least k arrivals do not exceed */
	for (uint32_t round = 0, have = 0; have < want && round < n; round++) {
		pl_ns next = INT64_MAX;
		uint32_t same = 0;

		for (uint32_t e = sh->off[node]; e < sh->off[node + 1]; e++) {
			pl_ns at = arrival(p, sh, w, e, mode_of(p));

			if (at <= below || at > next)
				continue;
			same = at == next ? same + 1 : 1;
			next = at;
		}
		if (!same)
			break;
		have += same;
		t = below = next;
	}
	return t;
}

/* The start of a node with an unexplained time that is out of range. */
static pl_ns latest_with_long_gap(const struct pass *p, const struct pl_shape *sh,
				  const struct long_gap *long_gap)
{
	const int32_t *w = p->s->step[p->k].w;
	pl_ns t = INT64_MIN;

	for (uint32_t e = sh->off[long_gap->node]; e < sh->off[long_gap->node + 1]; e++)
		t = pl_max_i64(t, arrival(p, sh, w, e, mode_of(p)) +
					  (e == long_gap->edge ? long_gap->gap : 0));
	return t;
}

/* False: COMPARE found another start. */
static inline bool pass_nodes(struct pass *p, enum mode mode)
{
	const struct pl_gstep *st = &p->s->g->step[p->k];
	const struct pl_shape *sh = &p->s->g->shape[st->shape];
	const struct prep *prep = &p->s->step[p->k];
	const struct long_gap *long_gap = prep->long_gap,
			      *long_gap_end =
				      prep->n_long_gaps ? long_gap + prep->n_long_gaps : long_gap;
	const struct pass x = *p; /* a copy stays in registers while ends are stored */
	const uint32_t *off = sh->off, *k = prep->k ? prep->k : sh->k, n = sh->n_nodes;
	const int32_t *w = prep->w;
	pl_ns first = INT64_MAX, last = INT64_MIN;

	for (uint32_t i = sh->n_entries, e = off[i]; i < n; i++) {
		uint32_t stop = off[i + 1], res = sh->res[i];
		pl_ns t = INT64_MIN, end;

		if (PL_UNLIKELY(e == stop)) {
			t = st->start[i]; /* a source: where it was recorded */
		} else if (PL_UNLIKELY(long_gap != long_gap_end && long_gap->node == i)) {
			t = latest_with_long_gap(p, sh, long_gap++);
			e = stop;
		} else if (PL_UNLIKELY(k && k[i] && sh->type[i] == PL_N_RENDEZVOUS)) {
			t = kth_arrival(p, sh, i);
			e = stop;
		}
		for (; e < stop; e++) {
			if (mode != COMPARE && e + SIM_AHEAD < sh->n_edges)
				__builtin_prefetch(&x.end[sh->src[e + SIM_AHEAD]]);
			t = pl_max_i64(t, arrival(&x, sh, w, e, mode));
		}
		end = t + duration(&x, sh, i, mode);
		if (mode != COMPARE)
			x.end[i] = end;
		else if (t != x.recorded[i])
			return false;
		if (res != PL_NONE && end >= x.last_end[res].end)
			x.last_end[res] = (struct last_end){ end, (uint64_t)x.k << 32 | i };
		if (sh->flags[i] & PL_NF_STEP_BEGIN)
			first = pl_min_i64(first, t);
		if (sh->flags[i] & PL_NF_IN_STEP)
			last = pl_max_i64(last, end);
	}
	p->step_start = first;
	p->step_end = last;
	return true;
}

static bool run_pass(struct pass *p)
{
	switch (mode_of(p)) {
	case SCALE:
		return pass_nodes(p, SCALE);
	case COMPARE:
		return pass_nodes(p, COMPARE);
	default:
		return pass_nodes(p, STORE);
	}
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct runner { /* data that the steps of one run share */
	const struct pl_sim *s;
	const struct pl_sim_scale *scale; /* NULL: the present durations */
	struct last_end *last_end;
	struct resource_places places;
	struct sim_shared *shared;
	/* scratch for the longest step */
	pl_ns *end; /* NULL when the steps are kept */
	pl_ns *dur; /* scaled, of graphs with RESOURCE nodes; else NULL */
};

static void runner_fini(struct runner *x)
{
	pl_sim_slots_fini(&x->places);
	pl_sim_shared_free(x->shared);
	pl_free(x->last_end);
	pl_free(x->end);
	pl_free(x->dur);
}

size_t pl_sim_longest_step(const struct pl_sim *s)
{
	size_t most = 0;

	for (size_t i = 0; i < s->g->n_shapes; i++)
		if (s->g->shape[i].n_nodes > most)
			most = s->g->shape[i].n_nodes;
	return most;
}

/* runner_fini() is due whatever happens. */
static int runner_init(struct runner *x, const struct pl_sim *s, const struct pl_sim_scale *scale,
		       bool keep, struct pl_err *err)
{
	size_t most = pl_sim_longest_step(s);

	memset(x, 0, sizeof(*x));
	x->s = s;
	PL_CHECK(pl_alloc(&x->last_end, s->g->n_res, sizeof(*x->last_end), err));
	if (!keep)
		PL_CHECK(pl_alloc(&x->end, most, sizeof(*x->end), err));
	x->scale = scale;
	if (scale && s->has_shared)
		PL_CHECK(pl_alloc(&x->dur, most, sizeof(*x->dur), err));
	if (s->has_shared)
		PL_CHECK(pl_sim_slots_init(s->g->res, s->g->n_res, &x->places, err));
	for (size_t i = 0; i < s->g->n_res; i++)
		x->last_end[i] = (struct last_end){ INT64_MIN, UINT64_MAX };
	return 0;
}

/* from: where the entries came from is noted, or NULL. */
static void enter(const struct pass *p, uint64_t *from)
{
	const struct pl_gstep *st = &p->s->g->step[p->k];
	const struct pl_shape *sh = &p->s->g->shape[st->shape];

	for (uint32_t i = 0; i < sh->n_entries; i++) {
		const struct last_end *t = &p->last_end[sh->res[i]];

		p->end[i] = (t->from == UINT64_MAX ? st->start[i] : t->end) + p->dur[i];
		if (from)
			from[i] = t->from;
	}
}

static void scale_step(const struct runner *x, struct pass *p)
{
	const struct pl_gstep *st = &x->s->g->step[p->k];
	const struct pl_shape *sh = &x->s->g->shape[st->shape];
	const float factor[2] = { 1, x->scale->factor };

	if (!pl_graph_select_step(x->scale->select, st->number))
		return;
	if (!x->dur) {
		p->select = x->scale->select;
		p->factor = x->scale->factor;
		p->exact = x->s->step[p->k].exact;
		return;
	}
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		x->dur[i] = sim_scaled(p->dur, x->s->step[p->k].exact, i,
				       factor[pl_graph_selects(x->scale->select, sh, i)]);
	p->dur = x->dur;
}

static struct pass begin(struct runner *x, size_t k, pl_ns *end, uint64_t *from)
{
	struct pass p = { .s = x->s,
			  .k = k,
			  .dur = pl_sim_durations(x->s, k),
			  .end = end,
			  .last_end = x->last_end,
			  .places = &x->places };

	if (x->scale)
		scale_step(x, &p);
	enter(&p, from);
	return p;
}

static int run_step(struct runner *x, struct pass *p, struct pl_err *err)
{
	if (x->s->has_shared)
		return pl_sim_pass_shared(p, &x->shared, err);
	run_pass(p);
	return 0;
}

/* Does the step begin and go on as it was recorded, as in most replays without a change? Then no
 * starts must be stored. If not, run_step() is due: what was noted so far is noted again. */
static bool is_as_recorded(const struct runner *x, struct pass *p)
{
	const struct pl_gstep *st = &x->s->g->step[p->k];
	uint32_t n = x->s->g->shape[st->shape].n_entries;
	bool same = !x->s->has_shared;

	for (uint32_t i = 0; i < n && same; i++)
		same = p->end[i] == st->start[i] + p->dur[i];
	p->recorded = st->start;
	same = same && run_pass(p);
	p->recorded = NULL;
	return same;
}

static int keep_starts(struct runner *x, struct pl_run *r, struct pass *p, struct pl_err *err)
{
	const pl_ns *recorded = x->s->g->step[p->k].start;
	size_t n = x->s->g->shape[x->s->g->step[p->k].shape].n_nodes;

	PL_CHECK(run_step(x, p, err));
	for (size_t i = 0; i < n; i++) /* they were ends */
		p->end[i] -= p->dur[i];
	r->shared[p->k] = !memcmp(p->end, recorded, n * sizeof(*recorded));
	if (p->dur == pl_sim_durations(x->s, p->k))
		return 0;
	PL_CHECK(pl_alloc(&r->dur[p->k], n, sizeof(pl_ns), err));
	memcpy(r->dur[p->k], p->dur, n * sizeof(pl_ns));
	return 0;
}

static int keep_step(struct runner *x, struct pl_run *r, size_t k, struct pl_err *err)
{
	const struct pl_gstep *st = &x->s->g->step[k];
	const struct pl_shape *sh = &x->s->g->shape[st->shape];
	struct pass p;

	r->start[k] = pl_malloc((size_t)sh->n_nodes * sizeof(pl_ns)); /* most is never touched */
	if (!r->start[k])
		return pl_fail(err, PL_ENOMEM, "out of memory (%u starts)", sh->n_nodes);
	PL_CHECK(pl_alloc(&r->from[k], sh->n_entries, sizeof(uint64_t), err));
	p = begin(x, k, r->start[k], r->from[k]);
	if (is_as_recorded(x, &p))
		r->shared[k] = true;
	else
		PL_CHECK(keep_starts(x, r, &p, err));
	if (r->shared[k]) {
		pl_free(r->start[k]);
		r->start[k] = st->start;
	}
	r->step_start[k] = p.step_start;
	r->step_end[k] = p.step_end;
	r->ops += sh->n_nodes - sh->n_entries;
	return 0;
}

static int alloc_run(const struct pl_sim *s, struct pl_run *r, struct pl_err *err)
{
	size_t n = s->g->n_steps;

	memset(r, 0, sizeof(*r));
	r->n_steps = n;
	PL_CHECK(pl_alloc(&r->start, n, sizeof(*r->start), err));
	PL_CHECK(pl_alloc(&r->shared, n, sizeof(*r->shared), err));
	PL_CHECK(pl_alloc(&r->dur, n, sizeof(*r->dur), err));
	PL_CHECK(pl_alloc(&r->from, n, sizeof(*r->from), err));
	PL_CHECK(pl_alloc(&r->step_start, n, sizeof(*r->step_start), err));
	PL_CHECK(pl_alloc(&r->step_end, n, sizeof(*r->step_end), err));
	return 0;
}

int pl_sim_run(const struct pl_sim *s, struct pl_run *r, struct pl_err *err)
{
	struct runner x = { 0 };
	int rc;

	PL_TRY(alloc_run(s, r, err));
	PL_TRY(runner_init(&x, s, NULL, true, err));
	for (size_t k = 0; k < s->g->n_steps; k++)
		PL_TRY(keep_step(&x, r, k, err));
out:
	runner_fini(&x);
	if (rc < 0)
		pl_sim_run_fini(r);
	return rc;
}

int pl_sim_mean_scaled(const struct pl_sim *s, const struct pl_sim_scale *scale, double *mean,
		       struct pl_err *err)
{
	struct runner x;
	struct pass p;
	struct sim_mean m = { 0 };
	int rc;

	PL_TRY(runner_init(&x, s, scale, false, err));
	for (size_t k = 0; k < s->g->n_steps; k++) {
		p = begin(&x, k, x.end, NULL);
		PL_TRY(run_step(&x, &p, err));
		if (!s->step[k].reported)
			continue;
		if (scale && scale->length)
			scale->length[m.n] = p.step_end - p.step_start;
		sim_mean_add(&m, s->g->step[k].number, p.step_start, p.step_end);
	}
	*mean = sim_mean_of(&m, scale && s->overlap);
out:
	runner_fini(&x);
	return rc;
}

int pl_sim_mean(const struct pl_sim *s, double *mean, struct pl_err *err)
{
	return pl_sim_mean_scaled(s, NULL, mean, err);
}

void pl_sim_run_fini(struct pl_run *r)
{
	for (size_t k = 0; k < r->n_steps; k++) {
		pl_free(r->start && r->shared && !r->shared[k] ? r->start[k] : NULL);
		pl_free(r->dur ? r->dur[k] : NULL);
		pl_free(r->from ? r->from[k] : NULL);
	}
	pl_free(r->start);
	pl_free(r->shared);
	pl_free(r->dur);
	pl_free(r->from);
	pl_free(r->step_start);
	pl_free(r->step_end);
	memset(r, 0, sizeof(*r));
}

pl_ns pl_sim_run_dur(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node)
{
	return (r->dur[step] ? r->dur[step] : pl_sim_durations(s, step))[node];
}

static void sum_steps(const struct pl_sim *s, const struct pl_run *r, struct sim_mean *m)
{
	*m = (struct sim_mean){ 0 };
	for (size_t k = 0; k < s->g->n_steps; k++) {
		const struct prep *p = &s->step[k];

		if (p->reported)
			sim_mean_add(m, s->g->step[k].number, r ? r->step_start[k] : p->rec_start,
				     r ? r->step_end[k] : p->rec_end);
	}
}

double pl_sim_run_mean_step(const struct pl_sim *s, const struct pl_run *r)
{
	struct sim_mean m;

	sum_steps(s, r, &m);
	return sim_mean_of(&m, false);
}

double pl_sim_run_mean_period(const struct pl_sim *s, const struct pl_run *r)
{
	struct sim_mean m;

	sum_steps(s, r, &m);
	return m.n_periods ? sim_mean_of(&m, true) : NAN;
}

bool pl_sim_steps_overlap(const struct pl_sim *s)
{
	return s->overlap;
}

void pl_sim_span(const struct pl_sim *s, const struct pl_run *r, pl_ns *start, pl_ns *end)
{
	*start = INT64_MAX;
	*end = INT64_MIN;
	for (size_t k = 0; k < r->n_steps; k++) {
		if (!s->step[k].reported)
			continue;
		*start = pl_min_i64(*start, r->step_start[k]);
		*end = pl_max_i64(*end, r->step_end[k]);
	}
}

uint32_t pl_sim_binding(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node,
			pl_ns *t)
{
	const struct pl_gstep *st = &s->g->step[step];
	const struct pl_shape *sh = &s->g->shape[st->shape];
	const struct prep *p = &s->step[step];
	bool kth = sim_kth(p, sh, node) > 0;
	uint32_t best = PL_NONE;

	*t = INT64_MIN;
	for (uint32_t e = sh->off[node]; e < sh->off[node + 1]; e++) {
		uint32_t src = sh->src[e];
		pl_ns at = r->start[step][src] + p->w[e], lat, gap;

		if (!edge_from_start(sh->etype[e]))
			at += pl_sim_run_dur(s, r, step, src);
		if (PL_UNLIKELY(p->n_long_gaps)) {
			pl_sim_delay(s, step, node, e, &lat, &gap);
			at += lat + gap - p->w[e];
		}
		if (kth && at > r->start[step][node]) /* came later than the k-th */
			continue;
		if (at > *t) {
			*t = at;
			best = e;
		}
	}
	return best;
}
