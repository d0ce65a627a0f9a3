/*
 * Waits that nobody recorded, in words: ranks that wait for one another, as graph inferred it, and
 * time on the critical path that nothing in the recording explains.
 *
 * A row of the latter stands for one place, in at least half of the steps: gaps after one
 * operation, or unexplained time before one.
 */
#include "program.h"

#define SHARE	0.02	/* of the critical path: what is shorter is no row ... */
#define NOTHING 0.05	/* ... nor are gaps of a program that are shorter than this */
#define LEAST	1000000 /* ns: an interpreter needs less between two operations */

/* Waits at one place. */
struct group {
	pl_id what, at; /* names: of the rendezvous or gap, PL_NONE unexplained; and of the place */
	int32_t rank[16];
	size_t n_ranks; /* 17: these and others */
	pl_ns ns;
	size_t steps;
	uint32_t last_step;
};
struct groups {
	const struct report *r;
	struct group *v;
	size_t n, cap;
	struct pl_intern keys; /* of groups, by number */
};

static void add_rank(struct group *x, int32_t rank)
{
	size_t i = 0;

	while (i < x->n_ranks && i < PL_LEN(x->rank) && x->rank[i] != rank)
		i++;
	if (i < x->n_ranks && i < PL_LEN(x->rank))
		return;
	if (i < PL_LEN(x->rank))
		x->rank[i] = rank;
	x->n_ranks = i + 1;
}

static void sort_ranks(struct group *x)
{
	pl_sort(x->rank, pl_min_size(x->n_ranks, PL_LEN(x->rank)), sizeof(*x->rank),
		pl_compare_i32);
}

/* Adds the wait `x` of a step to the group of its place. */
static int add(struct groups *g, const struct group *x, uint32_t step, bool by_rank,
	       struct pl_err *err)
{
	struct group key, *y;
	pl_id k;

	memset(&key, 0, sizeof(key)); /* equal in every byte: of one place */
	key.what = x->what;
	key.at = x->at;
	if (by_rank) {
		memcpy(key.rank, x->rank, sizeof(key.rank));
		key.n_ranks = x->n_ranks;
	}
	PL_CHECK(pl_intern_add(&g->keys, (const char *)&key, sizeof(key), &k, err));
	if (k == g->n) {
		struct group new = *x;

		new.ns = 0;
		new.last_step = UINT32_MAX;
		PL_CHECK(pl_append(&g->v, &g->n, &g->cap, &new, sizeof(new), err));
	}
	y = &g->v[k];
	for (size_t i = 0; i < pl_min_size(x->n_ranks, PL_LEN(x->rank)); i++)
		add_rank(y, x->rank[i]);
	y->ns += x->ns;
	y->steps += y->last_step != step;
	y->last_step = step;
	return 0;
}

static void print_ranks(struct pl_writer *w, const struct group *x)
{
	size_t n = pl_min_size(x->n_ranks, PL_LEN(x->rank));

	pl_write_text(w, x->n_ranks == 1 ? "rank" : "ranks");
	for (size_t i = 0; i < n; i++)
		pl_write_format(w, "%s %d", i ? "," : "", x->rank[i]);
	if (x->n_ranks > n)
		pl_write_text(w, " and others");
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

static bool is_unrecorded(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return sh->type[i] == PL_N_RENDEZVOUS && sh->role[i] == PL_RO_MARK &&
	       sh->flags[i] & PL_NF_INFERRED &&
	       !strncmp(pl_intern_get(&g->str, sh->name[i]), PL_UNRECORDED,
			sizeof(PL_UNRECORDED) - 1);
}

/* The members, and how long the one waits that is ready first. */
static struct group meeting(const struct pl_graph *g, size_t step, uint32_t i)
{
	const struct pl_gstep *st = &g->step[step];
	const struct pl_shape *sh = &g->shape[st->shape];
	struct group x = { .what = sh->name[i], .at = PL_NONE };
	pl_ns ready[PL_LEN(x.rank)] = { 0 };

	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		uint32_t src = sh->src[e];
		int32_t rank = pl_node_rank(g, sh, src);
		size_t n = x.n_ranks, k = 0;

		if (rank < 0) /* the begin of a step */
			continue;
		add_rank(&x, rank);
		if (x.n_ranks > n && n < PL_LEN(ready))
			ready[n] = INT64_MIN;
		while (k < PL_LEN(ready) && k < x.n_ranks && x.rank[k] != rank)
			k++;
		if (k < PL_LEN(ready))
			ready[k] = pl_max_i64(ready[k], st->start[src] + st->dur[src]);
	}
	for (size_t k = 0; k < pl_min_size(x.n_ranks, PL_LEN(ready)); k++)
		x.ns = pl_max_i64(x.ns, st->start[i] - ready[k]);
	sort_ranks(&x);
	return x;
}

static int find_meetings(struct groups *g, struct pl_err *err)
{
	const struct pl_graph *graph = &g->r->g;

	for (uint32_t k = 0; k < graph->n_steps; k++) {
		const struct pl_shape *sh = &graph->shape[graph->step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && pl_sim_reported(g->r->s, k);
		     i++) {
			struct group x;

			if (!is_unrecorded(graph, sh, i))
				continue;
			x = meeting(graph, k, i);
			PL_CHECK(add(g, &x, k, true, err));
		}
	}
	return 0;
}

