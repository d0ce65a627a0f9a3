/*
 * What-if: the nodes that a statement selects, and the resulting durations.
 *
 * A graph has far fewer names, resources and kinds than nodes. Therefore globs are matched once for
 * each name, resource and kind, and a node is looked up in three tables. Size, layer and microbatch
 * are compared for each node, if a statement needs them.
 *
 * If all statements scale, the durations of a step are one factor for each node. Otherwise they are
 * stored: each node has a base duration, which statements replace or (for communication) multiply,
 * and a factor for the scaling after that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/whatif.h"

/* ---- selections ----------------------------------------------------------------------------- */

static bool has_duration(uint8_t role)
{
	return role == PL_RO_COMPUTE || role == PL_RO_HOST || role == PL_RO_GAP ||
	       role == PL_RO_COPY || role == PL_RO_TRANSFER;
}

static bool kind_matches(const char *glob, uint8_t role, uint8_t kind)
{
	if (role == PL_RO_GAP)
		return pl_glob(glob, "gap") || pl_glob(glob, "all");
	if (pl_glob(glob, "all") || pl_glob(glob, pl_trace_kind_name(kind)))
		return true;
	if (role == PL_RO_TRANSFER)
		return pl_glob(glob, "comm");
	return (kind == PL_K_KERNEL || kind == PL_K_HOST_OP) && pl_glob(glob, "compute");
}

/* The selection of one change by name, by resource (the last entry: no resource), and by role and
 * kind. It is computed once and used for all nodes. */
struct verdict {
	const struct pl_change *c;
	uint8_t *name, *res; /* 1: selected */
	uint8_t kind[PL_RO_COUNT_][256];
	bool by_node;	     /* size, layer, microbatch */
	const double *ratio; /* of verbs that concern communication, by its class */
};
struct select {
	const struct pl_graph *g;
	const struct pl_whatif_model *m;
	struct verdict *v;
	size_t n;
};

static bool on_resource(const struct pl_change *c)
{
	return c->pick[KEY_RANK].text || c->pick[KEY_HOST].text || c->pick[KEY_STAGE].text ||
	       c->pick[KEY_DP].text;
}

/* An unknown number (-1) matches nothing. */
static bool known_matches(const struct pick *p, int64_t v)
{
	return !p->text || (v >= 0 && pl_sim_pick_number(p, v));
}

static bool res_matches(const struct pl_change *c, const struct pl_graph *g, size_t res)
{
	const struct pl_resource *r = &g->res[res];
	const char *host = r->host == PL_NONE ? "" : pl_intern_get(&g->str, r->host);

	return pl_sim_pick_number(&c->pick[KEY_RANK], r->rank) &&
	       (!c->pick[KEY_HOST].text || pl_glob(c->pick[KEY_HOST].text, host)) &&
	       pl_sim_pick_number(&c->pick[KEY_STAGE], r->coord[PL_COORD_PP]) &&
	       known_matches(&c->pick[KEY_DP], r->coord[PL_COORD_DP]);
}

static bool by_node(const struct pl_change *c)
{
	return c->pick[KEY_SIZE].text || c->pick[KEY_LAYER].text || c->pick[KEY_MB].text;
}

static int verdict_init(struct verdict *v, const struct pl_change *c, const struct pl_graph *g,
			struct pl_err *err)
{
	int rc;

	v->c = c;
	if ((rc = pl_alloc(&v->name, g->str.n + 1, 1, err)) < 0 ||
	    (rc = pl_alloc(&v->res, g->n_res + 1, 1, err)) < 0)
		return rc;
	for (size_t i = 0; i < g->n_res; i++)
		v->res[i] = res_matches(c, g, i);
	v->res[g->n_res] = !on_resource(c);
	v->by_node = by_node(c);
	for (size_t i = 0; i <= g->str.n; i++)
		v->name[i] = !c->pick[KEY_NAME].text ||
			     pl_glob(c->pick[KEY_NAME].text, pl_intern_get(&g->str, (pl_id)i));
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			v->kind[role][k] =
				has_duration((uint8_t)role) &&
				(!c->pick[KEY_KIND].text ||
				 kind_matches(c->pick[KEY_KIND].text, (uint8_t)role, (uint8_t)k));
	return 0;
}

void pl_sim_select_free(struct select *x)
{
	if (!x)
		return;
	for (size_t i = 0; x->v && i < x->n; i++) {
		pl_free(x->v[i].name);
		pl_free(x->v[i].res);
	}
	pl_free(x->v);
	pl_free(x);
}

