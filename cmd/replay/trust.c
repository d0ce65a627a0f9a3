/*
 * How far the report may be trusted: the self-test of the graph as one line, and the 90 % interval
 * of a prediction.
 *
 * The interval is that of the ratio predicted / replayed. The following parts have different
 * causes, so each side of the interval is the root of the sum of their squares. All are halves of
 * 90 % intervals:
 *
 *	- what every model has: a share of the step, of the time of threads, and of the change
 *	  (PL_SELFTEST_MODEL and others);
 *	- the mean of the ratios that the steps predict, by Student's distribution, or by a
 *	  scatter that is assumed if there is one step;
 *	- the doubtful time of the critical path (lib/sim/selftest.h): that which the change removes
 *	  or adds counts whole, and that which stays may change as much as what the changes touch;
 *	- the fit of communication: the intercepts of lines that were fitted to transfers;
 *	- the fit of operations, where their sizes change: the error of the regression;
 *	- half of the bias, or all of it where the prediction is not corrected for it;
 *	- the scatter of the ranks, where the job gets another number of ranks;
 *	- what the profiler costs, which the prediction leaves out, and the time for new memory, of
 *	  which it has half (profiler.c).
 *
 * One more part counts where the real change is less than predicted: what other groups of sharded
 * parameters, or communication of threads beside computation, may not save.
 *
 * Two more parts count where the real change is greater than predicted:
 *
 *	- time that the changes leave as it is, but of which any share may follow them, or be the
 *	  profiler's own (unchanged_time());
 *	- communication of threads that the changes take away, because it took time from
 *	  computation.
 */
#include <math.h>

#include "core/spans.h"
#include "graph/select.h"
#include "program.h"

/* Levels, as shares of the critical path. */
#define LOW	   0.25
#define MEDIUM	   0.05
#define NEW_MEMORY 0.1

#define DROPPED 0.001 /* of all dependencies */

#define MOST_STAYS 0.9 /* of the step; beside more than this a change says little */

/* The standard deviation of the ranks' work, as a share of its mean, where one rank was recorded.
 * That of the four ranks of samples/ddp-gloo is 0.09. */
#define RANKS_SCATTER 0.1

#define MOST_TIMES 100 /* more is said as "more than" */

#define DRIFT 1.5 /* steps that grow so much: the profiler or the machine gets slower */

#define TRIES 32

const char *const trust_level[] = { "high", "medium", "low" };

/* ---- reasons --------------------------------------------------------------------------------- */

PL_PRINTF(3, 4)
static void because(struct trust *t, int level, const char *fmt, ...)
{
	size_t at = level == TRUST_LOW ? t->n_low++ : t->n; /* what makes it low comes first */
	va_list ap;

	t->level = level > t->level ? level : t->level;
	if (at == PL_LEN(t->reason))
		return;
	t->n = pl_min_size(t->n + 1, PL_LEN(t->reason));
	memmove(t->reason[at + 1], t->reason[at], (t->n - at - 1) * sizeof(t->reason[0]));
	va_start(ap, fmt);
	vsnprintf(t->reason[at], sizeof(t->reason[0]), fmt, ap);
	va_end(ap);
}

void note_contradiction(struct trust *t, const char *what, float factor, double before,
			double after)
{
	if (!pl_selftest_contradicts(factor, before, after) || t->contradiction)
		return;
	t->contradiction = true;
	because(t, TRUST_LOW, "a contradiction: \"%.60s\" makes the step %.1f %% %s", what,
		100 * fabs(after / before - 1), after > before ? "longer" : "shorter");
}

static void judge_ranks(struct trust *t, const struct pl_selftest *selftest)
{
	struct pl_selftest_ranks x;
	bool p2p;

	pl_selftest_ranks(selftest, &x);
	p2p = x.p2p_alone * 2 > x.comms_alone;
	t->not_joined = !x.joined;
	if (x.comms_alone)
		because(t, t->not_joined || x.comms_alone * 2 > x.comms ? TRUST_LOW : TRUST_MEDIUM,
			"%llu of %llu %s have no partner%s",
			(unsigned long long)(p2p ? x.p2p_alone : x.comms_alone),
			(unsigned long long)(p2p ? x.p2p : x.comms),
			p2p ? "sends and receives" : "communications", t->missing);
	else if (t->not_joined)
		because(t, TRUST_LOW, "no rank waits for another one");
}

