/*
 * Cost models: offsets of rare operations by name and type, rates that nothing shows, ranges by the
 * rate of the type, and model files that are damaged or whose blocks stand in another order.
 */
#include <math.h>
#include <stdlib.h>

#include "costmodel_fixture.h"
#include "io/record.h"
#include "kernel/model_internal.h"

/* ---- rare operations ------------------------------------------------------------------------- */

static bool takes(const struct bench *b, const char *op, uint8_t type, double by)
{
	struct pl_kernel k = moved(1e7, type);
	struct pl_kernel_time usual = predict(b, "base", k, &b->sheets, 0);
	struct pl_kernel_time t = predict(b, op, k, &b->sheets, 0);
	bool good = fabs(t.ns / usual.ns / by - 1) < 0.12 && t.few;

	printf("# %s in %s: %.2f times\n", op, pl_kernel_type_word(type), t.ns / usual.ns);
	return ok(good, "takes %g times what others of its family take", by);
}

/* Each type of a rare operation has an offset of its own, from the part of its type. */
static void test_types(void)
{
	struct bench b;

	begin(&b);
	move(&b, "base", PL_KERNEL_FLOAT16, 1, 300);
	move(&b, "base", PL_KERNEL_FLOAT32, 1, 300);
	move(&b, "mixed", PL_KERNEL_FLOAT16, 2, 40);
	move(&b, "mixed", PL_KERNEL_FLOAT32, 3, 40);
	move(&b, "many", PL_KERNEL_FLOAT32, 1.5, 80);
	move(&b, "many", PL_KERNEL_FLOAT16, 0.5, 30);
	if (learn(&b, false)) {
		takes(&b, "mixed", PL_KERNEL_FLOAT16, 2);
		takes(&b, "mixed", PL_KERNEL_FLOAT32, 3);
		takes(&b, "many", PL_KERNEL_FLOAT16, 0.5);
		ok(!predict(&b, "many", moved(1e7, PL_KERNEL_FLOAT32), &b.sheets, 0).few,
		   "a type of which there is enough has a part");
		ok(!predict(&b, "never", moved(1e7, PL_KERNEL_FLOAT32), &b.sheets, 0).few,
		   "what was not measured has no offset");
	}
	end(&b);
}

/* ---- rates and ranges ------------------------------------------------------------------------ */

static struct pl_kernel reduced(double bytes)
{
	return (struct pl_kernel){ .family = PL_KERNEL_ALLREDUCE,
				   .type = PL_KERNEL_FLOAT32,
				   .dim = { bytes, 4, 4 } };
}

/* n messages of low to high bytes on alpha. */
static void reduce(struct bench *b, double low, double high, double ns_per_byte, int n)
{
	for (int i = 0; i < n; i++) {
		double bytes = pick(b, low, high);

		measure(b, "allreduce", reduced(bytes), 0, 8000 + bytes * ns_per_byte);
	}
}

static void of_bytes(const struct bench *b, double bytes, double ns, double tolerance)
{
	struct pl_kernel_time t = predict(b, "allreduce", reduced(bytes), &b->sheets, 0);
	bool good = fabs(t.ns / ns - 1) <= tolerance;

	if (!ok(good, "%.0f bytes take %.0f us", bytes, ns / 1e3))
		printf("# %.1f us\n", t.ns / 1e3);
}

