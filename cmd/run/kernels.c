/*
 * run --bench kernels: how long layers take on this machine, for cost models (predict(1)).
 *
 * Networks of random kinds and sizes train for some steps. Each layer is timed in both passes, so
 * it finds in the caches what it finds there in a job. A row has the median of its times.
 *
 * run --bench machine: a data sheet of this machine, from what its processors reach.
 */
#include <math.h>
#include <unistd.h>

#include "core/progress.h"
#include "io/json.h"
#include "io/table.h"
#include "program.h"
#include "train/worker.h"

#define CPUINFO_MAX 65536
#define WARM	    2	     /* steps before those that count, at least ... */
#define WARM_NS	    10000000 /* ... and for so long */
#define FLOPS_MOST  1e10     /* of a training step */
#define FLOPS_LEAST 3e4
#define LEAST_NS    200	     /* less is the clock */
#define STEP_MOST   40000000 /* ns: longer steps are repeated less often */

static const struct pl_column columns[] = {
	{ "op", "op", PL_CELL_STR, 0 },
	{ "network", "network", PL_CELL_I64, 0 },
	{ "device", "device", PL_CELL_STR, 0 },
	{ "batch", "batch", PL_CELL_I64, 0 },
	{ "m", "m", PL_CELL_I64, 0 },
	{ "n", "n", PL_CELL_I64, 0 },
	{ "k", "k", PL_CELL_I64, 0 },
	{ "rows", "rows", PL_CELL_I64, 0 },
	{ "columns", "columns", PL_CELL_I64, 0 },
	{ "in", "in", PL_CELL_I64, 0 },
	{ "size", "size", PL_CELL_I64, 0 },
	{ "kernel", "kernel", PL_CELL_I64, 0 },
	{ "stride", "stride", PL_CELL_I64, 0 },
	{ "padding", "padding", PL_CELL_I64, 0 },
	{ "time_ns", "time", PL_CELL_NS, 0 },
	{ "least_ns", "least", PL_CELL_NS, 0 },
};

static int processors(const struct config *c)
{
	return c->threads > 0 ? (int)c->threads : c->threads == 0 ? pl_processors() : 1;
}

/* ---- random networks ---------------------------------------------------------------------------
 */

struct draw {
	uint64_t state;
	struct pl_buf text;
	int batch;
	double reach; /* 0 to 1: how far the sizes of the network reach to the greatest */
};

static double uniform(struct draw *d)
{
	return (double)(pl_rng_next(&d->state) >> 11) * 0x1p-53;
}

/* A number from lo to hi, small ones as often as large ones. */
static int between(struct draw *d, double lo, double hi)
{
	return (int)(lo * pow(hi / lo, uniform(d)) + 0.5);
}

static bool chance(struct draw *d, double p)
{
	return uniform(d) < p;
}

/* As between() within the reach, but people prefer multiples of 16 or powers of two. */
static int width(struct draw *d, double lo, double hi)
{
	int n = between(d, lo, lo * pow(hi / lo, d->reach)),
	    kind = (int)(pl_rng_next(&d->state) % 3);

	if (kind == 1 && n >= 16)
		n = n / 16 * 16;
	else if (kind == 2)
		n = 1 << (int)(log2(n) + 0.5);
	return n;
}

static const char *activation(struct draw *d)
{
	static const char *const act[] = { "relu", "gelu", "tanh", "sigmoid" };

	return act[chance(d, 0.4) ? 0 : pl_rng_next(&d->state) % PL_LEN(act)];
}

static int perceptron(struct draw *d, struct pl_err *err)
{
	int layers = between(d, 1, 5), rc;

	d->batch = width(d, 1, 512);
	PL_TRY(pl_buf_printf(&d->text, err, "input %d\n", width(d, 8, 3072)));
	for (int i = 0; i < layers; i++)
		PL_TRY(pl_buf_printf(&d->text, err, "dense %d\n%s%s\n", width(d, 8, 3072),
				     chance(d, 0.2) ? "layernorm\n" : "", activation(d)));
	rc = pl_buf_printf(&d->text, err, "dense %d\nloss softmax-cross-entropy\n",
			   between(d, 2, 1000));
out:
	return rc;
}