/* Dependencies that the recorded times contradict are not in the graph. */
static void judge_edges(struct trust *t, const struct pl_graph *g)
{
	double edges = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		edges += g->shape[g->step[k].shape].n_edges;
	if ((double)g->dropped_edges > DROPPED * edges)
		because(t, TRUST_MEDIUM,
			"the recorded times contradict %lld dependencies, which were given up",
			(long long)g->dropped_edges);
}

void note_sizes(struct trust *t, size_t estimated, size_t n)
{
	if (estimated)
		because(t, TRUST_MEDIUM, "the sizes of %zu of %zu gradients are estimated",
			estimated, n);
}

static void judge_path(struct trust *t)
{
	const struct pl_selftest_path *p = &t->path;
	const struct {
		pl_ns ns;
		bool doubtful; /* the rest only becomes a reason if there is more of it */
		const char *what;
	} part[] = {
		{ p->unexplained, true, "unexplained" },
		{ p->idle, true, "time in which a thread was idle" },
		{ p->alone, true, "communication without a partner" },
		{ p->waiting, true, "operations that end together with communication" },
		{ p->slow, true, "sends and receives that take longer than others" },
		{ p->unrecorded, false, "time in which the program recorded nothing" },
		{ p->inferred, false, "operations that were inferred" },
		{ p->assumed, false,
		  "launches by a host whose time for them is assumed (predict --host-us)" },
	};
	double sum = 0;

	for (size_t i = 0; i < PL_LEN(part) && p->length > 0; i++) {
		double share = (double)part[i].ns / (double)p->length;

		sum += part[i].doubtful ? share : 0;
		if (share >= (part[i].doubtful ? MEDIUM : LOW))
			because(t, TRUST_MEDIUM, "%.0f %% of the critical path is %s", 100 * share,
				part[i].what);
	}
	if (sum >= LOW)
		t->level = TRUST_LOW;
	else if (sum >= MEDIUM && t->level < TRUST_MEDIUM)
		because(t, TRUST_MEDIUM, "%.0f %% of the critical path is doubtful", 100 * sum);
}

/* A profiler takes its time beside operations, so it counts most where these are short. */
static void judge_profiler(struct report *r)
{
	double share = r->trust.extra.profiler;

	if (share >= MEDIUM)
		because(&r->trust, share >= LOW ? TRUST_MEDIUM : TRUST_HIGH,
			"the profiler takes about %.0f %% of the step, which %s",
			100 * fmin(share, 1),
			r->compared ? "this comparison has in it" : "predictions leave out");
}

#define LITTLE_OPEN 0.02

/* A comparison has no interval, so nothing is assumed there. */
static void judge_one_step(struct report *r)
{
	const char *what = r->g.stepless	    ? "the recording has no steps"
			   : has_predictions(&r->g) ? "the durations are predictions of one step"
						    : "there is one complete step";

	if (r->open_share >= LITTLE_OPEN)
		because(&r->trust, TRUST_LOW,
			"%.0f %% of the predicted time has no interval: the cost model was learned "
			"without them (--no-intervals), or from too few measurements",
			100 * r->open_share);
	if (r->compared)
		because(&r->trust, TRUST_MEDIUM, "%s: nothing says how much steps differ", what);
	else
		because(&r->trust, TRUST_MEDIUM,
			"%s: how much steps differ is not known; intervals of changes take %.0f %% "
			"of what a change saves for it",
			what, 100 * PL_SELFTEST_SCATTER);
}

/* The mean of few steps of which some are unusual is not that of many. Where steps overlap, each
 * may be longer than the one before, so their periods count. */
