/*
 * Stragglers: the method of Lin et al. (see the header) over any graph.
 *
 * Each question is a simulation of the same job with other durations and without delays. It uses a
 * copy of the steps of the graph in which every operation has the recorded start 0, so that
 * preparation finds no latency and no unexplained time. An operation has its recorded duration if
 * the question keeps it, and the typical duration otherwise. Steps follow one another as in the
 * graph, and the result is the mean step.
 *
 * The decomposition asks one question for each type, stage, data-parallel rank and rank. This is
 * exact. Each question costs a simulation (some 30 ns for each operation; 8 bytes for each
 * operation and 4 for each edge in each thread). The paper approximates the question for single
 * ranks, because its jobs have thousands of ranks.
 *
 * An operation of a later step that nothing precedes starts at 0 too: it delays no other. But where
 * a rank was recorded from a later step on than others, it begins that step after they do.
 */
#include <stdlib.h>

#include "sim/straggler.h"
#include "sim/straggler_typical.h"

enum axis {
	AX_NOTHING,
	AX_ALL,
	AX_FIRST, /* the first of enum pl_slow_by */
	AX_TYPE = AX_FIRST + PL_SLOW_TYPE,
	AX_STAGE = AX_FIRST + PL_SLOW_STAGE,
	AX_DP = AX_FIRST + PL_SLOW_DP,
	AX_RANK = AX_FIRST + PL_SLOW_RANK,
	AXES
};

struct study {
	const struct pl_graph *g;
	struct typical t;
	uint32_t *tag[AXES]; /* [resource]: value on the axis, from 0; PL_NONE: it has none */
	int32_t *value[AXES];
	size_t n_values[AXES];
	pl_ns *zero;  /* as many as the largest shape has nodes */
	size_t nodes; /* in all steps */
	/* The shapes of the graph, then copies with edges and flags of their own: find_begins(). */
	struct pl_shape *shape;
	size_t n_shapes, cap_shapes;
	uint32_t *shape_of; /* [step] */
};

struct question { /* which operations keep their recorded durations */
	const struct study *y;
	enum axis axis;
	uint32_t which;
	double mean;
	struct pl_err err;
};

/* ---- one question ---------------------------------------------------------------------------- */

static bool keeps(const struct question *q, uint32_t class, pl_id res)
{
	if (q->axis == AX_TYPE)
		return q->y->t.type[class] == q->which;
	return q->axis == AX_ALL || (q->axis != AX_NOTHING && q->y->tag[q->axis][res] == q->which);
}

static void fill(const struct question *q, size_t step, pl_ns *dur)
{
	const struct pl_gstep *st = &q->y->g->step[step];
	const struct pl_shape *s = &q->y->g->shape[st->shape];
	const uint32_t *class = q->y->t.class[st->shape];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		dur[i] = class[i] == PL_NONE || keeps(q, class[i], s -> res[i])
				 ? st->dur[i]
				 : q->y->t.ns[class[i]];
}

static int ask(struct question *q, struct pl_err *err)
{
	const struct pl_graph *g = q->y->g;
	struct pl_graph h = *g; /* everything but the steps is borrowed */
	struct pl_sim *s = NULL;
	pl_ns *dur = NULL, *at;
	int rc;

	h.shape = q->y->shape;
	h.n_shapes = q->y->n_shapes;
	h.step = NULL;
	PL_TRY(pl_alloc(&h.step, g->n_steps, sizeof(*h.step), err));
	PL_TRY(pl_alloc(&dur, q->y->nodes, sizeof(*dur), err));
	at = dur;
	for (size_t k = 0; k < g->n_steps; k++) {
		h.step[k] = g->step[k];
		h.step[k].shape = q->y->shape_of[k];
		h.step[k].start = q->y->zero;
		h.step[k].dur = at;
		h.step[k].lag = NULL; /* launch delays, which folded messages have */
		fill(q, k, at);
		at += g->shape[g->step[k].shape].n_nodes;
	}
	s = pl_sim_new(&h, err);
	rc = s ? pl_sim_mean(s, &q->mean, err) : err->code;
out:
	pl_sim_free(s);
	pl_free(dur);
	pl_free(h.step);
	return rc;
}

