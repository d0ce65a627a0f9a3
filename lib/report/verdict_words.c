/* The verdict in words: for each cause of the path a row, with what most of its time is. */
#include "report/verdict_internal.h"

const char *pl_verdict_word(unsigned cause)
{
#define WORD(name, word) word,
	static const char *const words[] = { PL_VERDICT_CAUSES(WORD) };
#undef WORD

	return cause < PL_LEN(words) ? words[cause] : "?";
}

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

#define REST_LEAST 0.01 /* of the path: less of it is not told */
/* Of the path: so much computation is told beside a host that takes as long. */
#define HIDDEN_LEAST 0.25
#define CALLS	     0.25 /* of exposed communication, and */
#define LEAST_CALLS  0.03 /* of the path: so much time in the calls around it is told apart */

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
	static const char *const host[PL_VERDICT_CAUSES_] = {
		[PL_VERDICT_INPUT] = "it waits for input",
		[PL_VERDICT_LAUNCH] = "it launches",
		[PL_VERDICT_OTHER] = "Python, or work that nothing records",
	};
	char what[160], hidden[128] = "";
	unsigned most = PL_VERDICT_INPUT;
	double share;

	for (unsigned c = 0; c < PL_VERDICT_CAUSES_; c++)
		if (host[c] && w->x->hidden[c] > w->x->hidden[most])
			most = c;
	share = (double)w->x->hidden[most] / (double)pl_max_i64(1, w->x->path->length);
	if (share >= HIDDEN_LEAST)
		snprintf(hidden, sizeof(hidden), "; during %.0f %% the host takes as long: %s",
			 100 * share, host[most]);
	snprintf(what, sizeof(what), "%s%s", w->top, w->in);
	set_where(w, what);
	TELL(w, "computation %s: most of it %s%s", w->percent, w->row->where, hidden);
}

/* The sum of a time of all parts, and *top, the name with most of it; PL_NONE: there is none. */
static pl_ns sum_by_name(const struct words *w,
			 pl_ns (*of)(const struct words *, const struct verdict_part *), pl_id *top)
{
	const struct verdict_study *x = w->x;
	pl_ns all = 0;

	*top = PL_NONE;
	memset(w->sum, 0, x->g->str.n * sizeof(*w->sum));
	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		pl_ns ns = of(w, p);

		if (ns <= 0 || p->name >= x->g->str.n)
			continue;
		all += ns;
		w->sum[p->name] += ns;
		if (*top == PL_NONE || w->sum[p->name] > w->sum[*top])
			*top = p->name;
	}
	return all;
}

/* The time of the cause in calls that issue communication, or copy for it. */
static pl_ns in_calls(const struct words *w, const struct verdict_part *p)
{
	return p->cause == w->cause && p->role != PL_RO_TRANSFER ? p->left : 0;
}

static void tell_exposed(struct words *w)
{
	const struct verdict_study *x = w->x;
	const struct verdict_part *most = NULL;
	const struct pl_gcomm *c = NULL;
	bool of_top = false; /* it has the name with most time */
	const char *issue;
	char who[128], calls[160] = "";
	pl_id call;
	double share =
		(double)sum_by_name(w, in_calls, &call) / (double)pl_max_i64(1, x->path->length);
	pl_ns all = 0, gradients = 0;

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		bool fits = !strncmp(verdict_name(x, p->name), w->top, strlen(w->top));

		if (p->cause != w->cause || p->role != PL_RO_TRANSFER)
			continue;
		all += p->left;
		gradients += verdict_carries_gradients(x, p) ? p->left : 0;
		if (!most || fits > of_top || (fits == of_top && p->left > most->left)) {
			most = p;
			of_top = fits;
		}
	}
	if (most)
		c = pl_node_comm(verdict_shape(x, most->step), most->node);
	issue = of_top || !c ? "" : "calls that issue ";
	w->row->coll = c ? c->kind : PL_COLL_OTHER;
	w->row->gradient = 2 * gradients > all && w->row->coll == PL_COLL_ALLREDUCE;
	if (c && c->kind >= PL_COLL_SEND && c->kind <= PL_COLL_SENDRECV)
		snprintf(who, sizeof(who), "%smessages%s", issue,
			 x->messages_between_stages ? " between stages" : "");
	else
		snprintf(who, sizeof(who), "%s%s", issue, c ? pl_trace_coll_name(c->kind) : w->top);
	set_where(w, who);
	if (share >= CALLS * w->row->share && share >= LEAST_CALLS && !*issue && c)
		snprintf(calls, sizeof(calls), ", with %.0f %% in the calls around %s (%.80s)",
			 100 * share,
			 c->kind >= PL_COLL_SEND && c->kind <= PL_COLL_SENDRECV ? "them" : "it",
			 verdict_name(x, call));
	TELL(w, "exposed %scommunication %s: %s (%s)%s", w->row->gradient ? "gradient " : "",
	     w->percent, who, w->top, calls);
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
	const struct verdict_study *x = w->x;
	pl_ns gaps = 0, silent = 0;
	char what[160];

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];

		if (p->role != PL_RO_GAP || p->part != PL_PP_NODE || p->rank == PL_NONE ||
		    !x->rank[p->rank].device)
			continue;
		gaps += p->ns;
		silent += verdict_is_silent(x, p) ? p->ns : 0;
	}
	w->row->silent = 10 * silent > gaps;
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
	const struct verdict_study *x = w->x;
	pl_id call = PL_NONE;

	memset(w->sum, 0, x->g->str.n * sizeof(*w->sum));
	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		pl_id waited = p->cause == w->cause ? x->run[p->run].waited : PL_NONE;

		if (waited >= x->g->str.n)
			continue;
		w->sum[waited] += p->left;
		if (call == PL_NONE || w->sum[waited] > w->sum[call])
			call = waited;
	}
	one_rank(w, pl_verdict_longest_path(x, w->cause));
	snprintf(w->top, sizeof(w->top), "%s%s", verdict_name(x, call), w->in);
	set_where(w, w->top);
	TELL(w, "the host waits for the device, which then waits for the host, %s: %s", w->percent,
	     w->row->where);
}