static void judge_steps(struct report *r)
{
	double sum = 0, squares = 0, least = INFINITY, most = 0, mean, half;
	size_t n = 0;

	for (size_t i = 0; i < r->n_steps; i++) {
		pl_ns ns = r->overlap ? r->step[i].period : r->step[i].replayed;

		if (ns <= 0)
			continue;
		sum += (double)ns;
		squares += (double)ns * (double)ns;
		least = fmin(least, (double)ns);
		most = fmax(most, (double)ns);
		n++;
	}
	if (r->n_steps == 1 && r->n_folded < 2)
		judge_one_step(r);
	if (n < 2)
		return;
	if (r->trust.drift >= DRIFT)
		because(&r->trust, TRUST_LOW,
			"each of the last steps takes at least %.1f times as long as each of the "
			"first: record again, on a machine that does nothing else",
			r->trust.drift);
	if (r->trust.unlike_work)
		because(&r->trust, TRUST_HIGH,
			"steps do unlike work: the sizes of operations differ");
	mean = sum / (double)n;
	half = pl_selftest_half(sqrt(fmax(squares - sum * mean, 0) / (double)(n - 1)), n);
	if (half >= LOW * mean)
		because(&r->trust, r->trust.unlike_work ? TRUST_HIGH : TRUST_MEDIUM,
			"%zu %s, which take %.0f to %.0f %% of their mean, are too few: record "
			"more steps",
			n, r->overlap ? "periods of steps" : "steps", 100 * least / mean,
			100 * most / mean);
}

/* Ranks that wait for one another although nobody recorded this. */
static void judge_waits(struct report *r)
{
	double ns = 0;

	for (size_t i = 0; i < r->n_waits; i++)
		ns = fmax(ns, r->wait[i].inferred ? r->wait[i].ns : 0);
	if (ns > 0)
		because(&r->trust, ns < MEDIUM * r->replayed_mean ? TRUST_HIGH : TRUST_MEDIUM,
			"ranks wait up to %.0f %% of the step for a rendezvous that was inferred",
			100 * ns / r->replayed_mean);
}

static void judge_new_memory(struct report *r)
{
	double share = r->trust.extra.memory;

	if (share >= NEW_MEMORY)
		because(&r->trust, TRUST_MEDIUM,
			"writing into new memory takes %.0f %% of the step: by what was allocated "
			"before, the same job does more or less of it, and predictions have half; "
			"record again with GLIBC_TUNABLES=glibc.malloc.tcache_count=0, because "
			"profilers cause it with glibc before 2.39",
			100 * share);
}

/* Threads that lose their processors, or write into new memory. The recording does not say which,
 * so nobody knows whether they would lose as much after a change. */
static void judge_operations(struct report *r)
{
	double times = r->scatter;

	if (times >= PL_SELFTEST_UNLIKE)
		because(&r->trust, TRUST_MEDIUM,
			"a tenth of the computation is in operations that take %s%.0f times as "
			"long as others of the same name and sizes: the machine was busy, "
			"threads shared processors, or memory was new",
			times > MOST_TIMES ? "more than " : "", fmin(times, MOST_TIMES));
}

static int note_rank(const struct pl_graph *g, struct pl_spans *missing, int64_t rank,
		     struct pl_err *err)
{
	return rank < 0 || pl_graph_rank_index(g, (int32_t)rank) != PL_NONE
		       ? 0
		       : pl_spans_add_number(missing, rank, err);
}

/* Ranks that communicate with those of the graph but are not in it, as far as something names them:
 * t->missing. */
static int find_missing(struct trust *t, const struct pl_graph *g, struct pl_err *err)
{
	struct pl_spans missing = { 0 };
	char ranks[64];
	bool one;
	int rc = 0;

	for (size_t i = 0; i < g->n_groups; i++)
		for (uint32_t k = 0; k < g->group[i].n; k++)
			PL_TRY(note_rank(g, &missing, g->group_rank[g->group[i].rank + k], err));
	/* a peer may be a place in its group */
	for (size_t i = 0; i < g->n_shapes && !g->n_groups; i++)
		for (uint32_t k = 0; g->shape[i].peer && k < g->shape[i].n_nodes; k++)
			PL_TRY(note_rank(g, &missing, g->shape[i].peer[k], err));
	pl_spans_unite(&missing);
	one = missing.n == 1 && missing.v[0].end == missing.v[0].start + 1;
	if (missing.n)
		snprintf(t->missing, sizeof(t->missing), ", as %s %s %s not recorded",
			 one ? "rank" : "ranks", pl_spans_text(&missing, ranks, sizeof(ranks)),
			 one ? "was" : "were");
	else if (g->n_ranks == 1)
		snprintf(t->missing, sizeof(t->missing), ", as no other rank was recorded");
out:
	pl_spans_fini(&missing);
	return rc;
}

