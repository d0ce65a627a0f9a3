/*
 * Plans that fit the memory of the ranks: other buckets, recomputation and accumulation.
 *
 * Buckets need memory too, so the search starts from several candidates: the best, the recorded
 * one, and one tensor at a time, which needs least. From each of them every saving (a layer is
 * recomputed, or the batch is divided into microbatches) is tried alone. Its price is its time
 * divided by the bytes by which it lowers the highest peak. Savings are added in the order of price
 * until the peak fits. Then each saving that is not needed is removed again, the most expensive
 * first, and the number of microbatches becomes as small as possible. The search continues from the
 * shortest result, among candidates that fit. O(layers) simulations.
 */
#include <math.h>
#include <stdlib.h>

#include "search/internal.h"

struct saving {
	struct pl_rewrite rw;
	double ns_per_byte;
	uint32_t number;
	bool used;
};
struct fit {
	struct search *s;
	int64_t limit;
	struct saving *saving;
	size_t n, cap;
	const struct candidate *at; /* the buckets with which savings are tried */
	struct peak peak;
	double mean;
	struct pl_rewrite *rw; /* the extras and the used savings */
	/* the shortest that fits so far */
	struct candidate *best;
	struct pl_rewrite *best_rw; /* its savings; NULL: nothing fits */
	size_t n_best;
	struct peak least; /* of the candidates that do not fit */
};

int pl_search_worker_peak(struct worker *l, struct peak *out, struct pl_err *err)
{
	struct pl_memory_opts o = l->s->o->memory;
	struct pl_memory_rank *rank = NULL;
	size_t n = 0;
	int rc;

	o.activation_share = 1.0 / (double)pl_rewrite_accumulated(l->r);
	rc = pl_memory_peak(&l->e, &o, &rank, &n, err);
	*out = (struct peak){ 0, -1, PL_NONE };
	for (size_t i = 0; rc == 0 && i < n; i++)
		if (out->rank < 0 || rank[i].peak_bytes > out->bytes)
			*out = (struct peak){ rank[i].peak_bytes, rank[i].rank,
					      rank[i].node == PL_NONE
						      ? PL_NONE
						      : l->e.node[rank[i].node].name };
	pl_free(rank);
	return rc;
}

int pl_search_plan_peak(struct search *s, const struct pl_plan *p, struct peak *out,
			struct pl_err *err)
{
	struct worker *l = &s->worker[0];
	double mean;
	int rc;

	pl_rewrite_undo(l->r, 1);
	l->at = l->depth = 0;
	rc = pl_search_carry_out_plan(s, &l->e, l->r, p, &mean, err);
	if (rc == 0)
		rc = pl_search_worker_peak(l, out, err);
	pl_rewrite_undo(l->r, 1);
	return rc;
}

static int show(struct fit *f, struct pl_err *err)
{
	struct worker *l = &f->s->worker[0];

	PL_CHECK(pl_search_worker_show(f->s, f->at, err));
	return pl_search_worker_peak(l, &f->peak, err);
}

/* List the extras and the used savings, and `more` unless NULL; accumulation comes last. */
static size_t list(struct fit *f, const struct saving *more)
{
	size_t n = 0;

	for (; n < f->s->n_extra; n++)
		f->rw[n] = f->s->extra[n];
	for (int last = 0; last < 2; last++)
		for (size_t i = 0; i < f->n; i++)
			if ((f->saving[i].used || &f->saving[i] == more) &&
			    (f->saving[i].rw.op == PL_RW_ACCUMULATE) == last)
				f->rw[n++] = f->saving[i].rw;
	return n;
}

/* Simulate the buckets with these savings: mean step and peak. */
static int try_with(struct fit *f, const struct saving *more, struct pl_err *err)
{
	const struct pl_plan some = { .n_rw = list(f, more), .rw = f->rw };
	struct worker *l = &f->s->worker[0];
	int rc;

	pl_rewrite_undo(l->r, 1);
	l->at = 0;
	rc = pl_rewrite_plan(l->r, &some, err);
	l->root = pl_rewrite_mark(l->r);
	if (rc == 0)
		rc = show(f, err);
	f->mean = pl_edit_mean_step(&l->e);
	f->s->evaluations += !pl_search_over(f->s); /* see use_savings() */
	return rc;
}