/* Check that the model of the whole graph exists for the statements that need it. */
static int check_model(const struct pl_whatif *w, size_t i, struct pl_err *err)
{
	const struct pl_change *c = &w->change[i];

	if ((c->verb != V_FIX && !verb_on_network(c->verb)) || (w->model && i < w->model->n))
		return 0;
	return pl_fail(err, PL_EINTERNAL, "what-if \"%s\": the graph was not prepared for it",
		       c->text);
}

int pl_sim_select_new(const struct pl_whatif *w, const struct pl_graph *g, struct select **out,
		      struct pl_err *err)
{
	struct select *x;
	int rc = pl_alloc(&x, 1, sizeof(*x), err);

	if (rc < 0)
		return rc;
	x->g = g;
	x->m = w->model;
	x->n = w->n;
	PL_TRY(pl_alloc(&x->v, w->n, sizeof(*x->v), err));
	for (size_t i = 0; i < w->n; i++) {
		PL_TRY(check_model(w, i, err));
		PL_TRY(verdict_init(&x->v[i], &w->change[i], g, err));
		if (verb_on_network(w->change[i].verb))
			x->v[i].ratio = &w->model->ratio[i * w->model->n_classes];
	}
	*out = x;
	return 0;
out:
	pl_sim_select_free(x);
	return rc;
}

bool pl_sim_select_scales(const struct select *x)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].c->verb != V_SCALE)
			return false;
	return true;
}

double pl_sim_select_most(const struct select *x)
{
	double f = 1;

	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].c->factor > 1)
			f *= x->v[i].c->factor;
	return f;
}

static bool step_matches(const struct pick *p, int64_t number)
{
	return !p->text || (number != INT64_MIN && pl_sim_pick_number(p, number));
}

static bool node_matches(const struct pl_change *c, const struct pl_shape *sh, uint32_t i)
{
	return known_matches(&c->pick[KEY_SIZE], sh->bytes ? sh->bytes[i] : -1) &&
	       known_matches(&c->pick[KEY_LAYER], sh->layer ? sh->layer[i] : -1) &&
	       known_matches(&c->pick[KEY_MB], sh->mb ? sh->mb[i] : -1);
}

/* Tables answer without a branch, for which nodes are selected is hard to foresee. 0 or 1. */
static inline unsigned selects(const struct verdict *v, const struct pl_graph *g,
			       const struct pl_shape *sh, uint32_t i)
{
	uint32_t n_res = (uint32_t)g->n_res, n_names = (uint32_t)g->str.n;
	uint32_t res = sh->res[i] < n_res ? sh->res[i] : n_res;
	uint32_t name = sh->name[i] < n_names ? sh->name[i] : n_names;
	unsigned hit = v->kind[sh->role[i]][sh->kind[i]] & v->res[res] & v->name[name];

	return PL_LIKELY(!v->by_node) ? hit : hit && node_matches(v->c, sh, i);
}

uint64_t pl_sim_select_scale(struct select *x, size_t step, float *f)
{
	const struct pl_shape *sh = &x->g->shape[x->g->step[step].shape];
	uint64_t hits = 0;

	for (size_t c = 0; c < x->n; c++) {
		const struct verdict *v = &x->v[c];
		const float factor[2] = { 1, v->c->factor };

		if (!step_matches(&v->c->pick[KEY_STEP], x->g->step[step].number))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			unsigned hit = selects(v, x->g, sh, i);

			f[i] *= factor[hit];
			hits += hit;
		}
	}
	return hits;
}

/* ---- other durations ------------------------------------------------------------------------- */

/* The classes of operations that the statement uses; NULL: it uses no classes. */
static const uint32_t *classes_for(const struct select *x, const struct verdict *v, size_t shape)
{
	if (v->ratio)
		return x->m->class[shape];
	return v->c->verb == V_FIX ? x->m->typical[v->c->how].class[shape] : NULL;
}

/* Does the statement change the node, whose class it is? */
static inline bool changes(const struct verdict *v, const struct select *x,
			   const struct pl_shape *sh, uint32_t i, const uint32_t *class)
{
	if (class && class[i] == PL_NONE)
		return false;
	return v->ratio ? !isnan(v->ratio[class[i]]) : selects(v, x->g, sh, i);
}

