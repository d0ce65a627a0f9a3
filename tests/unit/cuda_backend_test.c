/*
 * The CUDA backend behind its table: the battery of all backends, with activations in float32 and
 * in bfloat16; networks that are trained beside the CPU; passes that are recorded and launched
 * again; two queues; what can fail.
 *
 * It is built twice: with the emulated device, whose blocks and threads run in another order each
 * time, and (PL_GPU) with what nvcc made for a real one: make test-gpu.
 *
 * runner: long, threads
 */
#include <pthread.h>

#include "cuda_fixture.h"

static void run_cases(enum pl_store store)
{
	const char *word = store == PL_STORE_BF16 ? "bfloat16" : "float32";

	if (!open_battery(store, word))
		return;
	run_battery(word, NULL);
	close_battery();
}

/* Two operations as one are those two, up to how often a number is rounded. */
static void test_fused(enum pl_store store)
{
	enum { N = 137, C = 96 }; /* more rows than the device has at once */
	struct pl_backend_opts o = { .store = store };
	size_t bytes_ = (size_t)N * C * (store == PL_STORE_BF16 ? 2 : 4);
	float *host = malloc((size_t)N * C * 4), *a, *b, *x[2], *y[2], *save, *g, *d[2];
	float *got[2] = { malloc((size_t)N * C * 4), malloc((size_t)N * C * 4) };
	struct pl_err err = { 0 };
	void *dev;

	if (!ok(be->open(&o, &dev, &err) == 0, "opened: %s", err.msg))
		return;
	a = be->alloc(dev, bytes_), b = be->alloc(dev, bytes_), save = be->alloc(dev, 2 * N * 4);
	g = be->alloc(dev, N * C * 4);
	for (int i = 0; i < 2; i++) {
		x[i] = be->alloc(dev, bytes_), y[i] = be->alloc(dev, bytes_);
		d[i] = be->alloc(dev, 2 * C * 4);
	}
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < N * C; j++)
			host[j] = number();
		be->put(dev, g, host, (size_t)N * C * 4);
		be->load(dev, (size_t)N * C, g, i ? b : a);
	}
	be->add(dev, (size_t)N * C, a, b, x[0]);
	be->layernorm(dev, N, C, x[0], g, g + C, 1e-3f, save, y[0]);
	be->add_layernorm(dev, N, C, a, b, x[1], g, g + C, 1e-3f, save, y[1]);
	be->get(dev, got[0], y[0], bytes_);
	be->get(dev, got[1], y[1], bytes_);
	ok(!memcmp(got[0], got[1], bytes_), "the sum and its normalisation, as one, to the bit");
	be->layernorm_back(dev, N, C, x[0], g, save, a, y[0], d[0], d[0] + C);
	be->add(dev, (size_t)N * C, b, y[0], y[0]);
	be->layernorm_back_add(dev, N, C, x[0], g, save, a, b, a, d[1], d[1] + C);
	be->get(dev, got[0], y[0], bytes_);
	be->get(dev, got[1], a, bytes_);
	worst = 0;
	for (int j = 0; j < N * C; j++) {
		uint16_t *half[2] = { (uint16_t *)(void *)got[0], (uint16_t *)(void *)got[1] };
		uint32_t bits[2] = { (uint32_t)half[0][j] << 16, (uint32_t)half[1][j] << 16 };
		float v[2] = { got[0][j], got[1][j] };

		if (store == PL_STORE_BF16)
			memcpy(v, bits, sizeof(v));
		worst = worse(worst, fabs((double)v[0] - (double)v[1]) / (1 + fabs((double)v[0])));
	}
	ok(worst <= (store == PL_STORE_BF16 ? 0x1p-7 : 1e-6),
	   "and back, with the other way's (%.1e)", worst);
	be->get(dev, got[0], d[0], 2 * C * 4);
	be->get(dev, got[1], d[1], 2 * C * 4);
	ok(!memcmp(got[0], got[1], 2 * C * 4), "gradients of parameters to the bit");
	for (float **p = (float *[]){ a, b, x[0], x[1], y[0], y[1], save, g, d[0], d[1], NULL }; *p;
	     p++)
		be->free(dev, *p);
	be->close(dev);
	free(host);
	free(got[0]);
	free(got[1]);
}