/* Messages whose launch takes longer than the message: no rate follows from them. */
static void test_floor(void)
{
	struct bench b;

	begin(&b);
	reduce(&b, 1e3, 3e5, 0, 300);
	if (learn(&b, false)) {
		of_bytes(&b, 2e5, 8000, 1e-4);
		of_bytes(&b, 3e8, 8000, 1e-4);
	}
	end(&b);
	begin(&b); /* one of them was held up */
	reduce(&b, 1e3, 3e5, 0, 300);
	measure(&b, "allreduce", reduced(2000), 0, 60000);
	if (learn(&b, false)) {
		of_bytes(&b, 2e5, 8000, 0.1);
	}
	end(&b);
	begin(&b); /* ten long ones among them show a rate, and so do many */
	reduce(&b, 1e3, 1e4, 0.01, 100);
	reduce(&b, 3e7, 3e8, 0.01, 10);
	if (learn(&b, false))
		of_bytes(&b, 1e8, 1e6, 0.1);
	end(&b);
	begin(&b);
	reduce(&b, 1e3, 3e8, 0.01, 300);
	if (learn(&b, false))
		of_bytes(&b, 1e8, 1e6, 0.1);
	end(&b);
}

/* Of the many samples of a family some are taken, of all operations that take turns in a table. */
static void test_turns(void)
{
	const struct part family = { .family = PL_KERNEL_ELEMENTWISE, .type = PL_KERNEL_FLOAT32 };
	const struct pl_kernel_fit_opts o = { .seed = 1 };
	struct pl_err err = { 0 };
	struct bench b;
	const struct part *p;

	begin(&b);
	for (int i = 0; i < 400; i++) {
		struct pl_kernel k = moved(i % 4 == 1 ? 2e7 : 1e6, PL_KERNEL_FLOAT32);

		measure(&b, i % 4 == 1 ? "second" : "other", k, 0, 1e5);
	}
	for (size_t most = 200; most >= 100; most /= 2)
		if (ok(pl_kernel_fit_family(&b.s, NULL, &o, &family, most, &b.m, &err) == 0,
		       "a family %s", err.msg)) {
			p = &b.m->part[0];
			is_i64(p->n, (long long)most, "of so many samples");
			ok(p->dim[0].low < 2e6 && p->dim[0].high > 1e7, "each fourth one, too");
			pl_kernel_model_free(b.m);
			b.m = NULL;
		}
	end(&b);
}

/* A device between those that were measured, but for a rate of 16 bits far beyond theirs. */
static void test_ranges(void)
{
	static const char fast[] = "{\"Mem_Bw\": 600, \"Num_Sm\": 64, \"SingleFLOPs\": 20000,"
				   " \"HalfTensorFLOPs\": 2000000}";
	static const char amid[] = "{\"Mem_Bw\": 600, \"Num_Sm\": 64, \"SingleFLOPs\": 20000,"
				   " \"HalfTensorFLOPs\": 150000}";
	static const struct pl_kernel product = { .family = PL_KERNEL_GEMM,
						  .type = PL_KERNEL_FLOAT16,
						  .dim = { 1, 1024, 1024, 1024 } };
	struct pl_devices more = { .n = 0 };
	struct pl_err err = { 0 };
	struct pl_kernel_time t;
	struct bench b;

	begin(&b);
	multiply(&b, "matmul", 200);
	move(&b, "base", PL_KERNEL_FLOAT16, 1, 200);
	if (add(&more, "fast", fast, &err) < 0 || add(&more, "amid", amid, &err) < 0)
		abort();
	if (learn(&b, false)) {
		t = predict(&b, "matmul", product, &more, 0);
		ok(t.flag == PL_KERNEL_EXTRAPOLATED, "a product beyond all measured rates");
		t = predict(&b, "matmul", product, &more, 1);
		ok(t.flag == PL_KERNEL_IN_RANGE, "one between them");
		t = predict(&b, "base", moved(1e6, PL_KERNEL_FLOAT16), &more, 0);
		ok(t.flag == PL_KERNEL_IN_RANGE, "what only moves bytes is in range");
	}
	pl_device_fini(&more);
	end(&b);
}

/* A byte takes the longer the more of them there are, which part of the sizes shows in part. */
static double grows(const struct bench *b, struct pl_kernel k)
{
	double bytes = pl_kernel_work(&k).bytes;

	return 8000 + bytes / b->sheets.v[0].bandwidth * 2 * pow(bytes / 1e6, 0.15);
}

