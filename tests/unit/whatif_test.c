/*
 * What-if statements against a slow reading of what the manual says: every node asked for itself,
 * every typical duration found anew, the run by the slow simulation.
 */
#include <math.h>

#include "rewrite/rewrite.h"
#include "sim_fixture.h"

/* ---- a job that knows more ------------------------------------------------------------------- */

/* Coordinates by rank, sizes, layers and microbatches by node; of some nothing is known. */
static int know_more(struct job *j, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	int rc = 0;

	for (size_t i = 0; i < g->n_res; i++) {
		g->res[i].coord[PL_COORD_DP] = g->res[i].rank / 4;
		g->res[i].coord[PL_COORD_PP] = g->res[i].rank / 2 % 2;
	}
	for (size_t k = 0; k < g->n_shapes; k++) {
		struct pl_shape *s = &g->shape[k];

		PL_TRY(pl_alloc(&s->bytes, s->n_nodes, sizeof(*s->bytes), err));
		PL_TRY(pl_alloc(&s->layer, s->n_nodes, sizeof(*s->layer), err));
		PL_TRY(pl_alloc(&s->mb, s->n_nodes, sizeof(*s->mb), err));
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			bool comm = s->kind[i] == PL_K_COLLECTIVE || s->kind[i] == PL_K_COPY;

			s->bytes[i] = comm && below(j, 4) ? (int64_t)(1024 << below(j, 4)) : -1;
			s->layer[i] = below(j, 3) ? (int32_t)below(j, 12) : -1;
			s->mb[i] = below(j, 3) ? (int32_t)below(j, 3) : -1;
		}
	}
out:
	return rc;
}

/* ---- statements, read slowly ----------------------------------------------------------------- */

struct where {
	const struct job *j;
	const struct pl_shape *s;
	uint32_t i;
	int64_t step;
	int32_t rank;
};

static bool has_duration(const struct where *w)
{
	uint8_t role = w->s->role[w->i];

	return role == PL_RO_COMPUTE || role == PL_RO_HOST || role == PL_RO_GAP ||
	       role == PL_RO_COPY || role == PL_RO_TRANSFER;
}

static bool any(const struct where *w)
{
	(void)w;
	return true;
}

static bool comm(const struct where *w)
{
	return w->s->role[w->i] == PL_RO_TRANSFER;
}

static bool rank_2(const struct where *w)
{
	return w->rank == 2;
}

static bool relu_11(const struct where *w)
{
	return w->s->name[w->i] == w->j->name[1] && w->step == 11;
}

static bool op_with_comma(const struct where *w)
{
	return w->s->name[w->i] == w->j->name[4] && w->rank >= 0 && w->rank <= 2 &&
	       w->s->role[w->i] != PL_RO_GAP;
}

static bool compute(const struct where *w)
{
	uint8_t role = w->s->role[w->i], kind = w->s->kind[w->i];

	return role != PL_RO_TRANSFER && role != PL_RO_GAP &&
	       (kind == PL_K_KERNEL || kind == PL_K_HOST_OP);
}

static bool gaps_of_dp_1(const struct where *w)
{
	return w->s->role[w->i] == PL_RO_GAP && w->rank >= 4;
}

static bool large(const struct where *w)
{
	return w->s->bytes[w->i] >= 2048 && w->s->bytes[w->i] <= 4096;
}

static bool small(const struct where *w)
{
	return w->s->bytes[w->i] >= 0 && (w->s->bytes[w->i] <= 1024 || w->s->bytes[w->i] == 8192);
}

static bool some_layers(const struct where *w)
{
	int32_t l = w->s->layer[w->i];

	return ((l >= 1 && l <= 3) || l == 7 || l == 10 || l == 11) && w->s->mb[w->i] == 0;
}

static bool late_stage_1(const struct where *w)
{
	return w->step >= 11 && w->rank / 2 % 2 == 1;
}

