/*
 * The verdict: the critical path by cause, and the words for it.
 *
 * A part of the path has the cause of the first row of `detectors` that claims it. Then time moves
 * between causes as ranks, links and instants compare (verdict_ranks.c). What stays is a share of
 * the path for each cause. A new cause is a row here and a line in verdict.h.
 *
 * On a rank with a device, host parts that follow one another are a run: the device has nothing to
 * do meanwhile, except where it computes at the same time. A run that begins because a call had
 * waited for the device is the price of that call, if the device then has more work than the host
 * (the host would run ahead); else the host is too slow with or without the call.
 *
 * One pass over the nodes, and some over the path.
 */
#include "report/verdict_internal.h"

#define LEAST	    0.01 /* of the path: smaller causes have no row */
#define MUCH	    0.1 /* of the path: with such a cause that has a name, computation has no row */
#define BIG_COPY_NS 100000 /* a number that the host reads takes less */

/* ---- words ----------------------------------------------------------------------------------- */

const char *pl_verdict_word(unsigned cause)
{
#define WORD(name, word) word,
	static const char *const words[] = { PL_VERDICT_CAUSES(WORD) };
#undef WORD

	return cause < PL_LEN(words) ? words[cause] : "?";
}

static const char *name_of(const struct verdict_study *x, pl_id name)
{
	return pl_intern_get(&x->g->str, name);
}

/* ---- what a part is -------------------------------------------------------------------------- */

static bool has_name(const struct verdict_study *x, pl_id name, const char *glob)
{
	return name != PL_NONE && pl_glob(glob, name_of(x, name));
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
	       (p->part == PL_PP_NODE && has_name(x, p->name, "cu*ModuleLoad*|cu*LibraryLoad*"));
}

static bool is_input(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->part == PL_PP_NODE &&
	       (p->phase == PL_PH_INPUT ||
		(p->role == PL_RO_GAP && !pl_sim_reported(x->s, p->step)) ||
		(p->role == PL_RO_COPY && has_name(x, p->name, "*HtoD*") &&
		 !has_name(x, p->name, "*Pageable*")));
}

static bool is_garbage(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->phase == PL_PH_GARBAGE || pl_verdict_unusual(x, p);
}

static bool is_memory(const struct verdict_study *x, const struct verdict_part *p)
{
	if (p->run != PL_NONE && x->run[p->run].memory)
		return true;
	return p->part == PL_PP_NODE &&
	       ((p->role == PL_RO_COPY && has_name(x, p->name, "*HtoD*|*DtoH*")) ||
		has_name(x, p->name,
			 "cu*Malloc*|cu*Free*|cu*HostAlloc*|cu*HostRegister*|"
			 "cu*HostUnregister*|cu*MemAlloc*"));
}

static bool is_host_sync(const struct verdict_study *x, const struct verdict_part *p)
{
	const struct verdict_run *run = p->run == PL_NONE ? NULL : &x->run[p->run];

	return run && run->waited != PL_NONE && run->host <= run->covered + run->device;
}

static bool is_launch(const struct verdict_study *x, const struct verdict_part *p)
{
	(void)x;
	return p->run != PL_NONE;
}

static bool is_exposed(const struct verdict_study *x, const struct verdict_part *p)
{
	if (p->role == PL_RO_TRANSFER)
		return p->part == PL_PP_NODE || p->part == PL_PP_LATENCY;
	return p->part == PL_PP_NODE && verdict_issues(x, p->role, p->phase, p->rank);
}

static bool is_compute(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->part == PL_PP_NODE
		       ? p->role == PL_RO_COMPUTE || p->role == PL_RO_COPY
		       : p->part == PL_PP_LATENCY && p->rank != PL_NONE && x->rank[p->rank].device;
}

/* ---- the words of a row ---------------------------------------------------------------------- */

