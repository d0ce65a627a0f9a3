/*
 * The verdict: the critical path by cause. verdict_words.c says it in words.
 *
 * A part of the path has the cause of the first row of `detectors` that claims it. Then time moves
 * between causes as ranks, links and instants compare (verdict_ranks.c). What stays is a share of
 * the path for each cause. A new cause is a row here, one in verdict_words.c, and a line in
 * verdict.h.
 *
 * On a rank with a device, host parts that follow one another are a run: the device has nothing to
 * do meanwhile, except where it computes at the same time. A run that begins because a call had
 * waited for the device is the price of that call, if the device then has more work than the host
 * (the host would run ahead); else the host is too slow with or without the call, or does something
 * else for long that nothing records.
 *
 * One pass over the nodes, and some over the path.
 */
#include "report/verdict_internal.h"

#define LEAST	    0.01 /* of the path: smaller causes have no row */
#define MUCH	    0.1 /* of the path: with such a cause that has a name, computation has no row */
#define BIG_COPY_NS 100000 /* a number that the host reads takes less */

/* ---- what a part is -------------------------------------------------------------------------- */

static bool has_name(const struct verdict_study *x, pl_id name, const char *glob)
{
	return name != PL_NONE && pl_glob(glob, verdict_name(x, name));
}

static bool is_call(const struct verdict_study *x, pl_id name, bool (*is)(const char *))
{
	return name != PL_NONE && is(verdict_name(x, name));
}

static bool is_host(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->rank != PL_NONE && x->rank[p->rank].device && p->part == PL_PP_NODE &&
	       (p->role == PL_RO_HOST || p->role == PL_RO_GAP || p->role == PL_RO_SYNC);
}

static const struct verdict_cell *cell_of(const struct verdict_study *x,
					  const struct verdict_part *p)
{
	return verdict_cell(x, p->step, p->rank);
}

/* Behind the backward pass of its rank and step, and part of no update; or between the steps. */
static bool is_tail(const struct verdict_study *x, const struct verdict_part *p)
{
	bool forward = p->phase == PL_PH_FORWARD;
	const struct verdict_cell *cell;

	if (p->rank == PL_NONE || p->part != PL_PP_NODE || p->role == PL_RO_TRANSFER ||
	    (!forward && p->phase != PL_PH_OTHER && p->phase != PL_PH_UNKNOWN))
		return false;
	cell = cell_of(x, p);
	return cell->last_backward == INT64_MIN ? !pl_sim_reported(x->s, p->step)
						: p->start >= cell->last_backward;
}

/* ---- detectors ------------------------------------------------------------------------------- */

static bool is_long_tail(const struct verdict_study *x, const struct verdict_tail *t)
{
	return !t->products && pl_verdict_longer(x, t->ns, x->usual_tail) &&
	       t->longest > 2 * x->lost;
}

static bool is_checkpoint(const struct verdict_study *x, const struct verdict_part *p)
{
	/* once may be anything; checkpoints are written again and again */
	return p->phase == PL_PH_CHECKPOINT ||
	       (is_tail(x, p) && x->long_tails > 1 && is_long_tail(x, &x->tail[p->step]));
}

static bool is_evaluation(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->phase == PL_PH_EVALUATION || (is_tail(x, p) && x->tail[p->step].products);
}

static bool is_compilation(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->phase == PL_PH_COMPILATION ||
	       (p->part == PL_PP_NODE && is_call(x, p->name, pl_graph_loads_code));
}

/* What is copied within a pass are no samples, but something of the model that the host keeps.
 * Where no steps are known, each pass may have samples of its own. */
static bool brings_samples(const struct verdict_study *x, const struct verdict_part *p)
{
	return verdict_copies(x, p) == PL_COPY_TO_DEVICE &&
	       (x->g->stepless || (p->phase != PL_PH_OPTIMIZER && pl_verdict_before_pass(x, p)));
}

static bool is_input(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->part == PL_PP_NODE && (p->phase == PL_PH_INPUT || brings_samples(x, p));
}

static bool is_garbage(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->phase == PL_PH_GARBAGE || pl_verdict_unusual(x, p);
}

/* Would the host run ahead, had no call waited for the device before? */
static bool is_price(const struct verdict_run *run)
{
	return run->waited != PL_NONE && run->host <= run->covered + run->device;
}