/* A bias may lie anywhere: what cuBLASLt takes along lies at a multiple of 16 bytes. */
static void test_odd_bias(void)
{
	enum { N = 16, C = 32, M = 24 };
	struct pl_backend_opts o = { 0 };
	float host[N * C], y[2][N * M], *x, *w, *bias, *out;
	struct pl_err err = { 0 };
	void *dev;

	if (!ok(be->open(&o, &dev, &err) == 0, "opened: %s", err.msg))
		return;
	x = be->alloc(dev, sizeof(host)), w = be->alloc(dev, M * C * 4);
	bias = be->alloc(dev, (M + 4) * 4), out = be->alloc(dev, sizeof(y[0]));
	for (int i = 0; i < N * C; i++)
		host[i] = number();
	be->put(dev, x, host, sizeof(host));
	be->put(dev, w, host, sizeof(host));
	for (int i = 0; i < 2;
	     i++) { /* what was chosen for the first place is not for the second */
		be->put(dev, bias + i, host, M * 4);
		be->dense(dev, N, C, M, x, w, bias + i, PL_ACT_RELU, NULL, out);
		be->get(dev, y[i], out, sizeof(y[i]));
	}
	worst = 0;
	for (int i = 0; i < N * M; i++)
		worst = worse(worst, fabs((double)y[0][i] - (double)y[1][i]));
	ok(worst < 1e-5 && be->sync(dev, &err) == 0, "a bias at an odd place (%.1e) %s", worst,
	   err.msg);
	for (float **p = (float *[]){ x, w, bias, out, NULL }; *p; p++)
		be->free(dev, *p);
	be->close(dev);
}

/* What was recorded holds addresses of scratch memory, which a larger operation takes away. */
static void test_growth(void)
{
	enum { N = 40, C = 64, MORE = 700 };
	struct pl_backend_opts o = { 0 };
	float got[5][2 * C], *x, *dy, *dx, *save, *g;
	struct pl_err err = { 0 };
	bool same_ = true;
	void *dev;

	if (!ok(be->open(&o, &dev, &err) == 0, "opened: %s", err.msg))
		return;
	x = be->alloc(dev, N * MORE * 4), dy = be->alloc(dev, N * MORE * 4);
	dx = be->alloc(dev, N * MORE * 4), save = be->alloc(dev, 2 * N * 4);
	g = be->alloc(dev, 4 * MORE * 4);
	for (int i = 0; i < N * C; i++) {
		float v[2] = { number(), number() };

		be->put(dev, x + i, &v[0], 4);
		be->put(dev, dy + i, &v[1], 4);
	}
	for (int pass = 0; pass < 5; pass++) {
		be->zero(dev, g, 4 * MORE * 4);
		be->layernorm(dev, N, C, x, g, g, 1e-3f, save, dx);
		be->graph(dev, 5);
		be->layernorm_back(dev, N, C, x, g, save, dy, dx, g + C, g + 2 * C);
		be->graph(dev, 0);
		be->get(dev, got[pass], g + C, sizeof(got[pass]));
		same_ = same_ && !memcmp(got[0], got[pass], sizeof(got[0]));
		if (pass == 2)
			be->layernorm_back(dev, N, MORE, x, g, save, dy, dx, g + MORE,
					   g + 2 * MORE);
	}
	ok(same_ && got[0][0] != 0 && be->sync(dev, &err) == 0,
	   "a recorded pass after its scratch memory has moved: %s", err.msg);
	for (float **p = (float *[]){ x, dy, dx, save, g, NULL }; *p; p++)
		be->free(dev, *p);
	be->close(dev);
}

/* ---- networks ----------------------------------------------------------------------------------
 */

static const char gpt[] =
	"input 16 / embedding 40 32 std=0.02 name=wte / position std=0.02 name=wpe / dropout 0.1 / "
	"residual / layernorm / attention 2 / dropout 0.1 / end / residual / layernorm / dense 64 "
	"/ "
	"gelu / dense 32 / end / layernorm / dense 40 bias=0 tie=wte / loss softmax-cross-entropy";