static struct bench learn_sizes(double low, double high, int n)
{
	struct bench b;

	begin(&b);
	for (int i = 0; i < n; i++) {
		struct pl_kernel k = moved(pick(&b, low, high), PL_KERNEL_FLOAT32);

		measure(&b, "base", k, 0, grows(&b, k) * pick(&b, 970, 1030) / 1000);
	}
	if (!learn(&b, true))
		abort();
	return b;
}

static double width(const struct pl_kernel_time *t)
{
	return t->hi_ns / t->lo_ns;
}

/* How many of 100 sizes are in their intervals, of which none is too wide; *out: how many are not
 * in range. */
static int count_held(struct bench *b, double low, double high, double widest, int *out)
{
	int held = 0;

	*out = 0;
	for (int i = 0; i < 100; i++) {
		struct pl_kernel k = moved(pick(b, low, high), PL_KERNEL_FLOAT32);
		struct pl_kernel_time t = predict(b, "base", k, &b->sheets, 0);
		double ns = grows(b, k);

		held += t.lo_ns <= ns && ns <= t.hi_ns && width(&t) < widest;
		*out += t.flag == PL_KERNEL_EXTRAPOLATED;
	}
	return held;
}

/* Intervals outside the sizes that were measured: wide enough, and the wider the farther. */
static void test_outside(void)
{
	struct bench b = learn_sizes(1e4, 1e6, 400);
	struct pl_kernel_time near, far, far_away;
	int held, out;

	held = count_held(&b, 1.1e6, 2e7, 10, &out);
	ok(out == 100 && held >= 85, "larger sizes: %d of 100 are in their intervals", held);
	held = count_held(&b, 1e4, 1e6, 2, &out);
	ok(out == 0 && held >= 85, "the same sizes: %d of 100", held);
	near = predict(&b, "base", moved(1e5, PL_KERNEL_FLOAT32), &b.sheets, 0);
	ok(width(&near) < 1.25, "... which are narrow");
	near = predict(&b, "base", moved(1e7, PL_KERNEL_FLOAT32), &b.sheets, 0);
	far = predict(&b, "base", moved(1e9, PL_KERNEL_FLOAT32), &b.sheets, 0);
	ok(width(&far) > 1.2 * width(&near), "the farther, the wider");
	far_away = predict(&b, "base", moved(1e17, PL_KERNEL_FLOAT32), &b.sheets, 0);
	ok(far_away.lo_ns > 0 && isfinite(far_away.hi_ns), "however far, it has ends");
	end(&b);
	b = learn_sizes(1e6, 2e7, 400);
	held = count_held(&b, 2e4, 9e5, 100, &out);
	ok(out == 100 && held >= 85, "smaller sizes: %d of 100", held);
	end(&b);
	b = learn_sizes(1e4, 1e6, 70);
	near = predict(&b, "base", moved(1e5, PL_KERNEL_FLOAT32), &b.sheets, 0);
	far = predict(&b, "base", moved(1e9, PL_KERNEL_FLOAT32), &b.sheets, 0);
	ok(far.flag == PL_KERNEL_EXTRAPOLATED && width(&far) > 2 * width(&near),
	   "few measurements: a guess");
	end(&b);
}

/* From 0 nothing has a distance: sizes that may be 0 leave intervals as they are. */
static void test_zero(void)
{
	struct pl_kernel k = moved(1e6, PL_KERNEL_FLOAT32);
	struct pl_kernel_time usual, other;
	struct bench b = learn_sizes(1e4, 1e7, 300);

	usual = predict(&b, "base", k, &b.sheets, 0);
	k.dim[3] = pl_kernel_work(&k).bytes; /* they were derived */
	other = predict(&b, "base", k, &b.sheets, 0);
	ok(other.flag == PL_KERNEL_EXTRAPOLATED && width(&other) < 1.05 * width(&usual),
	   "bytes that were 0 in all measurements");
	end(&b);
}

