/*
 * Schemas, and tables of measurements that are read by them.
 */
#include <math.h>

#include "kernel/samples.h"
#include "kernel_fixture.h"

/* ---- schemas --------------------------------------------------------------------------------- */

#define HEAD "paceline-schema 1\n"

static void test_schema(void)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "begins with a line: paceline-schema 1" },
		{ "latency ms\n", "begins with a line: paceline-schema 1" },
		{ "paceline-schema 2\n", "x: line 1" },
		{ HEAD, "x: there is no statement \"latency\"" },
		{ HEAD "latency t\nop a family=softmax rows=1 columns=1\n", "operation COLUMN" },
		{ HEAD "latency t*\n", "x: there is no statement \"op\"" },
		{ HEAD "latency t*\nlatency u*\n", "line 3" },
		{ HEAD "latency t* unit=h\n", "line 2" },
		{ HEAD "latency t* missing=no\n", "line 2" },
		{ HEAD "\n# c\nlatencies t*\n", "line 4" },
		{ HEAD "latency t*\ndevice\n", "line 3: write column=NAME or from=folder" },
		{ HEAD "device column=D from=folder\n",
		  "line 2: write column=NAME or from=folder" },
		{ HEAD "model from=row\n", "line 2" },
		{ HEAD "type float33\n", "line 2: there is no type \"float33\"" },
		{ HEAD "let x\n", "line 2" },
		{ HEAD "let x 1+\n", "line 2: \"1+\": it ends at byte 3" },
		{ HEAD "let x 1 when=(2\n", "line 2: \"(2\": \")\" is missing at byte 3" },
		{ HEAD "op a family=gem m=1\n", "line 2: there is no family \"gem\"" },
		{ HEAD "op a m=1\n", "line 2" },
		{ HEAD "op a family=gemm m=1 n=1\n", "line 2: gemm needs k=EXPRESSION" },
		{ HEAD "op a family=gemm m=1 n=1 k=1 type=f\n", "line 2: there is no type \"f\"" },
		{ HEAD "op a family=gemm m=1 n=1 k=1 rows=2\n",
		  "line 2: gemm has no dimension rows" },
		{ HEAD "op a family=gemm m=1 n=1 k=1*\n", "line 2: \"1*\": it ends at byte 3" },
		{ HEAD "op a family=gemm m=1 n=1 k=1 when=a<<1\n", "line 2: \"a<<1\"" },
	};
	static const char *const built_in[] = { "neusight", "vidur", "mist" };
	struct pl_schema *s;
	struct pl_err err = { 0 };

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		memset(&err, 0, sizeof(err));
		says(pl_schema_parse(cases[i].text, "x", &s, &err), &err, cases[i].says,
		     cases[i].says);
		ok(!s, "no schema");
	}
	memset(&err, 0, sizeof(err));
	for (size_t i = 0; i < PL_LEN(built_in); i++) {
		struct pl_schema *again;

		if (!ok(pl_schema_open(built_in[i], &s, &err) == 0, "%s %s", built_in[i], err.msg))
			continue;
		is_str(pl_schema_name(s), built_in[i], "its name");
		ok(pl_schema_is_long(s) == (i == 0), "%s", i ? "wide" : "long");
		ok(pl_schema_parse(pl_schema_text(s), "again", &again, &err) == 0 &&
			   !strcmp(pl_schema_text(s), pl_schema_text(again)),
		   "its text is a schema %s", err.msg);
		pl_schema_free(again);
		pl_schema_free(s);
	}
	ok(pl_schema_open("no/such/schema", &s, &err) == PL_EIO && !s &&
		   strstr(err.msg, "neusight, vidur, mist and run are built in"),
	   "what is built in");
	pl_schema_free(NULL);
	ok(pl_schema_unit("ns") == 1 && pl_schema_unit("us") == 1e3 &&
		   pl_schema_unit("ms") == 1e6 && pl_schema_unit("s") == 1e9 &&
		   pl_schema_unit("h") == 0 && pl_schema_unit(NULL) == 0,
	   "units");
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* What a table says, a line for each operation: op model device family dims ns, place. */
struct heard {
	struct pl_devices devices;
	struct pl_samples samples;
	struct pl_buf text;
	struct pl_err err;
	char warning[256];
	size_t header;
};