/* ---- time without a cause -------------------------------------------------------------------- */

/* Is this the rest of a wait for other ranks? */
static bool follows_meeting(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		if (is_unrecorded(g, sh, sh->src[e]))
			return true;
	return false;
}

/* The operation before the gap on its thread. */
static pl_id before(const struct pl_shape *sh, uint32_t i)
{
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		if (sh->res[sh->src[e]] == sh->res[i] && sh->role[sh->src[e]] != PL_RO_GAP)
			return sh->name[sh->src[e]];
	return PL_NONE;
}

static int find_causeless(struct groups *g, const struct pl_path *p, struct pl_err *err)
{
	const struct pl_graph *graph = &g->r->g;

	for (size_t i = 0; i < p->n; i++) {
		const struct pl_path_item *x = &p->item[i];
		const struct pl_shape *sh = &graph->shape[graph->step[x->step].shape];
		unsigned phase = sh->phase ? sh->phase[x->node] : PL_PH_UNKNOWN;
		bool gap = x->part == PL_PP_NODE && sh->role[x->node] == PL_RO_GAP;
		struct group y = { .what = gap ? sh->name[x->node] : PL_NONE,
				   .at = gap ? before(sh, x->node) : sh->name[x->node],
				   .rank = { pl_node_rank(graph, sh, x->node) },
				   .n_ranks = 1,
				   .ns = x->ns };

		if ((gap || x->part == PL_PP_UNEXPLAINED) && x->ns >= LEAST && y.at != PL_NONE &&
		    !follows_meeting(graph, sh, x->node) && phase <= PL_PH_OTHER &&
		    phase != PL_PH_INPUT)
			PL_CHECK(add(g, &y, x->step, false, err));
	}
	return 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Is it a gap in which the program may compute? */
static bool may_compute(const struct groups *g, const struct group *x)
{
	return x->at != PL_NONE && x->what != PL_NONE &&
	       strcmp(pl_intern_get(&g->r->g.str, x->what), PL_OUTSIDE) != 0;
}

static int say(const struct groups *g, struct group *x, struct wait_row *row, struct pl_err *err)
{
	const struct pl_intern *str = &g->r->g.str;
	const char *what = x->what == PL_NONE ? NULL : pl_intern_get(str, x->what);
	bool meet = x->at == PL_NONE;
	struct pl_writer w;
	char ns[32];
	int rc;

	row->ns = (double)x->ns / (double)g->r->n_steps;
	row->inferred = meet;
	pl_write_init(&w, NULL, 0);
	sort_ranks(x);
	if (meet)
		pl_write_text(&w, "an unrecorded rendezvous of ");
	print_ranks(&w, x);
	pl_fmt_ns(ns, sizeof(ns), (int64_t)row->ns);
	if (meet)
		pl_write_format(&w, "%s, %s a step (inferred)", what + sizeof(PL_UNRECORDED) - 1,
				ns);
	else if (!may_compute(g, x))
		pl_write_format(&w,
				" wait%s %s a step %s %s for something outside of the recording",
				x->n_ranks == 1 ? "s" : "", ns, what ? "after" : "before",
				pl_intern_get(str, x->at));
	else
		pl_write_format(&w,
				" record%s nothing for %s a step after %s: the program computes, "
				"or waits for something outside of the recording",
				x->n_ranks == 1 ? "s" : "", ns, pl_intern_get(str, x->at));
	rc = pl_write_check(&w, err);
	if (rc >= 0)
		snprintf(row->text, sizeof(row->text), "%.*s", (int)w.b.n, (const char *)w.b.p);
	pl_write_fini(&w);
	return rc;
}

PL_COMPARATOR_FALLING(by_time, struct group, ns, what, at, n_ranks);

int find_waits(struct report *r, const struct pl_path *p, struct pl_err *err)
{
	struct groups g = { .r = r };
	int rc;

	PL_TRY(find_meetings(&g, err));
	PL_TRY(find_causeless(&g, p, err));
	pl_sort(g.v, g.n, sizeof(*g.v), by_time);
	r->n_waits = 0;
	for (size_t i = 0; i < g.n && r->n_waits < PL_LEN(r->wait); i++)
		if ((double)g.v[i].ns >=
			    (may_compute(&g, &g.v[i]) ? NOTHING : SHARE) * (double)p->length &&
		    2 * g.v[i].steps >= r->n_steps)
			PL_TRY(say(&g, &g.v[i], &r->wait[r->n_waits++], err));
out:
	pl_free(g.v);
	pl_intern_fini(&g.keys);
	return rc;
}

void print_waits(const struct report *r, struct pl_writer *w)
{
	for (size_t i = 0; i < r->n_waits; i++)
		print_wrapped("waits:", r->wait[i].text, w);
}

void put_waits(struct pl_writer *w, const struct report *r)
{
	pl_json_key(w, "waits");
	pl_json_open(w, '[');
	for (size_t i = 0; i < r->n_waits; i++) {
		pl_json_open(w, '{');
		pl_json_bool(w, "rendezvous", r->wait[i].inferred);
		pl_json_real(w, "ns", r->wait[i].ns);
		pl_json_str(w, "text", r->wait[i].text);
		pl_json_close(w);
	}
	pl_json_close(w);
}