static bool known_layer(const struct where *w)
{
	return w->s->layer[w->i] >= 0 && w->s->kind[w->i] == PL_K_KERNEL;
}

enum action { SCALE, SET, FIX, FIX_MEAN, FIX_MEDIAN };
struct statement {
	const char *text;
	bool (*selects)(const struct where *w);
	enum action action;
	double x;
};
static const struct statement statements[] = {
	{ "scale kind=comm by 0.5", comm, SCALE, 0.5 },
	{ "scale rank=2 by 1.25", rank_2, SCALE, 1.25 },
	{ "scale layer=1..3|7|1[01],mb=0 by 3", some_layers, SCALE, 3 },
	{ "remove name=relu\\[1\\],step=11", relu_11, SET, 0 },
	{ " remove  rank=2 ", rank_2, SET, 0 },
	{ "remove size=2K..4K", large, SET, 0 },
	{ "set name=op,a,rank=..2,kind=host_op|runtime to 70ns", op_with_comma, SET, 70 },
	{ "set size=..1024|8K to 0.033us", small, SET, 33 },
	{ "set kind=gap,dp=1.. to 1us", gaps_of_dp_1, SET, 1000 },
	{ "set layer=*,kind=kernel to 55ns", known_layer, SET, 55 },
	{ "fix all", any, FIX, 0 },
	{ "fix kind=comm", comm, FIX, 0 },
	{ "fix rank=2", rank_2, FIX, 0 },
	{ "fix kind=comm to mean", comm, FIX_MEAN, 0 },
	{ "fix kind=compute to median", compute, FIX_MEDIAN, 0 },
	{ "fix stage=1,step=11.. to median", late_stage_1, FIX_MEDIAN, 0 },
};

/* What the node before a gap, in order of the thread, is called. */
static pl_id name_before_gap(const struct pl_shape *s, uint32_t i)
{
	if (s->role[i] == PL_RO_GAP)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			if (s->etype[e] == PL_E_SEQ && s->res[s->src[e]] == s->res[i])
				return s->name[s->src[e]];
	return PL_NONE;
}

static bool peers(const struct pl_shape *a, uint32_t i, const struct pl_shape *b, uint32_t k)
{
	return a->name[i] == b->name[k] && a->role[i] == b->role[k] && a->kind[i] == b->kind[k] &&
	       a->bytes[i] == b->bytes[k] && name_before_gap(a, i) == name_before_gap(b, k);
}

static double typical(const struct job *j, const struct pl_shape *s, uint32_t i, bool median)
{
	static pl_ns v[8 * MAX_NODES];
	double sum = 0;
	size_t n = 0;

	for (size_t step = 0; step < j->g.n_steps; step++) {
		const struct pl_gstep *st = &j->g.step[step];
		const struct pl_shape *o = &j->g.shape[st->shape];

		for (uint32_t k = o->n_entries; k < o->n_nodes; k++)
			if (peers(s, i, o, k)) {
				sum += (double)st->dur[k];
				v[n++] = st->dur[k];
			}
	}
	qsort(v, n, sizeof(*v), pl_compare_i64);
	if (!median)
		return round(sum / (double)n);
	return (double)(v[(n - 1) / 2] + (v[n / 2] - v[(n - 1) / 2]) / 2);
}

static double act(const struct job *j, const struct statement *x, const struct where *w, double ns)
{
	switch (x->action) {
	case SCALE:
		return ns * x->x;
	case SET:
		return x->x;
	case FIX:
		return typical(j, w->s, w->i, comm(w));
	default:
		return typical(j, w->s, w->i, x->action == FIX_MEDIAN);
	}
}