static void test_training(const char *text, const char *what)
{
	struct trained cpu = { 0 }, full = cpu, again = cpu, small = cpu, eager = cpu;
	double far;

	if (!train(text, &pl_backend_cpu, PL_STORE_FP32, false, 2, STEPS, &cpu) ||
	    !train(text, be, PL_STORE_FP32, true, 2, STEPS, &full) ||
	    !train(text, be, PL_STORE_FP32, true, 2, STEPS, &again) ||
	    !train(text, be, PL_STORE_BF16, true, 2, STEPS, &small) ||
	    !train(text, be, PL_STORE_BF16, false, 2, STEPS, &eager))
		return;
	far = loss_difference(&cpu, &full, STEPS);
	ok(far < 1e-3, "%s: losses in float32 are the CPU's (%.1e)", what, far);
	ok(equal(&full, &again), "%s: again, to the bit", what);
	far = loss_difference(&cpu, &small, STEPS);
	ok(far < 0.05 && far > 0, "%s: losses in bfloat16 are near (%.1e)", what, far);
	ok(equal(&small, &eager), "%s: recorded as not recorded, to the bit", what);
	ok(cpu.loss[STEPS - 1] < cpu.loss[0] && small.loss[STEPS - 1] < small.loss[0],
	   "%s: they fall, from %.3f to %.3f and %.3f", what, cpu.loss[0], cpu.loss[STEPS - 1],
	   small.loss[STEPS - 1]);
	free(cpu.params);
	free(full.params);
	free(again.params);
	free(small.params);
	free(eager.params);
}

/* ---- queues ------------------------------------------------------------------------------------
 */

/* What is copied beside is there after join, and not before fork: in the middle of a recorded pass,
 * too. Three passes: as it comes, recorded, launched. */
static void test_queues(void)
{
	struct pl_backend_opts o = { 0 };
	enum { N = 1000 };
	float *host = malloc(N * 4), *got = malloc(N * 4), *back = malloc(N * 4), *a, *b, *y,
	      *more = NULL;
	void *dev;
	struct pl_err err = { 0 };
	bool right = true;
	uint64_t mark = 0;
	int rc, n = 0;

	if (!ok(be->open(&o, &dev, &err) == 0, "opened: %s", err.msg))
		return;
	a = (float *)be->alloc(dev, N * 4), b = (float *)be->alloc(dev, N * 4);
	y = (float *)be->alloc(dev, N * 4);
	be->pin(dev, back, N * 4, true);
	for (int pass = 0; pass < 5; pass++) {
		for (int i = 0; i < N; i++)
			host[i] = (float)(i + pass);
		be->put(dev, a, host, N * 4);
		be->graph(dev, 99);
		be->scale(dev, N, 2, a);
		/* as who communicates may, who may need memory to stage it */
		right = right && be->event_passed(dev, mark, &err) >= 0 &&
			(more = be->alloc(dev, N * 4)) != NULL;
		be->pin(dev, got, N * 4, true);
		be->pin(dev, got, N * 4, false);
		be->fork(dev);
		be->copy_async(dev, back, a, N * 4); /* 2 (i + pass) */
		be->copy_async(dev, b, back, N * 4);
		be->scale(dev, N, 1, y);
		be->join(dev);
		be->add(dev, N, a, b, y);
		be->graph(dev, 0);
		mark = be->event_record(dev);
		be->get(dev, got, y, N * 4);
		for (int i = 0; i < N; i++)
			right = right && got[i] == 4 * (float)(i + pass);
		be->get(dev, got, more, N * 4);
		for (int i = 0; i < N; i++)
			right = right && got[i] == 0;
		be->free(dev, more);
	}
	ok(right, "two queues, held together by fork and join, recorded and not");
	be->fork(dev);
	be->copy_async(dev, b, back, N * 4);
	mark = be->event_record(dev);
	while ((rc = be->event_passed(dev, mark, &err)) == 0)
		n++;
#ifdef PL_GPU
	n++; /* it may be over before anybody asks */
#endif
	ok(rc == 1 && n > 0, "a mark is passed when what is ahead of it is done, not before");
	be->copy_async(dev, b, back, N * 4);
	ok(be->event_record(dev) > mark && be->event_passed(dev, mark, &err) == 1,
	   "marks have an order");
	while ((rc = be->idle(dev, &err)) == 0)
		;
	is_i64(rc, 1, "the second queue becomes empty");
	for (int i = 0; i < N; i++)
		host[i] = 0.37f * (float)(i - 500);
	be->put(dev, a, host, N * 4);
	be->put(dev, y, host, N * 4);
	ok(be->sync(dev, &err) == 0, "nothing failed: %s", err.msg);
	be->scale(dev, N, 2, b);
	be->fork(dev); /* sums do not wait for that: who waits for them waits for no other queue */
	be->copy_async(dev, back, b, N * 4);
	be->sum_async(dev, N - 3, a, a + 2, y + 1); /* as it lies: not 16 bytes at a time */
	mark = be->sum_async(dev, N / 2, y, NULL, a);
	while ((rc = be->event_passed(dev, mark, &err)) == 0)
		;
	be->get(dev, got, y, N * 4);
	right = rc == 1 && got[0] == host[0];
	for (int i = 0; i < N - 3; i++)
		right = right && got[1 + i] == host[i] + host[i + 2];
	ok(right, "sums apart, to the bit");
	be->get(dev, host, a, N * 4);
	ok(!memcmp(got, host, N / 2 * 4), "... and copies");
	while ((rc = be->idle(dev, &err)) == 0)
		;
	ok(be->comm_stream(dev) != NULL, "it has a handle");
	be->pin(dev, back, N * 4, false);
	be->free(dev, a);
	be->free(dev, b);
	be->free(dev, y);
	ok(be->sync(dev, &err) == 0, "nothing failed: %s", err.msg);
	/* another sequence under the same number is a mistake, and is told */
	a = (float *)be->alloc(dev, N * 4);
	for (int pass = 0; pass < 3; pass++) {
		be->graph(dev, 7);
		be->scale(dev, N, 2, a);
		if (pass == 2)
			be->scale(dev, N, 2, a);
		be->graph(dev, 0);
	}
	ok(be->sync(dev, &err) == PL_EIO && strstr(err.msg, "recorded"), "%s", err.msg);
	be->free(dev, a);
	be->close(dev);
	free(host);
	free(got);
	free(back);
}