int judge_recording(struct report *r, struct pl_err *err)
{
	PL_CHECK(find_missing(&r->trust, &r->g, err));
	PL_CHECK(find_drift(r, DRIFT, &r->trust.drift, &r->trust.unlike_work, err));
	PL_CHECK(find_unusual(r, err));
	judge_operations(r);
	return 0;
}

/* ---- the graph ------------------------------------------------------------------------------- */

bool can_contradict(const struct pl_selector *keys)
{
	return !keys->key[PL_SEL_HOST] && !keys->key[PL_SEL_RANK] && !keys->key[PL_SEL_STAGE] &&
	       !keys->key[PL_SEL_DP];
}

/* Does the rewrite change durations of operations that a selector names? One that cannot be read is
 * refused with its line when it is applied. */
static int can_be_tested(const struct pl_rewrite *rw, bool *can, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	*can = (rw->op == PL_RW_SCALE || rw->op == PL_RW_REMOVE || rw->op == PL_RW_SET ||
		rw->op == PL_RW_FIX) &&
	       can_contradict(&rw->select);
	if (!*can)
		return 0;
	rc = pl_graph_select_check(&rw->select, &why);
	*can = rc != PL_EDATA;
	return rc < 0 && *can ? pl_fail(err, rc, "%s", why.msg) : 0;
}

/* Make the tests of the operations that each change selects. */
static int test_changes(const struct changes *x, struct pl_selftest_try *v, size_t *n,
			struct pl_err *err)
{
	static const float factor[] = { 0, 0.5F, 2 };
	static const char *const what[] = { "remove what a change selects",
					    "scale what a change selects by 0.5",
					    "scale what a change selects by 2" };
	const struct pl_rewrite *rw;
	bool can;

	*n = 0;
	for (size_t i = 0; (rw = change_line(x, i)) && *n + PL_LEN(factor) <= TRIES; i++) {
		PL_CHECK(can_be_tested(rw, &can, err));
		for (size_t k = 0; can && k < PL_LEN(factor); k++)
			v[(*n)++] = (struct pl_selftest_try){ .what = what[k],
							      .keys = rw->select,
							      .factor = factor[k] };
	}
	return 0;
}

/* The time of communication and of all other operations, on all ranks: t[0] and t[1]. */
static void sum_durations(const struct report *r, double *t)
{
	t[0] = t[1] = 0;
	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_shape *sh = &r->g.shape[r->g.step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			t[sh->role[i] != PL_RO_TRANSFER] += (double)pl_sim_durations(r->s, k)[i];
	}
}

/* The usual tests take a quarter of the time of a report. So they are left out if nothing else
 * speaks against the graph and `worth` halves the same operations. */
int test_graph(struct report *r, bool worth, struct pl_err *err)
{
	struct pl_selftest_try v[TRIES];
	struct pl_selftest *selftest;
	struct trust *t = &r->trust;
	struct pl_path path = { 0 };
	size_t n;
	int rc;

	PL_CHECK(test_changes(r->changes, v, &n, err));
	PL_CHECK(pl_selftest_new(&r->g, &selftest, err));
	judge_ranks(t, selftest);
	if (!r->path.n) { /* something will be predicted */
		PL_TRY(pl_sim_path_find(r->s, &r->run, &path, err));
		sum_durations(r, t->work);
	}
	pl_selftest_path(selftest, r->path.n ? &r->path : &path, &t->path);
	judge_path(t);
	PL_TRY(find_profiler(r, err));
	t->extra = extra_time(r, r->s, r->path.n ? &r->path : &path);
	judge_profiler(r);
	PL_TRY(find_waits(r, r->path.n ? &r->path : &path, err));
	judge_waits(r);
	judge_new_memory(r);
	judge_steps(r);
	judge_edges(t, &r->g);
	if (t->level != TRUST_HIGH)
		n += pl_selftest_usual(&r->g, v + n, TRIES - n);
	else if (!worth)
		n += pl_selftest_usual(&r->g, v + n, pl_min_size(TRIES - n, PL_SIM_SIDE_BY_SIDE));
	PL_TRY(pl_selftest_run(r->s, v, n, err));
	for (size_t i = 0; i < n; i++)
		note_contradiction(t, v[i].what, v[i].factor, r->replayed_step, v[i].mean);
out:
	pl_selftest_free(selftest);
	pl_sim_path_fini(&path);
	return rc;
}