/* The durations of a step that the statements leave; counts what each selects. */
static pl_ns *slowly(const struct job *j, size_t step, const struct statement *const *x, size_t n,
		     uint64_t *hits)
{
	const struct pl_gstep *st = &j->g.step[step];
	const struct pl_shape *s = &j->g.shape[st->shape];
	pl_ns *dur = calloc(s->n_nodes, sizeof(*dur));

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct where w = { j, s, i, st->number, pl_node_rank(&j->g, s, i) };
		double ns = (double)st->dur[i];

		for (size_t k = 0; k < n; k++) {
			if (!has_duration(&w) || !x[k]->selects(&w))
				continue;
			ns = act(j, x[k], &w, ns);
			hits[k]++;
		}
		dur[i] = (pl_ns)(ns + 0.5);
	}
	return dur;
}

enum { MOST = 4 };

/* One statement, or several in a random order. */
static void test_statements(uint64_t seed, size_t first, size_t n)
{
	const struct statement *x[MOST];
	uint64_t hits[MOST] = { 0 }, want[MOST] = { 0 };
	struct pl_plan p;
	struct pl_err err = { 0 };
	struct pl_run r = { 0 };
	struct pl_sim *s = NULL;
	struct job j;
	pl_ns *dur[4] = { NULL };
	double mean = -1;
	struct pl_rewrite_basis basis = { 0 };
	bool read = true;

	pl_plan_init(&p);

	if (make_job(&j, seed, 3, 120, 4, 100, 0, &err) < 0 || know_more(&j, &err) < 0 ||
	    !(s = pl_sim_new(&j.g, &err))) {
		ok(false, "%s", err.msg);
		return;
	}
	for (size_t k = 0; k < n; k++) {
		x[k] = &statements[n == 1 ? first : below(&j, PL_LEN(statements))];
		read &= pl_rewrite_add_line(&p, x[k]->text, &err) == 0;
	}
	read &= pl_rewrite_durations(s, &j.g, &p, NULL, hits, &basis, &err) == 0;
	for (size_t k = 0; k < j.g.n_steps; k++)
		dur[k] = slowly(&j, k, x, n, want);
	ok(read && pl_sim_run(s, &r, &err) == 0 && agrees(&j, &r, dur),
	   "seed %llu: \"%s\"%s: as the slow reading has it %s", (unsigned long long)seed,
	   x[0]->text, n > 1 ? " and others" : "", err.msg);
	ok(read && !memcmp(hits, want, n * sizeof(*hits)), "seed %llu: ... and it selects as many",
	   (unsigned long long)seed);
	ok(read && pl_sim_mean(s, &mean, &err) == 0 && mean == pl_sim_run_mean_step(s, &r),
	   "seed %llu: ... with the same mean step", (unsigned long long)seed);
	for (size_t k = 0; k < j.g.n_steps; k++)
		free(dur[k]);
	pl_sim_run_fini(&r);
	pl_plan_fini(&p);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void)
{
	static const char *const wrong[][2] = {
		{ "halve all", "there is no statement \"halve\"; paceline-plan(5) lists them" },
		{ "scal all by 2", "did you mean scale?" },
		{ "scale knid=comm by 2", "scale has no \"knid\"; did you mean kind?" },
		{ "remove", "write all, or KEY=PATTERN" },
		{ "remove kind=comm by 2", "no kind matches \"comm by 2\"" },
		{ "set kind=comm by 2", "to is missing; write: set" },
		{ "set kind=comm to soon", "to must be a time, like 25us, not \"soon\"" },
		{ "set kind=comm to -1us", "to must be a time" },
		{ "fix kind=comms", "did you mean comm?; expected: fix [kind=PATTERN]" },
		{ "fix kind=nccl", ", gap, all; expected: fix [kind=PATTERN]" },
		{ "fix", "[to=mean|median]" },
		{ "fix to mean", "write all, or KEY=PATTERN" },
		{ "bandwidth 2", "by is missing; write: bandwidth [LINK] by=X" },
		{ "bandwidth by 0", "by must be at least 1e-06 and at most 1e+06, not 0" },
		{ "bandwidth to 5us", "by is missing" },
		{ "latency by -1", "by must be at least 0" },
		{ "latency nic",
		  "it needs by X or to TIME; expected: latency [LINK] [by=X] [to=TIME]" },
		{ "latency to x", "to must be a time" },
		{ "latency to 5", "to must be a time, like 25us, not \"5\"" },
		{ "ranks", "it needs a number of replicas or by X" },
		{ "ranks 0", "ranks must be at least 1 and at most 1000000" },
		{ "ranks 1.5", "ranks must be a whole number" },
		{ "scale all by 2\nremove all", "by must be a decimal number" },
		{ "ranks 16 32", "ranks must be a whole number, not \"16 32\"" },
		{ "remove rank=3..1", "a range ends before it begins" },
		{ "remove rank=..", "a range is not of numbers" },
		{ "remove rank=a..b", "a range is not of numbers" },
		{ "remove size=big", "a size is not a number of bytes" },
		{ "remove size=1M..2X", "a range is not of numbers" },
		{ "remove size=-1", "a size is not a number of bytes" },
		{ "remove layer=1,layer=2", "layer is there twice" },
		{ "remove colour=red", "has no \"colour\"; it has kind, name, host, rank, stage, "
				       "dp, step, size, layer, mb" },
	};

	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		struct pl_plan p;
		struct pl_err err = { 0 };
		int rc;

		pl_plan_init(&p);
		rc = pl_rewrite_add_line(&p, wrong[i][0], &err);
		ok(rc == PL_EUSAGE && strstr(err.msg, wrong[i][0]) &&
			   strstr(err.msg, wrong[i][1]) && !p.n_rw,
		   "refused: %s", rc < 0 ? err.msg : wrong[i][0]);
		pl_plan_fini(&p);
	}
}