static void answer(void *arg)
{
	struct question *q = arg;

	if (ask(q, &q->err) < 0)
		q->mean = 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int32_t value_of(const struct pl_resource *r, enum axis a)
{
	return a == AX_RANK ? r->rank : r->coord[a == AX_DP ? PL_COORD_DP : PL_COORD_PP];
}

/* The values of an axis in ascending order, and which of them each resource has. */
static int tag(struct study *y, enum axis a, struct pl_err *err)
{
	const struct pl_graph *g = y->g;
	int32_t *v;
	size_t n = 0, kept = 0;

	PL_CHECK(pl_alloc(&y->value[a], g->n_res, sizeof(*v), err));
	PL_CHECK(pl_alloc(&y->tag[a], g->n_res, sizeof(**y->tag), err));
	v = y->value[a];
	for (size_t i = 0; i < g->n_res; i++)
		if (value_of(&g->res[i], a) >= 0)
			v[n++] = value_of(&g->res[i], a);
	pl_sort(v, n, sizeof(*v), pl_compare_i32);
	for (size_t i = 0; i < n; i++)
		if (!kept || v[kept - 1] != v[i])
			v[kept++] = v[i];
	y->n_values[a] = kept;
	for (size_t i = 0; i < g->n_res; i++) {
		int32_t x = value_of(&g->res[i], a);
		const int32_t *p = kept ? bsearch(&x, v, kept, sizeof(*v), pl_compare_i32) : NULL;

		y->tag[a][i] = p ? (uint32_t)(p - v) : PL_NONE;
	}
	return 0;
}

/* early[node]: nothing before the step decides when it starts. seen[resource]: an earlier step has
 * operations on it. Returns whether the step begins with such nodes and with others. leads[node]:
 * one of the others, or the entry that it follows. */
static bool find_early(const struct pl_shape *s, const bool *seen, bool *early, bool *leads)
{
	bool some = false, others = false;

	memset(leads, 0, s->n_nodes * sizeof(*leads));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		early[i] = i >= s->n_entries || !seen[s->res[i]];
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			early[i] &= early[s->src[e]];
		if (!(s->flags[i] & PL_NF_STEP_BEGIN))
			continue;
		*(early[i] ? &some : &others) = true;
		leads[i] = !early[i];
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			leads[s->src[e]] |= !early[i] && s->src[e] < s->n_entries;
	}
	return some && others;
}

/* In a shape of its own, the early begins of the step follow the others. */
static int follow_others(struct study *y, size_t step, const bool *early, const bool *leads,
			 struct pl_err *err)
{
	const struct pl_shape *from = &y->g->shape[y->g->step[step].shape];
	size_t n = 0, begins = 0;
	struct pl_shape *s;

	for (uint32_t i = 0; i < from->n_nodes; i++) {
		n += leads[i];
		begins += early[i] && from->flags[i] & PL_NF_STEP_BEGIN;
	}
	if (n * begins > PL_NONE - 1 - from->n_edges)
		return pl_fail(err, PL_ELIMIT, "too many ranks");
	PL_CHECK(pl_grow(&y->shape, &y->cap_shapes, y->n_shapes + 1, sizeof(*s), err));
	s = &y->shape[y->n_shapes++];
	*s = *from;
	s->off = s->src = NULL;
	s->etype = s->flags = NULL;
	s->n_edges = 0;
	PL_CHECK(pl_alloc(&s->off, s->n_nodes + (size_t)1, sizeof(*s->off), err));
	PL_CHECK(pl_alloc(&s->src, from->n_edges + n * begins, sizeof(*s->src), err));
	PL_CHECK(pl_alloc(&s->etype, from->n_edges + n * begins, 1, err));
	PL_CHECK(pl_alloc(&s->flags, s->n_nodes, 1, err));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		bool first = early[i] && from->flags[i] & PL_NF_STEP_BEGIN;

