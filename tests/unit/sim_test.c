/*
 * The simulator against slow and simple ones: random graphs by an event loop, and the account of a
 * rank's time instant by instant.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph/edit.h"
#include "graph/program.h"
#include "sim/events.h"
#include "sim_fixture.h"

static void test_random(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_run r = { 0 }, w = { 0 };
	struct pl_sim *s;
	pl_ns *dur[4];
	double mean = 0;

	if (make_job(&j, seed, 2 + (int)(seed % 3), 60 + (uint32_t)(seed * 37 % 250), 3, 100,
		     seed % 4 ? 0 : INT64_C(7000000000), &err) < 0 ||
	    !pl_graph_valid(&j.g, &err) || !(s = pl_sim_new(&j.g, &err))) {
		ok(false, "seed %llu: %s", (unsigned long long)seed, err.msg);
		return;
	}
	for (size_t k = 0; k < j.g.n_steps; k++)
		dur[k] = j.g.step[k].dur;
	ok(pl_sim_run(s, &r, &err) == 0 && agrees(&j, &r, dur),
	   "seed %llu: as the slow simulation has it", (unsigned long long)seed);

	/* the same durations scaled by hand */
	for (size_t k = 0; k < j.g.n_steps; k++) {
		const struct pl_shape *sh = &j.g.shape[j.g.step[k].shape];

		dur[k] = calloc(sh->n_nodes, sizeof(pl_ns));
		for (uint32_t i = 0; i < sh->n_nodes; i++) {
			double f = 1;

			if (sh->role[i] == PL_RO_TRANSFER)
				f *= 0.5;
			if (sh->kind[i] == PL_K_KERNEL && pl_node_rank(&j.g, sh, i) == 2)
				f *= 1.25;
			if (sh->name[i] == j.name[1] && j.g.step[k].number == 11)
				f *= 3;
			dur[k][i] = (pl_ns)((double)j.g.step[k].dur[i] * f + 0.5);
		}
	}
	ok(change_durations(s, &j.g,
			    "scale kind=comm by 0.5;scale kind=kernel,rank=2 by 1.25;"
			    "scale name=relu\\[1\\],step=11 by 3",
			    NULL, &err) == 0 &&
		   pl_sim_run(s, &w, &err) == 0 && agrees(&j, &w, dur),
	   "seed %llu: a what-if is the same as other durations", (unsigned long long)seed);
	ok(pl_sim_mean(s, &mean, &err) == 0 && mean == pl_sim_run_mean_step(s, &w),
	   "seed %llu: the mean without keeping the run", (unsigned long long)seed);
	for (size_t k = 0; k < j.g.n_steps; k++)
		free(dur[k]);
	pl_sim_run_fini(&r);
	pl_sim_run_fini(&w);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* Several what-ifs at once: each as if it were alone. */