static int convolutional(struct draw *d, struct pl_err *err)
{
	int layers = between(d, 1, 4), size = 4 * between(d, 2, 16), rc;

	d->batch = width(d, 1, 128);
	PL_TRY(pl_buf_printf(&d->text, err, "input %d %d %d\n",
			     chance(d, 0.5) ? 3 : between(d, 1, 32), size, size));
	for (int i = 0; i < layers; i++) {
		int filter = 1 + 2 * (int)(pl_rng_next(&d->state) % 3);

		PL_TRY(pl_buf_printf(&d->text, err, "conv %d %d pad=%d\n%s%s\n", width(d, 4, 256),
				     filter, filter / 2, chance(d, 0.4) ? "batchnorm\n" : "",
				     activation(d)));
		if (size >= 8 && chance(d, 0.7)) {
			size /= 2;
			PL_TRY(pl_buf_printf(&d->text, err, "%spool %s\n",
					     chance(d, 0.7) ? "max" : "avg",
					     chance(d, 0.5) ? "2 stride=2" : "3 stride=2 pad=1"));
		}
	}
	rc = pl_buf_printf(&d->text, err,
			   "flatten\ndense %d\nrelu\ndense %d\nloss softmax-cross-entropy\n",
			   width(d, 16, 512), between(d, 2, 200));
out:
	return rc;
}

static int transformer(struct draw *d, struct pl_err *err)
{
	int heads = width(d, 1, 12), across = heads * 8 * width(d, 1, 8),
	    vocab = width(d, 32, 8192);
	int layers = between(d, 1, 3), rc;

	d->batch = width(d, 1, 32);
	PL_TRY(pl_buf_printf(&d->text, err, "input %d\nembedding %d %d\nposition\n",
			     width(d, 8, 512), vocab, across));
	for (int i = 0; i < layers; i++)
		PL_TRY(pl_buf_printf(&d->text, err,
				     "residual\nlayernorm\nattention %d\nend\n"
				     "residual\nlayernorm\ndense %d\n%s\ndense %d\nend\n",
				     heads, 4 * across, chance(d, 0.7) ? "gelu" : activation(d),
				     across));
	rc = pl_buf_printf(&d->text, err, "layernorm\ndense %d\nloss softmax-cross-entropy\n",
			   vocab);
out:
	return rc;
}

/* A network whose steps take neither too long nor next to nothing. */
static int draw_network(struct draw *d, uint64_t number, struct pl_model *m, struct pl_err *err)
{
	static int (*const kinds[])(
		struct draw * d, struct pl_err * err) = { perceptron, convolutional, transformer };
	struct pl_net_work *w = NULL;
	double flops = 0;
	int rc = 0;

	while (rc >= 0 && (flops < FLOPS_LEAST || flops > FLOPS_MOST)) {
		pl_model_fini(m);
		*m = (struct pl_model){ 0 };
		d->text.n = 0;
		d->reach = uniform(d);
		PL_TRY(kinds[number % PL_LEN(kinds)](d, err));
		PL_TRY(pl_model_text((const char *)d->text.p, d->text.n, "network", m, err));
		pl_free(w);
		PL_TRY(pl_alloc(&w, m->n_layers, sizeof(*w), err));
		PL_TRY(pl_net_work(m->layer, m->n_layers, w, err));
		flops = 0;
		for (size_t i = 0; i < m->n_layers; i++)
			flops += 3 * w[i].flops * d->batch;
	}
out:
	pl_free(w);
	return rc;
}

/* ---- time --------------------------------------------------------------------------------------
 */

struct timer {
	pl_ns begun;
	int step, steps, room; /* step below 0: does not count; room for so many */
	int64_t *ns;	       /* [layer][phase][step] */
};

static int64_t *place(const struct timer *t, uint32_t layer, enum pl_net_phase p)
{
	return t->ns + ((size_t)layer * 2 + p) * (size_t)t->room;
}