/* ---- the interval ---------------------------------------------------------------------------- */

/* Doubtful time that counts, ns. What was inferred is right in most jobs. */
static double doubtful(const struct pl_selftest_path *p)
{
	return (double)(p->unexplained + p->idle + p->alone + p->waiting + p->slow) +
	       0.25 * (double)p->inferred;
}

/* The ratios that the steps predict; `after`: the steps after a change of the described run, or
 * NULL. A simulation of a change is compared with another simulation, not with a prediction, of
 * which the bias of the model and the profiler are taken out. One step does not say how they
 * scatter, nor does the mean of many. */
static double of_steps(const struct report *r, const pl_ns *after)
{
	double sum = 0, squares = 0, mean;
	size_t n = 0;

	for (size_t i = 0; i < r->n_steps; i++) {
		const struct step_row *s = &r->step[i];
		pl_ns before = after ? s->simulated : s->replayed;
		double x = (double)(after ? after[i] : s->predicted) / (double)before;

		if ((!after && s->predicted == INT64_MIN) || before <= 0)
			continue;
		sum += x;
		squares += x * x;
		n++;
	}
	if (n == 1)
		return PL_SELFTEST_NORMAL * PL_SELFTEST_SCATTER * fabs(1 - sum) /
		       sqrt((double)pl_max_i64(1, (int64_t)r->n_folded));
	if (n < 2)
		return 0;
	mean = sum / (double)n;
	return pl_selftest_half(sqrt(fmax(squares - (double)n * mean * mean, 0) / (double)(n - 1)),
				n);
}

/* By which share the changes lengthen or shorten communication or other operations, whichever they
 * change more. */
static double touched(const struct report *r)
{
	double now[2], most = 0;

	sum_durations(r, now);
	for (int i = 0; i < 2; i++)
		if (r->trust.work[i] > 0)
			most = fmax(most, fabs(now[i] / r->trust.work[i] - 1));
	return fmin(most, 1);
}

/* Is it time of a thread between two operations for which no reason was recorded? */
static bool is_pause(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return sh->role[i] == PL_RO_GAP && sh->res[i] != PL_NONE &&
	       g->res[sh->res[i]].track_type == PL_T_THREAD &&
	       !(sh->phase && pl_graph_phase_holds(sh->phase[i]));
}

/* Time on the path that the job may not have without the profiler: pauses, and what operations take
 * longer than others of the same work, but for the time for new memory that profiler.c counts. */
static pl_ns may_vanish(const struct report *r, const struct pl_path_item *x)
{
	const struct pl_shape *sh = &r->g.shape[r->g.step[x->step].shape];

	if (x->part != PL_PP_NODE)
		return 0;
	return is_pause(&r->g, sh, x->node) ? x->ns
					    : pl_min_i64(x->ns, slower_by(r, x->step, x->node));
}

/*
 * Time of the predicted path that the changes leave as it is. Pauses of threads: the interpreter,
 * the profiler, collection of garbage, which a profiler makes more frequent. What operations take
 * longer than others of the same work, which another run of the job may not have. And operations
 * between two that changed, if they take less time than those: a selection by phase or name misses
 * operations that belong to the same layers. A model of sizes says which operations change, so
 * these do not count then.
 */