/* The string with most time in the parts of a cause; PL_NONE. *of: its time. */
static pl_id top_string(const struct verdict_study *x, unsigned cause, size_t offset, pl_ns *sum,
			pl_ns *of)
{
	pl_id best = PL_NONE;

	*of = 0;
	memset(sum, 0, x->g->str.n * sizeof(*sum));
	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		pl_id id;

		memcpy(&id, (const char *)p + offset, sizeof(id));
		if (p->cause != cause || p->part != PL_PP_NODE || id >= x->g->str.n)
			continue;
		sum[id] += p->left;
		if (sum[id] > *of) {
			*of = sum[id];
			best = id;
		}
	}
	return best;
}

/* rank -1: of all ranks. name: of operations or modules with this name; PL_NONE: of all. */
static uint8_t top_phase(const struct verdict_study *x, unsigned cause, int64_t rank, pl_id name)
{
	pl_ns sum[PL_PH_COUNT_] = { 0 };
	uint8_t best = PL_PH_UNKNOWN;

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];

		if (p->cause != cause || (rank >= 0 && p->rank != rank) || !p->phase)
			continue;
		if (name != PL_NONE && p->name != name && p->module != name)
			continue;
		sum[p->phase] += p->ns;
		if (sum[p->phase] > sum[best])
			best = p->phase;
	}
	return best == PL_PH_OTHER ? PL_PH_UNKNOWN : best;
}

struct words {
	struct verdict_study *x;
	unsigned cause;
	pl_ns *sum; /* by string */
	struct pl_verdict_row *row;
	/* operation; " in PHASE"; "rank 3"; " in train.py:41 (step)" */
	char top[80], in[48], own[32], line[96], percent[16];
};

static void set_where(struct words *w, const char *what)
{
	const char *own = w->own;

	if (*what)
		snprintf(w->row->where, sizeof(w->row->where), "%s%s%.80s%s", own, *own ? ", " : "",
			 what, w->line);
	else
		snprintf(w->row->where, sizeof(w->row->where), "%s%s", *own ? own : "all ranks",
			 w->line);
}

const char *pl_verdict_line(const char *function, char *out, size_t size)
{
	const char *open = strrchr(function, '('), *end = open ? strstr(open, "): ") : NULL;

	if (end)
		snprintf(out, size, "%.*s:%.*s (%s)", (int)(open - function), function,
			 (int)(end - open - 1), open + 1, end + 3);
	else
		snprintf(out, size, "%s", function);
	return out;
}

#define TELL(w, ...) snprintf((w)->row->text, sizeof((w)->row->text), __VA_ARGS__)

static void tell_compute(struct words *w)
{
	char what[160];

	snprintf(what, sizeof(what), "%s%s", w->top, w->in);
	set_where(w, what);
	TELL(w, "computation %s: most of it %s", w->percent, w->row->where);
}

static void tell_exposed(struct words *w)
{
	const struct verdict_study *x = w->x;
	const struct verdict_part *most = NULL;
	const struct pl_gcomm *c = NULL;
	bool gradients = false, of_top = false; /* it has the name with most time */
	const char *issue;
	char who[128];

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		bool fits = !strncmp(name_of(x, p->name), w->top, strlen(w->top));

		if (p->cause == w->cause && p->role == PL_RO_TRANSFER &&
		    (!most || fits > of_top || (fits == of_top && p->left > most->left))) {
			most = p;
			of_top = fits;
		}
	}
	for (size_t i = 0; i < x->g->n_tensors; i++)
		gradients |= x->g->tensor[i].role == PL_TR_GRAD && x->g->tensor[i].n_consumers;
	if (most)
		c = pl_node_comm(verdict_shape(x, most->step), most->node);
	issue = of_top || !c ? "" : "calls that issue ";
	w->row->coll = c ? c->kind : PL_COLL_OTHER;
	w->row->gradient = gradients && w->row->coll == PL_COLL_ALLREDUCE;
	if (c && c->kind >= PL_COLL_SEND && c->kind <= PL_COLL_SENDRECV)
		snprintf(who, sizeof(who), "%smessages%s", issue,
			 x->messages_between_stages ? " between stages" : "");
	else
		snprintf(who, sizeof(who), "%s%s", issue, c ? pl_trace_coll_name(c->kind) : w->top);
	set_where(w, who);
	TELL(w, "exposed %scommunication %s: %s (%s)", w->row->gradient ? "gradient " : "",
	     w->percent, who, w->top);
}