static void change(const struct verdict *v, const struct select *x, uint32_t class,
		   struct changed_dur *d)
{
	switch (v->c->verb) {
	case V_SCALE:
		d->factor *= v->c->factor;
		return;
	case V_FIX:
		*d = (struct changed_dur){ (double)x->m->typical[v->c->how].ns[class], 1 };
		return;
	case V_REMOVE:
	case V_SET:
		*d = (struct changed_dur){ (double)v->c->to, 1 };
		return;
	default:
		d->base *= v->ratio[class];
	}
}

uint64_t pl_sim_select_apply(struct select *x, size_t step, struct changed_dur *d, uint64_t *hits)
{
	const struct pl_gstep *st = &x->g->step[step];
	const struct pl_shape *sh = &x->g->shape[st->shape];
	uint64_t sum = 0;

	for (size_t c = 0; c < x->n; c++) {
		struct verdict *v = &x->v[c];
		const uint32_t *class = classes_for(x, v, st->shape);
		uint64_t n = 0;

		if (!step_matches(&v->c->pick[KEY_STEP], st->number))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			if (!changes(v, x, sh, i, class))
				continue;
			if (d)
				change(v, x, class ? class[i] : PL_NONE, &d[i]);
			n++;
		}
		if (hits)
			hits[c] += n;
		sum += n;
	}
	return sum;
}

/* ---- several selections as one --------------------------------------------------------------- */

bool pl_sim_masks_can(const struct pl_whatif *w)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->change[i].verb != V_SCALE || by_node(&w->change[i]))
			return false;
	return true;
}

void pl_sim_masks_fini(struct masks *m)
{
	for (size_t j = 0; j < m->n; j++)
		pl_sim_select_free(m->select[j]);
	pl_free(m->name);
	pl_free(m->res);
}

/* Change v of selection j is that of `bit`: enter it everywhere. */
static void add_mask(struct masks *m, const struct verdict *v, size_t j, unsigned bit)
{
	for (size_t i = 0; i <= m->n_names; i++)
		m->name[i] |= (uint8_t)(v->name[i] << bit);
	for (size_t i = 0; i <= m->n_res; i++)
		m->res[i] |= (uint8_t)(v->res[i] << bit);
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			m->kind[role][k] |= (uint8_t)(v->kind[role][k] << bit);
	for (unsigned i = 0; i < 1u << SIM_MASK_BITS; i++)
		if (i >> bit & 1)
			m->factor[i][j] *= v->c->factor;
}

int pl_sim_masks_init(struct masks *m, const struct pl_sim *s, const struct pl_whatif *const *w,
		      size_t n, struct pl_err *err)
{
	unsigned bit = 0;
	int rc = 0;

	memset(m, 0, sizeof(*m));
	m->n_names = (uint32_t)s->g->str.n;
	m->n_res = (uint32_t)s->g->n_res;
	for (unsigned i = 0; i < 1u << SIM_MASK_BITS; i++)
		for (size_t j = 0; j < SIM_SIDES; j++)
			m->factor[i][j] = 1;
	PL_TRY(pl_alloc(&m->name, (size_t)m->n_names + 1, 1, err));
	PL_TRY(pl_alloc(&m->res, (size_t)m->n_res + 1, 1, err));
	for (size_t j = 0; j < n; j++) {
		PL_TRY(pl_sim_select_for(s, w[j], &m->select[j], err));
		m->n++;
		for (size_t c = 0; c < m->select[j]->n; c++)
			add_mask(m, &m->select[j]->v[c], j, bit++);
	}
out:
	return rc;
}

uint8_t pl_sim_masks_of_step(const struct masks *m, size_t step)
{
	unsigned bit = 0, mask = 0;

	for (size_t j = 0; j < m->n; j++) {
		const struct select *x = m->select[j];

		for (size_t c = 0; c < x->n; c++, bit++)
			if (step_matches(&x->v[c].c->pick[KEY_STEP], x->g->step[step].number))
				mask |= 1u << bit;
	}
	return (uint8_t)mask;
}

int pl_sim_whatif_hits(const struct pl_whatif *w, const struct pl_graph *g, uint64_t *hits,
		       struct pl_err *err)
{
	struct select *x;
	int rc = pl_sim_select_new(w, g, &x, err);

	if (rc < 0)
		return rc;
	memset(hits, 0, w->n * sizeof(*hits));
	for (size_t k = 0; k < g->n_steps; k++)
		pl_sim_select_apply(x, k, NULL, hits);
	pl_sim_select_free(x);
	return 0;
}