static double unchanged_time(const struct report *r)
{
	double changed = 0, others = 0, sum = 0;

	for (size_t i = 0; i < r->path.n; i++) {
		const struct pl_path_item *x = &r->path.item[i];
		const struct pl_gstep *st = &r->g.step[x->step];
		const struct pl_shape *sh = &r->g.shape[st->shape];
		pl_ns vanishes = 0;
		bool same = x->part == PL_PP_NODE &&
			    pl_sim_durations(r->s, x->step)[x->node] == st->dur[x->node];

		if (x->part != PL_PP_NODE)
			continue;
		if ((sh->role[x->node] == PL_RO_TRANSFER && same) || r->basis.work_ns > 0)
			changed = others = 0;
		if (same)
			vanishes = may_vanish(r, x);
		sum += (double)vanishes;
		if ((same && is_pause(&r->g, sh, x->node)) || sh->role[x->node] == PL_RO_TRANSFER) {
			continue;
		} else if (same) {
			others += (double)(x->ns - vanishes);
		} else {
			sum += others < changed ? others : 0;
			changed = (others < changed ? changed : 0) + (double)x->ns;
			others = 0;
		}
	}
	return sum;
}

/* Parts of the interval that the path shows, as shares of the replayed step. */
struct of_path {
	double doubtful, threads;
	double follows; /* how much more the step changes if all that stays beside changes follows
			 * them or, which is the same, does not exist */
	double comm;	/* communication of threads that the changes take away */
	double wrong;	/* share of the change that may be wrong */
	double less;	/* likewise, that may not come */
};

/* now: of the predicted run. stays: unchanged_time(). */
static void look_at_path(const struct report *r, const struct pl_selftest_path *now, double stays,
			 double change, struct of_path *out)
{
	const struct pl_selftest_path *old = &r->trust.path;
	double length = (double)pl_max_i64(old->length, 1), before = doubtful(old),
	       after = doubtful(now);

	out->doubtful =
		(fabs(after - before) + fmin(before, after) * fmax(change, touched(r))) / length;
	out->threads = (double)(now->host_work + now->host_comm) / length;
	stays = fmin(stays / length, MOST_STAYS);
	out->follows = change * stays / (1 - stays);
	out->comm =
		r->basis.carries_same
			? 0
			: fmin(fabs((double)(now->host_comm - old->host_comm)) / length, change);
}

static bool has_rewrite(const struct report *r, unsigned op)
{
	const struct pl_rewrite *rw;
	bool has = false;

	for (size_t i = 0; (rw = change_line(r->changes, i)) && !has; i++)
		has = rw->op == op;
	return has;
}

/* Does the prediction have other ranks, which differ? A rank of which layers are divided becomes
 * several. Where no communication is data-parallel, the basis does not say how many. */
static bool has_other_ranks(const struct report *r)
{
	if (has_rewrite(r, PL_RW_TENSOR_PARALLEL))
		return true;
	return r->basis.ranks > 0 ? r->basis.ranks != r->basis.recorded_ranks
				  : has_rewrite(r, PL_RW_RANKS);
}

/* How much the ranks differ in their work, where the prediction has other ranks. One rank does not
 * say it. */
static double of_ranks(const struct report *r)
{
	double sum = 0, squares = 0, mean, n = (double)r->account.n_ranks;

	if (!has_other_ranks(r))
		return 0;
	if (r->account.n_ranks < 2)
		return PL_SELFTEST_NORMAL * RANKS_SCATTER;
	for (size_t i = 0; i < r->account.n_ranks; i++) {
		double x = (double)r->account.rank[i].compute_ns;

		sum += x;
		squares += x * x;
	}
	if (sum <= 0)
		return 0;
	mean = sum / n;
	return PL_SELFTEST_NORMAL * sqrt(fmax(squares / n - mean * mean, 0)) / mean;
}

static double square(double x)
{
	return x * x;
}