/* ---- what can fail -----------------------------------------------------------------------------
 */

#ifndef PL_GPU
static void refused(int device, int code, const char *word)
{
	struct pl_backend_opts o = { .device = device };
	struct pl_err err = { 0 };
	void *ctx;

	ok(be->open(&o, &ctx, &err) == code && strstr(err.msg, word), "%s", err.msg);
}

static void test_failures(void)
{
	const struct emu_device good = emu_device;
	static struct fix_model m;
	struct pl_net_opts o = { 0 };
	struct pl_err err = { 0 };
	struct pl_net *net = NULL;
	struct pl_loss_sum sum;
	struct fix_batch batch;

	emu_device.driver = 0;
	refused(0, PL_EABSENT, "no NVIDIA driver");
	emu_device.driver = 12020;
	refused(0, PL_EABSENT, "for CUDA 12.2");
	emu_device = good;
	emu_device.count = 0;
	refused(-1, PL_EABSENT, "no CUDA device");
	emu_device.count = 1;
	refused(3, PL_EABSENT, "no device cuda:3");
	emu_device.major = 7;
	refused(-1, PL_EABSENT, "compute capability 7.0");
	emu_device = good;
	emu_device.memory = 1 << 20;
	refused(0, PL_ENOMEM, "32");
	emu_device.memory = (size_t)34 << 20;
	o.backend = be, o.batch = 4096, o.seed = 3;
	fix_parse(&m, "input 64 / dense 512 / relu / dense 4 / loss softmax-cross-entropy");
	ok(pl_net_new(m.layer, m.n, &o, &net, &err) == PL_ENOMEM && strstr(err.msg, "are free") &&
		   strstr(err.msg, "gradients of activations"),
	   "%s", err.msg);
	emu_device = good;
	emu_device.used = 0;
	memset(&err, 0, sizeof(err));
	o.batch = 4;
	fix_parse(&m, fix_mlp);
	if (!ok(pl_net_new(m.layer, m.n, &o, &net, &err) == 0, "enough memory: %s", err.msg))
		return;
	fix_batch(&batch, net, 4, 1);
	ok(pl_net_forward(net, &batch.io, 0, false, NULL, NULL, &err) == 0, "a pass is queued");
	emu_device.broken = true; /* from here on the device fails */
	ok(pl_net_losses(net, 1, &sum, &err) == PL_EIO && strstr(err.msg, "launch failure"), "%s",
	   err.msg);
	emu_device.broken = false;
	fix_batch_free(&batch);
	pl_net_free(net);
}

