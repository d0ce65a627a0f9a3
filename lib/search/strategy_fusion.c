/*
 * Fusion of operations, together with the buckets of their gradients.
 *
 * Operations that may be fused form sequences. A sequence is cut into segments, and each segment
 * becomes one operation. Fusion makes gradients ready later and together, so each cut is judged
 * with the buckets that suit it best. It is simulated with the present buckets, with one bucket for
 * the gradients of the segment (Hu et al., MLSys 2022, theorem 3: if fusing one of them is right,
 * fusing both is no worse), and with the cuts of dynamic programming for the new times of
 * readiness. The search continues from the better ones. It starts twice, with nothing fused and
 * with everything fused, and closes, opens or moves one boundary after another while this helps.
 * Only sequences on the critical path are tried, because shortening others alone cannot shorten the
 * step.
 *
 * A boundary that saves nothing stays open, so every line of the plan has a reason.
 */
#include <math.h>
#include <stdlib.h>

#include "search/internal.h"

#define FEW  24	  /* boundaries: up to this number, pairs of them are tried too */
#define NEAR 1.05 /* this close to the best, buckets are searched before judging */

struct ops {
	struct search *s;
	struct pl_arena arena;
	struct pl_rewrite_runs runs;
	uint32_t *first;      /* [run]: its first boundary; runs + 1 */
	const char **arg;     /* names, parallel to runs.name; the extras keep them */
	uint8_t *bit, *tried; /* [boundary]: closed; those that `at` was found with */
	uint32_t n_bits;
	uint8_t *hot;	 /* [name] */
	uint32_t *makes; /* [tensor]: name of the operation that makes it */
	uint8_t *merged; /* [tensor]: its gradient belongs to the current segment */
	uint32_t n_tensors;
	struct candidate *at; /* the best so far, with `bit` */
	struct pl_rewrite *line;
	size_t n_lines;
	size_t before; /* extras before them */
	size_t rooted; /* extras that the workers have applied */
};

/* ---- which operations ------------------------------------------------------------------------ */

bool pl_search_fusable(unsigned op)
{
	return op == PL_OP_ELEMENTWISE || op == PL_OP_NORMALIZATION || op == PL_OP_DROPOUT ||
	       op == PL_OP_SOFTMAX;
}

static bool may_fuse(void *arg, const struct pl_edit *e, uint32_t node)
{
	const struct pl_gwork *work = pl_edit_work(e, node);
	const struct pl_search_opts *o = arg;

	for (size_t i = 0; i < o->n_fuse_globs; i++)
		if (pl_glob(o->fuse_glob[i], pl_edit_name(e, e->node[node].name)))
			return true;
	return !o->n_fuse_globs && work && pl_search_fusable(work->op);
}

static void ops_fini(struct ops *o)
{
	pl_rewrite_runs_fini(&o->runs);
	pl_arena_fini(&o->arena);
}