static bool is_memory(const struct verdict_study *x, const struct verdict_part *p)
{
	const struct verdict_run *run = p->run == PL_NONE ? NULL : &x->run[p->run];

	if (run && run->memory && (!verdict_is_silent(x, p) || is_price(run)))
		return true;
	return p->part == PL_PP_NODE && (verdict_direction(x, p) != PL_COPY_OTHER ||
					 is_call(x, p->name, pl_graph_manages_memory));
}

static bool is_host_sync(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->run != PL_NONE && is_price(&x->run[p->run]);
}

static bool is_launch(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->run != PL_NONE && !verdict_is_silent(x, p);
}

static bool is_exposed(const struct verdict_study *x, const struct verdict_part *p)
{
	if (p->role == PL_RO_TRANSFER)
		return p->part == PL_PP_NODE || p->part == PL_PP_LATENCY;
	return p->part == PL_PP_NODE && verdict_issues(x, p->role, p->phase, p->rank);
}

static bool is_recomputation(const struct verdict_study *x, const struct verdict_part *p)
{
	(void)x;
	return p->phase == PL_PH_RECOMPUTATION && p->part == PL_PP_NODE &&
	       (p->role == PL_RO_COMPUTE || p->role == PL_RO_COPY);
}

static bool is_compute(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->part == PL_PP_NODE
		       ? p->role == PL_RO_COMPUTE || p->role == PL_RO_COPY
		       : p->part == PL_PP_LATENCY && p->rank != PL_NONE && x->rank[p->rank].device;
}

/* The causes, in the order in which they claim the parts of the path. The other causes come only by
 * comparison, or are the rest. */
static const struct detector {
	uint8_t cause;
	bool (*claims)(const struct verdict_study *, const struct verdict_part *);
} detectors[] = {
	{ PL_VERDICT_COMPILATION, is_compilation }, { PL_VERDICT_INPUT, is_input },
	{ PL_VERDICT_EVALUATION, is_evaluation },   { PL_VERDICT_CHECKPOINT, is_checkpoint },
	{ PL_VERDICT_GARBAGE, is_garbage },	    { PL_VERDICT_MEMORY, is_memory },
	{ PL_VERDICT_HOST_SYNC, is_host_sync },	    { PL_VERDICT_LAUNCH, is_launch },
	{ PL_VERDICT_EXPOSED, is_exposed },	    { PL_VERDICT_RECOMPUTATION, is_recomputation },
	{ PL_VERDICT_COMPUTE, is_compute },
};

/* ---- the study ------------------------------------------------------------------------------- */

static int cut(struct verdict_study *x, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&x->part, x->path->n, sizeof(*x->part), err));
	for (size_t i = 0; i < x->path->n; i++) {
		const struct pl_path_item *q = &x->path->item[i];
		const struct pl_shape *sh = verdict_shape(x, q->step);
		uint32_t n = q->node;

		x->part[i] = (struct verdict_part){
			.start = q->start,
			.ns = q->ns,
			.left = q->ns,
			.step = q->step,
			.node = n,
			.rank = sh->res[n] == PL_NONE ? PL_NONE : x->rank_of[sh->res[n]],
			.run = PL_NONE,
			.part = q->part,
			.role = sh->role[n],
			.phase = sh->phase ? sh->phase[n] : (uint8_t)PL_PH_UNKNOWN,
			.cause = PL_VERDICT_OTHER,
			.name = sh->name[n],
			.module = sh->module ? sh->module[n] : PL_NONE,
			.line = sh->line ? sh->line[n] : PL_NONE,
		};
	}
	x->n_parts = x->path->n;
	return 0;
}

/* Which communications consume gradients. */
static int find_gradients(struct verdict_study *x, struct pl_err *err)
{
	const struct pl_graph *g = x->g;

	PL_CHECK(pl_alloc(&x->first_comm, g->n_shapes + 1, sizeof(*x->first_comm), err));
	for (size_t i = 0; i < g->n_shapes; i++)
		x->first_comm[i + 1] = x->first_comm[i] + g->shape[i].n_comms;
	PL_CHECK(pl_alloc(&x->gradients, x->first_comm[g->n_shapes], sizeof(*x->gradients), err));
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		for (uint32_t k = 0; t->role == PL_TR_GRAD && k < t->n_consumers; k++) {
			const struct pl_shape *sh = &g->shape[t->shape];
			uint32_t node = g->consumer[t->consumer + k];

			if (pl_node_comm(sh, node))
				x->gradients[x->first_comm[t->shape] + sh->comm[node]] = true;
		}
	}
	return 0;
}