/* The interval of a ratio, less the ratio. squares: of the parts that are not named here. */
static void bounds(double ratio, const struct of_path *path, double squares, double *low,
		   double *high)
{
	double change = fabs(ratio - 1), less, more;

	squares += square(PL_SELFTEST_MODEL * ratio) + square(PL_SELFTEST_HOST * path->threads) +
		   square(path->wrong * change) + square(path->doubtful);
	less = sqrt(squares + square(path->less * change));
	more = sqrt(squares + square(PL_SELFTEST_UNKNOWN_SHARE * path->follows) +
		    square(PL_SELFTEST_HOST_COMM * path->comm));
	*low = fmax(ratio < 1 ? -more : -less, -ratio);
	*high = ratio < 1 ? less : more;
}

double vanishing_time(const struct report *r)
{
	double sum = 0;

	for (size_t i = 0; i < r->path.n; i++)
		sum += (double)may_vanish(r, &r->path.item[i]);
	return sum;
}

/* As find_interval(), but by the path of the described run, because that of the changed one takes
 * time. So all doubtful time counts as what the change selects, and so does all communication. */
void find_saving(const struct report *r, const struct halving *x, struct saving *s)
{
	const struct pl_selftest_path *p = &r->trust.path;
	double length = (double)pl_max_i64(p->length, 1), ratio = x->mean / r->mean, low, high;
	double change = fabs(ratio - 1);
	double stays = x->pauses ? 0 : fmin(r->vanishing_ns / length, MOST_STAYS);
	struct of_path path = {
		.doubtful = x->touched * (2 - x->touched) * doubtful(p) / length,
		.threads = fmin(ratio, (double)(p->host_work + p->host_comm) / length),
		.follows = change * stays / (1 - stays),
		.comm = x->comm ? fmin((1 - x->factor) * (double)p->host_comm / length, change) : 0,
		.wrong = PL_SELFTEST_CHANGE,
	};

	*s = (struct saving){ 0 };
	if (!(r->mean > 0))
		return;
	bounds(ratio, &path, square(of_steps(r, x->length)) + square(x->extra_error), &low, &high);
	high = fmin(high, fmax(0, 1 - ratio) + PL_SELFTEST_MODEL); /* nothing gets longer */
	*s = (struct saving){ 1 - ratio, 1 - ratio - high, 1 - ratio - low };
}

/* The interval of one ratio, less the ratio. */
static void interval_of(const struct report *r, const struct pl_selftest_path *now, double stays,
			double ratio, double *low, double *high)
{
	const struct pl_rewrite_basis *b = &r->basis;
	double bias = isfinite(r->bias_mean) ? fabs(r->bias_mean) / r->replayed_mean : 0;
	bool device = has_rewrite(r, PL_RW_DEVICE);
	struct of_path path;

	look_at_path(r, now, stays, fabs(ratio - 1), &path);
	path.less = b->rearranged && r->trust.path.host_comm > 0 ? PL_SELFTEST_LESS_BY_HOSTS : 0;
	path.wrong = !b->in_other_parts	  ? PL_SELFTEST_CHANGE
		     : now->host_comm > 0 ? PL_SELFTEST_CARRIED_BY_HOSTS
					  : PL_SELFTEST_CARRIED_BY_DEVICES;
	path.wrong = hypot(path.wrong, b->other_share);
	bounds(ratio, &path,
	       square(of_steps(r, NULL)) + square(doubt(r) / r->replayed_mean) +
		       square(r->bias_out ? bias / 2 : bias) + square(of_ranks(r)) +
		       square(PL_SELFTEST_NORMAL * b->work_ns / r->replayed_mean) +
		       square(r->trust.extra_error),
	       low, high);
	/* No step gets shorter if durations only get longer, and the reverse. On another device
	 * they may do so only by the model, which says how wrong it may be. */
	if (b->longer && !b->shorter && !device)
		*low = fmax(*low, fmin(0, 1 - ratio) - PL_SELFTEST_MODEL);
	if (b->shorter && !b->longer && !device)
		*high = fmin(*high, fmax(0, 1 - ratio) + PL_SELFTEST_MODEL);
	if (b->at_once) /* perhaps nothing overlaps */
		*high = fmax(*high, fmax(0, 1 - ratio) + PL_SELFTEST_MODEL);
}

