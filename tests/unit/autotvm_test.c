/*
 * Tuning logs of AutoTVM: what lines mean, what is left out, and that each program that is made
 * from tiles computes the product.
 */
#include <math.h>

#include "tap.h"
#include "tprog/autotvm.h"

#define MOST 8192 /* numbers of a buffer in these tests */

struct log {		   /* what became of one */
	struct pl_tprog p; /* the last program */
	struct pl_autotvm_stats stats;
	struct pl_err err;
};

static void read_log(const char *text, const struct pl_autotvm_opts *o, struct log *l)
{
	struct pl_in *in;
	struct pl_autotvm *r = NULL;
	int more = 1;

	memset(l, 0, sizeof(*l));
	in = pl_in_open_mem("x.log", text, strlen(text), &l->err);
	if (in && pl_autotvm_new(in, o, &r, &l->err) < 0)
		r = NULL;
	while (r && more > 0) {
		struct pl_tprog p = { .name = NULL };

		more = pl_autotvm_next(r, &p, &l->err);
		if (more > 0) {
			pl_tprog_fini(&l->p);
			l->p = p;
		}
	}
	if (r)
		l->stats = *pl_autotvm_stats(r);
	pl_autotvm_free(r);
	pl_in_close(in);
}

static char *text_of(const struct pl_tprog *p)
{
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_tprog_write(p, &w);
	if (pl_write_end(&w, &err) < 0 || pl_buf_put(&b, "", 1, &err) < 0)
		printf("# %s\n", err.msg);
	pl_write_fini(&w);
	if (pl_out_close(out, &err) < 0)
		printf("# %s\n", err.msg);
	return (char *)b.p;
}

/* ---- lines ----------------------------------------------------------------------------------- */

#define LINE(task, args, knobs, result)                                                            \
	"{\"input\": [\"llvm -keys=cpu -mcpu=core-avx2\", \"" task "\", [" args "], {}], "         \
	"\"config\": {\"index\": 7, \"code_hash\": null, \"entity\": [" knobs "]}, "               \
	"\"result\": [" result "], \"version\": 0.2, \"tvm_version\": \"0.12.0\"}\n"
#define TENSOR(dims) "[\"TENSOR\", [" dims "], \"float32\"]"
#define NOPACK(result)                                                                             \
	LINE("dense_nopack.x86", TENSOR("4, 8") ", " TENSOR("6, 8") ", null, \"float32\"",         \
	     "[\"tile_y\", \"sp\", [-1, 2]], [\"tile_x\", \"sp\", [3, 2]], "                       \
	     "[\"tile_k\", \"sp\", [2, 4]]",                                                       \
	     result)
#define GOOD "[0.000003, 0.000001, 0.0000025, 0.0000027], 0, 1.5, 1600000000.5"

static void test_line(void)
{
	static const char nopack[] = "program o0.p1 model=my_net op=dense\n"
				     "buffer A float32 4 8\n"
				     "buffer B float32 6 8\n"
				     "buffer C float32 4 6\n"
				     "for yx 6 parallel\n"
				     "  alloc CC float32 2 2 4\n"
				     "    for y 2 unroll\n"
				     "      for x 2 unroll\n"
				     "        for v 4 vectorize\n"
				     "          CC[y, x, v] = 0.0\n"
				     "        end\n"
				     "      end\n"
				     "    end\n"
				     "    for k 2 reduce\n"
				     "      for y 2 unroll\n"
				     "        for x 2 unroll\n"
				     "          for v 4 vectorize\n"
				     "            CC[y, x, v] += A[yx / 3 * 2 + y, k * 4 + v] * "
				     "B[yx % 3 * 2 + x, k * 4 + v]\n"
				     "          end\n"
				     "        end\n"
				     "      end\n"
				     "    end\n"
				     "    for y 2\n"
				     "      for x 2\n"
				     "        C[yx / 3 * 2 + y, yx % 3 * 2 + x] = 0.0\n"
				     "        for v 4 reduce unroll\n"
				     "          C[yx / 3 * 2 + y, yx % 3 * 2 + x] += CC[y, x, v]\n"
				     "        end\n"
				     "      end\n"
				     "    end\n"
				     "  end\n"
				     "end\n"
				     "measured core_avx2 2600 least=1000 runs=4\n";
	struct log l;
	char *text;

	read_log(NOPACK(GOOD), &(struct pl_autotvm_opts){ .model = "my-net" }, &l);
	text = text_of(&l.p);
	is_str(text, nopack, "a line and its program");
	is_i64((long long)l.stats.programs, 1, "... which is one");
	pl_free(text);
	pl_tprog_fini(&l.p);
	read_log(NOPACK(GOOD) "# a comment\n\n" NOPACK(GOOD),
		 &(struct pl_autotvm_opts){ .device = "box" }, &l);
	is_i64((long long)l.stats.programs, 2, "two of them");
	is_str(l.p.name, "o0.p4", "the second is of the same product, and in line 4");
	is_str(l.p.measured[0].device, "box", "a device that is named");
	pl_tprog_fini(&l.p);
}