/* ---- files ----------------------------------------------------------------------------------- */

#define BLOCKS_MAX 16

struct block {
	uint32_t type, count;
	uint16_t version;
	struct pl_buf b;
};
struct blocks { /* of a model */
	struct block v[BLOCKS_MAX];
	size_t n;
};

static int take_block(void *arg, const struct pl_block *b, struct pl_err *err)
{
	struct blocks *to = arg;
	struct block *x = &to->v[to->n];

	if (b->type == PL_BLOCK_SEGMENT || b->type == PL_BLOCK_PROVENANCE)
		return 0;
	if (to->n == BLOCKS_MAX)
		abort();
	to->n++;
	*x = (struct block){ b->type, b->count, b->version, { 0 } };
	return pl_buf_put(&x->b, b->p, b->n, err);
}

static void blocks_fini(struct blocks *x)
{
	for (size_t i = 0; i < x->n; i++)
		pl_buf_fini(&x->v[i].b);
}

static void write_model(const struct pl_kernel_model *m, const struct pl_schema *schema,
			struct pl_buf *to)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(to, &err);

	if (!out || pl_kernel_model_write(m, schema, NULL, out, 0, &err) < 0 ||
	    pl_out_close(out, &err) < 0)
		abort();
}

static int read_model(const struct pl_buf *from, struct pl_kernel_model **m,
		      struct pl_schema **schema, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("model", from->p, from->n, err);
	int rc = pl_kernel_model_read(in, m, schema, err);

	pl_in_close(in);
	return rc;
}

static void split(const struct pl_buf *file, struct blocks *to)
{
	const struct pl_container_reader_opts o = { .kind = PL_KIND_MODEL,
						    .major = PL_KERNEL_MODEL_MAJOR };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("model", file->p, file->n, &err);

	if (pl_container_reader_each(in, &o, "model", take_block, to, &err) < 0)
		abort();
	pl_in_close(in);
}

/* The blocks in this order, with right checksums. */
static void join(const struct blocks *x, const size_t *order, size_t n, struct pl_buf *to)
{
	const struct pl_container_writer_opts o = { .kind = PL_KIND_MODEL,
						    .major = PL_KERNEL_MODEL_MAJOR };
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(to, &err);
	struct pl_container_writer *w = pl_container_writer_open(out, &o, &err);

	for (size_t i = 0; i < n; i++) {
		const struct block *b = &x->v[order ? order[i] : i];
		struct pl_buf copy = { 0 };

		if (pl_buf_put(&copy, b->b.p, b->b.n, &err) < 0 ||
		    pl_container_writer_put(w, b->type, b->version, b->count, &copy, &err) < 0)
			abort();
		pl_buf_fini(&copy);
	}
	if (pl_container_writer_close(w, &err) < 0 || pl_out_close(out, &err) < 0)
		abort();
}

/* A small model of all that a file can hold: parts of names and of families, and an offset. */
static bool small(struct bench *b, struct blocks *to)
{
	static const char text[] = "paceline-schema 1\nlatency t unit=us\noperation op\n"
				   "device column=dev\nop * family=elementwise elements=n\n";
	struct pl_schema *schema = NULL;
	struct pl_err err = { 0 };
	struct pl_buf file = { 0 };
	bool good;

	begin(b);
	move(b, "base", PL_KERNEL_FLOAT16, 1, 130);
	move(b, "rare", PL_KERNEL_FLOAT16, 2, 20);
	multiply(b, "matmul", 130);
	good = ok(pl_schema_parse(text, "small", &schema, &err) == 0, "a schema %s", err.msg) &&
	       learn(b, true);
	if (good) {
		write_model(b->m, schema, &file);
		split(&file, to);
	}
	pl_schema_free(schema);
	pl_buf_fini(&file);
	return good;
}

static bool is_block(const struct block *b, const char *type)
{
	return b->type == PL_FOURCC(type[0], type[1], type[2], type[3]);
}

