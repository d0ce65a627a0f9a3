/*
 * The most valuable changes: each candidate is scaled by 0.5 and simulated.
 *
 * If durations shrink, a critical path remains a chain of constraints. So a change saves at most
 * half of the time that it selects on that path. Candidates are simulated in the order of this
 * bound, until the next bound is below the fifth best saving. With several steps the bound holds
 * only for their sum; SLACK allows for it. Candidates are simulated together, in several
 * threads. Results beyond the end of the search are not used, so the report depends on neither.
 *
 * These simulations leave out that communication slows down computation beside it, and the time of
 * the profiler. So the changes that are shown are predicted again, as --what-if predicts them. This
 * takes up to 32 simulations for each, so a large graph goes without.
 */
#include <math.h>
#include <stdlib.h>

#include "graph/select.h"
#include "program.h"

#define BEST	  5
#define MOST	  24 /* simulations */
#define NAMES	  12 /* operations tried */
#define RANKS	  4
#define SLACK	  1.25
#define MEMORY	  ((size_t)96 << 20) /* bytes: beyond them, no more simulations at the same time */
#define MATTERS	  0.05		     /* share of the profiler's time in a step of more nodes */
#define PREDICTED 250000	     /* nodes: of more, the changes are simulated alone */
#define FACTOR	  0.5
#define FACTOR_S  "0.5"

struct cand {
	char *text;
	double bound; /* ns a step */
	size_t order; /* as added: breaks ties */
	struct pl_graph_select select;
	struct halving run;
	pl_ns *length; /* of its steps */
};
struct cands {
	const struct report *r;
	struct pl_plan plan; /* a line for each */
	struct cand *v;
	size_t n, cap;
	pl_ns all[2];  /* on the path: communication, and all other operations */
	pl_ns *length; /* [candidate][step] */
};
struct batch { /* candidates simulated together */
	const struct pl_sim *s;
	struct cand *v;
	size_t n;
	int rc;
	struct pl_err err;
};

/* ---- candidates ------------------------------------------------------------------------------ */

static bool has_duration(const struct path_row *p)
{
	return p->role == PL_RO_COMPUTE || p->role == PL_RO_HOST || p->role == PL_RO_GAP ||
	       p->role == PL_RO_COPY || p->role == PL_RO_TRANSFER;
}

static bool is_comm(const struct path_row *p)
{
	return pl_graph_select_is_comm(p->role, p->node_kind);
}

static int add(struct cands *x, const char *selector, pl_ns on_path, bool comm, struct pl_err *err)
{
	double of_class = (double)on_path / (double)pl_max_i64(1, x->all[!comm]);
	struct pl_buf b = { 0 };
	struct cand c;
	int rc;

	if (on_path <= 0)
		return 0;
	PL_TRY(pl_buf_printf(&b, err, "scale %s by " FACTOR_S, selector));
	PL_TRY(pl_buf_put(&b, "", 1, err));
	c = (struct cand){ .text = (char *)b.p,
			   .bound = (1 - FACTOR) * (double)on_path / (double)x->r->n_steps,
			   .run = { .factor = FACTOR,
				    .touched = (1 - FACTOR) * fmin(1, of_class),
				    .comm = comm,
				    .pauses = !strcmp(selector, "kind=gap") },
			   .order = x->n };
	PL_TRY(pl_append(&x->v, &x->n, &x->cap, &c, sizeof(c), err));
	return 0;
out:
	pl_buf_fini(&b);
	return rc;
}

static int add_classes(struct cands *x, struct pl_err *err)
{
	pl_ns kind[PL_K_COUNT_] = { 0 }, of_comm[PL_K_COUNT_] = { 0 }, comm = 0, gap = 0;
	const struct report *r = x->r;
	char text[64];

	for (size_t i = 0; i < r->n_rows; i++) {
		const struct path_row *p = &r->row[i];

		if (!has_duration(p))
			continue;
		if (p->role == PL_RO_GAP)
			gap += p->ns;
		else if (p->node_kind < PL_K_COUNT_)
			kind[p->node_kind] += p->ns;
		if (is_comm(p)) {
			comm += p->ns;
			of_comm[p->node_kind < PL_K_COUNT_ ? p->node_kind : PL_K_OTHER] += p->ns;
		}
		x->all[!is_comm(p)] += p->ns;
	}
	if (kind[PL_K_KERNEL] && kind[PL_K_HOST_OP])
		PL_CHECK(add(x, "kind=kernel|host_op", kind[PL_K_KERNEL] + kind[PL_K_HOST_OP],
			     false, err));
	PL_CHECK(add(x, "kind=comm", comm, true, err));
	PL_CHECK(add(x, "kind=gap", gap, false, err));
	for (unsigned k = 0; k < PL_K_COUNT_; k++) {
		if (kind[k] == comm) /* the same under another name */
			continue;
		snprintf(text, sizeof(text), "kind=%s", pl_trace_kind_name(k));
		PL_CHECK(add(x, text, kind[k], of_comm[k] > 0, err));
	}
	return 0;
}