/* Which device a target names. */
static void test_devices(void)
{
	static const struct {
		const char *target, *device;
	} cases[] = {
		{ "cuda -model=1080ti", "_1080ti" },
		{ "llvm -keys=cpu -mcpu=core-avx2", "core_avx2" },
		{ "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -model=unknown", "sm_80" },
		{ "cuda -model=unknown -thread_warp_size=32", "cuda" },
		{ "cuda -model=unknown2", "unknown2" },
		{ "cuda -keys=cuda,gpu -libs=cublas,cudnn,cublaslt -max_num_threads=1024 "
		  "-max_shared_memory_per_block=49152 -max_threads_per_block=1024 "
		  "-registers_per_block=65536 -l2_cache_size_bytes=41943040 "
		  "-max_function_args=4096 -thread_warp_size=32 -supports_warp_shuffle=1 "
		  "-model=a100",
		  "a100" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		static const char line[] = NOPACK(GOOD);
		static const char usual[] = "llvm -keys=cpu -mcpu=core-avx2";
		const char *rest = strstr(line, usual) + strlen(usual);
		struct log l;
		char text[2048];

		snprintf(text, sizeof(text), "{\"input\": [\"%s%s", cases[i].target, rest);
		read_log(text, &(struct pl_autotvm_opts){ .strict = true }, &l);
		ok(!l.err.code && l.p.n_measured == 1, "a target %s", l.err.msg);
		is_str(l.p.n_measured ? l.p.measured[0].device : "", cases[i].device,
		       "... and its device");
		pl_tprog_fini(&l.p);
	}
}

static void test_left_out(void)
{
	static const struct {
		const char *text, *says;
		int failed, other, bad;
	} cases[] = {
		{ NOPACK("[1000000000.0], 4, 10.0, 1600000000.0"), "", 1, 0, 0 },
		{ NOPACK("[Infinity], 2, 10.0, 1600000000.0"), "", 1, 0, 0 },
		{ NOPACK("[], 0, 10.0, 1600000000.0"), "line 1: no time was measured", 0, 0, 1 },
		{ NOPACK("[-1.0], 0, 10.0, 1600000000.0"), "line 1: a time of -1 s", 0, 0, 1 },
		{ "\n" LINE("conv2d_NCHWc.x86", TENSOR("1, 3, 8, 8") ", [1, 1], [0, 0, 0, 0]", "",
			    GOOD),
		  "line 2: the template \"conv2d_NCHWc.x86\"", 0, 1, 0 },
		{ LINE("dense_nopack.x86", "[\"TENSOR\", [4, 8], \"float16\"], " TENSOR("6, 8"), "",
		       GOOD),
		  "no float32", 0, 1, 0 },
		{ LINE("dense_nopack.x86", TENSOR("4, 8") ", " TENSOR("6, 8") ", " TENSOR("6"), "",
		       GOOD),
		  "dense with a bias", 0, 1, 0 },
		{ LINE("dense_nopack.x86", TENSOR("4, 8") ", " TENSOR("6, 9"), "", GOOD),
		  "do not fit", 0, 0, 1 },
		{ LINE("dense_nopack.x86", TENSOR("4, 8") ", " TENSOR("6, 8"), "", GOOD),
		  "\"tile_y\" should have 2 sizes", 0, 0, 1 },
		{ LINE("dense_small_batch.gpu", TENSOR("4, 8") ", " TENSOR("6, 8"),
		       "[\"tile_k\", \"sp\", [-1, 3]]", GOOD),
		  "do not divide 8", 0, 1, 0 },
		{ LINE("dense_small_batch.gpu", TENSOR("4, 8") ", " TENSOR("6, 8"),
		       "[\"tile_k\", \"sp\", [1, 64]]", GOOD),
		  "do not divide 8", 0, 1, 0 },
		{ LINE("dense_small_batch.gpu", TENSOR("4, 8") ", " TENSOR("6, 8"),
		       "[\"tile_k\", \"sp\", [-1, 16]]", GOOD),
		  "do not divide 8", 0, 1, 0 },
		{ LINE("dense_small_batch.gpu", TENSOR("4, 8") ", " TENSOR("6, 8"),
		       "[\"tile_k\", \"sp\", [-1, 0]]", GOOD),
		  "size 2 of \"tile_k\" is 0", 0, 0, 1 },
		{ LINE("dense_small_batch.gpu", TENSOR("0, 8") ", " TENSOR("6, 8"), "", GOOD),
		  "not a measurement", 0, 0, 1 },
		{ "{\"i\": [[[\"conv2d\"]]], \"r\": [[0.1], 0, 1, 1], \"v\": \"v0.6\"}\n",
		  "line 1: not a measurement", 0, 0, 1 },
		{ "{}\n[1, 2\nx\n", "line 1: not a measurement", 0, 0, 3 },
		{ "{\"input\": [\"llvm\", \"dense", "line 1: not a measurement", 0, 0, 1 },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct log l;
		char text[4096];

		snprintf(text, sizeof(text), "%s" NOPACK(GOOD), cases[i].text);
		if (!strchr(cases[i].text + strlen(cases[i].text) - 1, '\n'))
			snprintf(text, sizeof(text), "%s\n" NOPACK(GOOD), cases[i].text);
		read_log(text, &(struct pl_autotvm_opts){ 0 }, &l);
		ok(!l.err.code && (int)l.stats.failed == cases[i].failed &&
			   (int)l.stats.other == cases[i].other &&
			   (int)l.stats.bad == cases[i].bad && l.stats.programs == 1 &&
			   strstr(cases[i].other ? l.stats.first_other : l.stats.first_bad,
				  cases[i].says),
		   "%s: %d failed, %d of other kinds, %d bad", cases[i].says, cases[i].failed,
		   cases[i].other, cases[i].bad);
		pl_tprog_fini(&l.p);
		read_log(text, &(struct pl_autotvm_opts){ .strict = true }, &l);
		ok(cases[i].failed
			   ? !l.err.code
			   : l.err.code == PL_EDATA && strstr(l.err.msg, "x.log: line ") &&
				     strstr(l.err.msg, cases[i].says + 8 * !strncmp(cases[i].says,
										    "line ", 5)),
		   "... strictly: %s", l.err.msg);
		pl_tprog_fini(&l.p);
	}
}

/* ---- the product ----------------------------------------------------------------------------- */

struct data {
	float v[3][MOST], right[MOST];
};

struct product {
	long long batch, m, n, k, packed; /* batch 0: of matrices */
	bool one_b, turned_a, flat_b;
};

static float a_of(const struct data *d, const struct product *o, long long b, long long i,
		  long long k)
{
	return o->turned_a ? d->v[0][(b * o->k + k) * o->m + i]
			   : d->v[0][(b * o->m + i) * o->k + k];
}
static float b_of(const struct data *d, const struct product *o, long long b, long long j,
		  long long k)
{
	long long batch = o->one_b ? 0 : b;

	if (o->packed)
		return d->v[1][(j / o->packed * o->k + k) * o->packed + j % o->packed];
	return o->flat_b ? d->v[1][(batch * o->k + k) * o->n + j]
			 : d->v[1][(batch * o->n + j) * o->k + k];
}

/* The greatest difference from three loops; < 0: it does not run. */
static double compare(const struct pl_tprog *p, const struct product *o, struct data *d)
{
	float *const buffer[3] = { d->v[0], d->v[1], d->v[2] };
	struct pl_err err = { 0 };
	double worst = 0;

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < MOST; k++)
			d->v[i][k] = (float)((i * 31 + k * 17 + k / 23) % 29) / 13 - 1;
	for (size_t i = 0; i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE && p->buffer[i].n > MOST)
			return -1;
	if (pl_tprog_check(p, &err) < 0 || pl_tprog_run(p, buffer, &err) < 0) {
		printf("# %s\n", err.msg);
		return -1;
	}
	for (long long b = 0; b < (o->batch ? o->batch : 1); b++)
		for (long long i = 0; i < o->m; i++)
			for (long long j = 0; j < o->n; j++) {
				double sum = 0;

				for (long long k = 0; k < o->k; k++)
					sum += a_of(d, o, b, i, k) * b_of(d, o, b, j, k);
				worst = fmax(worst, fabs(sum - d->v[2][(b * o->m + i) * o->n + j]));
			}
	return worst;
}