int find_interval(struct report *r, struct pl_err *err)
{
	const struct pl_rewrite_basis *b = &r->basis;
	struct trust *t = &r->trust;
	double steps = r->predicted_mean / r->replayed_mean,
	       first = isfinite(r->predicted_step) ? r->predicted_step / r->replayed_step : steps,
	       ratio = r->of_some_ranks ? first : steps, stays;
	struct pl_selftest *selftest;
	struct pl_selftest_path now;

	if (!(r->replayed_mean > 0)) /* no ratio */
		return 0;
	if (b->no_batch)
		because(t, TRUST_MEDIUM, "the recording does not say which sizes follow the batch");
	if (has_other_ranks(r) && r->account.n_ranks < 2)
		because(t, TRUST_MEDIUM,
			"one rank was recorded: how much ranks differ is assumed (by %.0f %%)",
			100 * RANKS_SCATTER);
	if (b->links_unknown)
		because(t, TRUST_MEDIUM,
			"links of ranks that share layers are not known: those of a common network "
			"between hosts are assumed (--topology says what they are)");
	if (b->other_share > PL_SELFTEST_CHANGE)
		because(t, TRUST_MEDIUM,
			"more or fewer of the recorded steps synchronise than of the job's, so "
			"%.0f %% "
			"of the change may be wrong: record a multiple of so many steps",
			100 * b->other_share);
	if (has_rewrite(r, PL_RW_LOADER_WORKERS) && !r->start_device)
		because(t, TRUST_MEDIUM,
			"the workers of the loader need processors that the job leaves idle, "
			"and the recording does not show how many there are");
	if (b->at_once)
		because(t, TRUST_MEDIUM,
			"overlap gains at most this: the recording does not show what reads the "
			"results, and what comes next may need them at once");
	PL_CHECK(pl_selftest_new(&r->g, &selftest, err));
	pl_selftest_path(selftest, &r->path, &now);
	pl_selftest_free(selftest);
	stays = unchanged_time(r);
	interval_of(r, &now, stays, ratio, &t->low, &t->high);
	interval_of(r, &now, stays, first, &t->first_low, &t->first_high);
	if (b->longer != b->shorter && pl_selftest_contradicts(b->longer ? 2 : 0, 1, ratio))
		return pl_fail(err, PL_ENO,
			       "the prediction is impossible: the changes only make operations %s, "
			       "but the step gets %.1f %% %s; %s",
			       b->longer ? "longer" : "shorter", 100 * fabs(ratio - 1),
			       b->longer ? "shorter" : "longer",
			       t->n ? t->reason[0] : "steps of ranks overlap");
	return 0;
}

double low_ns(const struct report *r, double share, double replayed_ns)
{
	return -hypot(share * replayed_ns, r->trust.less_ns);
}

double high_ns(const struct report *r, double share, double replayed_ns)
{
	return hypot(share * replayed_ns, r->trust.more_ns);
}

/* ---- output ---------------------------------------------------------------------------------- */

bool is_unreliable(const struct report *r)
{
	return r->trust.level == TRUST_LOW;
}

void print_trust(const char *head, const struct report *r, struct pl_writer *w)
{
	const struct trust *t = &r->trust;
	struct pl_writer text;

	pl_write_init(&text, NULL, 0);
	pl_write_text(&text, trust_level[t->level]);
	for (size_t i = 0; i < t->n; i++)
		pl_write_format(&text, "%s %s", i ? ";" : ":", t->reason[i]);
	pl_write_char(&text, '\0');
	if (pl_write_check(&text, &w->fail) == 0)
		print_wrapped(head, (const char *)text.b.p, w);
	pl_write_fini(&text);
}

void put_trust(struct pl_writer *w, const struct report *r)
{
	pl_json_key(w, "trust");
	pl_json_open(w, '{');
	pl_json_str(w, "level", trust_level[r->trust.level]);
	pl_json_key(w, "reasons");
	pl_json_open(w, '[');
	for (size_t i = 0; i < r->trust.n; i++)
		pl_json_put_str(w, r->trust.reason[i], strlen(r->trust.reason[i]));
	pl_json_close(w);
	pl_json_close(w);
}
