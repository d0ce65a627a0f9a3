/*
 * Training where memory is not the host's: on a device that stands in for a real one (tests/emu),
 * over NCCL and staged over other transports, with buckets that travel as they lie and others that
 * are gathered. Everything that a step, an evaluation and a checkpoint leave behind is, to the bit,
 * what the CPU leaves: its kernels are the same, and two ranks have one order of sums. A host that
 * touched memory of the device would end at once.
 *
 * runner: threads
 */
#include "comm_fixture.h"

#include "../emu/fake_device.h"
#include "dp/dp.h"

#define STEPS 5

static const char model_text[] = "paceline-model 1\n"
				 "input 16\n"
				 "dense 24 name=first\n"
				 "batchnorm\n"
				 "relu\n"
				 "dropout 0.3\n"
				 "residual\n"
				 "dense 24\n"
				 "gelu\n"
				 "end\n"
				 "dense 4 name=last\n"
				 "loss softmax-cross-entropy\n";
static const char plan_text[] = "paceline-plan 1\n"
				"tensor last.weight 384\n"
				"tensor first.weight 1536\n"
				"tensor first.bias 96\n"
				"fuse-tensors last.weight first.weight\n"
				"partition-tensor last.weight 3\n"
				"recompute 1\n";

struct run {
	const char *transport; /* NULL: one rank, no world */
	bool device;
	int64_t from; /* step: of the checkpoint to go on from; 0: none */
	const char *checkpoint, *weights;
	const char *fault, *says; /* and what the ranks say then */
	bool hangs;		  /* after it the device does not come to an end */
};

static const char *in_tmp(char *path, size_t size, const char *name)
{
	const char *tmp = getenv("TMP");

	snprintf(path, size, "%s/%s", tmp ? tmp : "/tmp", name);
	return path;
}

static bool write_text(const char *name, const char *text)
{
	char path[1024];
	FILE *f = fopen(in_tmp(path, sizeof(path), name), "w");

	return f && fputs(text, f) >= 0 && fclose(f) == 0;
}

struct things {
	struct pl_job job;
	struct pl_model model;
	struct pl_plan plan;
	struct pl_dataset data;
};

static int read_things(struct things *t, struct pl_err *err)
{
	static const char *const say[] = {
		"data synthetic:samples=400,dims=16,classes=4", "split 0.8", "batch 16",
		"optimizer adamw lr=0.01 decay=0.01 clip=1",	"steps 5",   "bucket-mb 0.001"
	};
	struct pl_in *in;
	char path[1024];
	int rc = 0;

	pl_job_init(&t->job);
	pl_plan_init(&t->plan);
	for (size_t i = 0; i < PL_LEN(say); i++)
		PL_TRY(pl_job_set(&t->job, say[i], err));
	PL_TRY(pl_model_parse(in_tmp(path, sizeof(path), "a.model"), &t->model, err));
	in = pl_in_open(in_tmp(path, sizeof(path), "a.plan"), err);
	rc = in ? pl_plan_read(in, "a.plan", &t->plan, err) : err->code;
	pl_in_close(in);
	if (rc == 0)
		rc = pl_dataset_open(t->job.data, 1, &t->data, err);
out:
	return rc;
}

/* What is compared. */
static int leave_files(struct pl_world_opts *o, const struct run *r, struct pl_world *w,
		       struct pl_worker *worker)
{
	struct pl_coll_args all = { .op = PL_OP_BARRIER };
	struct pl_err e = { 0 };
	int64_t hits, samples;
	char path[1024];
	double loss;

	NEED(pl_dp_engine.eval(worker, &loss, &hits, &samples, &e) == 0 && samples == 80);
	NEED(loss > 0 && isfinite(loss));
	NEED(pl_dp_engine.save(worker, in_tmp(path, sizeof(path), r->checkpoint), STEPS, &e) == 0);
	in_tmp(path, sizeof(path), r->weights);
	NEED(pl_dp_engine.export_weights(worker, path, &e) == 0);
	if (w) /* rank 0 wrote it */
		NEED(pl_comm_world_do(w, &all, &e) == 0);
	NEED(pl_dp_engine.import_weights(worker, path, &e) == 0);
	return 0;
}