/* Tiles of an extent, chosen at random; the first of them is sometimes left open. */
static int put_tiles(char *out, size_t size, uint64_t *state, const char *name, long long extent,
		     int n, long long *last)
{
	long long v[4], left = extent;
	size_t at;

	for (int i = n - 1; i > 0; i--) {
		do {
			v[i] = 1 + (long long)(pl_rng_next(state) % (uint64_t)left);
		} while (left % v[i]);
		left /= v[i];
	}
	v[0] = pl_rng_next(state) % 2 ? -1 : left;
	*last = n > 1 ? v[n - 1] : left;
	at = (size_t)snprintf(out, size, "[\"%s\", \"sp\", [", name);
	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "", v[i]);
	return (int)(at + (size_t)snprintf(out + at, size - at, "]], "));
}

static const struct template
{
	const char *task;
	int y, x, k; /* how many tiles; 0: the template has no such knob */
	bool batch, inner;
}
templates[] = {
	{ "dense_nopack.x86", 2, 2, 2, false, false },
	{ "dense_pack.x86", 3, 3, 2, false, false },
	{ "dense_pack.x86", 3, 3, 2, false, true },
	{ "batch_matmul.x86", 2, 2, 2, true, false },
	{ "dense_small_batch.gpu", 0, 0, 2, false, false },
	{ "dense_large_batch.cuda", 4, 4, 3, false, false },
	{ "batch_matmul.cuda", 3, 3, 2, true, false },
};