static int run_with(const struct job *j, const char *text, struct pl_err *err)
{
	struct pl_sim *s;
	int rc;

	memset(err, 0, sizeof(*err));
	s = pl_sim_new(&j->g, err);
	rc = s ? change_durations(s, &j->g, text, NULL, err) : err->code;
	pl_sim_free(s);
	return rc;
}

static void test_limits(void)
{
	struct pl_err err = { 0 };
	struct job j;

	if (make_job(&j, 3, 3, 100, 2, 100, 0, &err) < 0 || know_more(&j, &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	ok(run_with(&j, "set all to 9000000000s", &err) == PL_ELIMIT &&
		   strstr(err.msg, "smaller times"),
	   "times that sum to more than 2^61 ns: %s", err.msg);
	ok(run_with(&j, "bandwidth nowhere by 2", &err) == PL_EUSAGE &&
		   strstr(err.msg, "\"nowhere\"") && strstr(err.msg, "\"pcie\" and \"nic\""),
	   "a link that there is not: %s", err.msg);
	pl_graph_fini(&j.g);
}

/* ---- communication -----------------------------------------------------------------------------
 */

enum { MEMBERS = 4, COMMS = 6 };

/* All-reduces of four ranks one after the other: t = a + b S, some 10 % longer, the same for all.
 */
static int comm_job(struct job *j, double a, double b, struct pl_err *err)
{
	struct pl_shape *s;
	struct pl_gstep *st;
	uint32_t last[64];
	pl_ns at = 0;
	int rc;

	*j = (struct job){ .rng = 5, .ranks = MEMBERS, .per_rank = 1 };
	PL_TRY(job_tables(j, err));
	PL_TRY(pl_intern_add(&j->g.str, "all_reduce", 10, &j->name[2], err));
	PL_TRY(pl_grow(&j->g.shape, &j->g.cap_shapes, 1, sizeof(*s), err));
	s = &j->g.shape[j->g.n_shapes++];
	memset(s, 0, sizeof(*s));
	PL_TRY(shape_arrays(s, err));
	PL_TRY(pl_alloc(&s->bytes, MAX_NODES, sizeof(*s->bytes), err));
	for (uint32_t r = 0; r < MEMBERS; r++) {
		last[r] = add_node(s, PL_N_OP, PL_RO_MARK, PL_K_STEP, r, j->name[7]);
		s->flags[r] = PL_NF_STEP_BEGIN | PL_NF_IN_STEP;
	}
	for (int i = 0; i < COMMS; i++)
		add_collective(j, s, last, 0);
	PL_TRY(pl_grow(&j->g.step, &j->g.cap_steps, 1, sizeof(*st), err));
	st = &j->g.step[j->g.n_steps++];
	*st = (struct pl_gstep){ .number = 1 };
	PL_TRY(pl_alloc(&st->start, s->n_nodes, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&st->dur, s->n_nodes, sizeof(pl_ns), err));
	for (uint32_t i = MEMBERS, n = 0; i < s->n_nodes; i++) {
		bool done = s->role[i] == PL_RO_TRANSFER;

		st->start[i] = at;
		s->bytes[i] = 4000 << n;
		st->dur[i] =
			done ? (pl_ns)(a + b * (double)s->bytes[i]) * (n == 2 ? 11 : 10) / 10 : 0;
		if (done && s->res[i] == MEMBERS - 1) {
			at += st->dur[i];
			n++;
		}
	}
	pl_free(s->k); /* so that changes can be simulated side by side */
	s->k = NULL;
out:
	return rc;
}

struct law { /* of transfers, behind a change */
	double a, b;
	bool latency; /* it was one of latency */
};

/* Every transfer is the recorded one times line after / line before, change by change. What it
 * takes longer than its line does not grow or shrink with the latency. laws[0] is the recorded
 * line. */
static double changed_transfer(double ns, double bytes, const struct law *laws, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		double before = laws[i - 1].a + laws[i - 1].b * bytes;
		double after = laws[i].a + laws[i].b * bytes;

		if (laws[i].latency && (after > before || ns > before))
			ns += after - before;
		else
			ns *= after / before;
	}
	return ns;
}

static void test_laws(struct job *j, const char *text, const struct law *laws, size_t n_laws)
{
	const struct pl_gstep *st = &j->g.step[0];
	const struct pl_shape *s = &j->g.shape[0];
	static const struct pl_selector everything = { .all = true };
	struct pl_graph_select all = { 0 };
	const struct pl_sim_scale both[2] = { { &all, 1, NULL }, { &all, 0.5, NULL } };
	struct pl_err err = { 0 };
	struct pl_run r = { 0 };
	struct pl_sim *sim = pl_sim_new(&j->g, &err);
	double worst = 0, mean[2] = { -1, -1 };

	if (!sim || change_durations(sim, &j->g, text, NULL, &err) < 0 ||
	    pl_sim_run(sim, &r, &err) < 0 ||
	    pl_graph_select_init(&all, &everything, &j->g, NULL, &err) < 0) {
		ok(false, "%s: %s", text, err.msg);
		goto out;
	}
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		double want = (double)st->dur[i];

		if (s->role[i] == PL_RO_TRANSFER)
			want = changed_transfer(want, (double)s->bytes[i], laws, n_laws);

		worst = fmax(worst, fabs((double)pl_sim_run_dur(sim, &r, 0, i) - want));
	}
	ok(pl_sim_means(sim, both, 2, mean, &err) == 0 && (mean[1] < mean[0] || mean[0] == 0) &&
		   mean[0] == pl_sim_run_mean_step(sim, &r),
	   "%s: the same beside another", text);
	ok(worst <= 1, "%s: within a nanosecond of the line (%.2f)", text, worst);
out:
	pl_graph_select_fini(&all);
	pl_sim_run_fini(&r);
	pl_sim_free(sim);
}

