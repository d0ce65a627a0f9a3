/* Input of the search: the steps of the graph, and the rewrites that may be used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static size_t n_reported(const struct pl_graph *g)
{
	size_t n = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		n += g->step[k].number != INT64_MIN;
	return n;
}

static int pick(struct pl_graph *g, const int64_t *pair, size_t n, struct pl_err *err)
{
	const struct pl_graph_part part = { .step = pair, .n_steps = n };
	struct pl_graph out;

	PL_CHECK(pl_graph_pick(g, &part, &out, err));
	pl_graph_fini(g);
	*g = out;
	return 0;
}

struct length {
	pl_ns ns;
	int64_t number;
};

PL_COMPARATOR(by_length, struct length, ns, number);

/* The step of median length. */
static int pick_median(struct pl_graph *g, struct pl_err *err)
{
	struct length *v = NULL;
	struct pl_sim *s = pl_sim_new(g, err);
	int64_t pair[2];
	size_t n = 0;
	int rc = s ? pl_alloc(&v, g->n_steps, sizeof(*v), err) : err->code;

	for (size_t k = 0; rc == 0 && k < g->n_steps; k++) {
		pl_ns start, end;

		if (g->step[k].number == INT64_MIN || !pl_sim_reported(s, k))
			continue;
		pl_sim_recorded(s, k, &start, &end);
		v[n++] = (struct length){ end - start, g->step[k].number };
	}
	pl_sim_free(s);
	if (rc == 0 && n) {
		pl_sort(v, n, sizeof(*v), by_length);
		pair[0] = pair[1] = v[(n - 1) / 2].number;
		rc = pick(g, pair, 1, err);
	}
	pl_free(v);
	return rc;
}

static int fold(struct pl_graph *g, bool median, size_t *n, struct pl_err *err)
{
	struct pl_graph out;

	pl_graph_init(&out);
	PL_CHECK(pl_sim_fold(g, median, &out, n, err));
	pl_graph_fini(g);
	*g = out;
	return 0;
}

/* More than half of the steps of one shape. */
static bool alike(const struct pl_graph *g)
{
	size_t *count, most = 0;
	struct pl_err ignore = { 0 };

	if (pl_alloc(&count, g->n_shapes, sizeof(*count), &ignore) < 0)
		return false;
	for (size_t k = 0; k < g->n_steps; k++)
		if (g->step[k].number != INT64_MIN && ++count[g->step[k].shape] > most)
			most = count[g->step[k].shape];
	pl_free(count);
	return most > 1 && 2 * most > n_reported(g);
}

int choose_steps(const struct config *c, struct pl_graph *g, struct pl_search_noise *noise,
		 struct pl_err *err)
{
	int64_t *pair = NULL;
	size_t n = 0, folded = 0;
	int rc;

	PL_TRY(pl_parse_ranges(&c->step, "step", &pair, &n, err));
	if (n)
		PL_TRY(pick(g, pair, n, err));
	if (c->fold == FOLD_NONE || n_reported(g) < 2)
		goto out;
	PL_TRY(pl_search_noise_find(g, noise, err));
	if (c->fold != FOLD_AUTO || alike(g)) {
		PL_TRY(fold(g, c->fold != FOLD_MEAN, &folded, err));
		noise->work /= sqrt((double)folded);
		noise->step /= sqrt((double)folded);
		pl_say(&c->c.log, PL_LOG_NOTE, "one step stands for %zu", folded);
	} else {
		PL_TRY(pick_median(g, err));
		if (g->n_steps)
			pl_say(&c->c.log, PL_LOG_NOTE, "the step of median length is %lld",
			       (long long)g->step[0].number);
	}
out:
	pl_free(pair);
	return rc;
}

/* ---- rewrites -------------------------------------------------------------------------------- */

/* The switch of a rewrite; NULL: it cannot be searched. */
static bool *which(struct pl_search_opts *o, int op)
{
#define SWITCH(name, member) [PL_RW_##name] = offsetof(struct pl_search_opts, member)
	static const size_t at[PL_RW_COUNT_] = {
		SWITCH(FUSE_TENSORS, fuse),   SWITCH(PARTITION_TENSOR, partition),
		SWITCH(ORDER, order),	      SWITCH(PRIORITY, priority),
		SWITCH(ALGORITHM, algorithm), SWITCH(ACCUMULATE, accumulate),
		SWITCH(RECOMPUTE, recompute), SWITCH(PRECISION, precision),
		SWITCH(FUSE_OPS, fuse_ops),
	};
#undef SWITCH

	return op >= 0 && at[op] ? (bool *)((char *)o + at[op]) : NULL;
}

/* Names joined by commas. */
static int set_all(struct pl_search_opts *o, const struct pl_list *l, bool value, const char *what,
		   struct pl_err *err)
{
	for (size_t i = 0; i < l->n; i++) {
		for (const char *s = l->v[i]; *s;) {
			size_t n = strcspn(s, ",");
			char name[32];
			bool *flag;

			snprintf(name, sizeof(name), "%.*s", (int)(n < 31 ? n : 31), s);
			flag = which(o, pl_rw_find(name));
			if (!flag)
				return pl_fail(err, PL_EUSAGE,
					       "--%s: \"%s\" is no rewrite that can be searched; "
					       "these are: fuse-tensors, partition-tensor, order, "
					       "priority, "
					       "algorithm, accumulate, recompute, precision, "
					       "fuse-ops",
					       what, name);
			*flag = value;
			s += n + (s[n] == ',');
		}
	}
	return 0;
}

/* Which operations may be fused; "default" is what the search takes by itself. */
static int choose_ops(const struct config *c, struct pl_search_opts *o, struct pl_err *err)
{
	o->fuse_ops |= c->fuse_ops.n > 0;
	if (c->fuse_ops.n != 1 || strcmp(c->fuse_ops.v[0], "default")) {
		o->fuse_glob = (const char *const *)c->fuse_ops.v;
		o->n_fuse_globs = c->fuse_ops.n;
	}
	if (c->fuse_share == -1)
		return 0;
	if (!(c->fuse_share > 0 && c->fuse_share <= 1))
		return pl_fail(err, PL_EUSAGE, "--fuse-share: must be above 0 and at most 1");
	if (!o->fuse_ops)
		return pl_fail(err, PL_EUSAGE, "--fuse-share: nothing is fused without --fuse-ops");
	o->fuse_share = c->fuse_share;
	return 0;
}

/* Without --allow all that leaves the results of training as they are, to rounding. */
int choose_rewrites(const struct config *c, struct pl_search_opts *o, struct pl_err *err)
{
	bool all = c->allow.n == 0;

	o->fuse = o->partition = o->order = o->priority = o->accumulate = o->recompute = all;
	PL_CHECK(set_all(o, &c->allow, true, "allow", err));
	PL_CHECK(choose_ops(c, o, err));
	return set_all(o, &c->forbid, false, "forbid", err);
}