/* The line of a product whose tiles are chosen at random. */
static void make_line(const struct template *t, struct product *o, uint64_t *state, char *out,
		      size_t size)
{
	/* of dense_large_batch, x are the rows */
	bool rows = strstr(t->task, "large") != NULL;
	char knobs[600] = "", args[300];
	long long last = 0, inner = 1 + (long long)(pl_rng_next(state) % 5);
	size_t n = 0;

	if (t->y)
		n += (size_t)put_tiles(knobs + n, sizeof(knobs) - n, state, "tile_y",
				       rows ? o->n : o->m, t->y, &last);
	if (t->x)
		n += (size_t)put_tiles(knobs + n, sizeof(knobs) - n, state, "tile_x",
				       rows ? o->m : o->n, t->x, &last);
	if (t->inner)
		o->packed = last;
	n += (size_t)put_tiles(knobs + n, sizeof(knobs) - n, state, "tile_k", o->k, t->k, &last);
	if (t->inner)
		n += (size_t)snprintf(knobs + n, sizeof(knobs) - n,
				      "[\"tile_inner\", \"sp\", [-1, %lld]], ", inner);
	snprintf(knobs + n, sizeof(knobs) - n, "[\"auto_unroll_max_step\", \"ot\", 16]");
	if (t->batch)
		snprintf(args, sizeof(args),
			 "[\"TENSOR\", [%lld, %lld, %lld], \"float32\"], "
			 "[\"TENSOR\", [%lld, %lld, %lld], \"float32\"], [%lld, %lld, %lld], "
			 "\"float32\", %s, %s",
			 o->batch, o->turned_a ? o->k : o->m, o->turned_a ? o->m : o->k,
			 o->one_b ? 1 : o->batch, o->flat_b ? o->k : o->n, o->flat_b ? o->n : o->k,
			 o->batch, o->m, o->n, o->turned_a ? "true" : "false",
			 o->flat_b ? "false" : "true");
	else
		snprintf(args, sizeof(args),
			 "[\"TENSOR\", [%lld, %lld], \"float32\"], "
			 "[\"TENSOR\", [%lld, %lld], \"float32\"], null, \"float32\"",
			 o->m, o->k, o->n, o->k);
	snprintf(out, size,
		 "{\"input\": [\"cuda -model=v100\", \"%s\", [%s], {}], \"config\": {\"index\": 1, "
		 "\"code_hash\": null, \"entity\": [%s]}, \"result\": [[1e-05], 0, 1.0, 1.0], "
		 "\"version\": 0.2, \"tvm_version\": \"0.9.0\"}\n",
		 t->task, args, knobs);
}