/* "stage 1, rank 4", as far as it is known. */
static void name_stage(struct words *w, uint32_t rank)
{
	int32_t stage = w->x->rank[rank].stage, number = w->x->g->rank[rank];

	if (stage >= 0)
		snprintf(w->own, sizeof(w->own), "stage %d, rank %d", stage, number);
	else
		snprintf(w->own, sizeof(w->own), "rank %d", number);
}

static void tell_bubble(struct words *w)
{
	const struct verdict_study *x = w->x;
	char how[64] = "stages wait for one another";
	unsigned many = pl_verdict_microbatches(x);
	uint32_t idle = 0;

	for (uint32_t i = 0; i < (uint32_t)x->g->n_ranks; i++)
		if (x->account->rank[i].idle_ns[PL_I_WAIT] >
		    x->account->rank[idle].idle_ns[PL_I_WAIT])
			idle = i;
	if (many)
		name_stage(w, idle);
	else
		snprintf(w->own, sizeof(w->own), "rank %d", x->g->rank[idle]);
	set_where(w, "");
	if (x->rank[idle].stages > 1 && many)
		snprintf(how, sizeof(how), "%u microbatches on %d stages", many,
			 x->rank[idle].stages);
	else if (x->rank[idle].stages > 1)
		snprintf(how, sizeof(how), "stages on %d ranks", x->rank[idle].stages);
	TELL(w, "pipeline bubble %s: %s; %s waits longest", w->percent, how, w->row->where);
}

static void tell_input(struct words *w)
{
	const char *from = strstr(w->top, "enumerate") ? "DataLoader" : w->top;
	uint32_t rank = pl_verdict_longest_phase(w->x, PL_PH_INPUT);

	if (rank != PL_NONE)
		snprintf(w->own, sizeof(w->own), "rank %d", w->x->g->rank[rank]);
	if (!strcmp(from, "host gap") || !strcmp(from, "waiting for input")) {
		from = "the loop of the program";
		w->row->inferred = true;
	}
	set_where(w, from);
	TELL(w, "waiting for input %s: %s%s", w->percent, w->row->where,
	     w->row->inferred ? " (inferred)" : "");
}

static void one_rank(struct words *w, uint32_t rank)
{
	if (rank == PL_NONE)
		return;
	w->row->rank = w->x->g->rank[rank];
	snprintf(w->own, sizeof(w->own), "rank %d", w->row->rank);
}

static void tell_launch(struct words *w)
{
	char what[160];

	one_rank(w, pl_verdict_longest_host(w->x));
	snprintf(what, sizeof(what), "%s%s", w->top, w->in);
	set_where(w, what);
	TELL(w, "the host launches too slowly for the device %s: %s", w->percent, w->row->where);
}

static void tell_slow_rank(struct words *w)
{
	const char *in =
		pl_graph_phase_name(top_phase(w->x, PL_VERDICT_COMPUTE, w->x->slow_rank, PL_NONE));

	one_rank(w, w->x->slow_rank);
	w->row->more = w->x->slower;
	set_where(w, strcmp(in, "-") ? in : "");
	TELL(w, "rank %d is slow%s%s: %s", w->row->rank, strcmp(in, "-") ? " in " : "",
	     strcmp(in, "-") ? in : "", w->percent);
}