/* A selector that matches this name and no other. */
static int name_selector(const char *name, struct pl_buf *b, struct pl_err *err)
{
	b->n = 0;
	PL_CHECK(pl_buf_put(b, "name=", 5, err));
	for (; *name; name++) {
		/* "," and a key of the statement begin another selector */
		bool separates = *name == ',' && strchr(name, '=');

		if (strchr("*?[]\\|", *name))
			PL_CHECK(pl_buf_put(b, "\\", 1, err));
		PL_CHECK(pl_buf_put(b, separates ? "?" : name, 1, err));
	}
	return pl_buf_put(b, "", 1, err);
}

struct named {
	pl_id id;
	pl_ns ns;
	bool comm;
};

PL_COMPARATOR(by_id, struct named, id);

PL_COMPARATOR_FALLING(by_ns, struct named, ns, id);

/* The time on the path by name or by rank, the longest first. Returns how many there are. */
static size_t group(const struct report *r, bool by_rank, struct named *v)
{
	size_t n = 0, k = 0;

	for (size_t i = 0; i < r->n_rows; i++)
		if (has_duration(&r->row[i]) &&
		    (by_rank ? r->row[i].rank >= 0 : r->row[i].role != PL_RO_GAP))
			v[n++] = (struct named){ by_rank ? (pl_id)r->row[i].rank : r->row[i].id,
						 r->row[i].ns, is_comm(&r->row[i]) };
	qsort(v, n, sizeof(*v), by_id);
	for (size_t i = 0; i < n; i++) {
		if (k && v[k - 1].id == v[i].id) {
			v[k - 1].ns += v[i].ns;
			v[k - 1].comm |= v[i].comm;
		} else {
			v[k++] = v[i];
		}
	}
	qsort(v, k, sizeof(*v), by_ns);
	return k;
}

static bool is_slow(const struct report *r, pl_id rank)
{
	bool slow = false;

	for (size_t k = 0; k < r->n_slow; k++)
		slow |= (pl_id)r->slow[k].rank == rank;
	return slow;
}

static int add_names_and_ranks(struct cands *x, struct pl_err *err)
{
	const struct report *r = x->r;
	struct pl_buf b = { 0 };
	struct named *v;
	size_t n;
	int rc;

	PL_TRY(pl_alloc(&v, r->n_rows, sizeof(*v), err));
	n = group(r, false, v);
	for (size_t i = 0; i < n && i < NAMES; i++) {
		const char *name = pl_intern_get(&r->g.str, v[i].id);

		if (!*name)
			continue;
		PL_TRY(name_selector(name, &b, err));
		PL_TRY(add(x, (const char *)b.p, v[i].ns, v[i].comm, err));
	}
	n = r->account.n_ranks > 1 ? group(r, true, v) : 0;
	for (size_t i = 0; i < n; i++) {
		char text[32];

		if (i >= RANKS && !is_slow(r, v[i].id))
			continue;
		snprintf(text, sizeof(text), "rank=%u", v[i].id);
		PL_TRY(add(x, text, v[i].ns, v[i].comm, err));
	}
out:
	pl_buf_fini(&b);
	pl_free(v);
	return rc;
}

PL_COMPARATOR_FALLING(by_bound, struct cand, bound, order);

/* ---- simulation ------------------------------------------------------------------------------ */

static void simulate(void *arg)
{
	struct pl_sim_scale scale[PL_SIM_SIDE_BY_SIDE];
	double mean[PL_SIM_SIDE_BY_SIDE];
	struct batch *b = arg;

	for (size_t i = 0; i < b->n; i++)
		scale[i] = (struct pl_sim_scale){ &b->v[i].select, FACTOR, b->v[i].length };
	b->rc = pl_sim_means(b->s, scale, b->n, mean, &b->err);
	for (size_t i = 0; i < b->n && b->rc >= 0; i++)
		b->v[i].run.mean = mean[i];
}

static int prepare(struct cands *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++)
		PL_CHECK(pl_plan_add_line(&x->plan, x->v[i].text, err));
	for (size_t i = 0; i < x->n; i++)
		PL_CHECK(pl_graph_select_init(&x->v[i].select, &x->plan.rw[i].select, &x->r->g,
					      NULL, err));
	PL_CHECK(pl_alloc(&x->length, MOST * x->r->n_steps, sizeof(*x->length), err));
	for (size_t i = 0; i < x->n && i < MOST; i++)
		x->v[i].run.length = x->v[i].length = x->length + i * x->r->n_steps;
	return 0;
}