static void test_products(const struct template *t)
{
	static const int sizes[] = { 1, 2, 3, 4, 6, 8, 10, 12, 16, 20 };
	struct data *d = pl_malloc(sizeof(*d));
	uint64_t state = 1;
	double worst = 0;
	int n, ran = 0;

	for (n = 0; n < CASES(60); n++) {
		struct product o = { .batch = t->batch ? 1 + n % 3 : 0,
				     .m = sizes[pl_rng_next(&state) % PL_LEN(sizes)],
				     .n = sizes[pl_rng_next(&state) % PL_LEN(sizes)],
				     .k = sizes[pl_rng_next(&state) % PL_LEN(sizes)],
				     .one_b = t->batch && n % 5 == 0,
				     .turned_a = t->batch && n % 4 == 1,
				     .flat_b = t->batch && n % 3 == 1 };
		char line[2048];
		struct log l;
		double v;

		make_line(t, &o, &state, line, sizeof(line));
		read_log(line, &(struct pl_autotvm_opts){ .strict = true }, &l);
		v = l.err.code ? -1 : compare(&l.p, &o, d);
		if (v < 0 || v > 1e-4)
			printf("# %g %s # %s", v, l.err.msg, line);
		ran += v >= 0;
		worst = worse(worst, v);
		pl_tprog_fini(&l.p);
	}
	ok(ran == n && worst < 1e-4, "%s%s: %d products, up to %g", t->task,
	   t->inner ? ", packed" : "", ran, worst);
	pl_free(d);
}

/* ---- the loops ------------------------------------------------------------------------------- */

static int count_of(const char *text, const char *what)
{
	int n = 0;

	for (const char *s = text; (s = strstr(s, what)); s++)
		n++;
	return n;
}

