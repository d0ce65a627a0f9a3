/*
 * Fused operations on a device, by hand: what of latencies and of launches is saved, what is not,
 * and where operations may not be fused.
 */
#include <math.h>

#include "cost/predictor.h"
#include "rewrite/rewrite.h"
#include "sim_fixture.h"

enum { BEGIN, CALL1, CALL2, CALL3, K1, K2, K3 }; /* nodes, before what a case adds */

struct fixture {
	struct job j;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
};

static struct pl_cost cost = { .overlap = 1 };

/* A thread that launches three kernels: 5 ns from the end of a call to its kernel, 2 ns from
 * kernel to kernel; `late` more, of which nobody knows why, before the second. */
static int begin(struct job *j, const pl_ns *dur, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	uint32_t n;
	int rc;

	*j = (struct job){ .ranks = 1, .per_rank = 2 };
	PL_TRY(job_tables(j, err));
	PL_TRY(one_step(g, err));
	s = &g->shape[0];
	n = add_node(s, PL_N_OP, PL_RO_MARK, PL_K_STEP, 0, j->name[7]);
	s->flags[n] = PL_NF_STEP_BEGIN;
	for (uint32_t i = 0; i < 3; i++) {
		n = add_node(s, PL_N_OP, PL_RO_HOST, PL_K_RUNTIME, 0, j->name[6]);
		add_edge(s, n - 1, PL_E_SEQ);
		g->step[0].dur[n] = 10;
	}
	for (uint32_t i = 0; i < 3; i++) {
		n = add_node(s, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 1, j->name[i == 2 ? 3 : i]);
		s->flags[n] = PL_NF_IN_STEP;
		if (i)
			add_edge(s, n - 1, PL_E_SEQ);
		add_edge(s, CALL1 + i, PL_E_LAUNCH);
		g->step[0].dur[n] = dur[i];
	}
out:
	return rc;
}

/* Starts as they follow from what is before, `late` more before the second kernel. */
static void run(struct pl_graph *g, pl_ns late)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep *st = &g->step[0];

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		pl_ns t = 0;

		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
			pl_ns lat = PL_E_TYPE(s->etype[e]) == PL_E_LAUNCH      ? 5
				    : s->res[i] == 1 && s->res[s->src[e]] == 1 ? 2
									       : 0;

			t = pl_max_i64(t, st->start[s->src[e]] + st->dur[s->src[e]] + lat);
		}
		st->start[i] = t + (i == K2 ? late : 0);
	}
}

static bool open_all(struct fixture *f, struct pl_err *err)
{
	return (f->s = pl_sim_new(&f->j.g, err)) && pl_sim_edit(f->s, 0, 1, &f->e, err) == 0 &&
	       (f->r = pl_rewrite_new(&f->e, &cost, err));
}

static void close_all(struct fixture *f)
{
	pl_rewrite_free(f->r);
	pl_edit_fini(&f->e);
	pl_sim_free(f->s);
	pl_graph_fini(&f->j.g);
}

static const char *const names[] = { "gemm", "relu[1]", "copy" };

/* The step when n of the kernels from `first` on are one; -1: refused. */
static pl_ns fused(struct fixture *f, uint32_t first, uint32_t n, double x, struct pl_err *err)
{
	const struct pl_rewrite rw = {
		.op = PL_RW_FUSE_OPS, .arg = (const char **)names + first, .n_args = n, .x = x
	};
	size_t mark = pl_rewrite_mark(f->r);
	pl_ns before = pl_edit_step(&f->e, 0), step = -1;

	if (pl_rewrite(f->r, &rw, err) == 0 && pl_edit_settle(&f->e, err) == 0)
		step = pl_edit_step(&f->e, 0);
	pl_rewrite_undo(f->r, mark);
	if (pl_edit_settle(&f->e, err) < 0 || pl_edit_step(&f->e, 0) != before)
		return -2;
	return step;
}

static void test_times(void)
{
	const struct {
		const char *what;
		pl_ns dur[3], late;
		uint32_t first, n;
		double x;
		pl_ns before, after;
	} v[] = {
		{ "two gaps of a busy device", { 100, 50, 30 }, 0, 0, 3, 0, 199, 195 },
		{ "one gap", { 100, 50, 30 }, 0, 1, 2, 0, 199, 197 },
		{ "what nobody knows the cause of stays", { 100, 50, 30 }, 3, 0, 3, 0, 202, 198 },
		{ "two calls of a busy host", { 4, 4, 4 }, 0, 0, 3, 0, 39, 27 },
		{ "one call, which comes before the third kernel's",
		  { 4, 4, 4 },
		  0,
		  0,
		  2,
		  0,
		  39,
		  29 },
		{ "half of the work", { 100, 50, 30 }, 0, 0, 3, 0.5, 199, 105 },
	};

	for (size_t i = 0; i < PL_LEN(v); i++) {
		struct fixture f = { .r = NULL };
		struct pl_err err = { 0 };

		if (begin(&f.j, v[i].dur, &err) == 0)
			run(&f.j.g, v[i].late);
		if (ok(open_all(&f, &err), "%s (%s)", v[i].what, err.msg)) {
			is_i64(pl_edit_step(&f.e, 0), v[i].before, "... before");
			is_i64(fused(&f, v[i].first, v[i].n, v[i].x, &err), v[i].after,
			       "... fused");
		}
		close_all(&f);
	}
}