static int study_init(struct verdict_study *x, struct pl_err *err)
{
	const struct pl_graph *g = x->g;
	size_t n = (size_t)g->n_ranks;

	PL_CHECK(pl_alloc(&x->rank, n, sizeof(*x->rank), err));
	PL_CHECK(pl_alloc(&x->rank_of, g->n_res, sizeof(*x->rank_of), err));
	PL_CHECK(pl_alloc(&x->cell, n * g->n_steps, sizeof(*x->cell), err));
	PL_CHECK(pl_alloc(&x->tail, g->n_steps, sizeof(*x->tail), err));
	for (size_t i = 0; i < n * g->n_steps; i++)
		x->cell[i] = (struct verdict_cell){ 0, INT64_MIN, INT64_MAX, INT64_MIN };
	for (size_t i = 0; i < n; i++) {
		x->rank[i].stage = -1;
		x->rank[i].compute =
			x->account->rank[i].compute_ns + x->account->rank[i].comm_overlapped_ns;
	}
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t r = x->rank_of[i] = pl_graph_rank_index(g, g->res[i].rank);

		if (r == PL_NONE)
			continue;
		x->rank[r].device |= g->res[i].track_type == PL_T_STREAM;
		x->rank[r].stage =
			(int32_t)pl_max_i64(x->rank[r].stage, g->res[i].coord[PL_COORD_PP]);
	}
	PL_CHECK(find_gradients(x, err));
	return cut(x, err);
}

static void study_fini(struct verdict_study *x)
{
	pl_free(x->part);
	pl_free(x->run);
	pl_free(x->rank);
	pl_free(x->rank_of);
	pl_free(x->cell);
	pl_free(x->tail);
	pl_free(x->alike);
	pl_free(x->transfers);
	pl_free(x->product);
	pl_free(x->gradients);
	pl_free(x->first_comm);
	pl_intern_fini(&x->sizes);
	pl_intern_fini(&x->pairs);
	pl_spans_fini(&x->comm);
}

/* The call that waited for the device just before this node, PL_NONE: none. */
static pl_id call_that_waited(const struct verdict_study *x, const struct verdict_part *p)
{
	enum { NEAR = 8 };
	const struct pl_shape *sh = verdict_shape(x, p->step);
	uint32_t i = p->node;

	for (int hops = 0; hops < NEAR; hops++) {
		uint32_t before = PL_NONE;

		if (sh->role[i] == PL_RO_SYNC)
			return sh->name[i];
		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
			if (sh->res[sh->src[e]] == sh->res[i])
				before = sh->src[e];
		if (before == PL_NONE || before < sh->n_entries)
			break;
		i = before;
	}
	return PL_NONE;
}

/* `before`: the part of the device, or NULL. */
static int begin_run(struct verdict_study *x, const struct verdict_part *before,
		     const struct verdict_part *p, struct pl_err *err)
{
	struct verdict_run run = { .waited = before ? call_that_waited(x, p) : PL_NONE };

	run.memory = is_call(x, run.waited, pl_graph_manages_memory);
	if (before && before->role == PL_RO_COPY && run.waited != PL_NONE)
		run.memory |= has_name(x, before->name, "*Pageable*") &&
			      (verdict_direction(x, before) == PL_COPY_TO_DEVICE ||
			       before->ns > BIG_COPY_NS);
	return pl_append(&x->run, &x->n_runs, &x->cap_runs, &run, sizeof(run), err);
}

static int find_runs(struct verdict_study *x, struct pl_err *err)
{
	const struct verdict_part *before = NULL; /* the last part of a device */
	bool open = false;

	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];
		bool host = is_host(x, p) || (open && p->part == PL_PP_LATENCY);

		if (!host) {
			before = p->part == PL_PP_NODE ? p : before;
			open &= p->part != PL_PP_NODE;
			if (x->n_runs && p->role == PL_RO_COMPUTE)
				x->run[x->n_runs - 1].device += p->ns;
			continue;
		}
		if (!open)
			PL_CHECK(begin_run(x, before, p, err));
		open = true;
		p->run = (uint32_t)x->n_runs - 1;
		x->run[p->run].host += p->ns;
		x->run[p->run].covered += p->ns - p->left;
	}
	return 0;
}