/* ---- savings --------------------------------------------------------------------------------- */

static int add_saving(struct fit *f, unsigned op, const char *layer, int64_t k, struct pl_err *err)
{
	struct saving w = {
		.rw = { .op = (uint8_t)op, .k = k, .alone_ns = INT64_MIN, .in_plan_ns = INT64_MIN },
		.number = (uint32_t)f->n
	};

	PL_CHECK(pl_grow(&f->saving, &f->cap, f->n + 1, sizeof(w), err));
	if (layer) {
		w.rw.arg = pl_arena_take(&f->s->p->arena, sizeof(*w.rw.arg));
		if (!w.rw.arg ||
		    !(w.rw.arg[0] = pl_arena_dup(&f->s->p->arena, layer, strlen(layer))))
			return pl_fail(err, PL_ENOMEM, "out of memory (names of layers)");
		w.rw.n_args = 1;
	}
	f->saving[f->n++] = w;
	return 0;
}

/* Layers and ranges of traces that keep activations, once each, in order of the backward pass. */
static int add_layers(struct fit *f, struct pl_err *err)
{
	const struct pl_edit *e = &f->s->worker[0].e;
	struct pl_intern seen = { 0 };
	int rc = 0;

	for (size_t i = e->n_tensors; rc == 0 && i-- > 0;) {
		const char *layer = pl_rewrite_layer(e, &e->tensor[i]);
		size_t had = seen.n;
		pl_id id;

		if (!layer)
			continue;
		rc = pl_intern_add(&seen, layer, strlen(layer), &id, err);
		if (rc == 0 && seen.n > had)
			rc = add_saving(f, PL_RW_RECOMPUTE, layer,
					pl_edit_stage(e, e->tensor[i].producer), err);
	}
	pl_intern_fini(&seen);
	return rc;
}

PL_COMPARATOR(by_price, struct saving, ns_per_byte, number);

/* A saving that is refused, or that saves nothing, costs INFINITY. */
static int price(struct fit *f, struct pl_err *err)
{
	double mean = f->mean;
	int64_t peak = f->peak.bytes;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < f->n; i++) {
		struct saving *w = &f->saving[i];

		w->ns_per_byte = INFINITY;
		if (pl_search_over(f->s))
			continue;
		rc = try_with(f, w, err);
		if (rc == 0 && f->peak.bytes < peak)
			w->ns_per_byte = fmax(f->mean - mean, 0) / (double)(peak - f->peak.bytes);
		rc = pl_search_allow_refusal(rc, err);
	}
	pl_sort(f->saving, f->n, sizeof(*f->saving), by_price);
	return rc;
}

/* The used number of microbatches; only one number is used at a time. */
static struct saving *microbatches(struct fit *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->saving[i].used && f->saving[i].rw.op == PL_RW_ACCUMULATE)
			return &f->saving[i];
	return NULL;
}

/* Use the smallest number of microbatches that fits. */
static int fewer(struct fit *f, struct pl_err *err)
{
	struct saving *used = microbatches(f);
	int rc = 0;

	for (int64_t k = 2; rc == 0 && used && k < used->rw.k; k *= 2)
		for (size_t i = 0; rc == 0 && i < f->n && !pl_search_over(f->s); i++) {
			struct saving *w = &f->saving[i];

			if (w->rw.op != PL_RW_ACCUMULATE || w->rw.k != k)
				continue;
			used->used = false;
			w->used = true;
			rc = try_with(f, NULL, err);
			if (rc == 0 && f->peak.bytes <= f->limit)
				return 0;
			w->used = false;
			used->used = true;
		}
	return rc;
}

/* Use savings in the order of price until the peak fits; *any: one was used. */
static int use_cheapest(struct fit *f, bool *any, struct pl_err *err)
{
	int rc = 0;

	*any = false;
	for (size_t i = 0; rc == 0 && i < f->n && f->peak.bytes > f->limit && !pl_search_over(f->s);
	     i++) {
		struct saving *w = &f->saving[i];
		struct saving *out = w->rw.op == PL_RW_ACCUMULATE ? microbatches(f) : NULL;

		if (w->used || !isfinite(w->ns_per_byte) || (out && out->rw.k > w->rw.k))
			continue;
		if (out) /* a greater number replaces a smaller one */
			out->used = false;
		w->used = *any = true;
		rc = try_with(f, NULL, err);
	}
	return rc;
}