static void begin(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	struct timer *t = arg;

	(void)layer, (void)p, (void)again;
	t->begun = pl_now_ns();
}

static void end(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	struct timer *t = arg;

	(void)again;
	if (t->step >= 0)
		place(t, layer, p)[t->step] += pl_now_ns() - t->begun;
}

struct kernels {
	const struct config *c;
	struct pl_table table;
	char device[128];
	struct draw draw;
};

/* ns: n times, 0: nobody measured them. */
static void put_row(struct kernels *k, int64_t network, const char *op,
		    const struct pl_net_sizes *s, int64_t *ns, int n)
{
	int64_t least = n ? INT64_MAX : INT64_MIN;

	for (int i = 0; i < n; i++)
		least = pl_min_i64(least, ns[i]);
	if (!n || least >= LEAST_NS)
		pl_table_row(&k->table, op, network, k->device, (int64_t)s->batch, (int64_t)s->m,
			     (int64_t)s->n, (int64_t)s->k, (int64_t)s->rows, (int64_t)s->columns,
			     (int64_t)s->in, (int64_t)(s->size + 0.5), (int64_t)(s->kernel + 0.5),
			     (int64_t)s->stride, (int64_t)s->padding,
			     n ? pl_median_i64(ns, (size_t)n) : INT64_MIN, least);
}

/* t NULL: nobody measured. */
static void put_rows(struct kernels *k, int64_t network, const struct pl_net *net,
		     const struct timer *t)
{
	struct pl_net_view v = pl_net_view(net);

	for (uint32_t i = 0; i < v.n_layers; i++)
		for (int p = 0; p < 2; p++) {
			struct pl_net_sizes s = pl_net_sizes(net, i);
			char op[64];

			if (!s.runs[p])
				continue;
			pl_net_kernel_name(net, i, (enum pl_net_phase)p, op, sizeof(op));
			put_row(k, network, op, &s, t ? place(t, i, (enum pl_net_phase)p) : NULL,
				t ? t->steps : 0);
		}
}

static void put_update(struct kernels *k, int64_t network, const struct pl_net *net,
		       enum pl_optim_kind kind, int64_t *ns, int n)
{
	static const char *const update[] = { "update.sgd", "update.adam", "update.adamw" };
	const struct pl_net_sizes all = { .rows = 1, .columns = (double)pl_net_view(net).n_params };

	put_row(k, network, update[kind], &all, ns, n);
}

/* Random inputs and classes for a batch. */
static int fill_batch(struct draw *d, const struct pl_net_shape *s, struct pl_batch_io *b,
		      struct pl_err *err)
{
	size_t n = (size_t)b->n, classes = n * (size_t)s->rows;
	float *x = NULL;
	int32_t *ids = NULL, *y = NULL;
	int rc;

	for (int i = 0; i < s->n_dims; i++)
		n *= (size_t)s->dim[i];
	if (s->vocab)
		PL_TRY(pl_alloc(&ids, n, sizeof(*ids), err));
	else
		PL_TRY(pl_alloc(&x, n, sizeof(*x), err));
	PL_TRY(pl_alloc(&y, classes, sizeof(*y), err));
	for (size_t i = 0; i < n; i++)
		if (s->vocab)
			ids[i] = (int32_t)(pl_rng_next(&d->state) % (uint64_t)s->vocab);
		else
			x[i] = (float)(2 * uniform(d) - 1);
	for (size_t i = 0; i < classes; i++)
		y[i] = (int32_t)(pl_rng_next(&d->state) % (uint64_t)s->classes);
out:
	b->x = x;
	b->ids = ids;
	b->y = y;
	return rc;
}