/* A kernel that waits for something else; a thread that waits for the device between two launches;
 * a call that launches something else too; what communicates. */
static void test_refused(void)
{
	static const pl_ns dur[] = { 100, 50, 30 };

	for (int what = 0; what < 5; what++) {
		struct fixture f = { .r = NULL };
		struct pl_err err = { 0 };
		struct pl_shape *s;
		pl_ns step;

		if (begin(&f.j, dur, &err) < 0)
			return;
		s = &f.j.g.shape[0];
		if (what == 0) { /* the last kernel, on a call of its own that is not a launch */
			add_edge(s, BEGIN, PL_E_WAIT);
		} else if (what == 1) {
			s->role[CALL3] = PL_RO_SYNC;
		} else if (what == 2) {
			uint32_t n =
				add_node(s, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 1, f.j.name[2]);

			add_edge(s, K3, PL_E_SEQ);
			add_edge(s, CALL3, PL_E_LAUNCH);
			s->flags[n] = PL_NF_IN_STEP;
			f.j.g.step[0].dur[n] = 1;
		} else if (what == 3) {
			s->role[K3] = PL_RO_ARRIVE;
		}
		run(&f.j.g, 0);
		if (!ok(open_all(&f, &err), "case %d (%s)", what, err.msg)) {
			close_all(&f);
			continue;
		}
		step = fused(&f, 0, 3, 0, &err);
		if (what < 4)
			ok(step == -1 && strstr(err.msg, "cannot be fused"), "... refused: %s",
			   err.msg);
		else
			ok(step > 0, "... nothing in the way");
		close_all(&f);
	}
}

static bool any(void *arg, const struct pl_edit *e, uint32_t node)
{
	return !arg || strcmp(arg, pl_edit_name(e, e->node[node].name)) != 0;
}

static void test_runs(void)
{
	static const pl_ns dur[] = { 100, 50, 30 };
	struct fixture f = { .r = NULL };
	struct pl_rewrite_runs v;
	struct pl_err err = { 0 };

	if (begin(&f.j, dur, &err) == 0)
		run(&f.j.g, 0);
	if (!ok(open_all(&f, &err), "a job (%s)", err.msg))
		return;
	ok(pl_rewrite_runs(f.r, any, NULL, &v, &err) == 0 && v.n_runs == 1 && v.run[0].n == 3 &&
		   v.name[v.run[0].name] == f.j.name[0],
	   "what may be fused is one run (%s)", err.msg);
	pl_rewrite_runs_fini(&v);
	ok(pl_rewrite_runs(f.r, any, (void *)"copy", &v, &err) == 0 && v.n_runs == 1 &&
		   v.run[0].n == 2,
	   "shorter, if some may not");
	pl_rewrite_runs_fini(&v);
	ok(pl_rewrite_runs(f.r, any, (void *)"relu[1]", &v, &err) == 0 && !v.n_runs,
	   "or none, if that is in the middle");
	pl_rewrite_runs_fini(&v);
	close_all(&f);
}

/* ---- by a cost model ------------------------------------------------------------------------- */

static double move_ns(double bytes)
{
	return 1000 + 0.05 * bytes;
}

/* A model of operations that only move data. */
static struct pl_kernel_model *moves(struct pl_devices *sheets, struct pl_err *err)
{
	static const char sheet[] =
		"{\"Device\": \"Box\", \"Dev_Mem\": 16, \"Mem_Bw\": 20, \"CPU\": 1,"
		" \"Num_Sm\": 1, \"SingleFLOPs\": 100, \"L2Cache\": 1}";
	const struct pl_kernel_fit_opts o = { .intervals = false };
	struct pl_kernel_model *m = NULL;
	struct pl_samples samples = { 0 };
	int rc;

	PL_TRY(pl_device_add(sheets, "box", sheet, sizeof(sheet) - 1, err));
	for (int i = 0; i < 400; i++) {
		double elements = 16 * pow(1 << 16, i / 400.0);
		const struct pl_measure x = { .k = { .family = PL_KERNEL_ELEMENTWISE,
						     .dim = { elements, 1, 1 } },
					      .known = true,
					      .op = "relu",
					      .model = "",
					      .ns = move_ns(8 * elements) };

		PL_TRY(pl_samples_add(&samples, &x, sheets, err));
	}
	rc = pl_kernel_fit(&samples, NULL, &o, &m, err);
out:
	pl_samples_fini(&samples);
	return rc < 0 ? NULL : m;
}