/* What a template is for is there: threads, vectors, shared memory. */
static void test_loops(void)
{
	static const struct {
		int template;
		const char *has;
		int times;
	} cases[] = {
		{ 1, "alloc P float32", 1 }, { 1, "parallel", 2 },
		{ 2, "alloc P float32", 0 }, { 2, "vectorize", 3 },
		{ 3, "alloc part", 1 },	     { 3, "parallel", 1 },
		{ 4, "block.y", 1 },	     { 4, " shared", 1 },
		{ 5, " shared", 2 },	     { 5, "block.x", 1 },
		{ 5, "thread.y", 5 },	     { 5, "vthread", 8 },
		{ 6, "block.z", 1 },	     { 6, " shared", 2 },
		{ 6, "thread.x", 5 },	     { 6, "CC[ty, tx, yi, xi] +=", 1 },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		const struct template *t = &templates[cases[i].template];
		struct product o = { .batch = t->batch ? 2 : 0, .m = 16, .n = 16, .k = 16 };
		uint64_t state = 12;
		char line[2048], *text;
		struct log l;

		make_line(t, &o, &state, line, sizeof(line));
		if (t->y == 4) /* sizes at which no loop is left out */
			snprintf(line, sizeof(line), "%s",
				 LINE("dense_large_batch.gpu",
				      TENSOR("16, 16") ", " TENSOR("16, 16"),
				      "[\"tile_y\", \"sp\", [2, 2, 2, 2]], "
				      "[\"tile_x\", \"sp\", [2, 2, 2, 2]], "
				      "[\"tile_k\", \"sp\", [4, 2, 2]]",
				      GOOD));
		read_log(line, &(struct pl_autotvm_opts){ .strict = true }, &l);
		text = text_of(&l.p);
		ok(count_of(text, cases[i].has) == cases[i].times, "%s has \"%s\" %d times",
		   t->task, cases[i].has, cases[i].times);
		if (count_of(text, cases[i].has) != cases[i].times)
			printf("# %s\n", text);
		pl_free(text);
		pl_tprog_fini(&l.p);
	}
}

/* Logs of TVM 0.6 say which template by target, task and key. */
static void test_old(void)
{
#define OLD(target, task, key, m, knobs)                                                           \
	"{\"i\": [\"" target "\", \"" task "\", [" TENSOR(#m ", 8") ", " TENSOR(                   \
		"6, 8") ", null, \"float32\"], {}, [\"dense\", [1, 8, \"float32\"]], {\"i\": 3, "  \
			"\"t\": \"" key "\", \"c\": null, \"e\": [" knobs                          \
			"]}], \"r\": [[0.001], 0, 2.0, 1.0], \"v\": 0.1}\n"
#define TWO                                                                                        \
	"[\"tile_y\", \"sp\", [-1, 1]], [\"tile_x\", \"sp\", [3, 2]], [\"tile_k\", \"sp\", [2, "   \
	"4]]"
#define THREE                                                                                      \
	"[\"tile_y\", \"sp\", [-1, 1, 1]], [\"tile_x\", \"sp\", [1, 3, 2]], [\"tile_k\", \"sp\", " \
	"[2, 4]]"
	static const struct {
		const char *line, *has;
	} cases[] = {
		{ OLD("llvm", "topi_nn_dense", "direct", 4, TWO), "CC[y, x, v]" },
		{ OLD("llvm", "topi_nn_dense", "direct", 32, THREE), "alloc P float32 3 8 2" },
		{ OLD("llvm", "topi_nn_dense", "direct_pack", 4, THREE), "alloc P float32 3 8 2" },
		{ OLD("llvm", "topi_nn_dense", "direct_nopack", 32, TWO), "CC[y, x, v]" },
		{ OLD("cuda", "topi_nn_dense", "direct", 4, "[\"tile_k\", \"sp\", [2, 4]]"),
		  "thread.x" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct log l;
		char *text;

		read_log(cases[i].line, &(struct pl_autotvm_opts){ .strict = true }, &l);
		text = text_of(&l.p);
		ok(!l.err.code && strstr(text, cases[i].has) && strstr(text, " 1000000 least"),
		   "a line of TVM 0.6: %s %s", cases[i].has, l.err.msg);
		pl_free(text);
		pl_tprog_fini(&l.p);
	}
}

int main(void)
{
	test_line();
	test_devices();
	test_left_out();
	for (size_t i = 0; i < PL_LEN(templates); i++)
		test_products(&templates[i]);
	test_loops();
	test_old();
	return done_testing();
}