static int measure(struct kernels *k, int64_t network, const struct pl_model *m, struct pl_err *err)
{
	const struct pl_net_opts no = {
		.batch = k->draw.batch, .threads = processors(k->c), .seed = 1, .in_place = true
	};
	static const enum pl_optim_kind kinds[] = { PL_OPTIM_SGD, PL_OPTIM_ADAMW, PL_OPTIM_ADAM };
	const struct pl_optim_opts oo = { .kind = kinds[network % (int64_t)PL_LEN(kinds)],
					  .lr = 1e-4,
					  .momentum = 0.9,
					  .b1 = 0.9,
					  .b2 = 0.999,
					  .eps = 1e-8 };
	struct timer t = { .steps = (int)k->c->iterations, .room = (int)k->c->iterations };
	const struct pl_net_hooks hooks = { .arg = &t, .begin = begin, .end = end };
	struct pl_batch_io b = { .n = k->draw.batch };
	struct pl_optim *optim = NULL;
	struct pl_net *net = NULL;
	int64_t *steps = NULL;
	struct pl_net_view v;
	pl_ns begun;
	double loss;
	int rc;

	PL_TRY(pl_net_new(m->layer, m->n_layers, &no, &net, err));
	PL_TRY(pl_optim_new(net, &oo, &optim, err));
	v = pl_net_view(net);
	PL_TRY(fill_batch(&k->draw, &v.shape, &b, err));
	PL_TRY(pl_alloc(&t.ns, (size_t)v.n_layers * 2 * (size_t)t.steps, sizeof(*t.ns), err));
	PL_TRY(pl_alloc(&steps, (size_t)t.steps, sizeof(*steps), err));
	pl_net_hooks(net, &hooks);
	begun = pl_now_ns();
	for (t.step = -WARM; t.step < t.steps; t.step++) {
		pl_ns from = pl_now_ns(), at;

		PL_TRY(pl_net_forward(net, &b, (uint64_t)(t.step + WARM), false, &loss, NULL, err));
		PL_TRY(pl_net_backward(net, false, err));
		at = pl_now_ns();
		pl_optim_step(optim, t.step + WARM, 0, SIZE_MAX, NAN);
		if (t.step >= 0)
			steps[t.step] = pl_now_ns() - at;
		if (t.step == -1 && pl_now_ns() - begun < WARM_NS)
			t.step--;
		if (t.step == 0 && pl_now_ns() - from > STEP_MOST)
			t.steps = t.steps < 5 ? t.steps : 5;
	}
	put_rows(k, network, net, &t);
	put_update(k, network, net, oo.kind, steps, t.steps);
out:
	pl_optim_free(optim);
	pl_net_free(net);
	pl_free((void *)b.x);
	pl_free((void *)b.ids);
	pl_free((void *)b.y);
	pl_free(t.ns);
	pl_free(steps);
	return rc;
}

/* ---- the machine -------------------------------------------------------------------------------
 */