/* Are both of one operation, or both of one rank? Then they select other operations. */
static bool are_different(const char *a, const char *b)
{
	static const char *const head[] = { "scale name=", "scale rank=" };
	bool different = false;

	for (size_t i = 0; i < PL_LEN(head); i++)
		different |= !strncmp(a, head[i], strlen(head[i])) &&
			     !strncmp(b, head[i], strlen(head[i]));
	return different;
}

/* Keep the candidate if it is among the best. Equal ones come once: a class may be one operation.
 */
static void consider(struct report *r, struct cand *c)
{
	double saves = r->mean - c->run.mean;
	struct saving s;
	size_t i = r->n_changes;

	if (can_contradict(c->select.keys))
		note_contradiction(&r->trust, c->text, FACTOR, r->mean, c->run.mean);
	if (saves < 0.5)
		return;
	for (size_t k = 0; k < r->n_changes; k++)
		if (r->change[k].saves_ns == saves && !are_different(r->change[k].change, c->text))
			return;
	for (; i && r->change[i - 1].saves_ns < saves; i--)
		;
	if (i == BEST)
		return;
	if (r->n_changes == BEST)
		pl_free(r->change[--r->n_changes].change);
	memmove(&r->change[i + 1], &r->change[i], (r->n_changes - i) * sizeof(*r->change));
	find_saving(r, &c->run, &s);
	r->change[i] = (struct change_row){ c->text, saves, s, c->run };
	c->text = NULL;
	r->n_changes++;
}

static bool enough(const struct report *r, double bound)
{
	return r->n_changes == BEST &&
	       r->change[BEST - 1].saves_ns >= bound * (r->n_steps > 1 ? SLACK : 1);
}

/* The candidates, in batches of those that are simulated together. Returns how many batches. */
static size_t make_batches(const struct report *r, const struct cands *x, struct batch *b)
{
	size_t n = pl_min_size(x->n, MOST), k = 0;
	size_t some = pl_sim_side_by_side(r->s);

	for (size_t i = 0; i < n; i += b[k++].n)
		b[k] = (struct batch){ .s = r->s, .v = x->v + i, .n = pl_min_size(n - i, some) };
	return k;
}

/* How many batches run at the same time. Each needs memory for the times of a step. */
static int at_once(const struct report *r, struct pl_pool *pool)
{
	size_t most = MEMORY / (pl_sim_means_memory(r->s) + 1) + 1;

	return (int)pl_min_size(most, (size_t)pl_pool_threads(pool));
}

/* A round is a batch for each thread: where it may end the search, none is begun beyond it. */
static int evaluate(struct report *r, struct cands *x, struct pl_pool *pool, struct pl_err *err)
{
	struct pl_queue *q = pl_queue_new(pool, at_once(r, pool), err);
	struct batch batch[MOST], *b;
	size_t put = 0, n = make_batches(r, x, batch);
	int rc = 0;

	if (!q)
		return err->code;
	while (put < n && !enough(r, batch[put].v->bound) && rc >= 0) {
		while (put < n && !pl_queue_full(q))
			pl_queue_put(q, simulate, &batch[put++]);
		while ((b = pl_queue_get(q))) {
			if (b->rc < 0 && rc >= 0)
				rc = pl_fail(err, b->rc, "%s", b->err.msg);
			for (size_t k = 0; k < b->n && rc >= 0 && !enough(r, b->v[k].bound); k++)
				consider(r, &b->v[k]);
		}
	}
	pl_queue_free(q);
	return rc;
}

/* ---- as --what-if predicts ------------------------------------------------------------------- */

bool is_large(size_t nodes)
{
	return nodes > PREDICTED;
}

size_t count_nodes(const struct pl_graph *g)
{
	size_t nodes = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		nodes += g->shape[g->step[k].shape].n_nodes;
	return nodes;
}

/* Were the changes made in the graph, not in durations of the simulator? */
static bool are_in_graph(const struct changes *made)
{
	return !pl_rewrite_is_timing(&made->plan);
}

/* Would a line on top of the changes count contention twice? */
static bool contends_already(const struct report *r)
{
	return (r->changes->structural || are_in_graph(r->changes)) && r->basis.contention > 1;
}

bool only_simulates(const struct report *r)
{
	return is_large(count_nodes(&r->g)) || contends_already(r);
}

