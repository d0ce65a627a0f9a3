/*
 * Plans that fit: recomputation and accumulation, where the memory of a rank is not enough.
 *
 * Each way to save (a layer made again, microbatches) is tried alone: time that it costs, bytes
 * that it takes from the highest peak. They are added from the cheapest byte on until the peak
 * fits, then each is left out again that is not needed any more, the dearest first. O(layers)
 * simulations.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/internal.h"

struct way {
	struct pl_rewrite rw;
	double ns_per_byte;
	uint32_t number;
	bool used;
};
struct fit {
	struct search *s;
	struct pl_plan *p;
	struct way *way;
	size_t n, cap;
	int64_t peak;
	int32_t rank; /* that has the peak */
	double mean;
};

static int peak_of(struct fit *f, struct pl_err *err)
{
	struct lane *l = &f->s->lane[0];
	struct pl_memory_opts o = f->s->o->memory;
	struct pl_memory_rank *rank = NULL;
	size_t n = 0;
	int rc;

	o.activation_share = 1.0 / (double)pl_rewriter_accumulate(l->r);
	rc = pl_memory_peak(&l->e, &o, &rank, &n, err);
	f->peak = 0;
	f->rank = -1;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		if (f->rank < 0 || rank[i].peak_bytes > f->peak) {
			f->peak = rank[i].peak_bytes;
			f->rank = rank[i].rank;
		}
	}
	pl_free(rank);
	return rc;
}

/* The best buckets with the ways in use, and perhaps one more: mean step and peak. */
static int try_with(struct fit *f, const struct way *more, struct pl_err *err)
{
	struct search *s = f->s;
	struct lane *l = &s->lane[0];
	int rc = 0;

	pl_rewriter_undo(l->r, 1);
	l->at = 0;
	for (size_t i = 0; rc == 0 && i < f->n; i++)
		if (f->way[i].used || &f->way[i] == more)
			rc = pl_rewrite(l->r, &f->way[i].rw, err);
	if (rc == 0)
		rc = pl_edit_settle(&l->e, err);
	l->root = pl_rewriter_mark(l->r);
	if (rc == 0)
		rc = lane_show(s, &s->best, err);
	if (rc == 0)
		rc = peak_of(f, err);
	f->mean = pl_edit_mean_step(&l->e);
	s->evaluations++;
	return rc;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static int add_way(struct fit *f, unsigned op, const char *layer, int64_t k, struct pl_err *err)
{
	struct way w = {
		.rw = { .op = (uint8_t)op, .k = k, .alone_ns = INT64_MIN, .in_plan_ns = INT64_MIN },
		.number = (uint32_t)f->n
	};
	int rc = pl_grow(&f->way, &f->cap, f->n + 1, sizeof(w), err);

	if (rc < 0)
		return rc;
	if (layer) {
		w.rw.arg = pl_arena_take(&f->p->arena, sizeof(*w.rw.arg));
		if (!w.rw.arg || !(w.rw.arg[0] = pl_arena_dup(&f->p->arena, layer, strlen(layer))))
			return pl_fail(err, PL_ENOMEM, "out of memory (names of layers)");
		w.rw.n_args = 1;
	}
	f->way[f->n++] = w;
	return 0;
}

/* Layers by the names of their backward operations, each once. */
static int add_layers(struct fit *f, struct pl_err *err)
{
	const struct pl_edit *e = &f->s->lane[0].e;
	struct pl_intern seen = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < e->n_nodes; i++) {
		const char *name = pl_edit_name(e, e->node[i].name);
		size_t had = seen.n;
		pl_id id;

		if (e->node[i].dead || e->node[i].layer < 0 || strncmp(name, "backward ", 9) != 0)
			continue;
		rc = pl_intern_add(&seen, name + 9, strlen(name + 9), &id, err);
		if (rc == 0 && seen.n > had)
			rc = add_way(f, PL_RW_RECOMPUTE, name + 9, 0, err);
	}
	pl_intern_fini(&seen);
	return rc;
}

static int by_price(const void *pa, const void *pb)
{
	const struct way *a = pa, *b = pb;

	if (a->ns_per_byte != b->ns_per_byte)
		return a->ns_per_byte < b->ns_per_byte ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* What does not go, or saves nothing, costs INFINITY. */
static int price(struct fit *f, struct pl_err *err)
{
	double mean = f->mean;
	int64_t peak = f->peak;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < f->n; i++) {
		struct way *w = &f->way[i];

		rc = try_with(f, w, err);
		w->ns_per_byte = INFINITY;
		if (rc == PL_EDATA) {
			memset(err, 0, sizeof(*err));
			rc = 0;
		} else if (rc == 0 && f->peak < peak) {
			w->ns_per_byte = fmax(f->mean - mean, 0) / (double)(peak - f->peak);
		}
	}
	pl_sort(f->way, f->n, sizeof(*f->way), by_price);
	return rc;
}