static void test_line(struct job *j, const char *text, double a, double b, double a2, double b2)
{
	const struct law laws[] = { { a, b, false }, { a2, b2, !strncmp(text, "latency", 7) } };

	test_laws(j, text, laws, 2);
}

static void test_communication(void)
{
	const double a = 6000, b = 0.5, more = b * (15.0 / 16) / (3.0 / 4);
	const struct law ranks_first[] = { { a, b, false },
					   { a * 15 / 3, more, false },
					   { 30 * 2000, more, true },
					   { 30 * 2000, more / 2, false } };
	const struct law latency_first[] = { { a, b, false },
					     { 6 * 2000, b, true },
					     { 30 * 2000, more, false },
					     { 2 * 30 * 2000, 2 * more, false } };
	struct pl_err err = { 0 };
	struct job j;

	if (comm_job(&j, a, b, &err) < 0 || !pl_graph_valid(&j.g, &err)) {
		ok(false, "%s", err.msg);
		return;
	}
	test_line(&j, "bandwidth by 4", a, b, a, b / 4);
	test_line(&j, "bandwidth by 0.5", a, b, a, b * 2);
	test_line(&j, "latency by 0", a, b, 0, b);
	test_line(&j, "latency by 3", a, b, a * 3, b);
	test_line(&j, "latency to 2us", a, b, 6 * 2000, b); /* 2 (4 - 1) messages */
	test_line(&j, "ranks 16", a, b, a * 15 / 3, b * (15.0 / 16) / (3.0 / 4));
	test_line(&j, "scale size=4000..1M by 3;scale size=..1M by 0.5;scale size=4G.. by 9", a, b,
		  1.5 * a, 1.5 * b);
	test_line(&j, "ranks 2", a, b, a / 3, b * (1.0 / 2) / (3.0 / 4));
	test_line(&j, "ranks 1", a, b, 0, 0);
	test_laws(&j, "ranks 16;latency to 2us;bandwidth by 2", ranks_first, PL_LEN(ranks_first));
	test_laws(&j, "latency to 2us;ranks 16;scale kind=comm by 2", latency_first,
		  PL_LEN(latency_first));
	pl_graph_fini(&j.g);
}