/* The name of the processor, as the kernel has it. */
static int name_processor(char *out, size_t size, struct pl_err *err)
{
	char *text, *name = NULL;
	int n;

	PL_CHECK(pl_alloc(&text, CPUINFO_MAX + 1, 1, err));
	n = pl_read_small("/proc/cpuinfo", text, CPUINFO_MAX);
	text[n > 0 ? n : 0] = '\0';
	name = strstr(text, "model name");
	name = name ? strchr(name, ':') : NULL;
	if (name && name[1])
		snprintf(out, size, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
	else
		snprintf(out, size, "cpu");
	pl_free(text);
	return 0;
}

#define PRODUCT	 768	    /* rows and columns of the matrices */
#define NUMBERS	 (24 << 20) /* of an array that no cache holds */
#define ATTEMPTS 8

/* FLOP and bytes per ns that the processors reach. */
static int find_rates(const struct config *c, double *flops, double *bytes, struct pl_err *err)
{
	const struct pl_backend *be = &pl_backend_cpu;
	const struct pl_backend_opts o = { .threads = processors(c) };
	float *a[3] = { NULL, NULL, NULL };
	void *ctx;

	*flops = *bytes = 0;
	PL_CHECK(be->open(&o, &ctx, err));
	for (int i = 0; i < 3; i++)
		a[i] = be->alloc(ctx, NUMBERS * sizeof(float));
	for (int i = 0; i < ATTEMPTS && a[0] && a[1] && a[2]; i++) {
		pl_ns at = pl_now_ns();

		be->dense(ctx, PRODUCT, PRODUCT, PRODUCT, a[0], a[1], NULL, PL_ACT_NONE, NULL,
			  a[2]);
		*flops = fmax(*flops,
			      2.0 * PRODUCT * PRODUCT * PRODUCT / (double)(pl_now_ns() - at));
		at = pl_now_ns();
		be->add(ctx, NUMBERS, a[0], a[1], a[2]);
		*bytes = fmax(*bytes, 3.0 * sizeof(float) * NUMBERS / (double)(pl_now_ns() - at));
	}
	for (int i = 0; i < 3; i++)
		be->free(ctx, a[i]);
	be->close(ctx);
	return *flops > 0 ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (data sheet)");
}

static int write_machine(const struct config *c, struct pl_out *out, struct pl_err *err)
{
	double flops, bytes,
		memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	char name[128];
	struct pl_writer w;

	PL_CHECK(find_rates(c, &flops, &bytes, err));
	PL_CHECK(name_processor(name, sizeof(name), err));
	pl_write_init(&w, out, 2);
	pl_json_open(&w, '{');
	pl_json_str(&w, "Device", name);
	pl_json_real(&w, "Dev_Mem", floor(memory / 1e9));
	pl_json_real(&w, "Mem_Bw", round(bytes * 10) / 10);
	pl_json_int(&w, "CPU", 1);
	pl_json_int(&w, "Num_Sm", processors(c));
	pl_json_real(&w, "SingleFLOPs", round(flops * 10) / 10);
	if (cache > 0)
		pl_json_real(&w, "L2Cache", (double)cache / 1048576);
	pl_json_close(&w);
	return pl_json_end(&w, err);
}

int bench_machine(const struct config *c, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(c->c.output, false, err);

	return out ? pl_out_finish(out, write_machine(c, out, err), err) : err->code;
}

int list_kernels(const struct config *c, const struct work *w, struct pl_err *err)
{
	struct kernels k = { .c = c, .table = PL_TABLE(columns) };
	struct pl_optim_opts optim;
	struct pl_net *net = NULL;
	struct pl_out *out;
	int rc;

	PL_TRY(name_processor(k.device, sizeof(k.device), err));
	PL_TRY(pl_train_worker_optim_opts(&w->job, 1, &optim, err));
	PL_TRY(pl_net_outline(w->model.layer, w->model.n_layers, (int)w->job.batch, &net, err));
	put_rows(&k, 0, net, NULL);
	put_update(&k, 0, net, optim.kind, NULL, 0);
	out = pl_out_open(c->c.output, false, err);
	rc = out ? pl_out_finish(out, write_table(c, &k.table, out, err), err) : err->code;
out:
	pl_net_free(net);
	pl_table_fini(&k.table);
	return rc;
}

int bench_kernels(const struct config *c, struct pl_err *err)
{
	struct kernels k = { .c = c,
			     .table = PL_TABLE(columns),
			     .draw = { .state =
					       c->c.seed == INT64_MIN ? 1 : (uint64_t)c->c.seed } };
	struct pl_model m = { 0 };
	struct pl_out *out = NULL;
	int rc = 0;

	PL_TRY(name_processor(k.device, sizeof(k.device), err));
	out = pl_out_open(c->c.output, false, err);
	PL_TRY(out ? 0 : err->code);
	for (int64_t i = 0; i < c->networks; i++) {
		pl_progress("network %lld of %lld", (long long)i + 1, (long long)c->networks);
		PL_TRY(draw_network(&k.draw, (uint64_t)i, &m, err));
		PL_TRY(measure(&k, i, &m, err));
	}
	rc = write_table(c, &k.table, out, err);
out:
	pl_model_fini(&m);
	pl_buf_fini(&k.draw.text);
	pl_table_fini(&k.table);
	return out ? pl_out_finish(out, rc, err) : rc;
}