/* What a thread of its own may call, whose device nobody has set. */
static void *second_thread(void *dev)
{
	struct pl_err err = { 0 };
	float host[16] = { 1, 2, 3 }, got[16] = { 0 };
	float *p = be->alloc(dev, sizeof(host));
	uint64_t mark;
	int rc;

	if (!p)
		return NULL;
	be->copy_async(dev, p, host, sizeof(host));
	be->copy_async(dev, got, p, sizeof(host));
	mark = be->event_record(dev);
	while (!(rc = be->event_passed(dev, mark, &err)))
		;
	while (rc == 1 && !(rc = be->idle(dev, &err)))
		;
	be->free(dev, p);
	return rc == 1 && !memcmp(got, host, sizeof(host)) ? dev : NULL;
}

struct left {
	void *dev, *memory, *page;
};

/* The first calls of a thread each. */
static void *give_back(void *arg)
{
	const struct left *l = arg;

	be->free(l->dev, l->memory);
	return NULL;
}

static void *pin(void *arg)
{
	const struct left *l = arg;

	be->pin(l->dev, l->page, 4096, true);
	return NULL;
}

static void *unpin(void *arg)
{
	const struct left *l = arg;

	be->pin(l->dev, l->page, 4096, false);
	return NULL;
}

static void test_second_device(void)
{
	static void *(*const first[])(void *) = { give_back, pin, unpin };
	struct pl_backend_opts o = { .device = 1 };
	struct pl_err err = { 0 };
	pthread_t t;
	void *dev, *good = NULL;
	struct left left;

	emu_device.count = 2;
	if (!ok(be->open(&o, &dev, &err) == 0, "opened, the second of two devices: %s", err.msg))
		return;
	if (!pthread_create(&t, NULL, second_thread, dev))
		pthread_join(t, &good);
	ok(good != NULL, "another thread uses its second queue and its memory");
	left.dev = dev;
	left.memory = be->alloc(dev, 64);
	left.page = aligned_alloc(4096, 4096);
	for (size_t i = 0; i < PL_LEN(first); i++)
		if (!pthread_create(&t, NULL, first[i], &left))
			pthread_join(t, NULL);
	free(left.page);
	is_i64(emu_device.strayed, 0, "nobody opens the first one");
	ok(be->sync(dev, &err) == 0, "nothing failed: %s", err.msg);
	be->close(dev);
	emu_device.count = 1;
}

static char remarked[1000];

static void keep_remark(void *arg, enum pl_level level, const char *text)
{
	(void)arg, (void)level;
	snprintf(remarked, sizeof(remarked), "%s", text);
}

/* Heads of each size are tried once, and what came of it is said. */
static void test_trials(void)
{
	const struct pl_log log = { keep_remark, NULL };
	static const int sizes[] = { 64, 64, 32, 128, 64, 72, 128, 5 };
	static const uint64_t fresh_[] = { 1, 0, 0, 1, 0, 1, 0, 0 };
	struct pl_backend_opts o = { .store = PL_STORE_BF16 };
	size_t memory = emu_device.memory;
	struct pl_err err = { 0 };
	bool right = true;
	void *dev;

	for (int no_room = 0; no_room < 2; no_room++) {
		if (!ok(be->open(&o, &dev, &err) == 0, "opened: %s", err.msg))
			return;
		for (size_t i = 0; i < PL_LEN(sizes); i++) {
			struct pl_attn d = { .b = 1, .t = 3, .c = 2 * sizes[i], .heads = 2 };
			uint64_t before = emu_device.mallocs;

			emu_device.memory = no_room && i == 3 ? emu_device.used : memory;
			right = right && be->attn_save(dev, &d) == 6 &&
				emu_device.mallocs - before == (no_room && i > 3 ? 0 : fresh_[i]);
		}
		emu_device.memory = memory;
		be->remarks(dev, &log);
		ok(strstr(remarked, no_room ? "no memory to try wgmma" : "computed by wgmma"), "%s",
		   remarked);
		ok(be->sync(dev, &err) == 0, "nothing failed: %s", err.msg);
		be->close(dev);
	}
	ok(right, "wgmma is tried once with heads of each size, unless it was given up");
}