static int on_header(void *arg, const struct pl_csv_row *raw, struct pl_err *err)
{
	struct heard *h = arg;

	(void)err;
	h->header = raw->n;
	return 0;
}

static int on_measure(void *arg, const struct pl_measure *m, const struct pl_csv_row *raw,
		      struct pl_err *err)
{
	struct heard *h = arg;

	(void)raw;
	PL_CHECK(pl_buf_printf(&h->text, err, "%s", m->op));
	if (*m->model)
		PL_CHECK(pl_buf_printf(&h->text, err, " of %s", m->model));
	PL_CHECK(pl_buf_printf(&h->text, err, " on %s:", h->devices.v[m->device].name));
	if (m->known) {
		double otherwise;

		PL_CHECK(pl_buf_printf(&h->text, err, " %s %s", pl_kernel_type_word(m->k.type),
				       pl_kernel_family_word(m->k.family)));
		for (unsigned i = 0; pl_kernel_dim(m->k.family, i, &otherwise); i++)
			PL_CHECK(pl_buf_printf(&h->text, err, " %g", m->k.dim[i]));
	}
	if (m->tile.a)
		PL_CHECK(pl_buf_printf(&h->text, err, " tile %ux%u", m->tile.a, m->tile.b));
	PL_CHECK(pl_buf_printf(&h->text, err, " = %g (%lld, %lld, %u)\n", m->ns, (long long)m->line,
			       (long long)m->row, m->column));
	return pl_samples_add(&h->samples, m, &h->devices, err);
}

static void on_warning(void *arg, enum pl_level level, const char *text)
{
	struct heard *h = arg;

	(void)level;
	snprintf(h->warning, sizeof(h->warning), "%s", text);
}

/* Reads the table as the schema says. *o: more options. */
static int hear(struct heard *h, const char *schema, const char *name, const char *table,
		struct pl_measure_opts o)
{
	const struct pl_log log = { on_warning, h };
	struct pl_schema *s = NULL;
	struct pl_in *in;
	int rc;

	*h = (struct heard){ 0 };
	rc = strchr(schema, '\n') ? pl_schema_parse(schema, "s", &s, &h->err)
				  : pl_schema_open(schema, &s, &h->err);
	in = pl_in_open_mem(name, table, strlen(table), &h->err);
	if (rc < 0 || !in || add(&h->devices, "a40", a100, &h->err) < 0 ||
	    add(&h->devices, "b50", a100, &h->err) < 0) {
		ok(false, "%s", h->err.msg);
		pl_in_close(in);
		return PL_EINTERNAL;
	}
	h->devices.v[1].title = h->devices.v[1].name;
	o.schema = s;
	o.devices = &h->devices;
	o.log = &log;
	o.arg = h;
	o.header = on_header;
	o.measure = on_measure;
	rc = pl_table_read(in, &o, &h->err);
	pl_in_close(in);
	pl_schema_free(s);
	if (pl_buf_put(&h->text, "", 1, &h->err) < 0)
		ok(false, "memory");
	return rc;
}

static void heard_fini(struct heard *h)
{
	pl_device_fini(&h->devices);
	pl_samples_fini(&h->samples);
	pl_buf_fini(&h->text);
}

static void reads(const char *schema, const char *name, const char *table, struct pl_measure_opts o,
		  const char *want, const char *warning, const char *what)
{
	struct heard h = { 0 };
	int rc = hear(&h, schema, name, table, o);

	ok(rc == 0, "%s %s", what, h.err.msg);
	is_str((const char *)h.text.p, want, what);
	is_str(h.warning, warning, "what it warns of");
	heard_fini(&h);
}

static void refuses(const char *schema, const char *name, const char *table,
		    struct pl_measure_opts o, const char *text, const char *what)
{
	struct heard h = { 0 };

	says(hear(&h, schema, name, table, o), &h.err, text, what);
	heard_fini(&h);
}

static const char long_schema[] = HEAD "latency time unit=us missing=1e9\n"
				       "operation op\n"
				       "device column=gpu\n"
				       "model column=net\n"
				       "kernel \"kernel name\"\n"
				       "type float32\n"
				       "let area w*w when=w>0\n"
				       "op mm family=gemm batch=2 m=a n=b k=a*b type=half\n"
				       "op \"add|mul\" family=elementwise elements=area inputs=2\n"
				       "op sub family=elementwise elements=a when=a>5\n"
				       "op sub family=elementwise elements=b as=small\n"
				       "op big family=softmax rows=h columns=1\n";