static void tell_slow_link(struct words *w)
{
	const struct pl_graph *g = w->x->g;
	int64_t who = w->x->slow_link;
	char ranks[128] = "ranks ";
	size_t at = 6;

	if (who < 0) {
		snprintf(ranks, sizeof(ranks), "rank %d - rank %d", (int)((-1 - who) >> 31),
			 (int)((-1 - who) & INT32_MAX));
	} else {
		for (uint32_t i = 0; i < g->group[who].n && at < sizeof(ranks) - 12; i++)
			at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%u", i ? "," : "",
					       g->group_rank[g->group[who].rank + i]);
	}
	snprintf(w->row->where, sizeof(w->row->where), "link %s", ranks);
	TELL(w, "a slow link %s: transfers of %s take longer than others of their size", w->percent,
	     ranks);
}

static void tell_imbalance(struct words *w)
{
	const struct verdict_study *x = w->x;
	uint32_t slow = x->imbalance_moves ? PL_NONE : x->slow_rank;

	if (slow != PL_NONE) {
		w->row->rank = x->g->rank[slow];
		w->row->more = x->uneven;
		w->row->staged = x->rank[slow].stage >= 0;
		name_stage(w, slow);
	}
	set_where(w, "");
	w->row->equal = slow == PL_NONE && x->equal_work;
	if (w->row->equal) {
		TELL(w,
		     "unlike speed %s: equal operations take longer on one rank, then on another",
		     w->percent);
		return;
	}
	TELL(w, "uneven work %s: %s%s", w->percent, slow != PL_NONE ? w->row->where : "",
	     slow != PL_NONE	       ? " has more of it"
	     : x->slow_rank != PL_NONE ? "the ranks take turns within a step"
				       : "the rank that computes longest changes");
}

static void tell_contention(struct words *w)
{
	set_where(w, w->top);
	TELL(w, "computation is slower beside communication %s: %s", w->percent, w->row->where);
}

static void tell_host_sync(struct words *w)
{
	pl_id call = PL_NONE;
	pl_ns most = 0;

	for (size_t i = 0; i < w->x->n_runs; i++)
		if (w->x->run[i].waited != PL_NONE && w->x->run[i].host > most) {
			most = w->x->run[i].host;
			call = w->x->run[i].waited;
		}
	one_rank(w, pl_verdict_longest_path(w->x, w->cause));
	snprintf(w->top, sizeof(w->top), "%s%s", name_of(w->x, call), w->in);
	set_where(w, w->top);
	TELL(w, "the host waits for the device, which then waits for the host, %s: %s", w->percent,
	     w->row->where);
}

static void tell_memory(struct words *w)
{
	one_rank(w, pl_verdict_longest_path(w->x, w->cause));
	set_where(w, w->top);
	TELL(w, "allocation of memory and copies from or to the host %s: %s", w->percent,
	     w->row->where);
}

/* Does a recorded name say so, of some part of the path? */
static bool is_named(const struct words *w, unsigned phase)
{
	const struct verdict_study *x = w->x;

	for (size_t i = 0; i < x->n_parts; i++)
		if (x->part[i].cause == w->cause && x->part[i].phase == phase &&
		    !verdict_phase_inferred(x, &x->part[i]))
			return true;
	return false;
}

static void tell_phase(struct words *w, unsigned phase, const char *what)
{
	one_rank(w, pl_verdict_longest_phase(w->x, phase));
	if (!*w->own)
		one_rank(w, pl_verdict_longest_path(w->x, w->cause));
	set_where(w, strcmp(w->top, "host gap") ? w->top : "");
	TELL(w, "%s %s: %s%s", what, w->percent, w->row->where,
	     is_named(w, phase) ? "" : " (inferred)");
}

static void tell_checkpoint(struct words *w)
{
	w->row->inferred = !is_named(w, PL_PH_CHECKPOINT);
	tell_phase(w, PL_PH_CHECKPOINT,
		   w->row->inferred ? "long work behind some steps, perhaps checkpoints,"
				    : "writing checkpoints");
}