		for (uint32_t e = from->off[i]; e < from->off[i + 1]; e++) {
			s->src[s->n_edges] = from->src[e];
			s->etype[s->n_edges++] = from->etype[e];
		}
		for (uint32_t k = 0; first && k < i; k++)
			if (leads[k]) {
				s->src[s->n_edges] = k;
				s->etype[s->n_edges++] = PL_E_SEQ;
			}
		s->off[i + 1] = s->n_edges;
		s->flags[i] = from->flags[i];
		if (first && s->off[i + 1] - s->off[i] == from->off[i + 1] - from->off[i])
			s->flags[i] &= (uint8_t)~PL_NF_STEP_BEGIN; /* the others come behind it */
	}
	y->shape_of[step] = (uint32_t)y->n_shapes - 1;
	return 0;
}

static int find_begins(struct study *y, size_t most, struct pl_err *err)
{
	const struct pl_graph *g = y->g;
	bool *seen = NULL, *early = NULL, *leads = NULL;
	int rc;

	PL_TRY(pl_copy_array(&y->shape, &y->n_shapes, &y->cap_shapes, g->shape, g->n_shapes,
			     sizeof(*g->shape), err));
	PL_TRY(pl_alloc(&y->shape_of, g->n_steps, sizeof(*y->shape_of), err));
	PL_TRY(pl_alloc(&seen, g->n_res, sizeof(*seen), err));
	PL_TRY(pl_alloc(&early, most, sizeof(*early), err));
	PL_TRY(pl_alloc(&leads, most, sizeof(*leads), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *s = &g->shape[g->step[k].shape];

		y->shape_of[k] = g->step[k].shape;
		if (find_early(s, seen, early, leads))
			PL_TRY(follow_others(y, k, early, leads, err));
		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			if (s->res[i] != PL_NONE)
				seen[s->res[i]] = true;
	}
out:
	pl_free(seen);
	pl_free(early);
	pl_free(leads);
	return rc;
}

static int study_init(struct study *y, const struct pl_graph *g, struct pl_err *err)
{
	size_t most = 0;

	y->g = g;
	for (size_t k = 0; k < g->n_steps; k++) {
		size_t n = g->shape[g->step[k].shape].n_nodes;

		y->nodes += n;
		most = n > most ? n : most;
	}
	PL_CHECK(pl_alloc(&y->zero, most, sizeof(*y->zero), err));
	PL_CHECK(find_begins(y, most, err));
	PL_CHECK(pl_sim_typical_find(g, TYPICAL_BY_KIND, &y->t, err));
	y->n_values[AX_NOTHING] = y->n_values[AX_ALL] = 1;
	y->n_values[AX_TYPE] = y->t.types.n;
	for (enum axis a = AX_STAGE; a <= AX_RANK; a++)
		PL_CHECK(tag(y, a, err));
	return 0;
}

static void study_fini(struct study *y)
{
	for (enum axis a = 0; a < AXES; a++) {
		pl_free(y->tag[a]);
		pl_free(y->value[a]);
	}
	pl_free(y->zero);
	for (size_t i = y->g->n_shapes; i < y->n_shapes; i++) {
		pl_free(y->shape[i].off);
		pl_free(y->shape[i].src);
		pl_free(y->shape[i].etype);
		pl_free(y->shape[i].flags);
	}
	pl_free(y->shape);
	pl_free(y->shape_of);
	pl_sim_typical_fini(&y->t);
}

static int key_of(const struct study *y, const struct question *q, struct pl_intern *keys,
		  const char **key, struct pl_err *err)
{
	const char *name;
	char text[16];
	pl_id id;
	int rc;

	if (q->axis == AX_TYPE) {
		name = pl_intern_get(&y->t.types, q->which);
	} else {
		snprintf(text, sizeof(text), "%d", (int)y->value[q->axis][q->which]);
		name = text;
	}
	rc = pl_intern_add(keys, name, strlen(name), &id, err);
	if (rc >= 0)
		*key = pl_intern_get(keys, id);
	return rc < 0 ? rc : 0;
}

static int note(const struct study *y, const struct question *q, struct pl_stragglers *x,
		struct pl_err *err)
{
	struct pl_slow_list *l = q->axis < AX_FIRST ? NULL : &x->by[q->axis - AX_FIRST];

	if (q->axis == AX_NOTHING) {
		x->ideal_ns = q->mean;
		if (q->mean > 0)
			return 0;
		return pl_fail(err, PL_EDATA,
			       "the steps take no time when every operation takes its typical one: "
			       "there is nothing to compare with");
	}
	if (q->axis == AX_ALL) {
		x->actual_ns = q->mean;
		x->slowdown = q->mean / x->ideal_ns;
		return 0;
	}
	PL_CHECK(pl_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v), err));
	PL_CHECK(key_of(y, q, &x->keys, &l->v[l->n].key, err));
	l->v[l->n++].slowdown = q->mean / x->ideal_ns;
	return 0;
}