/* Names behind the offsets: how many offsets there are must not follow from the names. */
static void test_names_behind(struct blocks *x)
{
	size_t order[BLOCKS_MAX], n = 0;
	struct block *more = &x->v[x->n];
	struct pl_buf file = { 0 };
	struct pl_err err = { 0 };
	struct pl_kernel_model *m;
	struct pl_schema *schema;

	for (size_t i = 0; i < x->n; i++) {
		order[n++] = i;
		if (is_block(&x->v[i], "FEWS"))
			order[n++] = x->n;
		if (!is_block(&x->v[i], "OPER"))
			continue;
		*more = (struct block){ x->v[i].type, 1000, x->v[i].version, { 0 } };
		pl_io_put_varint(&more->b, x->v[i].count);
	}
	for (int i = 0; i < 1000; i++) {
		char name[16];
		int len = snprintf(name, sizeof(name), "more%d", i);

		pl_io_put_str(&more->b, name, (size_t)len);
	}
	ok(n == x->n + 1, "names behind the offsets");
	join(x, order, n, &file);
	says(read_model(&file, &m, &schema, &err), &err, "names of operations behind",
	     "are refused");
	pl_kernel_model_free(m);
	pl_schema_free(schema);
	pl_buf_fini(&more->b);
	pl_buf_fini(&file);
}

/* ---- damaged files --------------------------------------------------------------------------- */

#define DAMAGED 350

/* What the model answers, explains and writes, as long as it goes. The text may not say that a name
 * is missing. */
static bool use(const struct pl_kernel_model *m, const struct pl_schema *schema)
{
	static const char *const ops[] = { "base", "rare", "matmul", "never" };
	const struct pl_devices *sheets = pl_kernel_model_devices(m);
	struct pl_kernel_time t[32];
	struct pl_samples s = { 0 };
	struct pl_err err = { 0 };
	struct pl_buf text = { 0 }, file = { 0 };
	struct pl_out *out = pl_out_open_buf(&text, &err);
	struct pl_writer w;
	bool good = true;
	int rc;

	for (uint32_t i = 0; i < PL_LEN(t) && sheets->n; i++) {
		struct pl_kernel k = i % 4 == 2
					     ? (struct pl_kernel){ .family = PL_KERNEL_GEMM,
								   .type = PL_KERNEL_FLOAT16,
								   .dim = { 1, 64 * i, 512, 300 } }
					     : moved(1e4 * (i + 1), PL_KERNEL_FLOAT16);
		const struct pl_measure x = { .k = k,
					      .known = true,
					      .op = ops[i % 4],
					      .model = "",
					      .device = i / 4 % (uint32_t)sheets->n,
					      .ns = NAN };

		if (pl_samples_add(&s, &x, sheets, &err) < 0)
			abort();
	}
	pl_write_init(&w, out, 0);
	pl_kernel_explain_model(m, &w);
	rc = pl_kernel_apply(m, &s, s.v, s.n, t, &err);
	for (size_t i = 0; i < s.n && i < 8 && rc >= 0; i++)
		pl_kernel_explain(m, &s, &s.v[i], &t[i], &w);
	if (pl_write_end(&w, &err) < 0 || pl_out_close(out, &err) < 0)
		rc = err.code;
	good = (rc >= 0 || err.code == PL_EDATA) && !memmem(text.p, text.n, "(null)", 6);
	pl_write_fini(&w);
	write_model(m, schema, &file);
	pl_samples_fini(&s);
	pl_buf_fini(&text);
	pl_buf_fini(&file);
	return good;
}