#define LONG "op,gpu,a,b,w,time,kernel name\n"

static void test_long(void)
{
	const struct pl_measure_opts plain = { 0 }, measured = { .measured = true };
	struct heard h = { 0 };

	reads(long_schema, "d/t.csv",
	      LONG "mm,a40,3,4,,2.5,ampere_sgemm_128x64_tn\n"
		   "add,b50,,,10,1e3,\n"
		   "\n"
		   "sub,a40,6,7,,1,k\n"
		   "sub,A40,5,7,,1,k\n"
		   "what,a40,,,,9,\n"
		   "mul,a40,0,0,3,\"1\",\n",
	      measured,
	      "mm on a40: float16 gemm 2 3 4 12 tile 128x64 = 2500 (2, 1, 6)\n"
	      "add on b50: float32 elementwise 100 2 1 0 = 1e+06 (3, 2, 6)\n"
	      "sub on a40: float32 elementwise 6 1 1 0 = 1000 (5, 3, 6)\n"
	      "small on a40: float32 elementwise 7 1 1 0 = 1000 (6, 4, 6)\n"
	      "what on a40: = 9000 (7, 5, 6)\n"
	      "mul on a40: float32 elementwise 9 2 1 0 = 1000 (8, 6, 6)\n",
	      "", "a long table");
	reads(long_schema, "t.csv", LONG "mm,a40,1,1,,2e9,\nmm,a40,1,1,,7,\nmm,a40,1,1,,1e9,\n",
	      measured, "mm on a40: float16 gemm 2 1 1 1 = 7000 (3, 2, 6)\n",
	      "t.csv: 2 operations were not measured, and are left out", "what was not measured");
	reads(long_schema, "t.csv", LONG "mm,a40,1,1,,2e9,\nmm,a40,1,1,,,\nmm,a40,1,1,,-1,\n",
	      plain,
	      "mm on a40: float16 gemm 2 1 1 1 = nan (2, 1, 6)\n"
	      "mm on a40: float16 gemm 2 1 1 1 = nan (3, 2, 6)\n"
	      "mm on a40: float16 gemm 2 1 1 1 = nan (4, 3, 6)\n",
	      "", "latencies do not matter");
	reads(long_schema, "t.csv", "gpu,op,a,b\na40,mm,1,2\n", plain,
	      "mm on a40: float16 gemm 2 1 2 2 = nan (2, 1, 0)\n", "", "nor their column");
	reads(long_schema, "t.csv", "op,a,b,time,net\nmm,1,2,3,gpt\n",
	      (struct pl_measure_opts){ .device = "b50", .unit_ns = 1e9 },
	      "mm of gpt on b50: float16 gemm 2 1 2 2 = 3e+09 (2, 1, 4)\n", "",
	      "another device and unit");

	if (ok(hear(&h, long_schema, "t.csv",
		    LONG "mm,a40,1,1,,2,\nmm,b50,1,1,,3,\nwhat,b50,1,1,,4,\n", measured) == 0,
	       "samples %s", h.err.msg)) {
		const struct pl_samples *s = &h.samples;

		is_i64((long long)h.header, 7, "the header has 7 columns");
		ok(s->n == 3 && s->devices.n == 2 && s->op.n == 2, "3 samples of 2 operations");
		ok(s->n == 3 && s->v[0].ns == 2000 && s->v[1].device == 1 && s->v[2].device == 1 &&
			   s->v[1].known && !s->v[2].known &&
			   !strcmp(pl_intern_get(&s->op, s->v[2].k.op), "what") &&
			   !strcmp(s->devices.v[1].name, "b50"),
		   "as the table says");
	}
	heard_fini(&h);
}