static int by_slowdown(const void *pa, const void *pb)
{
	const struct pl_slow *a = pa, *b = pb;
	size_t na = strlen(a->key), nb = strlen(b->key);
	bool numbers = strspn(a->key, "0123456789") == na && strspn(b->key, "0123456789") == nb;

	if (a->slowdown != b->slowdown)
		return a->slowdown > b->slowdown ? -1 : 1;
	if (numbers && na != nb)
		return na < nb ? -1 : 1;
	return strcmp(a->key, b->key);
}

/* In the order of the axes, so that the ideal step is known first. */
static int ask_all(struct study *y, struct question *q, size_t n, struct pl_pool *pool,
		   struct pl_stragglers *x, struct pl_err *err)
{
	struct pl_queue *queue = pl_queue_new(pool, pl_pool_threads(pool), err);
	size_t put = 0;
	int rc = 0;

	if (!queue)
		return err->code;
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		const struct question *done;

		while (put < n && !pl_queue_full(queue))
			pl_queue_put(queue, answer, &q[put++]);
		done = pl_queue_get(queue);
		rc = done->err.code ? pl_fail(err, done->err.code, "%s", done->err.msg)
				    : note(y, done, x, err);
	}
	pl_queue_free(queue);
	return rc;
}

int pl_sim_stragglers_find(const struct pl_graph *g, struct pl_pool *pool, struct pl_stragglers *x,
			   struct pl_err *err)
{
	struct study y = { 0 };
	struct question *q = NULL;
	size_t n = 0, all = 0;
	int rc;

	memset(x, 0, sizeof(*x));
	PL_TRY(study_init(&y, g, err));
	for (enum axis a = 0; a < AXES; a++)
		all += y.n_values[a];
	PL_TRY(pl_alloc(&q, all, sizeof(*q), err));
	for (enum axis a = 0; a < AXES; a++)
		for (size_t i = 0; i < y.n_values[a]; i++)
			q[n++] = (struct question){ .y = &y, .axis = a, .which = (uint32_t)i };
	PL_TRY(ask_all(&y, q, n, pool, x, err));
	for (size_t i = 0; i < PL_SLOW_COUNT_; i++)
		pl_sort(x->by[i].v, x->by[i].n, sizeof(*x->by[i].v), by_slowdown);
out:
	pl_free(q);
	study_fini(&y);
	if (rc < 0)
		pl_sim_stragglers_fini(x);
	return rc;
}

void pl_sim_stragglers_fini(struct pl_stragglers *x)
{
	for (size_t i = 0; i < PL_SLOW_COUNT_; i++)
		pl_free(x->by[i].v);
	pl_intern_fini(&x->keys);
	memset(x, 0, sizeof(*x));
}