static void tell_garbage(struct words *w)
{
	tell_phase(w, PL_PH_GARBAGE, "pauses of the interpreter for garbage collection");
}

/* Work behind a step belongs to it, but not to the time that it takes. */
static bool is_in_step(const struct verdict_study *x, const struct verdict_part *p)
{
	return pl_sim_reported(x->s, p->step) && p->start >= x->r->step_start[p->step] &&
	       p->start < x->r->step_end[p->step];
}

static void tell_evaluation(struct words *w)
{
	const struct verdict_study *x = w->x;
	pl_ns inside = 0, between = 0;

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];

		if (p->cause == w->cause)
			*(is_in_step(x, p) ? &inside : &between) += p->left;
	}
	tell_phase(w, PL_PH_EVALUATION,
		   between > inside ? "evaluation between the steps" : "evaluation");
}

static void tell_compilation(struct words *w)
{
	tell_phase(w, PL_PH_COMPILATION, "compilation");
}

/* A gap of a host thread: the interpreter, or work of the program that nothing records. */
static void tell_other(struct words *w)
{
	bool gap = !strcmp(w->top, "host gap");
	const char *in = strcmp(w->in, " in communication") ? w->in : " around communication";
	char what[160];

	pl_verdict_between(w->x, w->row);
	snprintf(what, sizeof(what), "%s%s", w->top, gap ? w->in : "");
	set_where(w, what);
	if (gap)
		TELL(w,
		     "between recorded operations %s: Python, or work that nothing records%s%s%s",
		     w->percent, *w->in || *w->line ? "; most of it" : "", in, w->line);
	else
		TELL(w, "the rest %s: most of it %s", w->percent, *w->top ? w->top : "unexplained");
}

/* The causes, in the order in which they claim the parts of the path. NULL: only by comparison. */
static const struct detector {
	uint8_t cause;
	bool (*claims)(const struct verdict_study *, const struct verdict_part *);
	void (*tell)(struct words *);
} detectors[] = {
	{ PL_VERDICT_COMPILATION, is_compilation, tell_compilation },
	{ PL_VERDICT_INPUT, is_input, tell_input },
	{ PL_VERDICT_EVALUATION, is_evaluation, tell_evaluation },
	{ PL_VERDICT_CHECKPOINT, is_checkpoint, tell_checkpoint },
	{ PL_VERDICT_GARBAGE, is_garbage, tell_garbage },
	{ PL_VERDICT_MEMORY, is_memory, tell_memory },
	{ PL_VERDICT_HOST_SYNC, is_host_sync, tell_host_sync },
	{ PL_VERDICT_LAUNCH, is_launch, tell_launch },
	{ PL_VERDICT_EXPOSED, is_exposed, tell_exposed },
	{ PL_VERDICT_COMPUTE, is_compute, tell_compute },
	{ PL_VERDICT_BUBBLE, NULL, tell_bubble },
	{ PL_VERDICT_SLOW_RANK, NULL, tell_slow_rank },
	{ PL_VERDICT_SLOW_LINK, NULL, tell_slow_link },
	{ PL_VERDICT_IMBALANCE, NULL, tell_imbalance },
	{ PL_VERDICT_CONTENTION, NULL, tell_contention },
	{ PL_VERDICT_OTHER, NULL, tell_other },
};
_Static_assert(PL_LEN(detectors) == PL_VERDICT_CAUSES_, "a row for each cause");

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

	run.memory =
		has_name(x, run.waited, "cu*Malloc*|cu*Free*|cu*HostAlloc*|cu*HostUnregister*");
	if (before && before->role == PL_RO_COPY && run.waited != PL_NONE)
		run.memory |= has_name(x, before->name, "*Pageable*") &&
			      (has_name(x, before->name, "*HtoD*") || before->ns > BIG_COPY_NS);
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
			if (detectors[k].claims && detectors[k].claims(x, p)) {
				p->cause = detectors[k].cause;
				break;
			}
		x->ns[p->cause] += p->left;
		x->ns[PL_VERDICT_COMPUTE] += p->ns - p->left;
		if (p->cause == PL_VERDICT_INPUT)
			verdict_move(x, p, PL_VERDICT_LAUNCH, p->host);
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
	PL_CHECK(pl_verdict_slow_link(x, err));
	PL_CHECK(pl_verdict_contention(x, err));
	return pl_verdict_ranks(x, err);
}