static void test_many(uint64_t seed)
{
	static const struct pl_selector some[] = {
		{ .key[PL_SEL_KIND] = "comm" },
		{ .key[PL_SEL_RANK] = "1" },
		{ .key[PL_SEL_KIND] = "gap" },
		{ .key[PL_SEL_STEP] = "11" },
		{ .key[PL_SEL_LAYER] = "0.." },
		{ .key[PL_SEL_KIND] = "host_op" },
		{ .all = true },
	};
	static const float factor[] = { 0.5F, 0, 2, 3, 1.5F, 7, 1.5F };
	struct pl_graph_select select[PL_LEN(some)] = { 0 };
	struct pl_sim_scale scale[PL_LEN(some)];
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s;
	double one[PL_LEN(some)], many[PL_LEN(some)];
	pl_ns alone[PL_LEN(some)][8] = { 0 }, length[PL_LEN(some)][8] = { 0 };
	int rc = 0, same = 0, sums = 0;

	rc = make_job(&j, seed, 3, 200, 3, 100, seed % 2 ? 0 : INT64_C(7000000000), &err);
	for (size_t i = 0; seed % 4 && i < j.g.n_shapes; i++) { /* those with k go one by one */
		pl_free(j.g.shape[i].k);
		j.g.shape[i].k = NULL;
	}
	if (rc < 0 || !(s = pl_sim_new(&j.g, &err))) {
		ok(false, "seed %llu: %s", (unsigned long long)seed, err.msg);
		return;
	}
	if (seed % 3) /* on top of durations that are not recorded */
		rc = change_durations(s, &j.g, "scale kind=comm by 0.3;set rank=2 to 41ns", NULL,
				      &err);
	for (size_t i = 0; i < PL_LEN(some) && rc == 0; i++) {
		rc = pl_graph_select_init(&select[i], &some[i], &j.g, NULL, &err);
		scale[i] = (struct pl_sim_scale){ &select[i], factor[i], length[i] };
		if (rc == 0)
			rc = pl_sim_means(s, &scale[i], 1, &one[i], &err);
	}
	memcpy(alone, length, sizeof(alone));
	for (size_t n = 1; n <= PL_LEN(some) && rc == 0; n++) {
		memset(length, 0, sizeof(length));
		rc = pl_sim_means(s, scale, n, many, &err);
		same -= memcmp(alone, length, n * sizeof(*alone)) != 0;
		same += rc == 0 && !memcmp(one, many, n * sizeof(*one));
	}
	ok(rc == 0 && same == (int)PL_LEN(some) && one[0] != one[1] && one[2] != one[6],
	   "seed %llu: changes simulated side by side are as each alone (%s)",
	   (unsigned long long)seed, err.msg);
	for (size_t i = 0; i < PL_LEN(some); i++) {
		double sum = 0, n = 0;

		for (size_t k = 0; k < 8; k++) {
			sum += (double)length[i][k];
			n += length[i][k] > 0;
		}
		sums += pl_sim_steps_overlap(s) || fabs(sum / n - one[i]) < 1;
	}
	ok(sums == (int)PL_LEN(some), "seed %llu: the steps have the mean that is told",
	   (unsigned long long)seed);
	ok(pl_sim_side_by_side(s) == (seed % 4 ? 4 : 1), "seed %llu: how many are, by the graph",
	   (unsigned long long)seed);
	for (size_t i = 0; i < PL_LEN(some); i++)
		pl_graph_select_fini(&select[i]);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- steps, path ----------------------------------------------------------------------------- */

static void test_path(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_run r = { 0 };
	struct pl_path p = { 0 };
	struct pl_sim *s = NULL;
	bool same = true;

	if (make_job(&j, seed, 3, 150, 3, 100, 0, &err) < 0 || !(s = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(s, &r, &err) < 0 || pl_sim_path_find(s, &r, &p, &err) < 0) {
		ok(false, "seed %llu: %s", (unsigned long long)seed, err.msg);
		return;
	}
	for (size_t k = 0; k < j.g.n_steps; k++) {
		pl_ns start, end;

		pl_sim_recorded(s, k, &start, &end);
		same &= pl_sim_reported(s, k) && r.step_end[k] - r.step_start[k] == end - start;
	}
	ok(same, "seed %llu: every step as it was recorded", (unsigned long long)seed);
	ok(p.length == r.step_end[2] - r.step_start[0] && path_is_whole(&p, r.step_start[0]),
	   "seed %llu: the parts of the path lie end to end and sum to its length",
	   (unsigned long long)seed);
	pl_sim_path_fini(&p);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- account --------------------------------------------------------------------------------- */

enum { SLOW_CLASSES = 8, NO_CLASS = 7 };

/* Mark the instants [a, b) of the rank with the class if it comes before what is there. */
static void paint(uint8_t *v, uint8_t *comm, pl_ns t0, pl_ns t1, pl_ns a, pl_ns b, int cls)
{
	for (pl_ns t = pl_max_i64(a, t0); t < pl_min_i64(b, t1); t++) {
		if (cls < v[t - t0])
			v[t - t0] = (uint8_t)cls;
		if (cls == 1)
			comm[t - t0] = 1;
	}
}

static pl_ns arrival_of(const struct job *j, const struct pl_run *r, size_t k, uint32_t i)
{
	const struct pl_shape *sh = &j->g.shape[j->g.step[k].shape];

	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		if (sh->role[sh->src[e]] == PL_RO_ARRIVE)
			return r->start[k][sh->src[e]];
	return r->start[k][i];
}

/* One rank, every instant. out: compute, comm, copy, unexplained, wait, latency, host, none,
 * overlap. */
static void slow_account(const struct job *j, const struct pl_run *r, int32_t rank, pl_ns t0,
			 pl_ns t1, pl_ns *out)
{
	static const int of_role[PL_RO_COUNT_] = {
		[PL_RO_NONE] = -1,    [PL_RO_COMPUTE] = 0, [PL_RO_HOST] = 6,
		[PL_RO_GAP] = 6,      [PL_RO_COPY] = 2,	   [PL_RO_ARRIVE] = -1,
		[PL_RO_TRANSFER] = 1, [PL_RO_SYNC] = 6,	   [PL_RO_MARK] = -1
	};
	uint8_t *v = malloc((size_t)(t1 - t0)), *comm = calloc((size_t)(t1 - t0), 1);
	pl_ns done[64];

	memset(v, NO_CLASS, (size_t)(t1 - t0));
	for (int i = 0; i < 64; i++)
		done[i] = INT64_MIN;
	for (size_t k = 0; k < j->g.n_steps; k++) {
		const struct pl_gstep *st = &j->g.step[k];
		const struct pl_shape *sh = &j->g.shape[st->shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			pl_ns start = r->start[k][i], last = INT64_MIN, lat = 0, gap = 0, *d;

			if (pl_node_rank(&j->g, sh, i) != rank)
				continue;
			d = &done[sh->res[i]];
			for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
				uint32_t src = sh->src[e];
				pl_ns x = slow_delay(&j->g, st, i, e), room, t;

				t = end_or_start(sh->etype[e], r->start[k][src], st->dur[src]);
				if (t + x <= last)
					continue;
				last = t + x;
				room = st->start[i] -
				       end_or_start(sh->etype[e], st->start[src], st->dur[src]);
				lat = model_latency(&j->g, sh, i, sh->etype[e]);
				lat = pl_max_i64(0, pl_min_i64(lat, room));
				gap = x - lat;
			}
			if (sh->role[i] == PL_RO_TRANSFER)
				paint(v, comm, t0, t1, arrival_of(j, r, k, i), start, 4);
			paint(v, comm, t0, t1, pl_max_i64(*d, start - gap - lat),
			      pl_max_i64(*d, start - gap), 5);
			paint(v, comm, t0, t1, pl_max_i64(*d, start - gap), start, 3);
			*d = pl_max_i64(*d, start + st->dur[i]);
			if (of_role[sh->role[i]] >= 0)
				paint(v, comm, t0, t1, start, start + st->dur[i],
				      of_role[sh->role[i]]);
		}
	}
	memset(out, 0, 9 * sizeof(*out));
	for (pl_ns t = 0; t < t1 - t0; t++)
		out[v[t] == 0 && comm[t] ? 8 : v[t]]++;
	free(v);
	free(comm);
}

static void test_account(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_run r = { 0 };
	struct pl_account a = { 0 };
	struct pl_sim *s = NULL;
	bool sums = true, same = true;
	pl_ns waits = 0, awaited = 0, rank_waits = 0;

	if (make_job(&j, seed, 3, 200, 3, 60, 0, &err) < 0 || !(s = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(s, &r, &err) < 0 || pl_sim_account_make(s, &r, &a, &err) < 0) {
		ok(false, "seed %llu: %s", (unsigned long long)seed, err.msg);
		return;
	}
	for (size_t i = 0; i < a.n_ranks; i++) {
		const struct pl_rank_time *t = &a.rank[i];
		pl_ns x[9], sum = t->compute_ns + t->comm_overlapped_ns + t->comm_exposed_ns +
				  t->copy_ns + t->host_ns + t->unexplained_ns;

		for (int c = 0; c < PL_I_COUNT_; c++)
			sum += t->idle_ns[c];
		sums &= sum == t->span_ns && t->span_ns == r.step_end[2] - r.step_start[0];
		slow_account(&j, &r, t->rank, r.step_start[0], r.step_end[2], x);
		same &= x[0] == t->compute_ns && x[8] == t->comm_overlapped_ns &&
			x[1] == t->comm_exposed_ns && x[2] == t->copy_ns &&
			x[3] == t->unexplained_ns && x[4] == t->idle_ns[PL_I_WAIT] &&
			x[5] == t->idle_ns[PL_I_LAUNCH] && x[6] == t->host_ns &&
			x[7] == t->idle_ns[PL_I_TAIL];
		awaited += t->awaited_ns;
		rank_waits += t->waits_for_ns;
	}
	for (size_t i = 0; i < a.n_res; i++)
		waits += a.res[i].wait_ns;
	ok(sums, "seed %llu: the parts of each rank sum to the span", (unsigned long long)seed);
	ok(same, "seed %llu: the parts are those of every instant", (unsigned long long)seed);
	ok(awaited > 0 && awaited <= waits && rank_waits <= awaited,
	   "seed %llu: waits have somebody who was waited for", (unsigned long long)seed);
	pl_sim_account_fini(&a);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* Rank 0 waits on two streams at a time for rank 1, which computes for 100 ns before both. */
static int two_waits(struct pl_graph *g, struct pl_err *err)
{
	static const char *const streams[] = { "stream 1", "stream 2" };
	const uint32_t of_rank[] = { 0, 1 };
	struct pl_graph_program_nodes nodes = { 0 };
	struct pl_program p[2] = { { 0 } };
	struct pl_graph_program_job job = { .program = p,
					    .of_rank = of_rank,
					    .n_ranks = 2,
					    .resource = streams,
					    .n_resources = 2,
					    .n_comms = 2 };
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	int rc;

	pl_graph_init(g);
	PL_TRY(pl_intern_add(&g->str, "op", 2, &op.name, err));
	op.flags = PL_NF_STEP_BEGIN | PL_NF_IN_STEP;
	op.role = PL_RO_COMPUTE;
	op.kind = PL_K_KERNEL;
	op.dur = 100;
	PL_TRY(pl_graph_program_add(&p[1], &op, NULL, err));
	op.role = PL_RO_TRANSFER;
	op.kind = PL_K_COLLECTIVE;
	op.dur = 10;
	for (uint32_t i = 0; i < 2; i++) {
		op.comm = op.resource = i;
		PL_TRY(pl_graph_program_add(&p[0], &op, NULL, err));
		PL_TRY(pl_graph_program_add(&p[1], &op, NULL, err));
		PL_TRY(pl_graph_program_after(&p[1], 0, PL_E_SEQ, err));
	}
	rc = pl_graph_from_programs(&job, g, &nodes, err);
out:
	pl_graph_program_nodes_fini(&nodes);
	pl_graph_program_fini(&p[0]);
	pl_graph_program_fini(&p[1]);
	return rc;
}

static void test_two_waits(void)
{
	struct pl_err err = { 0 };
	struct pl_account a = { 0 };
	struct pl_run r = { 0 };
	struct pl_sim *s = NULL;
	struct pl_graph g;

	if (two_waits(&g, &err) < 0 || !(s = pl_sim_new(&g, &err)) || pl_sim_run(s, &r, &err) < 0 ||
	    pl_sim_account_make(s, &r, &a, &err) < 0) {
		ok(false, "two waits at a time: %s", err.msg);
	} else {
		is_i64(a.rank[0].idle_ns[PL_I_WAIT], 100,
		       "two waits at a time: the rank waits once");
		is_i64(a.rank[0].waits_for, 1, "... for the other rank");
		is_i64(a.rank[0].waits_for_ns, 100, "... no longer than it waits at all");
		is_i64(a.rank[1].awaited_ns, 100, "... which is awaited as long");
	}
	pl_sim_account_fini(&a);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&g);
}

/* Rank 0 sends its part of a collective for 30 ns. The other rank computes for 100 ns first; then
 * it sends its part for 60 ns. `messages`: those are nodes; else each rank has one transfer. */
static int late_member(struct job *j, bool messages, struct pl_err *err)
{
	struct pl_gstep *st;
	struct pl_shape *s;
	uint32_t late, arrive[2], send[2], meet;

	j->ranks = 2;
	j->per_rank = 3;
	PL_CHECK(job_tables(j, err));
	PL_CHECK(one_step(&j->g, err));
	s = &j->g.shape[0];
	st = &j->g.step[0];
	late = add_node(s, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 3, j->name[0]);
	st->dur[late] = 100;
	for (uint32_t r = 0; r < 2; r++) {
		arrive[r] =
			add_node(s, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, 3 * r + 1, j->name[2]);
		s->flags[arrive[r]] |= PL_NF_STEP_BEGIN;
		add_edge(s, r ? late : PL_NONE, PL_E_SEQ);
	}
	for (uint32_t r = 0; r < 2 && messages; r++) {
		send[r] = add_node(s, PL_N_OP, PL_RO_TRANSFER, PL_K_SEND, 3 * r + 2, j->name[2]);
		s->flags[send[r]] |= PL_NF_MESSAGE;
		st->dur[send[r]] = r ? 60 : 30;
		add_edge(s, arrive[r], PL_E_SEQ);
	}
	meet = add_node(s, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NONE, j->name[2]);
	add_edge(s, arrive[0], PL_E_COMM);
	add_edge(s, arrive[1], PL_E_COMM);
	for (uint32_t r = 0; r < 2; r++) {
		uint32_t t = add_node(s, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, 3 * r + 1,
				      j->name[2]);

		add_edge(s, arrive[r], PL_E_SEQ);
		add_edge(s, messages ? send[0] : meet, messages ? PL_E_DATA : PL_E_COMM);
		add_edge(s, messages ? send[1] : PL_NONE, PL_E_DATA);
		st->dur[t] = messages ? 0 : 60;
	}
	start_early(&j->g);
	return 0;
}

static void test_late_member(bool messages)
{
	const char *what = messages ? "with messages" : "without messages";
	struct pl_err err = { 0 };
	struct pl_account a = { 0 };
	struct pl_run r = { 0 };
	struct pl_sim *s = NULL;
	struct job j;

	memset(&j, 0, sizeof(j));
	if (late_member(&j, messages, &err) < 0 || !(s = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(s, &r, &err) < 0 || pl_sim_account_make(s, &r, &a, &err) < 0) {
		ok(false, "a late member, %s: %s", what, err.msg);
	} else {
		is_i64(a.rank[0].idle_ns[PL_I_WAIT], 100, "a rank waits for a late member");
		is_i64(a.rank[0].comm_exposed_ns, 60, "... and then communicates");
		is_i64(a.rank[0].waits_for, 2, "... it waits for that rank");
		is_i64(a.rank[1].awaited_ns, 100, "... which is awaited as long");
		is_i64(a.rank[1].comm_exposed_ns, 60, "... and communicates as long");
		ok(!a.rank[0].idle_ns[PL_I_TAIL] && !a.rank[1].idle_ns[PL_I_TAIL],
		   "... %s, and no time is left over", what);
	}
	pl_sim_account_fini(&a);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- what-if --------------------------------------------------------------------------------- */

static uint64_t hits(const struct pl_graph *g, const char *text)
{
	struct pl_err err = { 0 };
	struct pl_sim *s = pl_sim_new(g, &err);
	uint64_t n[4] = { 0 };

	if (!s || change_durations(s, g, text, n, &err) < 0) {
		printf("# %s\n", err.msg);
		n[0] = UINT64_MAX;
	}
	pl_sim_free(s);
	return n[0];
}

static uint64_t count(const struct job *j, uint8_t role, int kind, int32_t rank)
{
	uint64_t n = 0;

	for (size_t k = 0; k < j->g.n_steps; k++) {
		const struct pl_shape *s = &j->g.shape[j->g.step[k].shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			n += s->role[i] == role && (kind < 0 || s->kind[i] == kind) &&
			     (rank < 0 || pl_node_rank(&j->g, s, i) == rank);
	}
	return n;
}

static void test_whatif(void)
{
	static const char *const wrong[] = {
		"",
		"scale",
		"shrink kind=comm by 0.5",
		"scale kind=comm",
		"scale kind=comm by",
		"scale kind=comm by x",
		"scale kind=comm by -1",
		"scale kind=comm by 1e9",
		"scale kind=comms by 0.5",
		"scale comm by 0.5",
		"scale colour=red by 0.5",
		"scale rank=1,rank=2 by 0.5",
	};
	struct pl_err err = { 0 };
	struct job j;
	bool all = true;

	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		struct pl_plan p;
		struct pl_err e = { 0 };

		pl_plan_init(&p);
		if (pl_rewrite_add_line(&p, wrong[i], &e) != PL_EUSAGE || !e.msg[0] || p.n_rw) {
			printf("# accepted: \"%s\"\n", wrong[i]);
			all = false;
		}
		pl_plan_fini(&p);
	}
	ok(all, "%zu wrong changes are refused as usage", PL_LEN(wrong));
	if (make_job(&j, 5, 3, 200, 3, 60, 0, &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	is_i64((long long)hits(&j.g, "scale kind=comm by 0.5"),
	       (long long)count(&j, PL_RO_TRANSFER, -1, -1), "comm: transfers, not arrivals");
	is_i64((long long)hits(&j.g, "scale kind=compute,rank=4 by 0.5"),
	       (long long)(count(&j, PL_RO_COMPUTE, PL_K_KERNEL, 4) +
			   count(&j, PL_RO_HOST, PL_K_HOST_OP, 4)),
	       "compute: kernels and host operations, of a rank");
	is_i64((long long)hits(&j.g, "scale kind=gap by 2"),
	       (long long)count(&j, PL_RO_GAP, -1, -1), "gap: gaps of host threads");
	is_i64((long long)hits(&j.g, "scale name=op,a by 2"),
	       (long long)(count(&j, PL_RO_HOST, PL_K_HOST_OP, -1)), "a name may hold a comma");
	is_i64((long long)hits(&j.g, "scale name=all\\|reduce,kind=coll*,step=11|12,rank=0 by 2"),
	       (long long)hits(&j.g, "scale kind=collective,rank=0,step=1[12] by 2"),
	       "globs: alternatives, sets, backslash");
	is_i64((long long)hits(&j.g, "scale rank=3 by 2"), 0, "no such rank: nothing");
	is_i64((long long)hits(&j.g, "scale all by 2"), (long long)hits(&j.g, "scale kind=* by 2"),
	       "all is any kind");
	pl_graph_fini(&j.g);
}

/* ---- folding --------------------------------------------------------------------------------- */

/* From the earliest of the mean begins to the latest of the mean ends, over steps 1 .. 3. */
static double mean_length(const struct pl_graph *g, const struct pl_run *r)
{
	const struct pl_shape *s = &g->shape[1];
	double first = INFINITY, last = 0;

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		double start = 0, end = 0;

		for (int k = 1; k < 4; k++) {
			start += (double)(g->step[k].start[i] - r->step_start[k]) / 3;
			end += (double)(g->step[k].start[i] + g->step[k].dur[i] -
					r->step_start[k]) /
			       3;
		}
		if (s->flags[i] & PL_NF_STEP_BEGIN)
			first = fmin(first, start);
		last = fmax(last, end);
	}
	return last - first;
}

static void test_fold(bool median)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_graph f;
	struct pl_sim *s = NULL, *all = NULL;
	struct pl_run r = { 0 }, ra = { 0 };
	size_t n = 0;
	double want, got;

	/* the first shape has no entries: three steps of the second remain, and are alike */
	pl_graph_init(&f);
	if (make_job(&j, 77, 2, 120, 4, 500, 0, &err) < 0 || !(all = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(all, &ra, &err) < 0 || pl_sim_fold(&j.g, median, &f, &n, &err) < 0 ||
	    !pl_graph_valid(&f, &err) || !(s = pl_sim_new(&f, &err)) ||
	    pl_sim_run(s, &r, &err) < 0) {
		ok(false, "fold: %s", err.msg);
		return;
	}
	is_i64((long long)n, 3, "the three steps of one shape are folded");
	ok(f.n_steps == 1 && f.n_shapes == 1 && f.str.n == j.g.str.n && f.n_res == j.g.n_res,
	   "one step is left, with all tables");
	want = mean_length(&j.g, &ra);
	got = pl_sim_run_mean_step(s, &r);
	ok(fabs(got - want) <= (median ? 0.15 * want : 2), "it lasts what they lasted: %.1f, %.1f",
	   got, want);
	pl_sim_run_fini(&r);
	pl_sim_run_fini(&ra);
	pl_sim_free(s);
	pl_sim_free(all);
	pl_graph_fini(&f);
	pl_graph_fini(&j.g);
}

/* ---- timeline -------------------------------------------------------------------------------- */

struct seen {
	struct pl_sink sink;
	uint64_t n[PL_K_COUNT_];
	pl_ns sum[PL_K_COUNT_];
	uint64_t corr, seq;
	bool order;
};

static int see(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b, struct pl_err *err)
{
	struct seen *x = (struct seen *)(void *)sink;

	(void)err;
	for (uint32_t i = 0; i < b->n; i++) {
		x->n[b->kind[i]]++;
		x->sum[b->kind[i]] += b->dur[i];
		x->order &=
			b->dur[i] >= 0 && b->track[i] < seg->n_tracks && b->name[i] < seg->str.n;
	}
	for (uint32_t c = 0; c < b->n_cols; c++) {
		x->corr += b->col[c].role == PL_R_CORR ? b->col[c].n : 0;
		x->seq += b->col[c].role == PL_R_SEQ ? b->col[c].n : 0;
	}
	return 0;
}

static void test_timeline(void)
{
	struct seen x = { .sink = { .batch = see }, .order = true };
	struct pl_err err = { 0 };
	struct pl_run r = { 0 };
	struct pl_sim *s = NULL;
	struct job j;
	pl_ns kernels = 0;

	if (make_job(&j, 3, 2, 300, 2, 100, 0, &err) < 0 || !(s = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(s, &r, &err) < 0 || pl_sim_timeline(s, &r, &x.sink, &err) < 0) {
		ok(false, "timeline: %s", err.msg);
		return;
	}
	for (size_t k = 0; k < j.g.n_steps; k++)
		for (uint32_t i = 0; i < j.g.shape[j.g.step[k].shape].n_nodes; i++)
			if (j.g.shape[j.g.step[k].shape].kind[i] == PL_K_KERNEL)
				kernels += j.g.step[k].dur[i];
	ok(x.order, "timeline: tracks and names are there");
	is_i64((long long)x.n[PL_K_KERNEL], (long long)count(&j, PL_RO_COMPUTE, PL_K_KERNEL, -1),
	       "an event for each kernel");
	is_i64(x.sum[PL_K_KERNEL], kernels, "as long as it was");
	is_i64((long long)x.n[PL_K_COLLECTIVE], (long long)count(&j, PL_RO_TRANSFER, -1, -1),
	       "arrival and transfer are one event");
	is_i64((long long)x.seq, (long long)x.n[PL_K_COLLECTIVE], "and have a number");
	ok(x.n[PL_K_WAIT] > 0 && x.corr > 0, "waits and correlations are there");
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_limits(void)
{
	static const struct pl_selector everything = { .all = true };
	struct pl_graph_select all = { 0 };
	struct pl_err err = { 0 };
	struct pl_sim *s;
	struct job j;
	double mean;

	if (make_job(&j, 9, 2, 60, 2, INT64_C(1) << 50, 0, &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	s = pl_sim_new(&j.g, &err);
	ok(s && change_durations(s, &j.g, "scale all by 1000000", NULL, &err) == PL_ELIMIT,
	   "a change that would overflow is refused");
	memset(&err, 0, sizeof(err));
	ok(s && pl_graph_select_init(&all, &everything, &j.g, NULL, &err) == 0 &&
		   pl_sim_means(s, &(struct pl_sim_scale){ &all, 1e6F, NULL }, 1, &mean, &err) ==
			   PL_ELIMIT,
	   "... also if it is only tried");
	pl_graph_select_fini(&all);
	pl_sim_free(s);
	memset(&err, 0, sizeof(err));
	j.g.shape[0].type[j.g.shape[0].n_nodes - 1] = PL_N_POLICY;
	ok(!pl_sim_new(&j.g, &err) && err.code == PL_EABSENT, "policy nodes are not replayed yet");
	memset(&err, 0, sizeof(err));
	j.g.shape[0].type[j.g.shape[0].n_nodes - 1] = PL_N_OP;
	for (size_t k = 0; k < j.g.n_steps; k++)
		j.g.step[k].number = INT64_MIN;
	ok(!pl_sim_new(&j.g, &err) && err.code == PL_EDATA, "a graph needs a step");
	pl_graph_fini(&j.g);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Everything once, small. 0, or the code of the failure. */
static int everything(void)
{
	struct seen x = { .sink = { .batch = see } };
	struct pl_err err = { 0 };
	static const struct pl_selector everything = { .all = true };
	struct pl_graph_select all = { 0 };
	const struct pl_sim_scale both[] = { { &all, 0.5F, NULL }, { &all, 0.5F, NULL } };
	struct pl_run r = { 0 };
	struct pl_path p = { 0 };
	struct pl_account a = { 0 };
	struct pl_graph f;
	double mean[2];
	struct pl_sim *s = NULL;
	struct job j;
	int rc;

	pl_graph_init(&f);
	PL_TRY(make_job(&j, 4, 2, 60, 2, 100, INT64_C(3) << 31, &err));
	s = pl_sim_new(&j.g, &err);
	if (!s) {
		rc = err.code;
		goto out;
	}
	PL_TRY(change_durations(s, &j.g, "scale kind=comm,rank=0 by 0.5", NULL, &err));
	PL_TRY(pl_graph_select_init(&all, &everything, &j.g, NULL, &err));
	PL_TRY(pl_sim_run(s, &r, &err));
	PL_TRY(pl_sim_means(s, both, 2, mean, &err));
	PL_TRY(pl_sim_path_find(s, &r, &p, &err));
	PL_TRY(pl_sim_account_make(s, &r, &a, &err));
	PL_TRY(pl_sim_timeline(s, &r, &x.sink, &err));
	PL_TRY(pl_sim_fold(&j.g, true, &f, NULL, &err));
out:
	pl_graph_select_fini(&all);
	pl_sim_path_fini(&p);
	pl_sim_account_fini(&a);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&f);
	pl_graph_fini(&j.g);
	return rc < 0 && (err.code != rc || !err.msg[0]) ? PL_EINTERNAL : rc;
}

/* In a process of its own, which counts its fallible calls from 1. Its exit status. */
static int fail_at(int n, const char *plus)
{
	char text[32];
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		snprintf(text, sizeof(text), "%d%s", n, plus);
		setenv("PL_FAIL", text, 1);
		exit(-everything());
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Before anything else: PL_FAIL is read at the first call. */
static void test_memory(void)
{
	int n = 1, bad = 0, status;

	for (; n < 5000 && (status = fail_at(n, "+")) != 0; n++) {
		bad += status != -PL_ENOMEM;
		status = fail_at(n, "");
		bad += status != -PL_ENOMEM && status != 0;
	}
	ok(!bad && n > 30 && n < 5000, "no memory at any of %d calls: an error, and no more",
	   n - 1);
}

int main(void)
{
	test_memory();
	for (uint64_t seed = 1; seed <= 24; seed++)
		test_random(seed);
	for (uint64_t seed = 50; seed < 56; seed++)
		test_many(seed);
	for (uint64_t seed = 100; seed < 106; seed++) {
		test_path(seed);
		test_account(seed);
	}
	test_two_waits();
	test_late_member(false);
	test_late_member(true);
	test_whatif();
	test_fold(false);
	test_fold(true);
	test_timeline();
	test_limits();
	return done_testing();
}