/* Which communication has more workers: by coordinates, by gradients, by all ranks. */
static uint64_t parallel(struct job *j, struct pl_rewrite_basis *basis)
{
	struct pl_err err = { 0 };
	struct pl_sim *s = pl_sim_new(&j->g, &err);
	struct pl_plan p;
	uint64_t n = UINT64_MAX;

	*basis = (struct pl_rewrite_basis){ 0 };
	pl_plan_init(&p);
	if (!s || pl_rewrite_add_line(&p, "ranks 8", &err) < 0 ||
	    pl_rewrite_durations(s, &j->g, &p, NULL, &n, basis, &err) < 0)
		n = UINT64_MAX;
	pl_plan_fini(&p);
	pl_sim_free(s);
	return n;
}

/* Durations get shorter while messages get longer: neither direction is certain. */
static void test_directions(void)
{
	struct pl_rewrite_basis basis = { 0 };
	struct pl_err err = { 0 };
	struct pl_sim *s = NULL;
	uint64_t hits[2];
	struct pl_plan p;
	struct job j;

	pl_plan_init(&p);
	if (ok(comm_job(&j, 6000, 0.5, &err) == 0 && (s = pl_sim_new(&j.g, &err)) &&
		       pl_rewrite_add_line(&p, "latency by 1.5", &err) == 0 &&
		       pl_rewrite_add_line(&p, "scale all by 0.01", &err) == 0 &&
		       pl_rewrite_durations(s, &j.g, &p, NULL, hits, &basis, &err) == 0,
	       "a longer latency of shorter operations (%s)", err.msg))
		ok(basis.longer && basis.shorter, "... may change the step either way");
	pl_plan_fini(&p);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

static void test_parallel(void)
{
	struct pl_err err = { 0 };
	struct pl_tensor grad = { .role = PL_TR_GRAD, .type = PL_NONE, .n_consumers = 1 };
	struct job j;
	struct pl_shape *s;
	uint32_t arrive;
	struct pl_rewrite_basis basis = { 0 };

	if (comm_job(&j, 6000, 0.5, &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	s = &j.g.shape[0];
	is_i64((long long)parallel(&j, &basis), MEMBERS * COMMS,
	       "nothing known: that of all ranks");
	ok(basis.guessed, "... which is a guess");
	for (size_t i = 0; i < j.g.n_res; i++)
		j.g.res[i].coord[PL_COORD_DP] = 0;
	is_i64((long long)parallel(&j, &basis), 0, "one data-parallel coordinate: none");
	j.g.res[2].coord[PL_COORD_DP] = j.g.res[3].coord[PL_COORD_DP] = 1;
	is_i64((long long)parallel(&j, &basis), MEMBERS * COMMS, "two of them: all");
	test_line(&j, "ranks 8", 6000, 0.5, 6000.0 * 15 / 3, 0.5 * (15.0 / 16) / (3.0 / 4));
	for (size_t i = 0; i < j.g.n_res; i++)
		j.g.res[i].coord[PL_COORD_DP] = -1;
	/* the first communication is that of a group which carries a gradient */
	if (pl_grow(&j.g.group, &j.g.cap_groups, 1, sizeof(*j.g.group), &err) < 0 ||
	    pl_grow(&j.g.group_rank, &j.g.cap_group_ranks, MEMBERS, sizeof(*j.g.group_rank), &err) <
		    0 ||
	    pl_grow(&j.g.tensor, &j.g.cap_tensors, 1, sizeof(grad), &err) < 0 ||
	    pl_grow(&j.g.consumer, &j.g.cap_consumers, 1, sizeof(*j.g.consumer), &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	j.g.group[0] = (struct pl_ggroup){ .name = j.name[0], .n = MEMBERS };
	for (uint32_t r = 0; r < MEMBERS; r++)
		j.g.group_rank[r] = 2 * r;
	j.g.n_groups = 1;
	j.g.n_group_ranks = MEMBERS;
	for (arrive = 0; s->role[arrive] != PL_RO_ARRIVE; arrive++)
		;
	for (uint32_t i = arrive; i < arrive + 2 * MEMBERS + 1; i++)
		s->group[i] = 0;
	j.g.tensor[j.g.n_tensors++] = grad;
	j.g.consumer[j.g.n_consumers++] = arrive;
	is_i64((long long)parallel(&j, &basis), MEMBERS,
	       "gradients are known: that of their group");
	ok(!basis.guessed, "... which is none");
	pl_graph_fini(&j.g);
}

/* ---- activations ----------------------------------------------------------------------------- */

static const struct carried {
	unsigned coll, phase; /* behind computation of that phase */
	uint32_t group;
	bool follows;
} carried[] = {
	{ PL_COLL_ALLGATHER, PL_PH_FORWARD, 0, true },
	{ PL_COLL_REDUCE_SCATTER, PL_PH_FORWARD, 0, true },
	{ PL_COLL_ALLGATHER, PL_PH_BACKWARD, 0, true },
	{ PL_COLL_REDUCE_SCATTER, PL_PH_BACKWARD, 1, false },
	{ PL_COLL_ALLGATHER, PL_PH_OPTIMIZER, 1, false },
};
enum { CARRIED_NS = 1000000 };

/* Two ranks that compute and communicate in turn. */
static int carrying_job(struct job *j, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	uint32_t last[4] = { PL_NONE, PL_NONE, PL_NONE, PL_NONE };
	int rc;

	*j = (struct job){ .ranks = 2, .per_rank = 2 };
	PL_TRY(job_tables(j, err));
	PL_TRY(one_step_with_bytes(g, err));
	PL_TRY(pl_grow(&g->group, &g->cap_groups, 2, sizeof(*g->group), err));
	PL_TRY(pl_grow(&g->group_rank, &g->cap_group_ranks, 2, sizeof(*g->group_rank), err));
	g->group[0] = g->group[1] = (struct pl_ggroup){ .name = j->name[0], .n = 2 };
	g->group_rank[0] = 0;
	g->group_rank[1] = 2;
	g->n_groups = g->n_group_ranks = 2;
	s = &g->shape[0];
	PL_TRY(pl_alloc(&s->phase, MAX_NODES, sizeof(*s->phase), err));
	PL_TRY(pl_alloc(&s->comm, MAX_NODES, sizeof(*s->comm), err));
	PL_TRY(pl_alloc(&s->comms, PL_LEN(carried), sizeof(*s->comms), err));
	memset(s->comm, 0xff, MAX_NODES * sizeof(*s->comm));
	for (uint32_t r = 0; r < 2; r++) {
		last[2 * r] = add_node(s, PL_N_OP, PL_RO_MARK, PL_K_STEP, 2 * r, j->name[7]);
		s->flags[last[2 * r]] |= PL_NF_STEP_BEGIN;
	}
	for (uint32_t i = 0; i < PL_LEN(carried); i++) {
		uint32_t first;

		for (uint32_t r = 0; r < 2; r++) {
			uint32_t n = add_node(s, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * r + 1,
					      j->name[0]);

			add_edge(s, last[2 * r + 1], PL_E_SEQ);
			add_edge(s, last[2 * r], PL_E_LAUNCH);
			s->phase[n] = (uint8_t)carried[i].phase;
			g->step[0].dur[n] = CARRIED_NS;
			last[2 * r + 1] = n;
		}
		first = s->n_nodes;
		add_collective(j, s, last, 0);
		s->comms[s->n_comms++] = (struct pl_gcomm){ .kind = (uint8_t)carried[i].coll,
							    .algorithm = PL_NONE,
							    .type = PL_NONE,
							    .group = carried[i].group,
							    .members = 2,
							    .root = -1,
							    .bytes = 1 << 20 };
		for (uint32_t n = first; n < s->n_nodes; n++) {
			s->comm[n] = i;
			s->group[n] = carried[i].group;
			s->bytes[n] = 1 << 20;
			if (s->role[n] == PL_RO_TRANSFER)
				g->step[0].dur[n] = CARRIED_NS;
		}
	}
	start_early(g);
out:
	return rc;
}

/* What a group gathers and scatters in the forward pass, too, are activations. */
static void test_activations(void)
{
	struct pl_rewrite_basis basis = { 0 };
	struct pl_err err = { 0 };
	struct pl_sim *s = NULL;
	struct pl_plan p;
	struct job j;
	uint64_t hits = 0;
	bool good;

	pl_plan_init(&p);
	good = carrying_job(&j, &err) == 0 && (s = pl_sim_new(&j.g, &err)) &&
	       pl_rewrite_add_line(&p, "batch by 4", &err) == 0 &&
	       pl_rewrite_durations(s, &j.g, &p, NULL, &hits, &basis, &err) == 0;
	if (ok(good, "four times the samples of two ranks that share layers (%s)", err.msg)) {
		const struct pl_shape *sh = &j.g.shape[0];
		const pl_ns *now = pl_sim_durations(s, 0);

		for (uint32_t i = 0; i < sh->n_nodes; i++)
			if (sh->role[i] == PL_RO_TRANSFER)
				ok(carried[sh->comm[i]].follows ? now[i] > 2 * (pl_ns)CARRIED_NS
								: now[i] == CARRIED_NS,
				   "communication %u: %lld ns", sh->comm[i], (long long)now[i]);
		ok(basis.one_size && basis.error > 0.05 && basis.error < 1,
		   "messages of one size: %.2f of their time may be wrong", basis.error);
	}
	pl_sim_free(s);
	pl_plan_fini(&p);
	pl_graph_fini(&j.g);
}

int main(void)
{
	for (size_t i = 0; i < PL_LEN(statements); i++)
		test_statements(30 + i, i, 1);
	for (uint64_t seed = 200; seed < 224; seed++)
		test_statements(seed, 0, 2 + seed % 3);
	test_refused();
	test_limits();
	test_communication();
	test_parallel();
	test_directions();
	test_activations();
	return done_testing();
}