/* ---- the rows -------------------------------------------------------------------------------- */

static void describe(struct verdict_study *x, unsigned cause, pl_ns *sum,
		     struct pl_verdict_row *row)
{
	/* time that was moved by comparison stood in parts of these */
	unsigned from = cause == PL_VERDICT_SLOW_LINK ? PL_VERDICT_EXPOSED
			: cause == PL_VERDICT_CONTENTION || cause == PL_VERDICT_SLOW_RANK
				? PL_VERDICT_COMPUTE
				: cause;
	struct words w = { .x = x, .cause = cause, .sum = sum, .row = row };
	uint8_t phase;
	pl_ns of;
	pl_id name = top_string(x, from, offsetof(struct verdict_part, name), sum, &of), module;
	pl_ns of_name = of;
	char function[90];

	*row = (struct pl_verdict_row){
		.cause = (uint8_t)cause,
		.rank = -1,
		.share = x->path->length ? (double)x->ns[cause] / (double)x->path->length : 0
	};
	module = top_string(x, from, offsetof(struct verdict_part, module), sum, &of);
	if (module != PL_NONE && 2 * of > of_name && cause != PL_VERDICT_EXPOSED)
		name = module;
	phase = top_phase(x, from, -1, cause == PL_VERDICT_COMPUTE ? name : PL_NONE);
	/* kernels: without the list of arguments */
	snprintf(w.top, sizeof(w.top), "%.*s",
		 (int)pl_min_size(strcspn(name_of(x, name), name == module ? "" : "("),
				  sizeof(w.top) - 1),
		 name_of(x, name));
	if (phase)
		snprintf(w.in, sizeof(w.in), " in %s", pl_graph_phase_name(phase));
	name = top_string(x, from, offsetof(struct verdict_part, line), sum, &of);
	if (name != PL_NONE && cause != PL_VERDICT_COMPUTE && cause != PL_VERDICT_EXPOSED)
		snprintf(w.line, sizeof(w.line), " in %s",
			 pl_verdict_line(name_of(x, name), function, sizeof(function)));
	snprintf(w.percent, sizeof(w.percent), "%.0f %%", 100 * row->share);
	for (size_t k = 0; k < PL_LEN(detectors); k++)
		if (detectors[k].cause == cause)
			detectors[k].tell(&w);
}

PL_COMPARATOR_FALLING(by_share, struct pl_verdict_row, share, cause);

int pl_verdict_find(const struct pl_graph *g, const struct pl_sim *s, const struct pl_run *r,
		    const struct pl_path *path, const struct pl_account *account,
		    struct pl_verdict *v, struct pl_err *err)
{
	struct verdict_study x = { .g = g, .s = s, .r = r, .path = path, .account = account };
	pl_ns *sum = NULL;
	bool much = false;
	int rc;

	memset(v, 0, sizeof(*v));
	PL_TRY(study(&x, err));
	PL_TRY(pl_alloc(&sum, g->str.n, sizeof(*sum), err));
	describe(&x, PL_VERDICT_COMPUTE, sum, &v->compute);
	for (unsigned c = 0; c < PL_VERDICT_CAUSES_; c++) {
		double share = (double)x.ns[c] / (double)pl_max_i64(1, path->length);

		if (c != PL_VERDICT_COMPUTE && share >= LEAST)
			describe(&x, c, sum, &v->row[v->n++]);
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