static int find_tails(struct verdict_study *x, struct pl_err *err)
{
	int64_t *v;
	size_t n = 0;

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];

		if (!is_tail(x, p))
			continue;
		x->tail[p->step].ns += p->ns;
		x->tail[p->step].longest = pl_max_i64(x->tail[p->step].longest, p->ns);
		x->tail[p->step].products |=
			verdict_is_product(x->g, verdict_shape(x, p->step), p->node);
	}
	PL_CHECK(pl_alloc(&v, x->g->n_steps, sizeof(*v), err));
	for (size_t k = 0; k < x->g->n_steps; k++)
		if (pl_sim_reported(x->s, k))
			v[n++] = x->tail[k].ns;
	x->usual_tail = n ? pl_median_i64(v, n) : 0;
	for (size_t k = 0; k < x->g->n_steps; k++)
		x->long_tails += pl_sim_reported(x->s, k) && is_long_tail(x, &x->tail[k]);
	pl_free(v);
	return 0;
}

static void find_causes(struct verdict_study *x)
{
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];

		for (size_t k = 0; k < PL_LEN(detectors); k++)
			if (detectors[k].claims(x, p)) {
				p->cause = detectors[k].cause;
				break;
			}
		x->ns[p->cause] += p->left;
		x->ns[PL_VERDICT_COMPUTE] += p->ns - p->left;
		x->hidden[p->cause] += p->ns - p->left;
		if (p->cause == PL_VERDICT_INPUT)
			verdict_move(x, p, PL_VERDICT_LAUNCH, p->host);
	}
}

/* Operations take a part of their time for new memory. The path may have a part of an operation: it
 * has the same share of that time. */
static void find_new_memory(struct verdict_study *x)
{
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];
		pl_ns ns = p->part == PL_PP_NODE
				   ? pl_new_memory_time(x->memory, x->g, p->step, p->node)
				   : 0;

		if (ns <= 0 || p->cause == PL_VERDICT_MEMORY)
			continue;
		p->new_memory = (pl_ns)((double)p->ns * (double)ns /
					(double)x->g->step[p->step].dur[p->node]);
		p->new_memory = pl_min_i64(p->new_memory, p->left);
		verdict_move(x, p, PL_VERDICT_MEMORY, p->new_memory);
		x->new_memory += p->new_memory;
	}
}

static int study(struct verdict_study *x, struct pl_err *err)
{
	PL_CHECK(study_init(x, err));
	PL_CHECK(pl_verdict_facts(x, err));
	PL_CHECK(find_runs(x, err));
	PL_CHECK(pl_verdict_lost(x, err));
	PL_CHECK(find_tails(x, err));
	find_causes(x);
	find_new_memory(x);
	PL_CHECK(pl_verdict_slow_link(x, err));
	PL_CHECK(pl_verdict_contention(x, err));
	return pl_verdict_ranks(x, err);
}

/* ---- the rows -------------------------------------------------------------------------------- */

PL_COMPARATOR_FALLING(by_share, struct pl_verdict_row, share, cause);

int pl_verdict_find(const struct pl_graph *g, const struct pl_sim *s, const struct pl_run *r,
		    const struct pl_path *path, const struct pl_account *account,
		    const struct pl_new_memory *memory, struct pl_verdict *v, struct pl_err *err)
{
	struct verdict_study x = {
		.g = g, .s = s, .r = r, .path = path, .account = account, .memory = memory
	};
	pl_ns *sum = NULL;
	bool much = false;
	int rc;

	memset(v, 0, sizeof(*v));
	PL_TRY(study(&x, err));
	PL_TRY(pl_alloc(&sum, g->str.n, sizeof(*sum), err));
	pl_verdict_describe(&x, PL_VERDICT_COMPUTE, sum, &v->compute);
	for (unsigned c = 0; c < PL_VERDICT_CAUSES_; c++) {
		double share = (double)x.ns[c] / (double)pl_max_i64(1, path->length);

		if (c != PL_VERDICT_COMPUTE && share >= LEAST)
			pl_verdict_describe(&x, c, sum, &v->row[v->n++]);
		much |= c != PL_VERDICT_COMPUTE && c != PL_VERDICT_OTHER && share >= MUCH;
	}
	if (!much)
		v->row[v->n++] = v->compute;
	pl_sort(v->row, v->n, sizeof(*v->row), by_share);
out:
	pl_free(sum);
	study_fini(&x);
	return rc;
}