/* One number of microbatches at a time: more instead of fewer. */
static bool replaces(const struct way *w, const struct way *other)
{
	return w->rw.op == PL_RW_ACCUMULATE && other->rw.op == PL_RW_ACCUMULATE && w != other;
}

static int use_ways(struct fit *f, int64_t limit, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < f->n && f->peak > limit; i++) {
		struct way *w = &f->way[i], *out = NULL;

		if (!isfinite(w->ns_per_byte))
			continue;
		for (size_t k = 0; k < i; k++)
			if (f->way[k].used && replaces(w, &f->way[k]))
				out = &f->way[k];
		if (out && out->rw.k > w->rw.k)
			continue;
		if (out)
			out->used = false;
		w->used = true;
		rc = try_with(f, NULL, err);
	}
	if (f->peak > limit)
		return rc;
	for (size_t i = f->n; rc == 0 && i-- > 0;) {
		if (!f->way[i].used)
			continue;
		f->way[i].used = false;
		rc = try_with(f, NULL, err);
		f->way[i].used = f->peak > limit;
	}
	return rc < 0 ? rc : try_with(f, NULL, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

int extra_add(struct search *s, struct pl_plan *p, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc = pl_grow(&s->extra, &s->cap_extra, s->n_extra + 1, sizeof(*s->extra), err);

	(void)p;
	if (rc == 0)
		s->extra[s->n_extra++] = *rw;
	return rc;
}

static int no_fit(const struct fit *f, int64_t limit, struct pl_err *err)
{
	char need[32], more[32];

	return pl_fail(err, PL_ENO,
		       "no plan fits the memory: rank %d needs %s, %s more than it may have; fewer "
		       "samples a step, or more ranks that share the model",
		       f->rank, pl_fmt_bytes(need, sizeof(need), (double)f->peak),
		       pl_fmt_bytes(more, sizeof(more), (double)(f->peak - limit)));
}

/* Buckets may be found again for the longer step, as long as they fit too. */
static int search_again(struct fit *f, int64_t limit, struct pl_err *err)
{
	struct search *s = f->s;
	struct cand fits, *c;
	int rc = cand_init(s, &fits, err);

	if (rc < 0)
		return rc;
	cand_copy(s, &fits, &s->best);
	s->best.mean = INFINITY;
	s->version = 0;
	s->n_batch = 0;
	PL_TRY(lanes_root(s, err));
	PL_TRY(batch_add(s, &fits, &c, err));
	PL_TRY(batch_run(s, err));
	cand_copy(s, &fits, c);
	search_move(s, c);
	if (s->o->preset == PL_PRESET_SEARCH)
		PL_TRY(local_search(s, err));
	PL_TRY(lane_show(s, &s->best, err));
	PL_TRY(peak_of(f, err));
	if (f->peak > limit) {
		cand_copy(s, &s->best, &fits);
		PL_TRY(lane_show(s, &s->best, err));
		PL_TRY(peak_of(f, err));
	}
out:
	cand_fini(&fits);
	return rc;
}

int fit_memory(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	int64_t limit = s->o->memory_bytes;
	struct fit f = { .s = s, .p = p };
	int rc;

	PL_TRY(lanes_root(s, err));
	PL_TRY(s->n ? lane_show(s, &s->best, err) : 0);
	PL_TRY(peak_of(&f, err));
	f.mean = pl_edit_mean_step(&s->lane[0].e);
	p->peak_bytes = f.peak > 0 ? f.peak : -1;
	if (!limit || f.peak <= limit)
		goto out;
	for (int64_t k = 2; s->o->accumulate && k <= 64 && s->n; k *= 2)
		PL_TRY(add_way(&f, PL_RW_ACCUMULATE, NULL, k, err));
	if (s->o->recompute && s->n)
		PL_TRY(add_layers(&f, err));
	PL_TRY(price(&f, err));
	PL_TRY(try_with(&f, NULL, err));
	PL_TRY(use_ways(&f, limit, err));
	for (size_t i = 0; i < f.n; i++)
		if (f.way[i].used)
			PL_TRY(extra_add(s, p, &f.way[i].rw, err));
	p->peak_bytes = f.peak;
	if (f.peak > limit) {
		rc = no_fit(&f, limit, err);
		goto out;
	}
	PL_TRY(search_again(&f, limit, err));
	p->peak_bytes = f.peak;
out:
	pl_free(f.way);
	return rc;
}