/* The parts have other causes, of which the time was moved. */
static pl_ns in_new_memory(const struct words *w, const struct verdict_part *p)
{
	(void)w;
	return p->new_memory;
}

static void tell_new_memory(struct words *w)
{
	const struct verdict_study *x = w->x;
	pl_id top;

	sum_by_name(w, in_new_memory, &top);
	*w->line = '\0';
	set_where(w, top == PL_NONE ? "" : verdict_name(x, top));
	TELL(w,
	     "writing into memory that is new to the process %s: most of it %s; the system clears "
	     "each page when it is written first",
	     w->percent, w->row->where);
}

static void tell_memory(struct words *w)
{
	const struct verdict_study *x = w->x;
	pl_ns all = 0, copies = 0;

	w->row->fresh = 2 * x->new_memory > x->ns[w->cause];
	if (w->row->fresh) {
		tell_new_memory(w);
		return;
	}
	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];

		if (p->cause != w->cause)
			continue;
		all += p->left;
		copies += verdict_copies(x, p) != PL_COPY_OTHER ? p->left : 0;
	}
	w->row->offload = 2 * copies > all;
	one_rank(w, pl_verdict_longest_path(x, w->cause));
	set_where(w, w->top);
	if (w->row->offload)
		TELL(w,
		     "copies between device and host %s: %s, as where the host keeps parameters, "
		     "activations or caches",
		     w->percent, w->row->where);
	else
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

static void tell_recomputation(struct words *w)
{
	set_where(w, w->top);
	TELL(w, "recomputation %s: activations that the backward pass makes again, most of it %s",
	     w->percent, w->top);
}

static void tell_compilation(struct words *w)
{
	tell_phase(w, PL_PH_COMPILATION, "compilation");
}

/* What has no name among the causes. */
enum rest { BETWEEN, SILENT, LATE, UNEXPLAINED, NAMED, RESTS };

static enum rest rest_of(const struct verdict_study *x, const struct verdict_part *p)
{
	if (p->part == PL_PP_LATE || (!p->step && !pl_sim_reported(x->s, p->step)))
		return LATE; /* the rank has not begun its first step */
	if (p->part == PL_PP_UNEXPLAINED)
		return UNEXPLAINED;
	if (p->role != PL_RO_GAP || p->part != PL_PP_NODE ||
	    strcmp(verdict_name(x, p->name), "host gap") != 0)
		return NAMED;
	return verdict_is_silent(x, p) ? SILENT : BETWEEN;
}

/* Sums the rest by what it is. `late`, `named`: the rank and the operation with most of theirs. */
static void sum_rest(const struct words *w, pl_ns *sum, uint32_t *late, pl_id *named)
{
	const struct verdict_study *x = w->x;
	pl_ns most = 0;

	*late = *named = PL_NONE;
	memset(w->sum, 0, x->g->str.n * sizeof(*w->sum));
	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		enum rest rest = rest_of(x, p);

		if (p->cause != w->cause)
			continue;
		sum[rest] += p->left;
		if (rest == LATE && p->left > most) {
			most = p->left;
			*late = p->rank;
		}
		if (rest != NAMED || p->part != PL_PP_NODE || p->name >= x->g->str.n)
			continue;
		w->sum[p->name] += p->left;
		if (*named == PL_NONE || w->sum[p->name] > w->sum[*named])
			*named = p->name;
	}
}

/* The others, each with its share of the path. */
static void tell_others(const struct words *w, const pl_ns *sum, unsigned most, char *out,
			size_t size)
{
	static const char *const words[RESTS] = {
		[BETWEEN] = "between recorded operations",
		[SILENT] = "pauses without records",
		[LATE] = "a late rank",
		[UNEXPLAINED] = "unexplained",
		[NAMED] = "other operations",
	};
	size_t at = 0;

	*out = '\0';
	for (unsigned c = 0; c < RESTS; c++) {
		double share = (double)sum[c] / (double)pl_max_i64(1, w->x->path->length);

		if (c != most && share >= REST_LEAST && at < size)
			at += (size_t)snprintf(out + at, size - at, "; %s %.0f %%", words[c],
					       100 * share);
	}
}