static int ops_init(struct ops *o, struct pl_err *err)
{
	struct search *s = o->s;
	const struct pl_graph *g = s->worker[0].e.g;

	PL_CHECK(pl_search_choice_new(s->choices, &o->at, err));
	pl_rewrite_tensors(s->worker[0].r, &o->n_tensors);
	PL_CHECK(pl_rewrite_runs(s->worker[0].r, may_fuse, (void *)s->o, &o->runs, err));
	PL_CHECK(pl_arena_array(&o->arena, &o->first, o->runs.n_runs + 1, sizeof(*o->first), err));
	PL_CHECK(pl_arena_array(&s->arena, &o->arg, o->runs.n_names, sizeof(*o->arg), err));
	for (size_t i = 0; i < o->runs.n_names; i++)
		o->arg[i] = pl_intern_get(&g->str, o->runs.name[i]);
	for (size_t i = 0; i < o->runs.n_runs; i++) {
		o->first[i] = o->n_bits;
		o->n_bits += o->runs.run[i].n - 1;
	}
	o->first[o->runs.n_runs] = o->n_bits;
	PL_CHECK(pl_arena_array(&o->arena, &o->bit, o->n_bits, 1, err));
	PL_CHECK(pl_arena_array(&o->arena, &o->tried, o->n_bits, 1, err));
	PL_CHECK(pl_arena_array(&o->arena, &o->line, o->n_bits, sizeof(*o->line), err));
	PL_CHECK(pl_arena_array(&o->arena, &o->hot, g->str.n, 1, err));
	PL_CHECK(pl_arena_array(&o->arena, &o->makes, o->n_tensors, sizeof(*o->makes), err));
	PL_CHECK(pl_arena_array(&o->arena, &o->merged, o->n_tensors, 1, err));
	memset(o->bit, 0, o->n_bits);
	memset(o->tried, 0, o->n_bits);
	for (uint32_t t = 0; t < o->n_tensors; t++)
		o->makes[t] = pl_rewrite_producer(s->worker[0].r, t);
	while (o->before < s->n_extra && s->extra[o->before].op != PL_RW_ACCUMULATE)
		o->before++;
	return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Long ones first, because a short one would match parts of them. Names are interned. */
static int by_length(const void *pa, const void *pb)
{
	const struct pl_rewrite *a = pa, *b = pb;
	int c = 0;

	if (a->n_args != b->n_args)
		return a->n_args > b->n_args ? -1 : 1;
	for (uint32_t i = 0; i < a->n_args && !c; i++)
		c = a->arg[i] == b->arg[i] ? 0 : strcmp(a->arg[i], b->arg[i]);
	return c;
}

static bool same_line(const struct pl_rewrite *a, const struct pl_rewrite *b)
{
	return a->op == b->op && a->n_args == b->n_args && !by_length(a, b);
}

/* The length of the segment of the run that begins at operation a. */
static uint32_t segment(const struct ops *o, size_t run, uint32_t a)
{
	uint32_t n = 1;

	while (a + n < o->runs.run[run].n && o->bit[o->first[run] + a + n - 1])
		n++;
	return n;
}

static void make_lines(struct ops *o)
{
	double share = o->s->o->fuse_share;
	size_t kept = 0;

	o->n_lines = 0;
	for (size_t i = 0; i < o->runs.n_runs; i++) {
		const struct pl_op_run *run = &o->runs.run[i];

		for (uint32_t a = 0, n; a < run->n; a += n) {
			n = segment(o, i, a);
			if (n > 1)
				o->line[o->n_lines++] =
					(struct pl_rewrite){ .op = PL_RW_FUSE_OPS,
							     .arg = o->arg + run->name + a,
							     .n_args = n,
							     .x = share < 1 ? share : 0,
							     .alone_ns = INT64_MIN,
							     .in_plan_ns = INT64_MIN };
		}
	}
	pl_sort(o->line, o->n_lines, sizeof(*o->line), by_length);
	for (size_t i = 0; i < o->n_lines; i++)
		if (!kept || !same_line(&o->line[kept - 1], &o->line[i]))
			o->line[kept++] = o->line[i];
	o->n_lines = kept;
}

/* Make the lines of the bits extras of all workers, from the first one that differs. */
static int root_lines(struct ops *o, struct pl_err *err)
{
	struct search *s = o->s;
	size_t had = 0, behind, keep = o->before;
	int rc;

	make_lines(o);
	while (o->before + had < s->n_extra && s->extra[o->before + had].op == PL_RW_FUSE_OPS)
		had++;
	behind = s->n_extra - o->before - had;
	while (keep - o->before < had && keep - o->before < o->n_lines &&
	       same_line(&s->extra[keep], &o->line[keep - o->before]))
		keep++;
	if (keep > o->rooted)
		keep = 0;
	PL_CHECK(pl_grow(&s->extra, &s->cap_extra, o->before + o->n_lines + behind,
			 sizeof(*s->extra), err));
	if (behind)
		memmove(s->extra + o->before + o->n_lines, s->extra + o->before + had,
			behind * sizeof(*s->extra));
	if (o->n_lines)
		memcpy(s->extra + o->before, o->line, o->n_lines * sizeof(*o->line));
	s->n_extra = o->before + o->n_lines + behind;
	o->rooted = 0;
	rc = pl_search_workers_root(s, keep, err);
	if (rc == 0)
		o->rooted = s->n_extra;
	return rc;
}

/* ---- one cut into segments ------------------------------------------------------------------- */

/* Is the tensor made by an operation of the segment around the boundary? */
static bool in_segment(const struct ops *o, uint32_t lo, uint32_t hi, uint32_t tensor)
{
	for (uint32_t i = lo; i <= hi; i++)
		if (o->runs.name[i] == o->makes[tensor])
			return true;
	return false;
}

/* Also try one bucket for the gradients of the segment around the boundary. */
static void add_merged(struct ops *o, uint32_t bit)
{
	uint32_t run = 0, lo, hi;

	while (o->first[run + 1] <= bit)
		run++;
	lo = hi = bit - o->first[run];
	while (lo && o->bit[o->first[run] + lo - 1])
		lo--;
	while (o->first[run] + hi < o->first[run + 1] && o->bit[o->first[run] + hi])
		hi++;
	lo += o->runs.run[run].name;
	hi += o->runs.run[run].name;
	for (uint32_t t = 0; t < o->n_tensors; t++)
		o->merged[t] = in_segment(o, lo, hi, t);
	pl_search_choice_add_merged(o->s->choices, o->merged);
}

/* Find the best buckets for these bits: s->best; INFINITY: refused. `bit` PL_NONE: no boundary. */
static int simulate(struct ops *o, uint32_t bit, struct pl_err *err)
{
	struct search *s = o->s;
	int rc = root_lines(o, err);

	s->best->mean = INFINITY;
	if (rc < 0)
		return pl_search_allow_refusal(rc, err);
	pl_search_choice_move(s->choices, o->at);
	pl_search_choice_clear(s->choices);
	pl_search_choice_add(s->choices, o->at);
	if (bit != PL_NONE && o->bit[bit])
		add_merged(o, bit);
	pl_search_choice_add_cuts(s->choices, PL_ALGO_RING);
	return pl_search_choice_simulate(s->choices, err);
}

/* Keep the bits if the step is better, or no worse and the plan simpler; else undo them. */
static int judge_bits(struct ops *o, uint32_t bit, bool simpler, bool *better, struct pl_err *err)
{
	struct search *s = o->s;
	int rc = simulate(o, bit, err);

	if (rc == 0 && o->n_bits <= FEW && s->best->mean >= o->at->mean &&
	    s->best->mean < NEAR * o->at->mean) {
		pl_search_choice_move(s->choices, s->best);
		rc = pl_search_choice_improve(s->choices, err);
	}
	if (rc < 0)
		return rc;
	if (s->best->mean < o->at->mean || (simpler && s->best->mean <= o->at->mean)) {
		*better |= s->best->mean < o->at->mean;
		pl_search_choice_copy(s->choices, o->at, s->best);
		memcpy(o->tried, o->bit, o->n_bits);
	} else {
		memcpy(o->bit, o->tried, o->n_bits);
		pl_search_choice_copy(s->choices, s->best, o->at);
	}
	return 0;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Apply the best result on the workers again. */
static int restore(struct ops *o, struct pl_err *err)
{
	struct search *s = o->s;
	int rc = root_lines(o, err);

	pl_search_choice_copy(s->choices, s->best, o->at);
	if (rc == 0)
		pl_search_choice_move(s->choices, o->at);
	return rc;
}

static int find_hot(struct ops *o, struct pl_err *err)
{
	struct search *s = o->s;

	PL_CHECK(restore(o, err));
	PL_CHECK(pl_search_worker_show(s, o->at, err));
	return pl_rewrite_hot(s->worker[0].r, NULL, o->hot, err);
}

static bool is_hot(const struct ops *o, uint32_t run, uint32_t i)
{
	const uint32_t *name = o->runs.name + o->runs.run[run].name + i;

	return o->hot[name[0]] || o->hot[name[1]];
}

/* Close or open boundary i of the run; or move it by one to the right or to the left. */
static int try_bit(struct ops *o, uint32_t run, uint32_t i, bool *better, struct pl_err *err)
{
	uint32_t b = o->first[run] + i;

	o->bit[b] ^= 1;
	PL_CHECK(judge_bits(o, b, !o->bit[b], better, err));
	for (int side = 0; side < 2; side++) {
		uint32_t to = side ? b - 1 : b + 1;

		if ((side ? !i : b + 1 == o->first[run + 1]) || o->bit[b] == o->bit[to])
			continue;
		o->bit[b] ^= 1;
		o->bit[to] ^= 1;
		PL_CHECK(judge_bits(o, o->bit[b] ? b : to, false, better, err));
	}
	return 0;
}

static int search_buckets(struct ops *o, bool *better, struct pl_err *err)
{
	struct search *s = o->s;
	int rc = restore(o, err);

	if (rc == 0)
		rc = pl_search_choice_improve(s->choices, err);
	if (rc == 0 && s->best->mean < o->at->mean) {
		pl_search_choice_copy(s->choices, o->at, s->best);
		*better = true;
	}
	return rc;
}

/* Open the boundaries of every segment with these names. */
static void open_line(struct ops *o, const struct pl_rewrite *line)
{
	for (size_t i = 0; i < o->runs.n_runs; i++) {
		const struct pl_op_run *run = &o->runs.run[i];

		for (uint32_t a = 0, n; a < run->n; a += n) {
			n = segment(o, i, a);
			if (n == line->n_args &&
			    !memcmp(o->arg + run->name + a, line->arg, n * sizeof(*line->arg)))
				memset(o->bit + o->first[i] + a, 0, n - 1);
		}
	}
}

/* Remove a line if the step is no longer without it. */
static int prune(struct ops *o, struct pl_err *err)
{
	struct pl_rewrite *line = NULL;
	bool better = false;
	size_t n;
	int rc;

	PL_TRY(restore(o, err));
	n = o->n_lines;
	PL_TRY(pl_alloc(&line, n, sizeof(*line), err));
	if (n)
		memcpy(line, o->line, n * sizeof(*line));
	for (size_t i = n; i-- > 0 && !pl_search_over(o->s);) {
		open_line(o, &line[i]);
		PL_TRY(judge_bits(o, PL_NONE, true, &better, err));
	}
out:
	pl_free(line);
	return rc;
}

/* With few boundaries, try pairs of them. */
static int try_pairs(struct ops *o, bool *better, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t a = 0; rc == 0 && a < o->n_bits && o->n_bits <= FEW; a++)
		for (uint32_t b = a + 1; rc == 0 && b < o->n_bits && !pl_search_over(o->s); b++) {
			o->bit[a] ^= 1;
			o->bit[b] ^= 1;
			rc = judge_bits(o, o->bit[a] ? a : b, false, better, err);
		}
	return rc;
}

static int sweep(struct ops *o, struct pl_err *err)
{
	bool better = true;

	while (better && !pl_search_over(o->s)) {
		better = false;
		PL_CHECK(find_hot(o, err));
		for (uint32_t run = 0; run < o->runs.n_runs; run++)
			for (uint32_t i = 0; i + 1 < o->runs.run[run].n; i++)
				if ((is_hot(o, run, i) || o->bit[o->first[run] + i]) &&
				    !pl_search_over(o->s))
					PL_CHECK(try_bit(o, run, i, &better, err));
		PL_CHECK(search_buckets(o, &better, err));
		if (!better)
			PL_CHECK(try_pairs(o, &better, err));
	}
	return 0;
}

/* Search from the present cut, and from everything fused. */
static int from_both(struct ops *o, struct pl_err *err)
{
	struct search *s = o->s;
	struct candidate *none;
	uint8_t *bits = NULL;
	bool better = false;
	int rc;

	PL_TRY(pl_search_choice_new(s->choices, &none, err));
	PL_TRY(pl_alloc(&bits, o->n_bits, 1, err));
	pl_search_choice_copy(s->choices, none, o->at);
	PL_TRY(sweep(o, err));
	memcpy(bits, o->bit, o->n_bits);
	if (pl_search_over(s))
		goto out;
	pl_search_choice_copy(s->choices, s->now, o->at); /* the best of the first sweep */
	pl_search_choice_copy(s->choices, o->at, none);
	pl_search_choice_copy(s->choices, none, s->now);
	o->at->mean = INFINITY;
	memset(o->bit, 1, o->n_bits);
	PL_TRY(judge_bits(o, PL_NONE, false, &better, err));
	if (better) {
		PL_TRY(search_buckets(o, &better, err));
		PL_TRY(sweep(o, err));
	}
	if (o->at->mean >= none->mean) {
		pl_search_choice_copy(s->choices, o->at, none);
		memcpy(o->bit, bits, o->n_bits);
		memcpy(o->tried, bits, o->n_bits);
	}
out:
	pl_free(bits);
	return rc;
}

int pl_search_fusion(struct search *s, struct pl_err *err)
{
	struct ops o = { .s = s };
	int rc;

	if (!s->o->fuse_ops || s->o->preset != PL_PRESET_SEARCH)
		return 0;
	PL_TRY(pl_search_workers_root(s, 0, err));
	PL_TRY(ops_init(&o, err));
	pl_search_choice_copy(s->choices, o.at, s->best);
	if (o.n_bits)
		PL_TRY(from_both(&o, err));
	else
		pl_say(s->o->log, PL_LOG_WARN,
		       "no operations that may be fused follow one another in the graph");
	PL_TRY(prune(&o, err));
	rc = restore(&o, err);
out:
	ops_fini(&o);
	return rc;
}