static void test_long_errors(void)
{
	const struct pl_measure_opts plain = { 0 }, measured = { .measured = true };
	static const struct {
		const char *table, *says;
	} cases[] = {
		{ "", "t.csv: the table is empty" },
		{ "gpu,time\na40,1\n",
		  "t.csv: line 1: there is no column \"op\", from which the schema s takes" },
		{ "op,time\nmm,1\n",
		  "there is no column \"gpu\", from which the schema s takes the device" },
		{ "op,gpu\nmm,a40\n",
		  "there is no column \"time\", from which the schema s takes the lat" },
		{ LONG "mm,a40,1,1,,,\n",
		  "t.csv: line 2, column 6 (time): the latency is missing" },
		{ LONG "mm,a40,1,1,,1,\nmm,a40,1,1,,fast,\n",
		  "line 3, column 6 (time): a latency must be a number above 0, not \"fast\"" },
		{ LONG "mm,a40,1,1,,0,\n", "line 2, column 6 (time): a latency must be" },
		{ LONG "mm,a40,1,1,,-3,\n", "line 2, column 6 (time): a latency must be" },
		{ LONG "mm,a40,1,1,,nan,\n", "line 2, column 6 (time): a latency must be" },
		{ LONG "mm,a40,1\n", "t.csv: line 2: 3 cells, and the header has 7" },
		{ LONG "mm,a40,1,1,,1,,8\n", "t.csv: line 2: 8 cells, and the header has 7" },
		{ LONG "mm,c60,1,1,,1,\n",
		  "line 2, column 2 (gpu): there is no data sheet of \"c60\"; there are a40, b50" },
		{ LONG "mm,a40,0,1,,1,\n",
		  "line 2, column 3 (a): operation \"mm\": m of gemm is 0, and must be above 0" },
		{ LONG "mm,a40,1,,,1,\n",
		  "line 2, column 4 (b): the cell is empty, and operation \"mm\" needs a number" },
		{ LONG "mm,a40,1,1,,1,\nmm,a40,2.5,1,,1,\n",
		  "line 3, column 3 (a): operation \"mm\": m of gemm must be whole; the "
		  "cell holds \"2.5\"" },
		{ LONG "add,a40,1,1,-1,1,\n",
		  "line 2, column 5 (w): operation \"add\": elements of elementwise is not known" },
		{ LONG "add,a40,1,1,3,1,\nadd,a40,1,1,-1,1,\n",
		  "line 3, column 5 (w): operation \"add\": elements of elementwise is not known" },
		{ LONG "big,a40,1,1,1,1,\n",
		  "operation \"big\": there is no column or variable \"h\"" },
		{ "op,gpu,time,time\nmm,a40,1,2\n",
		  "t.csv: line 1, column 4 (time): an earlier column has the same name" },
		{ "op,gpu,a,b,c,time,b\nmm,a40,2,3,4,1,5\n",
		  "t.csv: line 1, column 7 (b): an earlier column has the same name" },
		{ "op,gpu,time\nadd,a40,1\n",
		  "line 2: operation \"add\": \"w>0\": there is no column or variable \"w\"" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++)
		refuses(long_schema, "t.csv", cases[i].table, measured, cases[i].says,
			cases[i].says);
	refuses(long_schema, "t.csv", LONG "mm,a40,1\n", plain, "line 2: 3 cells", "not measured");
}

/* A variable that several statements may set: the last one counts whose condition is true, and
 * nobody knows that of a condition without its column. */
static void test_lets(void)
{
	static const char schema[] = HEAD "latency t unit=us\n"
					  "operation op\n"
					  "device column=dev\n"
					  "let w 100\n"
					  "let w width when=wide\n"
					  "op x family=elementwise elements=w*n\n"
					  "op y family=elementwise elements=n\n";
	static const char always[] = HEAD "latency t unit=us\n"
					  "operation op\n"
					  "device column=dev\n"
					  "let w width when=wide\n"
					  "let w 100\n"
					  "op x family=elementwise elements=w*n\n";
	static const char word[] = HEAD "latency t unit=us\n"
					"operation op\n"
					"device column=dev\n"
					"let w 1\n"
					"let w width when=wide\n"
					"op x family=elementwise elements=n when=w=1\n";
	const struct pl_measure_opts plain = { 0 };

	reads(schema, "t.csv", "op,dev,n,width,wide\nx,a40,3,50,1\nx,a40,3,50,0\n", plain,
	      "x on a40: float32 elementwise 150 1 1 0 = nan (2, 1, 0)\n"
	      "x on a40: float32 elementwise 300 1 1 0 = nan (3, 2, 0)\n",
	      "", "the last statement whose condition is true");
	refuses(schema, "t.csv", "op,dev,n,width\nx,a40,3,50\n", plain,
		"operation \"x\": there is no column or variable \"wide\"",
		"a condition whose column the table lacks");
	refuses(schema, "t.csv", "op,dev,n,wide\nx,a40,3,1\n", plain,
		"operation \"x\": there is no column or variable \"width\"",
		"a value whose column it lacks");
	refuses(word, "t.csv", "op,dev,n,width\nx,a40,3,50\n", plain,
		"operation \"x\": there is no column or variable \"wide\"",
		"... in a condition of a word");
	reads(schema, "t.csv", "op,dev,n\ny,a40,3\n", plain,
	      "y on a40: float32 elementwise 3 1 1 0 = nan (2, 1, 0)\n", "",
	      "an operation that does not need it may occur");
	reads(always, "t.csv", "op,dev,n\nx,a40,3\n", plain,
	      "x on a40: float32 elementwise 300 1 1 0 = nan (2, 1, 0)\n", "",
	      "a statement behind that always counts");
}

#define AGAIN                                                                                      \
	HEAD "latency t unit=us\n"                                                                 \
	     "operation op\n"                                                                      \
	     "device column=dev\n"

/* A variable may be set from itself: the expression has what stands above it. */
static void test_lets_again(void)
{
	static const char schema[] = AGAIN "let w width\n"
					   "let w w/ranks\n"
					   "op x family=gemm m=n n=w k=1\n";
	const struct pl_measure_opts plain = { 0 };
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	int rc = pl_buf_printf(&b, &err, "%slet a0 n\n", AGAIN);

	reads(schema, "t.csv", "op,dev,n,width,ranks\nx,a40,3,5,2\n", plain,
	      "x on a40: float32 gemm 1 3 2.5 1 = nan (2, 1, 0)\n", "", "a variable set twice");
	refuses(schema, "t.csv", "op,dev,n,width,ranks\nx,a40,3,2.5,1\n", plain,
		"line 2, column 4 (width): operation \"x\": n of gemm must be whole; the cell "
		"holds \"2.5\"",
		"... that is not whole");
	refuses(schema, "t.csv", "op,dev,n,width,ranks\nx,a40,3,0,2\n", plain,
		"line 2, column 4 (width): operation \"x\": n of gemm is 0, and must be above 0; "
		"the cell holds \"0\"",
		"... and no size");
	/* each variable has the one above it twice */
	for (int i = 1; i <= 60 && rc >= 0; i++)
		rc = pl_buf_printf(&b, &err, "let a%d a%d+a%d\n", i, i - 1, i - 1);
	rc = rc < 0 ? rc : pl_buf_printf(&b, &err, "op x family=elementwise elements=a60-a60\n");
	rc = rc < 0 ? rc : pl_buf_put(&b, "", 1, &err);
	if (ok(rc == 0, "a long schema %s", err.msg))
		refuses((const char *)b.p, "t.csv", "op,dev,n\nx,a40,3\n", plain,
			"t.csv: line 2: operation \"x\": elements of elementwise is 0",
			"a chain of variables");
	pl_buf_fini(&b);
}

/* "NAME=WORD" in conditions. */
static void test_words(void)
{
	const struct pl_measure_opts plain = { 0 };

	reads(AGAIN "op x family=elementwise elements=n when=\"'two words'=4\"\n"
		    "op x family=elementwise elements=2*n when=\"'a=b'==3\"\n",
	      "t.csv", "op,dev,n,two words,a=b\nx,a40,3,4,5\nx,a40,3,5,3\nx,a40,3,5,5\n", plain,
	      "x on a40: float32 elementwise 3 1 1 0 = nan (2, 1, 0)\n"
	      "x on a40: float32 elementwise 6 1 1 0 = nan (3, 2, 0)\n"
	      "x on a40: = nan (4, 3, 0)\n",
	      "", "names between quotes");
	refuses(AGAIN "let tp ranks\nop x family=elementwise elements=n when=tp=2\n", "t.csv",
		"op,dev,n,ranks\nx,a40,3,2\n", plain,
		"line 2: operation \"x\": \"tp=2\" compares a text, and the variable tp is a "
		"number; write tp==NUMBER",
		"a number has no text");
	refuses(AGAIN "let tp ranks\nlet w n when=tp=2\nop x family=elementwise elements=w\n",
		"t.csv", "op,dev,n,ranks\nx,a40,3,2\n", plain,
		"operation \"x\": \"tp=2\" compares a text", "... in the condition of a variable");
}

static void test_many_columns(void)
{
	static const char schema[] = HEAD "latency t.*\n"
					  "device from=folder\n"
					  "op a family=softmax rows=n columns=1\n";
	const struct pl_measure_opts plain = { 0 };
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	int rc = pl_buf_printf(&b, &err, "n");

	for (int i = 0; i < 20000 && rc >= 0; i++)
		rc = pl_buf_printf(&b, &err, ",t.x%d", i);
	rc = rc < 0 ? rc : pl_buf_put(&b, "\n", 2, &err);
	if (!ok(rc == 0, "a wide table %s", err.msg))
		return;
	reads(schema, "a40/t.csv", (const char *)b.p, plain, "", "", "20,000 columns");
	b.n -= 2;
	rc = pl_buf_put(&b, ",t.x7,m,m\n", sizeof(",t.x7,m,m\n"), &err);
	if (ok(rc == 0, "memory"))
		refuses(schema, "a40/t.csv", (const char *)b.p, plain,
			"line 1, column 20002 (t.x7): an earlier column has the same name",
			"one of them twice");
	pl_buf_fini(&b);
}

static void test_wide(void)
{
	static const char schema[] = HEAD "latency t.*.ms\n"
					  "device from=folder\n"
					  "model from=file\n"
					  "file net_{size}_tp{tp}*\n"
					  "type bf16\n"
					  "let h 64 when=size=small\n"
					  "let h 128 when=size=large\n"
					  "op proj family=gemm m=n n=h/tp k=h\n"
					  "op norm* family=norm rows=n columns=h\n";
	const struct pl_measure_opts measured = { .measured = true }, plain = { 0 };

	reads(schema, "x/a40/net_large_tp2_v3.csv.gz",
	      "n,t.proj.ms,other,t.norm1.ms,t.new.ms\n8,1,z,2,3\n4,0.5,,,\n", measured,
	      "proj of net_large_tp2_v3 on a40: bfloat16 gemm 1 8 64 128 = 1e+06 (2, 1, 2)\n"
	      "norm1 of net_large_tp2_v3 on a40: bfloat16 norm 8 128 = 2e+06 (2, 1, 4)\n"
	      "new of net_large_tp2_v3 on a40: = 3e+06 (2, 1, 5)\n"
	      "proj of net_large_tp2_v3 on a40: bfloat16 gemm 1 4 64 128 = 500000 (3, 2, 2)\n",
	      "", "a wide table");
	reads(schema, "b50/net_small_tp4.csv", "n,t.proj.ms\n8,\n", plain,
	      "proj of net_small_tp4 on b50: bfloat16 gemm 1 8 16 64 = nan (2, 1, 2)\n", "",
	      "without latencies");
	reads(schema, "b50/net_small_tp3.csv", "n,t.proj.ms\n8,\n", plain,
	      "proj of net_small_tp3 on b50: bfloat16 gemm 1 8 21.3333 64 = nan (2, 1, 2)\n", "",
	      "a quotient of whole numbers");
	refuses(schema, "a40/net_small_tp4.csv", "n,t.proj.ms\n8.5,1\n", plain,
		"line 2, column 1 (n): operation \"proj\": m of gemm must be whole",
		"a fraction of a row");
	refuses(schema, "a40/net_small_tp4.csv", "n,time\n8,1\n", plain,
		"there is no column \"t.*.ms\", from which the schema s takes the operations; in "
		"queries its cells may be empty",
		"no operation");
	refuses(schema, "a40/net_small_tp4.csv", "n,t.proj.ms,t.norm.ms\n8,1,2\n8,3,x\n", measured,
		"a40/net_small_tp4.csv: line 3, column 3 (t.norm.ms): a latency must be",
		"the column is named");
	refuses(schema, "a40/other.csv", "n,t.proj.ms\n8,1\n", measured,
		"there is no column or variable \"size\"", "a name of no pattern");
	refuses(schema, "a40/net_medium_tp1.csv", "n,t.proj.ms\n8,1\n", measured,
		"line 2: operation \"proj\": n of gemm is not known", "a word of no condition");
	refuses(schema, "net_small_tp1.csv", "n,t.proj.ms\n8,1\n", measured,
		"line 2: the table does not say on which device", "no folder");
	refuses(HEAD "latency t.*\nop a family=softmax rows=1 columns=1\n", "t.csv", "t.a\n1\n",
		measured, "--device=NAME", "no device");
	/* the example of paceline-schema(5) */
	reads(HEAD "latency *_us unit=us\n"
		   "device from=folder\n"
		   "model from=file\n"
		   "type float16\n"
		   "file net_{size}_tp{tp}\n"
		   "let width 1024 when=size=small\n"
		   "let width 4096 when=size=large\n"
		   "op proj family=gemm m=tokens n=width/tp k=width\n"
		   "op norm family=norm rows=tokens columns=width\n",
	      "a40/net_large_tp2.csv",
	      "tokens,proj_us,norm_us\n128,21.5,4.25\n256,36,6.5\n512,,11\n", measured,
	      "proj of net_large_tp2 on a40: float16 gemm 1 128 2048 4096 = 21500 (2, 1, 2)\n"
	      "norm of net_large_tp2 on a40: float16 norm 128 4096 = 4250 (2, 1, 3)\n"
	      "proj of net_large_tp2 on a40: float16 gemm 1 256 2048 4096 = 36000 (3, 2, 2)\n"
	      "norm of net_large_tp2 on a40: float16 norm 256 4096 = 6500 (3, 2, 3)\n"
	      "norm of net_large_tp2 on a40: float16 norm 512 4096 = 11000 (4, 3, 3)\n",
	      "", "the example");
	reads(schema, "x/a40//net_small_tp4.csv", "n,t.proj.ms\n8,\n", plain,
	      "proj of net_small_tp4 on a40: bfloat16 gemm 1 8 16 64 = nan (2, 1, 2)\n", "",
	      "two slashes behind the folder");
	/* a row of several operations, each with several latencies */
	reads(HEAD "latency *_us unit=us\noperation op\n"
		   "op \"*:fw\" family=softmax rows=r columns=2\n",
	      "t.csv", "op,r,fw_us,bw_us\nsm,3,5,6\n",
	      (struct pl_measure_opts){ .measured = true, .device = "a40" },
	      "sm:fw on a40: float32 softmax 3 2 = 5000 (2, 1, 3)\n"
	      "sm:bw on a40: = 6000 (2, 1, 4)\n",
	      "", "an operation with two latencies");
#define TEN	"0123456789"
#define LENGTHY TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
	reads(HEAD "latency *_us unit=us\noperation op\nop * family=softmax rows=r columns=2\n",
	      "t.csv", "op,r,fw_us\n" LENGTHY "a,3,5\n" LENGTHY "b,3,6\n",
	      (struct pl_measure_opts){ .measured = true, .device = "a40" },
	      LENGTHY "a:fw on a40: float32 softmax 3 2 = 5000 (2, 1, 3)\n" LENGTHY
		      "b:fw on a40: float32 softmax 3 2 = 6000 (3, 2, 3)\n",
	      "", "long names");
}

/* Variables of the names of files: "x" and "y" are what the pattern takes. */
static void test_names(void)
{
	static const struct {
		const char *patterns, *name, *want; /* NULL: it does not fit */
	} cases[] = {
		{ "file t{x}_{y}", "t12_7.csv", "12 7" },
		{ "file t{x}_{y}", "d.e/t12_7.csv.gz", "12 7" },
		{ "file t{x}_{y}", "t12_7", "12 7" },
		{ "file t{x}_{y}", "s12_7.csv", NULL },
		{ "file t{x}_{y}", "t12.csv", NULL },
		{ "file t{x}_{y}", "t_7.csv", NULL },
		{ "file t{x}_{y}", "t12_.csv", NULL },
		{ "file t{x}_{y}b", "t1_7.csv", NULL },
		{ "file t{x}_{y}b", "t1_7b.csv", "1 7" },
		{ "file t{x}_{y}5", "t1_75.csv", NULL },
		{ "file {x}-mbs{y}*", "5-mbs16_v3.csv", "5 16" },
		{ "file *_{x}_*{y}", "a_b_3_zz4.csv", NULL },
		{ "file {x}*_{y}", "31b_c_8.csv", NULL },
		{ "file *-{x}-*-{y}", "a-3-zz-4.csv", "3 4" },
		{ "file {x}{y}", "3.5.csv", "3 0.5" },
		{ "file q{x}_{y}\nfile r{x}_{y}\nfile r{y}", "r5_6.csv", "5 6" },
		{ "file r{x}_{y}.{x}\nfile r{y}_{x}", "r5_6.csv", "6 5" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		char schema[512], want[128];

		snprintf(schema, sizeof(schema),
			 HEAD "latency t*\n%s\nop a family=softmax rows=x columns=y\n",
			 cases[i].patterns);
		if (!cases[i].want) {
			refuses(schema, cases[i].name, "ta\n1\n",
				(struct pl_measure_opts){ .device = "a40" },
				"operation \"a\": ", cases[i].name);
			continue;
		}
		snprintf(want, sizeof(want), "a on a40: float32 softmax %s = 1e+06 (2, 1, 1)\n",
			 cases[i].want);
		reads(schema, cases[i].name, "ta\n1\n", (struct pl_measure_opts){ .device = "a40" },
		      want, "", cases[i].name);
	}
}

static void test_built_in(void)
{
	const struct pl_measure_opts measured = { .measured = true };

	reads("neusight", "linear.csv",
	      "OPName,Device,B,M,N,K,Latency,Kernel Name\n"
	      "linear,NVIDIA A100-PCIE-40GB,1,16,32,64,0.5,volta_sgemm_32x128_tn\n",
	      measured, "linear on a40: float32 gemm 1 16 64 32 tile 32x128 = 500000 (2, 1, 7)\n",
	      "", "neusight: K are the columns");
	reads("vidur", "p/a40/phi.csv",
	      "time_stats.attn_pre_proj.median,time_stats.attn_pre_proj.max,time_stats.mlp_act."
	      "median,n_embd,n_head,n_kv_head,n_expanded_embd,num_tokens,use_gated_mlp,"
	      "num_tensor_parallel_workers\n"
	      "0.25,9,0.5,512,8,2,2048,10,True,2\n",
	      measured,
	      "attn_pre_proj of phi on a40: float16 gemm 1 10 384 512 = 250000 (2, 1, 1)\n"
	      "mlp_act of phi on a40: float16 elementwise 10240 2 1 0 = 500000 (2, 1, 3)\n",
	      "", "vidur");
	reads("mist", "gpt_1_3B_mbs2_tp1_algo0.csv",
	      "op_name,forward-compute,backward-compute,weights\nenc-MLP-GEMM-1,7,1e9,2\n",
	      (struct pl_measure_opts){ .measured = true, .device = "b50" },
	      "enc-MLP-GEMM-1:forward of gpt_1_3B_mbs2_tp1_algo0 on b50: "
	      "float16 gemm 1 4096 8192 2048 = 7000 (2, 1, 2)\n",
	      "gpt_1_3B_mbs2_tp1_algo0.csv: 1 operations were not measured, and are left out",
	      "mist");
}

static void test_tiles(void)
{
	static const struct {
		const char *name;
		struct pl_tile want;
	} cases[] = {
		{ "ampere_sgemm_128x64_tn", { 128, 64, 0 } },
		{ "volta_sgemm_32x32_sliced1x4_tn", { 32, 32, 1 } },
		{ "cutlass_80_simt_sgemm_256x128_8x4_nn_align1", { 256, 128, 0 } },
		{ "sliced1x4_volta_64x32", { 64, 32, 1 } },
		{ "sm80_xmma_gemm_f32_tilesize128x128x8_stage3", { 128, 128, 0 } },
		{ "gemm_1128x64", { 0, 0, 0 } },
		{ "gemm_96x64", { 0, 0, 0 } },
		{ "gemm_1024x64", { 0, 0, 0 } },
		{ "gemm_8x8", { 0, 0, 0 } },
		{ "gemm_128x", { 0, 0, 0 } },
		{ "gemm_128X64", { 0, 0, 0 } },
		{ "99999999999999999999x64", { 0, 0, 0 } },
		{ "elementwise_kernel", { 0, 0, 0 } },
		{ "", { 0, 0, 0 } },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_tile t = pl_tiles_from_name(cases[i].name), w = cases[i].want;

		ok(t.a == w.a && t.b == w.b && t.sliced == w.sliced, "\"%s\": %ux%u%s",
		   cases[i].name, t.a, t.b, t.sliced ? " sliced" : "");
	}
}

int main(void)
{
	test_schema();
	test_long();
	test_long_errors();
	test_lets();
	test_lets_again();
	test_words();
	test_many_columns();
	test_wide();
	test_names();
	test_built_in();
	test_tiles();
	return done_testing();
}