static void tell_most(struct words *w, unsigned most, const char *percent, const char *also)
{
	const char *in = strcmp(w->in, " in communication") ? w->in : " around communication";
	char what[160];

	snprintf(what, sizeof(what), "host gap%s", w->in);
	switch ((enum rest)most) {
	case BETWEEN:
		set_where(w, what);
		TELL(w,
		     "between recorded operations %s: Python, or work that nothing records%s%s%s%s",
		     percent, *w->in || *w->line ? "; most of it" : "", in, w->line, also);
		break;
	case SILENT:
		set_where(w, what);
		TELL(w, "the program records nothing %s: pauses of 1 ms and more%s%s%s", percent,
		     in, w->line, also);
		break;
	case LATE:
		set_where(w, "");
		TELL(w, "a late rank %s: %s enters the first recorded step after the others%s",
		     percent, w->row->where, also);
		break;
	case UNEXPLAINED:
		set_where(w, "unexplained");
		TELL(w, "unexplained %s: no recorded dependency says why%s", percent, also);
		break;
	default:
		set_where(w, w->top);
		TELL(w, "the rest %s: most of it %s%s", percent, *w->top ? w->top : "latencies",
		     also);
	}
}

static void tell_other(struct words *w)
{
	const struct verdict_study *x = w->x;
	pl_ns sum[RESTS] = { 0 };
	char also[160], percent[16];
	unsigned most = BETWEEN;
	uint32_t late;
	pl_id named;

	pl_verdict_between(x, w->row);
	sum_rest(w, sum, &late, &named);
	for (unsigned c = 0; c < RESTS; c++)
		most = sum[c] > sum[most] ? c : most;
	tell_others(w, sum, most, also, sizeof(also));
	snprintf(percent, sizeof(percent), "%.0f %%",
		 100 * (double)sum[most] / (double)pl_max_i64(1, x->path->length));
	if (most == LATE && late != PL_NONE)
		snprintf(w->own, sizeof(w->own), "rank %d", x->g->rank[late]);
	snprintf(w->top, sizeof(w->top), "%.*s",
		 (int)pl_min_size(strcspn(verdict_name(x, named), "("), sizeof(w->top) - 1),
		 verdict_name(x, named));
	tell_most(w, most, percent, also);
}

static void (*const tells[])(struct words *) = {
	[PL_VERDICT_COMPUTE] = tell_compute,
	[PL_VERDICT_EXPOSED] = tell_exposed,
	[PL_VERDICT_BUBBLE] = tell_bubble,
	[PL_VERDICT_INPUT] = tell_input,
	[PL_VERDICT_LAUNCH] = tell_launch,
	[PL_VERDICT_SLOW_RANK] = tell_slow_rank,
	[PL_VERDICT_SLOW_LINK] = tell_slow_link,
	[PL_VERDICT_IMBALANCE] = tell_imbalance,
	[PL_VERDICT_CONTENTION] = tell_contention,
	[PL_VERDICT_HOST_SYNC] = tell_host_sync,
	[PL_VERDICT_MEMORY] = tell_memory,
	[PL_VERDICT_CHECKPOINT] = tell_checkpoint,
	[PL_VERDICT_GARBAGE] = tell_garbage,
	[PL_VERDICT_EVALUATION] = tell_evaluation,
	[PL_VERDICT_COMPILATION] = tell_compilation,
	[PL_VERDICT_RECOMPUTATION] = tell_recomputation,
	[PL_VERDICT_OTHER] = tell_other,
};
_Static_assert(PL_LEN(tells) == PL_VERDICT_CAUSES_, "a row for each cause");

void pl_verdict_describe(struct verdict_study *x, unsigned cause, pl_ns *sum,
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
	if (module != PL_NONE && 2 * of > of_name && cause != PL_VERDICT_EXPOSED &&
	    cause != PL_VERDICT_RECOMPUTATION)
		name = module;
	phase = top_phase(x, from, -1, cause == PL_VERDICT_COMPUTE ? name : PL_NONE);
	/* kernels: without the list of arguments */
	snprintf(w.top, sizeof(w.top), "%.*s",
		 (int)pl_min_size(strcspn(verdict_name(x, name), name == module ? "" : "("),
				  sizeof(w.top) - 1),
		 verdict_name(x, name));
	if (phase)
		snprintf(w.in, sizeof(w.in), " in %s", pl_graph_phase_name(phase));
	name = top_string(x, from, offsetof(struct verdict_part, line), sum, &of);
	if (name != PL_NONE && cause != PL_VERDICT_COMPUTE && cause != PL_VERDICT_EXPOSED)
		snprintf(w.line, sizeof(w.line), " in %s",
			 pl_verdict_line(verdict_name(x, name), function, sizeof(function)));
	snprintf(w.percent, sizeof(w.percent), "%.0f %%", 100 * row->share);
	tells[cause](&w);
}