static int train(struct pl_world_opts *o, void *arg)
{
	const struct run *r = arg;
	struct pl_engine_opts e_opts = { 0 };
	struct pl_backend_opts d = { .threads = 1 };
	struct pl_err e = { 0 };
	struct things t = { 0 };
	struct pl_step_result step;
	int64_t at = 0;
	char path[1024];
	struct pl_worker *worker;

	if (r->fault)
		setenv("FAKE_NCCL_FAULT", r->fault, 1);
	o->transport = r->transport;
	NEED(read_things(&t, &e) == 0);
	if (r->device) {
		e_opts.backend = o->backend = &pl_backend_fake;
		NEED(pl_backend_fake.open(&d, &e_opts.ctx, &e) == 0);
		o->backend_ctx = e_opts.ctx;
	}
	if (r->transport)
		NEED(pl_comm_world_open(o, &e_opts.world, &e) == 0);
	e_opts.job = &t.job;
	e_opts.model = &t.model;
	e_opts.plan = &t.plan;
	e_opts.data = &t.data;
	e_opts.grad_norm = r->hangs && !o->rank; /* with it a rank waits for its device */
	NEED(pl_alloc(&worker, 1, pl_dp_engine.size, &e) == 0);
	NEED(pl_dp_engine.prepare(worker, &e_opts, &e) == 0);
	if (r->from)
		NEED(pl_dp_engine.load(worker, in_tmp(path, sizeof(path), "half.st"), true, &at,
				       &e) == 0);
	NEED(at == r->from);
	for (; at < STEPS; at++) {
		int rc = pl_dp_engine.step(worker, at, &step, &e);

		if (rc < 0 && r->fault) { /* as cmd/run ends */
			printf("# rank %d: step %d: %s\n", o->rank, (int)at, e.msg);
			pl_comm_world_abort(e_opts.world, e.msg);
			if (!r->hangs)
				pl_dp_engine.finish(worker, true);
			return rc == PL_EIO && strstr(e.msg, r->says) ? 0 : 2;
		}
		NEED(rc == 0);
		if (at == 2 && !r->from) {
			in_tmp(path, sizeof(path), "half.st");
			NEED(pl_dp_engine.save(worker, path, 3, &e) == 0);
		}
	}
	NEED(!r->fault);
	NEED(leave_files(o, r, e_opts.world, worker) == 0);
	pl_dp_engine.finish(worker, false);
	pl_free(worker);
	if (r->transport)
		NEED(pl_comm_world_close(e_opts.world, &e) == 0);
	if (r->device)
		pl_backend_fake.close(e_opts.ctx);
	return 0;
}

static bool same_files(const char *a, const char *b)
{
	char pa[1024], pb[1024];
	FILE *fa = fopen(in_tmp(pa, sizeof(pa), a), "r"),
	     *fb = fopen(in_tmp(pb, sizeof(pb), b), "r");
	bool same = fa && fb;
	size_t n = 0;

	while (same) {
		int ca = getc(fa), cb = getc(fb);

		same = ca == cb;
		if (ca == EOF || !same)
			break;
		n++;
	}
	if (fa)
		fclose(fa);
	if (fb)
		fclose(fb);
	return same && n > 1000;
}

int main(void)
{
	static const struct run runs[] = {
		{ .checkpoint = "cpu1.st", .weights = "cpu1.w" },
		{ .device = true, .checkpoint = "one.st", .weights = "one.w" },
		{ .transport = "auto", .checkpoint = "cpu2.st", .weights = "cpu2.w" },
		{ .transport = "nccl",
		  .device = true,
		  .checkpoint = "nccl.st",
		  .weights = "nccl.w" },
		{ .transport = "nccl",
		  .device = true,
		  .from = 3,
		  .checkpoint = "again.st",
		  .weights = "again.w" },
		{ .transport = "auto",
		  .device = true,
		  .checkpoint = "auto.st",
		  .weights = "auto.w" },
		{ .transport = "tcp", .device = true, .checkpoint = "tcp.st", .weights = "tcp.w" },
	};
	static const struct run dying = {
		.transport = "nccl", .device = true, .fault = "1:25:error", .says = "rank 1"
	};
	static const struct run hanging = { .transport = "nccl",
					    .device = true,
					    .fault = "0:25:deaf",
					    .says = "rank",
					    .hangs = true };
	const char *build = getenv("BUILD");
	struct pl_world_opts o = { .timeout_ns = 20000000000 };
	char path[1024];

	snprintf(path, sizeof(path), "%s/emu/fake_nccl.so", build ? build : "build");
	setenv("PACELINE_NCCL", path, 1);
	ok(write_text("a.model", model_text) && write_text("a.plan", plan_text), "a job");
	for (size_t i = 0; i < PL_LEN(runs); i++) {
		struct run r = runs[i];
		const char *like = r.transport ? "cpu2" : "cpu1";
		char a[32], b[32];

		o.meet = meeting(false);
		ok(run_ranks(r.transport ? 2 : 1, &o, train, &r, 40), "%s, %s%s",
		   r.device ? "a device" : "the processor", r.transport ? r.transport : "one rank",
		   r.from ? ", from a checkpoint" : "");
		snprintf(a, sizeof(a), "%s.st", like);
		snprintf(b, sizeof(b), "%s.w", like);
		if (r.device)
			ok(same_files(a, r.checkpoint) && same_files(b, r.weights),
			   "... leaves the same bits as the processor");
	}
	o.meet = meeting(false);
	o.timeout_ns = 2000000000;
	ok(run_ranks(2, &o, train, (void *)(uintptr_t)&dying, 20),
	   "an error of NCCL on one rank ends the step on all, in time");
	o.meet = meeting(false);
	o.timeout_ns = o.patience_ns = 1000000000;
	ok(run_ranks(2, &o, train, (void *)(uintptr_t)&hanging, 20),
	   "a device that hangs ends the step on all, in time, also where norms are logged");
	return done_testing();
}