static void test_no_epilogues(void)
{
	struct trained with = { 0 }, first = { 0 }, without = { 0 }, none = { 0 }, idle = { 0 };
	struct trained refused = { 0 };
	uint64_t before, had, launches;

	train(fix_mlp, be, PL_STORE_BF16, true, 1, 4, &first);
	before = emu_epilogues;
	train(gpt, be, PL_STORE_BF16, true, 1, 4, &with);
	ok(emu_epilogues > before, "products have epilogues");
	had = emu_epilogues - before;
	before = emu_epilogues;
	emu_idle_sums = true;
	if (train(gpt, be, PL_STORE_BF16, true, 1, 4, &idle))
		ok(loss_difference(&with, &idle, 4) < 0.01 && emu_epilogues > before &&
			   emu_epilogues - before < had,
		   "sums that would leave the device idle are made apart");
	emu_idle_sums = false;
	before = emu_epilogues;
	emu_no_epilogues = true;
	if (train(gpt, be, PL_STORE_BF16, true, 1, 4, &without))
		ok(loss_difference(&with, &without, 4) < 0.01,
		   "and without them the losses are near");
	ok(emu_epilogues == before, "there were none");
	emu_no_epilogues = false;
	emu_refuses = true;
	if (train(gpt, be, PL_STORE_BF16, true, 1, 4, &refused))
		ok(!memcmp(refused.loss, without.loss, sizeof(without.loss)),
		   "offered, and refused when they are asked for: as without");
	ok(emu_epilogues == before, "there were none, either");
	emu_refuses = false;
	free(refused.params);
	setenv("PACELINE_CUDA", "eager,plain", 1);
	launches = emu_device.launches;
	if (train(gpt, be, PL_STORE_BF16, true, 1, 4, &refused))
		ok(!memcmp(refused.loss, without.loss, sizeof(without.loss)),
		   "not wanted, and nothing recorded: as without");
	ok(emu_epilogues == before && emu_device.launches == launches, "so it was");
	unsetenv("PACELINE_CUDA");
	emu_no_products = true;
	if (train(gpt, be, PL_STORE_BF16, true, 1, 4, &none))
		ok(loss_difference(&with, &none, 4) < 0.01,
		   "and without products of cuBLASLt at all");
	emu_no_products = false;
	free(none.params);
	free(refused.params);
	free(idle.params);
	free(with.params);
	free(first.params);
	free(without.params);
}
#endif

int main(void)
{
	struct pl_backend_opts o = { 0 };
	struct pl_err err = { 0 };
	void *ctx;

	if (be->open(&o, &ctx, &err) < 0) {
		printf("%s%s\n", err.code == PL_EABSENT ? "1..0 # SKIP " : "not ok 1 - ", err.msg);
		return err.code != PL_EABSENT;
	}
	be->close(ctx);
	run_cases(PL_STORE_FP32);
	run_cases(PL_STORE_BF16);
	test_training(fix_mlp, "mlp");
	test_training("input 3 8 8 / conv 4 3 pad=same / relu / maxpool 2 / batchnorm / conv 5 3 / "
		      "tanh / dropout 0.2 / flatten / dense 8 / relu / dense 3 / loss "
		      "softmax-cross-entropy",
		      "cnn");
	test_training(gpt, "gpt");
	test_fused(PL_STORE_FP32);
	test_fused(PL_STORE_BF16);
	test_odd_bias();
	test_growth();
	test_queues();
#ifndef PL_GPU
	test_second_device();
	test_failures();
	test_trials();
	test_no_epilogues();
	ok(emu_device.launches > 50, "recorded passes were launched");
	is_i64((int64_t)emu_leaks(), 0, "everything is given back");
	is_i64((int64_t)emu_overruns(), 0, "nothing was written beyond its end");
#endif
	return done_testing();
}