/* The times of a run with the change. */
static int take_times(const struct report *r, const struct pl_sim *s, struct halving *x,
		      pl_ns *length, struct pl_err *err)
{
	const struct extra *before = &r->path_extra;
	struct extra after;
	double by = 1;
	struct pl_path path = { 0 };
	struct pl_run run = { 0 };
	size_t n = 0;
	int rc;

	PL_TRY(pl_sim_run(s, &run, err));
	x->mean = pl_sim_steps_overlap(r->s) ? pl_sim_run_mean_period(s, &run)
					     : pl_sim_run_mean_step(s, &run);
	if (is_extra(before)) {
		PL_TRY(pl_sim_path_find(s, &run, &path, err));
		after = extra_time(r, s, &path);
		by = extra_correction(before, &after, &x->extra_error);
		x->extra_error *= x->mean / r->mean;
		x->mean *= by;
	}
	for (size_t k = 0; k < r->g.n_steps; k++)
		if (pl_sim_reported(s, k))
			length[n++] =
				(pl_ns)llround(by * (double)(run.step_end[k] - run.step_start[k]));
	x->length = length;
out:
	pl_sim_path_fini(&path);
	pl_sim_run_fini(&run);
	return rc;
}

int simulate_line(const struct report *r, const char *line, struct halving *x, pl_ns *length,
		  struct pl_err *err)
{
	const struct changes *made = r->changes;
	const struct pl_rewrite_known known = what_is_known(made);
	struct pl_rewrite_basis basis = { .contention = x->in_graph ? 1 : r->basis.contention };
	struct pl_sim *s = NULL;
	uint64_t *hits = NULL;
	struct pl_plan plan;
	int rc;

	pl_plan_init(&plan);
	for (size_t i = 0; i < made->plan.n_rw && !are_in_graph(made); i++)
		PL_TRY(pl_plan_add(&plan, &made->plan.rw[i], err));
	PL_TRY(pl_plan_add_line(&plan, line, err));
	PL_TRY(pl_alloc(&hits, plan.n_rw, sizeof(*hits), err));
	s = pl_sim_new(&r->g, err);
	PL_TRY(s ? 0 : err->code);
	PL_TRY(pl_rewrite_durations(s, &r->g, &plan, &known, hits, &basis, err));
	rc = take_times(r, s, x, length, err);
out:
	pl_sim_free(s);
	pl_free(hits);
	pl_plan_fini(&plan);
	return rc;
}

int predict_line(const struct report *r, const char *line, struct halving *x, pl_ns *length,
		 struct pl_err *err)
{
	bool contends = !x->in_graph && r->basis.contention > 1;
	const struct extra *extra = &r->path_extra;

	if (contends_already(r) || (!contends && !is_extra(extra)))
		return 0;
	if (is_large(count_nodes(&r->g)) && !(extra->profiler + extra->memory > MATTERS))
		return 0;
	return simulate_line(r, line, x, length, err);
}

static int by_saving(const void *pa, const void *pb)
{
	const struct change_row *a = pa, *b = pb;
	int c = PL_COMPARE(b->saves_ns, a->saves_ns);

	return c ? c : strcmp(a->change, b->change);
}

static int predict_all(struct report *r, struct pl_err *err)
{
	pl_ns *length;
	int rc;

	PL_TRY(pl_alloc(&length, r->n_steps, sizeof(*length), err));
	for (size_t i = 0; i < r->n_changes; i++) {
		struct change_row *x = &r->change[i];

		if (!is_large(count_nodes(&r->g))) /* there are many of them */
			PL_TRY(predict_line(r, x->change, &x->run, length, err));
		x->saves_ns = r->mean - x->run.mean;
		find_saving(r, &x->run, &x->saves);
	}
	if (r->n_changes)
		pl_sort(r->change, r->n_changes, sizeof(*r->change), by_saving);
	while (r->n_changes && r->change[r->n_changes - 1].saves_ns < 0.5)
		pl_free(r->change[--r->n_changes].change);
out:
	pl_free(length);
	return rc;
}

int find_worth(struct report *r, struct pl_pool *pool, struct pl_err *err)
{
	struct cands x = { .r = r };
	int rc;

	r->path_extra = extra_time(r, r->s, &r->path);
	r->vanishing_ns = vanishing_time(r);
	pl_plan_init(&x.plan);
	PL_TRY(pl_alloc(&r->change, BEST + 1, sizeof(*r->change), err));
	PL_TRY(add_classes(&x, err));
	PL_TRY(add_names_and_ranks(&x, err));
	if (x.n)
		qsort(x.v, x.n, sizeof(*x.v), by_bound);
	PL_TRY(prepare(&x, err));
	PL_TRY(evaluate(r, &x, pool, err));
	PL_TRY(predict_all(r, err));
out:
	for (size_t i = 0; i < x.n; i++) {
		pl_free(x.v[i].text);
		pl_graph_select_fini(&x.v[i].select);
	}
	pl_free(x.v);
	pl_free(x.length);
	pl_plan_fini(&x.plan);
	return rc;
}