static void damage(struct pl_buf *b, uint64_t *seed)
{
	static const double numbers[] = { INFINITY, -INFINITY, NAN, 1e308, -1e300, 5e-324 };
	int times = 1 + (int)(pl_rng_next(seed) % 3);

	for (int i = 0; i < times && b->n; i++) {
		/* half of the changes are in the first bytes, which have the counts */
		size_t among = pl_rng_next(seed) % 2 ? b->n : pl_min_size(b->n, 300);
		size_t at = (size_t)(pl_rng_next(seed) % among);

		switch (pl_rng_next(seed) % 5) {
		case 0:
			b->p[at] ^= (uint8_t)(1 << pl_rng_next(seed) % 8);
			break;
		case 1:
			b->p[at] = (uint8_t)pl_rng_next(seed);
			break;
		case 2:
			b->p[at] = 255;
			break;
		case 3:
			b->p[at] = 0;
			break;
		default:
			if (at + 8 <= b->n)
				memcpy(b->p + at, &numbers[pl_rng_next(seed) % PL_LEN(numbers)], 8);
			break;
		}
	}
}

/* Payloads that differ in a few bytes, with right checksums: they are refused, or work. */
static void test_damaged(struct blocks *x)
{
	size_t read = 0, refused = 0, good = 0;
	uint64_t seed = 11;

	for (int i = 0; i < DAMAGED; i++) {
		struct block *victim = &x->v[pl_rng_next(&seed) % x->n], whole = *victim;
		struct pl_kernel_model *m;
		struct pl_schema *schema;
		struct pl_buf file = { 0 };
		struct pl_err err = { 0 };
		int rc;

		victim->b = (struct pl_buf){ 0 };
		if (pl_buf_put(&victim->b, whole.b.p, whole.b.n, &err) < 0)
			abort();
		damage(&victim->b, &seed);
		victim->count +=
			pl_rng_next(&seed) % 20 ? 0 : (uint32_t)(pl_rng_next(&seed) % 3) - 1;
		join(x, NULL, x->n, &file);
		pl_buf_fini(&victim->b);
		*victim = whole;
		rc = read_model(&file, &m, &schema, &err);
		read += rc == 0;
		refused += rc == PL_EDATA && err.msg[0] && !m && !schema;
		good += rc == 0 && use(m, schema);
		pl_kernel_model_free(m);
		pl_schema_free(schema);
		pl_buf_fini(&file);
	}
	ok(read + refused == DAMAGED, "damaged models are refused, or read");
	ok(read > DAMAGED / 10 && refused > DAMAGED / 10, "both happens");
	ok(good == read, "what is read works");
	printf("# %zu read, %zu refused, %zu work\n", read, refused, good);
}

/* A split on a feature that the family does not have: its number is changed in the tree. */
static void test_features(struct blocks *x)
{
	size_t parts = 0, wrong = 0;

	for (size_t i = 0; i < x->n; i++) {
		struct pl_kernel_model *m;
		struct pl_schema *schema;
		struct pl_buf file = { 0 };
		struct pl_err err = { 0 };
		double gain = 3;

		/* the last eight bytes of a part are the gain of the last feature */
		if (!is_block(&x->v[i], "PART") || x->v[i].b.p[1] != PL_KERNEL_ELEMENTWISE)
			continue;
		parts++;
		memcpy(x->v[i].b.p + x->v[i].b.n - sizeof(gain), &gain, sizeof(gain));
		join(x, NULL, x->n, &file);
		wrong += read_model(&file, &m, &schema, &err) == PL_EDATA &&
			 strstr(err.msg, "the trees have other features");
		pl_kernel_model_free(m);
		pl_schema_free(schema);
		pl_buf_fini(&file);
		memset(x->v[i].b.p + x->v[i].b.n - sizeof(gain), 0, sizeof(gain));
	}
	ok(parts == 2 && wrong == parts, "a feature that the family does not have is refused");
}

int main(void)
{
	struct blocks x = { .n = 0 };
	struct bench b;

	test_types();
	test_floor();
	test_turns();
	test_ranges();
	test_outside();
	test_zero();
	if (small(&b, &x)) {
		test_names_behind(&x);
		test_features(&x);
		test_damaged(&x);
	}
	blocks_fini(&x);
	end(&b);
	return done_testing();
}