static pl_id text(struct pl_graph *g, const char *s)
{
	struct pl_err err = { 0 };
	pl_id id = PL_NONE;

	return pl_intern_add(&g->str, s, strlen(s), &id, &err) < 0 ? PL_NONE : id;
}

/* What the second and the third kernel read and write; bytes 0: not known. */
static int add_work(struct pl_graph *g, int64_t bytes, struct pl_err *err)
{
	struct pl_shape *s = &g->shape[0];

	PL_CHECK(pl_grow(&g->work, &g->cap_work, 2, sizeof(*g->work), err));
	for (int64_t i = 0; i < 2; i++)
		g->work[g->n_work++] = (struct pl_gwork){ .op = PL_OP_ELEMENTWISE,
							  .type = text(g, "float"),
							  .dims = text(g, "[[4096],[4096]]"),
							  .flops = -1,
							  .bytes = bytes ? bytes * (2 + i) : -1,
							  .name = PL_NONE };
	PL_CHECK(pl_alloc(&s->work, (size_t)s->n_nodes + 1, sizeof(*s->work), err));
	memset(s->work, 0xff, s->n_nodes * sizeof(*s->work));
	s->work[K2] = 0;
	s->work[K3] = 1;
	return 0;
}

/* What stands between the two, 16 KiB, is neither written nor read. */
static void test_model(void)
{
	static const pl_ns dur[] = { 100, 50, 30 };
	struct pl_devices sheets = { 0 };
	struct pl_predictor *p = NULL;
	struct pl_err err = { 0 };
	struct pl_kernel_model *m = moves(&sheets, &err);
	double share = move_ns(48 << 10) / (move_ns(32 << 10) + move_ns(48 << 10));
	pl_ns less = llround(80 * (1 - share));

	if (!ok(m && pl_predictor_of(m, &sheets, 0, &p, &err) >= 0, "a model %s", err.msg))
		return;
	cost.predictor = p;
	for (int64_t bytes = 0; bytes <= 16 << 10; bytes += 16 << 10) {
		struct fixture f = { .r = NULL };

		if (begin(&f.j, dur, &err) == 0 && add_work(&f.j.g, bytes, &err) == 0)
			run(&f.j.g, 0);
		if (ok(open_all(&f, &err), "an edit %s", err.msg)) {
			pl_ns step = fused(&f, 1, 2, 0, &err), want = 197 - (bytes ? less : 0);

			if (!ok(step >= want - 2 && step <= want + 2, "%s",
				bytes ? "fused: as many bytes as are left"
				      : "bytes that are not known: the sum"))
				printf("# %lld, not %lld\n", (long long)step, (long long)want);
			is_i64(fused(&f, 1, 2, 0.5, &err), 157, "a share that is given counts");
		}
		close_all(&f);
	}
	cost.predictor = NULL;
	pl_predictor_free(p);
	pl_kernel_model_free(m);
	pl_device_fini(&sheets);
}

/* ---- microbatches ---------------------------------------------------------------------------- */

/* The step in two microbatches: kernels are half as long, calls are made twice. The gradient is
 * what the last kernel makes. */
static pl_ns in_two(const pl_ns *dur, struct pl_err *err)
{
	static const struct pl_rewrite rw = { .op = PL_RW_ACCUMULATE, .k = 2 };
	struct fixture f = { .s = NULL };
	pl_ns step = -1;

	if (begin(&f.j, dur, err) == 0) {
		run(&f.j.g, 0);
		if (pl_grow(&f.j.g.tensor, &f.j.g.cap_tensors, 1, sizeof(struct pl_tensor), err) ==
		    0) {
			f.j.g.tensor[f.j.g.n_tensors++] = (struct pl_tensor){ .type = PL_NONE,
									      .role = PL_TR_GRAD,
									      .producer = K3 };
			if (open_all(&f, err) && pl_rewrite(f.r, &rw, err) == 0 &&
			    pl_edit_settle(&f.e, err) == 0)
				step = pl_edit_step(&f.e, 0);
		}
	}
	close_all(&f);
	return step;
}

static void test_accumulate(void)
{
	const pl_ns host[] = { 4, 4, 4 }, device[] = { 100, 100, 100 };
	struct pl_err err = { 0 };

	/* six calls, then the last kernel: 60 + 5 + 2 */
	is_i64(in_two(host, &err), 67, "calls are made for each microbatch");
	/* 15 until the first kernel; 3 x 50 and 2 gaps of 2, twice */
	is_i64(in_two(device, &err), 15 + 2 * (3 * 50 + 2 * 2),
	       "kernels are shorter, and the calls of the next microbatch are made meanwhile");
	ok(!err.code, "%s", err.code ? err.msg : "no error");
}

int main(void)
{
	test_times();
	test_refused();
	test_runs();
	test_model();
	test_accumulate();
	return done_testing();
}
