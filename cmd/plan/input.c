/* Input of the search: the steps of the graph, and the rewrites that may be used. */
#include <math.h>
#include <stdlib.h>

#include "program.h"

/* ---- steps ----------------------------------------------------------------------------------- */

#define UNLIKE_STEPS 16

static size_t n_reported(const struct pl_graph *g)
{
	size_t n = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		n += g->step[k].number != INT64_MIN;
	return n;
}

/* One step stands for steps of one shape only if their lengths differ by less than this share, the
 * standard deviation: what one change saves differs as much from step to step. */
#define FOLD_SCATTER 0.01

/* No step stands for steps that differ: one of them alone may be far from their mean. So all are
 * searched, or so many of them, evenly from the whole recording. *n: how many. */
static int pick_some(struct pl_graph *g, size_t *n, struct pl_err *err)
{
	size_t every = (n_reported(g) + UNLIKE_STEPS - 1) / UNLIKE_STEPS, at = 0;
	int64_t pair[2 * UNLIKE_STEPS];

	*n = 0;
	for (size_t k = 0; k < g->n_steps; k++)
		if (g->step[k].number != INT64_MIN && at++ % every == 0) {
			pair[2 * *n] = pair[2 * *n + 1] = g->step[k].number;
			++*n;
		}
	return pl_graph_pick(g, &(struct pl_graph_part){ .step = pair, .n_steps = *n }, g, err);
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
	struct pl_graph_part part = { 0 };
	int64_t *pair = NULL;
	size_t used = 1;
	int rc;

	PL_TRY(pl_parse_ranges(&c->step, "step", &pair, &part.n_steps, err));
	part.step = pair;
	if (part.n_steps)
		PL_TRY(pl_graph_pick(g, &part, g, err));
	if (n_reported(g) < 2)
		goto out;
	PL_TRY(pl_search_noise_find(g, noise, err));
	if (c->fold == FOLD_NONE) {
		used = n_reported(g);
	} else if (c->fold != FOLD_AUTO || (noise->step < FOLD_SCATTER && alike(g))) {
		PL_TRY(pl_sim_fold(g, c->fold != FOLD_MEAN, g, &used, err));
		pl_say(&c->c.log, PL_LOG_NOTE, "one step stands for %zu", used);
	} else {
		PL_TRY(pick_some(g, &used, err));
		pl_say(&c->c.log, PL_LOG_NOTE, "the steps differ; %zu of them are searched", used);
	}
	noise->work /= sqrt((double)used);
	noise->step /= sqrt((double)used);
	noise->steps = used;
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
		SWITCH(FUSE_OPS, fuse_ops),   SWITCH(WRAP, wrap),
		SWITCH(PREFETCH, prefetch),   SWITCH(LOADER_WORKERS, loader),
		SWITCH(NO_RESHARD, keep),     SWITCH(DEVICE, device),
		SWITCH(BATCH, batch),	      SWITCH(TENSOR_PARALLEL, tensor),
	};
#undef SWITCH

	return op >= 0 && at[op] ? (bool *)((char *)o + at[op]) : NULL;
}

static int not_searched(const char *option, const char *name, struct pl_err *err)
{
	char names[256] = "";
	struct pl_search_opts o;
	size_t n = 0;

	for (unsigned op = 0; op < PL_RW_COUNT_; op++)
		if (which(&o, (int)op) && n < sizeof(names))
			n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
					      pl_plan_rewrite_name(op));
	return pl_fail(err, PL_EUSAGE,
		       "--%s: \"%s\" is no rewrite that can be searched; these are: %s", option,
		       name, names);
}

/* Names joined by commas. */
static int set_all(struct pl_search_opts *o, const struct pl_list *l, bool value,
		   const char *option, struct pl_err *err)
{
	for (size_t i = 0; i < l->n; i++) {
		for (const char *s = l->v[i]; *s;) {
			size_t n = strcspn(s, ",");
			char name[32];
			bool *flag;

			snprintf(name, sizeof(name), "%.*s", (int)(n < 31 ? n : 31), s);
			flag = which(o, pl_plan_rewrite_find(name));
			if (!flag)
				return not_searched(option, name, err);
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
	o->wrap = o->prefetch = o->keep = o->loader = all;
	PL_CHECK(set_all(o, &c->allow, true, "allow", err));
	PL_CHECK(choose_ops(c, o, err));
	PL_CHECK(set_all(o, &c->forbid, false, "forbid", err));
	if (o->device && !c->model)
		return pl_fail(err, PL_EUSAGE,
			       "--allow=device needs a cost model of the operations: -m FILE");
	return 0;
}

int check_keep_ranks(struct pl_search_opts *o, struct pl_err *err)
{
	if (!o->keep_ranks)
		return 0;
	for (int op = 0; op < PL_RW_COUNT_; op++) {
		const bool *flag = which(o, op);

		if (flag && *flag != (op == PL_RW_TENSOR_PARALLEL))
			return pl_fail(err, PL_EUSAGE,
				       "--keep-ranks searches the degree alone: "
				       "--allow=tensor-parallel, and no other rewrite");
	}
	if (o->memory_bytes)
		return pl_fail(err, PL_EUSAGE,
			       "--keep-ranks changes the samples of a rank, and the graph does not "
			       "say what memory they need: leave out --memory");
	return o->preset == PL_PRESET_SEARCH
		       ? 0
		       : pl_fail(err, PL_EUSAGE, "--keep-ranks is for a search, not for --preset");
}