/* What fits is kept when a limit ends the search; it is then simulated once more.
 *
 * A saving lowers the peaks of some ranks, as the stages of a pipeline have different layers. When
 * another rank has the highest peak, the savings have other prices. */
static int use_savings(struct fit *f, struct pl_err *err)
{
	bool any = true;
	int rc = 0;

	while (rc == 0 && any && f->peak.bytes > f->limit && !pl_search_over(f->s)) {
		rc = price(f, err);
		if (rc == 0)
			rc = try_with(f, NULL, err);
		if (rc == 0)
			rc = use_cheapest(f, &any, err);
	}
	if (f->peak.bytes > f->limit)
		return rc;
	for (size_t i = f->n; rc == 0 && i-- > 0 && !pl_search_over(f->s);) {
		if (!f->saving[i].used)
			continue;
		f->saving[i].used = false;
		rc = try_with(f, NULL, err);
		f->saving[i].used = f->peak.bytes > f->limit;
	}
	if (rc == 0)
		rc = fewer(f, err);
	return rc < 0 ? rc : try_with(f, NULL, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

int pl_search_extra_add(struct search *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc = pl_grow(&s->extra, &s->cap_extra, s->n_extra + 1, sizeof(*s->extra), err);

	if (rc == 0)
		s->extra[s->n_extra++] = *rw;
	return rc;
}

int pl_search_no_fit(struct search *s, const struct peak *p, struct pl_err *err)
{
	double over = (double)(p->bytes - s->o->memory_bytes);
	char need[32], more[32], where[160] = "";

	if (p->name != PL_NONE)
		snprintf(where, sizeof(where), " (at \"%.120s\")",
			 pl_edit_name(&s->worker[0].e, p->name));
	if (pl_search_over(s))
		return pl_fail(err, PL_ENO,
			       "the search ended before a plan fitted the memory: rank "
			       "%d needs %s%s, %s more than it may have; allow more simulations or "
			       "minutes",
			       p->rank, pl_fmt_bytes(need, sizeof(need), (double)p->bytes), where,
			       pl_fmt_bytes(more, sizeof(more), over));
	return pl_fail(
		err, PL_ENO,
		"no plan fits the memory: rank %d needs %s%s, %s more than it may have; fewer "
		"samples a step, or more ranks that share the model",
		p->rank, pl_fmt_bytes(need, sizeof(need), (double)p->bytes), where,
		pl_fmt_bytes(more, sizeof(more), over));
}

/* Find savings for these buckets; keep the result if it fits and is the shortest so far. */
static int try_from(struct fit *f, const struct candidate *at, struct pl_err *err)
{
	size_t extras = f->s->n_extra;

	f->at = at;
	for (size_t i = 0; i < f->n; i++)
		f->saving[i].used = false;
	PL_CHECK(try_with(f, NULL, err));
	if (f->peak.bytes > f->limit)
		PL_CHECK(use_savings(f, err));
	if (f->peak.bytes > f->limit) {
		if (f->least.rank < 0 || f->peak.bytes < f->least.bytes)
			f->least = f->peak;
		return 0;
	}
	if (f->best_rw && f->mean >= f->best->mean)
		return 0;
	if (!f->best_rw)
		PL_CHECK(pl_alloc(&f->best_rw, f->n + 1, sizeof(*f->best_rw), err));
	f->n_best = list(f, NULL) - extras;
	memcpy(f->best_rw, f->rw + extras, f->n_best * sizeof(*f->best_rw));
	pl_search_choice_copy(f->s->choices, f->best, at);
	f->best->mean = f->mean;
	return 0;
}

/* Start from all buckets that may be chosen. With a requested preset there is no choice. */
static int try_all(struct fit *f, struct pl_err *err)
{
	struct search *s = f->s;
	const struct candidate *each;

	PL_CHECK(try_from(f, s->best, err));
	if (!s->has_choices || s->o->preset > PL_PRESET_BEST || pl_search_over(s))
		return 0;
	PL_CHECK(try_from(f, s->recorded, err));
	if (!s->o->fuse || pl_search_over(s))
		return 0;
	pl_search_choice_clear(s->choices);
	each = pl_search_choice_add_preset(s->choices, PL_PRESET_EACH);
	PL_CHECK(pl_search_choice_failed(s->choices, err));
	return try_from(f, each, err);
}

/* Search the buckets again for the longer step, among those that fit. */
static int search_again(struct search *s, const struct candidate *from, struct pl_err *err)
{
	s->best->mean = INFINITY;
	s->version = 0;
	pl_search_choice_clear(s->choices);
	pl_search_choice_add(s->choices, from);
	if (s->o->preset <= PL_PRESET_BEST && s->o->fuse) {
		for (int i = PL_PRESET_DDP; i < PL_PRESET_COUNT_; i++)
			pl_search_choice_add_preset(s->choices, (enum pl_preset)i);
		if (s->o->preset == PL_PRESET_SEARCH)
			pl_search_choice_add_seeds(s->choices);
	}
	s->needed = 1;
	PL_CHECK(pl_search_choice_simulate(s->choices, err));
	pl_search_choice_move(s->choices, s->best);
	return s->o->preset == PL_PRESET_SEARCH ? pl_search_choice_improve(s->choices, err) : 0;
}

static void warn_unknown(const struct search *s)
{
	const struct pl_graph *g = s->g;
	bool any = false;

	for (size_t i = 0; i < g->n_tensors && !any; i++)
		any = g->tensor[i].role == PL_TR_ACTIVATION && g->tensor[i].bytes >= 0;
	if (!any)
		pl_say(s->o->log, PL_LOG_WARN,
		       "the graph knows no sizes of activations; the memory that they take is not "
		       "counted");
}

static int make_fit(struct fit *f, struct pl_err *err)
{
	struct search *s = f->s;
	int rc;

	PL_TRY(pl_search_choice_new(s->choices, &f->best, err));
	for (int64_t k = 2; s->o->accumulate && k <= 64; k *= 2) /* refused without gradients */
		PL_TRY(add_saving(f, PL_RW_ACCUMULATE, NULL, k, err));
	if (s->o->recompute)
		PL_TRY(add_layers(f, err));
	PL_TRY(pl_alloc(&f->rw, s->n_extra + f->n + 1, sizeof(*f->rw), err));
	PL_TRY(try_all(f, err));
	if (!f->best_rw) {
		f->peak = f->least;
		rc = pl_search_no_fit(s, &f->least, err);
		goto out;
	}
	for (size_t i = 0; i < f->n_best; i++)
		PL_TRY(pl_search_extra_add(s, &f->best_rw[i], err));
	PL_TRY(pl_search_workers_root(s, 0, err));
	rc = s->has_choices ? search_again(s, f->best, err) : 0;
out:
	pl_free(f->rw);
	pl_free(f->best_rw);
	return rc;
}

/* Does what was recorded, without a line, fit? */
static int try_recorded(struct search *s, struct pl_err *err)
{
	const struct pl_plan none = { .n_rw = 0 };
	struct peak peak;

	PL_CHECK(pl_search_plan_peak(s, &none, &peak, err));
	s->recorded_fits = peak.bytes <= s->o->memory_bytes;
	return 0;
}

int pl_search_memory(struct search *s, struct pl_err *err)
{
	struct fit f = {
		.s = s, .limit = s->o->memory_bytes, .at = s->best, .least = { 0, -1, PL_NONE }
	};
	int rc;

	s->reserve = 0;
	if (!f.limit)
		return 0;
	warn_unknown(s);
	PL_TRY(try_recorded(s, err));
	PL_TRY(pl_search_workers_root(s, 0, err));
	s->limit_bytes = f.limit; /* from here on, of every candidate that may be taken */
	PL_TRY(show(&f, err));
	if (f.peak.bytes > f.limit)
		rc = make_fit(&f, err);
	s->p->peak_bytes = f.peak.bytes; /* of the smallest plan, if none fits */
out:
	pl_free(f.saving);
	return rc;
}
