/*
 * Tensor programs: text, errors, generated programs against formulas, the vectors of leaves.
 */
#include <math.h>
#include <stdlib.h>

#include "tap.h"
#include "tprog/internal.h"

#define HEAD "paceline-tprog 1\n"

static struct pl_tprog_reader *open_text(const char *text, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("x", text, strlen(text), err);
	struct pl_tprog_reader *r = NULL;

	if (in && pl_tprog_reader_new(in, &r, err) < 0)
		r = NULL;
	pl_in_close(in);
	return r;
}

/* The first program of a text; its code. */
static int read_text(const char *text, struct pl_tprog *p, struct pl_err *err)
{
	struct pl_tprog_reader *r = open_text(text, err);
	int rc = r ? pl_tprog_next(r, p, err) : err->code;

	pl_tprog_reader_free(r);
	return rc;
}

static char *text_of(const struct pl_tprog *p)
{
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_tprog_write_header(&w);
	pl_tprog_write(p, &w);
	ok(pl_write_end(&w, &err) == 0 && pl_buf_put(&b, "", 1, &err) == 0, "written");
	pl_write_fini(&w);
	if (pl_out_close(out, &err) < 0)
		printf("# %s\n", err.msg);
	return (char *)b.p;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char tiled[] =
	HEAD "program tiled model=none op=dense\n"
	     "buffer A float32 4 6\n"
	     "buffer B float32 6 8\n"
	     "buffer bias float32 8\n"
	     "buffer C float32 4 8\n"
	     "for i 4 parallel\n"
	     "  for j.0 2\n"
	     "    alloc acc float32 4\n"
	     "      for j.1 4 vectorize\n"
	     "        acc[j.1] = 0.0\n"
	     "      end\n"
	     "      for k 6 reduce\n"
	     "        for j.1 4 unroll\n"
	     "          acc[j.1] += A[i, k] * B[k, j.0 * 4 + j.1]\n"
	     "        end\n"
	     "      end\n"
	     "      for j.1 4\n"
	     "        C[i, j.0 * 4 + j.1] = max(acc[j.1] + bias[j.0 * 4 + j.1], 0.0)\n"
	     "      end\n"
	     "    end\n"
	     "  end\n"
	     "end\n"
	     "measured this 1200 least=1100 runs=5\n";

static void test_text(void)
{
	struct pl_tprog p = { .name = NULL }, more = { .name = NULL };
	struct pl_err err = { 0 };
	struct pl_tprog_reader *r;
	char *text, both[2 * sizeof(tiled)];

	if (!ok(read_text(tiled, &p, &err) == 1, "a program %s", err.msg))
		return;
	is_str(p.name, "tiled", "its name");
	is_str(p.model, "none", "its model");
	is_str(p.op, "dense", "its operation");
	is_i64((long long)p.n_nodes, 10, "loops, buffers and stores");
	is_i64((long long)p.n_buffers, 5, "buffers");
	is_i64((long long)p.n_measured, 1, "measurements");
	is_i64((long long)p.measured[0].least, 1100, "the least time");
	text = text_of(&p);
	is_str(text, tiled, "the same text");
	pl_free(text);
	is_i64((long long)pl_tprog_flops(&p), 4 * 8 * 6 * 2 + 4 * 8 * 2, "its operations");
	pl_tprog_fini(&p);

	snprintf(both, sizeof(both), "%s# more\n\n%s", tiled, tiled + strlen(HEAD));
	r = open_text(both, &err);
	ok(r && pl_tprog_next(r, &p, &err) == 1 && pl_tprog_next(r, &more, &err) == 1,
	   "two programs %s", err.msg);
	is_i64(more.line, 27, "the line of the second");
	pl_tprog_fini(&more);
	ok(r && pl_tprog_next(r, &more, &err) == 0, "no third");
	pl_tprog_fini(&p);
	pl_tprog_reader_free(r);
	ok(read_text("paceline-tprog 1 # of points\nprogram .a\nbuffer .A float32 4 2\nfor .i 4\n"
		     ".A[.i, 0] = .5 * .A[.i, .i / 2] + .i\nend\n",
		     &p, &err) == 1 &&
		   pl_tprog_check(&p, &err) == 0,
	   "names begin with a point %s", err.msg);
	pl_tprog_fini(&p);
}

/* Times need not be whole, and may be below one. */
static void test_times(void)
{
	static const char times[] =
		HEAD "program a\n"
		     "buffer A float32 2\n"
		     "A[0] = 1.0\n"
		     "measured gpu 0.4 least=0.25 runs=3\n"
		     "measured this 123456789.015625 least=0.1 runs=1\n"
		     "measured old 999999999999999 least=100000000000000 runs=2\n";
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	char *text;

	if (!ok(read_text(times, &p, &err) == 1, "times with fractions %s", err.msg))
		return;
	text = text_of(&p);
	is_str(text, times, "... are written as they were read");
	pl_free(text);
	pl_tprog_fini(&p);
}

static void test_errors(void)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "x: an empty file" },
		{ "tprog 1\n", "line 1, column 1: \"paceline-tprog\" should be here" },
		{ "paceline-tprog 2\n", "version 2; this program reads 1" },
		{ "paceline-tprog 1.2\nprogram a\n", "line 1, column 17: nothing more" },
		{ HEAD "program a\nfor .5 2\n", "the name of a loop" },
		{ HEAD "for i 4\n", "line 2, column 1: \"program\" should be here" },
		{ HEAD "program 1a\n", "the name of a program" },
		{ HEAD "program a b\n", "line 2, column 11: nothing more" },
		{ HEAD "program a\n", "the program \"a\" computes nothing" },
		{ HEAD "program a\nbuffer A float32\n", "the dimensions of the buffer" },
		{ HEAD "program a\nbuffer A float64 2\n", "\"float32\" should be here" },
		{ HEAD "program a\nbuffer A float32 0\n", "line 3, column 18: a dimension" },
		{ HEAD "program a\nbuffer A float32 2000000000 2000000000\n", "more than" },
		{ HEAD "program a\nbuffer A float32 2000000000 30 2000000000\n", "more than" },
		{ HEAD "program a\nbuffer A float32 2\nfor i 2\nbuffer B float32 2\n",
		  "parameters stand before the first loop" },
		{ HEAD "program a\nfor i 0\n", "the number of iterations" },
		{ HEAD "program a\nfor i 2 fast\n", "nothing more should be here" },
		{ HEAD "program a\nfor i 2 reduce parallel\n",
		  "a loop that sums up is not parallel" },
		{ HEAD "program a\nend\n", "no loop is open here" },
		{ HEAD "program a\nbuffer A float32 2\nfor i 2\nA[i] = 1.0\n", "has no \"end\"" },
		{ HEAD "program a\nfor i 2\nA[i] = 1.0\nend\n", "no statement or buffer \"A\"" },
		{ HEAD "program a\nbuffer A float32 2\nA[i] = 1.0\n", "there is no loop \"i\"" },
		{ HEAD "program a\nbuffer A float32 2\nA[0, 1] = 1.0\n", "\"]\" should be here" },
		{ HEAD "program a\nbuffer A float32 2\nA[0.5] = 1.0\n", "an index is of loops" },
		{ HEAD "program a\nbuffer A float32 2\nA[0x1p-1] = 1.0\n",
		  "line 4, column 3: a number, a loop or a buffer" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = 0x10\n",
		  "line 4, column 8: a number, a loop or a buffer" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = 1.0\nmeasured d 0x10\n",
		  "a time in ns" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] 1.0\n", "\"=\" should be here" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = \n", "a number, a loop or a buffer" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = sin(1.0)\n", "no function \"sin\"" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = max(1.0)\n", "\",\" should be here" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = 1.0 % 2\n", "is of whole numbers" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = B[0]\n", "no buffer \"B\" here" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = select(A[0], 1.0, 2.0)\n",
		  "a condition is of loops" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = 1.0\nmeasured d -1\n",
		  "a time in ns" },
		{ HEAD "program a\nbuffer A float32 2\nA[0] = 1.0\nmeasured d 5 least=6\n",
		  "not above the median" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_tprog p = { .name = NULL };
		struct pl_err err = { 0 };
		int rc = read_text(cases[i].text, &p, &err);

		ok(rc == PL_EDATA && strstr(err.msg, cases[i].says), "%s", cases[i].says);
		if (!strstr(err.msg, cases[i].says))
			printf("# %d \"%s\"\n", rc, err.msg);
		pl_tprog_fini(&p);
	}
}

/* An expression of a program is written as it was read, and the other one in C. */
static void written(const char *text, const char *in_c)
{
	struct pl_tprog p = { .name = NULL }, again = { .name = NULL };
	struct pl_err err = { 0 };
	char whole[256], *once, *twice;
	struct pl_buf b = { 0 };
	struct pl_writer w;
	struct pl_out *out = pl_out_open_buf(&b, &err);

	snprintf(whole, sizeof(whole),
		 HEAD "program a\nbuffer A float32 64\nfor i 8\n  for j 8\n    A[i] = %s\n"
		      "  end\nend\n",
		 text);
	if (!ok(read_text(whole, &p, &err) == 1, "%s %s", text, err.msg))
		return;
	once = text_of(&p);
	ok(strstr(once, text) && read_text(once, &again, &err) == 1, "... is written, and read");
	twice = text_of(&again);
	is_str(twice, once, "... the same again");
	for (size_t i = 0; i < p.n_exprs && i < again.n_exprs; i++)
		if (p.expr[i].number != again.expr[i].number ||
		    p.expr[i].integer != again.expr[i].integer)
			ok(false, "... with the same numbers");
	pl_write_init(&w, out, 0);
	pl_tprog_write_c(&p, "f", &w);
	ok(pl_write_end(&w, &err) == 0 && pl_buf_put(&b, "", 1, &err) == 0 &&
		   strstr((const char *)b.p, in_c),
	   "... in C: %s", in_c);
	pl_write_fini(&w);
	if (pl_out_close(out, &err) < 0)
		abort();
	pl_buf_fini(&b);
	pl_free(once);
	pl_free(twice);
	pl_tprog_fini(&p);
	pl_tprog_fini(&again);
}

static void test_exact(void)
{
	written("123456789.5", " = 123456789.5f;");
	written("A[j] / 3.0", "] / 3.0f;");
	written("0.1", " = 0.1f;");
	written("0.30000000000000004", " = 0.30000000000000004f;");
	written("1e+299", " = 1e+299f;");
	written("123456789012.0", " = 123456789012.0f;");
	written("select(i == j < 4, 1.0, 0.0)", " = ((i_i_0 == i_j_1) < 4 ? 1.0f : 0.0f);");
	written("select(i < 4 & j == 2, 1.0, 0.0)", " = (i_i_0 < 4 & i_j_1 == 2 ? 1.0f : 0.0f);");
	written("A[max(i, j < 4)]", "(i_i_0 > (i_j_1 < 4) ? i_i_0 : i_j_1 < 4)");
	written("A[min(i == 2, j + 1)]", "((i_i_0 == 2) < i_j_1 + 1 ? i_i_0 == 2 : i_j_1 + 1)");
}

/* What is written twice, such as the operands of max, is not written twice on each level. */
static void test_nested(void)
{
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	struct pl_buf text = { 0 }, b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;
	int rc = pl_buf_printf(&text, &err, HEAD "program a\nbuffer A float32 8\nA[0] = ");

	for (int i = 0; i < 20 && rc >= 0; i++)
		rc = pl_buf_printf(&text, &err, i % 2 ? "max(" : "min(");
	if (rc >= 0)
		rc = pl_buf_printf(&text, &err, "A[1]");
	for (int i = 0; i < 20 && rc >= 0; i++)
		rc = pl_buf_printf(&text, &err, ", A[%d])", i % 8);
	if (rc >= 0)
		rc = pl_buf_put(&text, "\n", 2, &err);
	ok(rc >= 0 && read_text((const char *)text.p, &p, &err) == 1, "twenty max and min %s",
	   err.msg);
	pl_write_init(&w, out, 0);
	pl_tprog_write_c(&p, "f", &w);
	ok(pl_write_end(&w, &err) == 0 && b.n > 200 && b.n < 4000, "... are %zu bytes of C", b.n);
	pl_write_fini(&w);
	if (pl_out_close(out, &err) < 0)
		abort();
	pl_buf_fini(&text);
	pl_buf_fini(&b);
	pl_tprog_fini(&p);
}

/* Arrays of threads that no stack has room for are of the heap; those of others are static. */
static void test_storage(void)
{
	static const char text[] = HEAD "program a\n"
					"buffer A float32 4\n"
					"alloc fixed float32 16385\n"
					"  for i 4 parallel\n"
					"    alloc large float32 262145\n"
					"      alloc most float32 262143\n"
					"        alloc one float32 1\n"
					"          alloc more float32 1\n"
					"            A[i] = 1.0\n"
					"          end\n"
					"        end\n"
					"      end\n"
					"    end\n"
					"  end\n"
					"end\n";
	static const char *const has[] = {
		"{ static float b_fixed_1[16385] ",
		"{ float *restrict b_large_2 = aligned_alloc(64, 1048640);",
		"{ float b_most_3[262143] ",
		"{ float b_one_4[1] ",
		"{ float *restrict b_more_5 = aligned_alloc(64, 64);",
		"free(b_more_5);\n            }\n          }\n        }\n",
		"free(b_large_2);\n"
	};
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	ok(read_text(text, &p, &err) == 1, "arrays in threads %s", err.msg);
	pl_write_init(&w, out, 0);
	pl_tprog_write_c(&p, "f", &w);
	ok(pl_write_end(&w, &err) == 0 && pl_buf_put(&b, "", 1, &err) == 0, "... in C");
	for (size_t i = 0; i < PL_LEN(has); i++)
		if (!ok(strstr((const char *)b.p, has[i]) != NULL, "%.40s", has[i]))
			printf("# %s\n", (const char *)b.p);
	pl_write_fini(&w);
	if (pl_out_close(out, &err) < 0)
		abort();
	pl_buf_fini(&b);
	pl_tprog_fini(&p);
}

/* ---- programs that are carried out ----------------------------------------------------------- */

#define MOST 4096 /* numbers of a buffer in these tests */

struct data {
	float v[6][MOST];
	float *buffer[6];
};

static struct data *new_data(void)
{
	struct data *d = pl_malloc(sizeof(*d));

	for (int i = 0; i < 6; i++) {
		d->buffer[i] = d->v[i];
		for (int k = 0; k < MOST; k++)
			d->v[i][k] = (float)((i * 31 + k * 17) % 23) / 11 - 1;
	}
	return d;
}

static void test_run(void)
{
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	struct data *d = new_data();
	double worst = 0;

	if (!ok(read_text(tiled, &p, &err) == 1 && pl_tprog_run(&p, d->buffer, &err) == 0,
		"a program runs %s", err.msg))
		goto out;
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 8; j++) {
			float sum = 0;

			for (int k = 0; k < 6; k++)
				sum += d->v[0][i * 6 + k] * d->v[1][k * 8 + j];
			worst = fmax(worst, fabs(fmaxf(sum + d->v[2][j], 0) - d->v[3][i * 8 + j]));
		}
	ok(worst < 1e-5, "it computes what it says: %g", worst);
	pl_tprog_fini(&p);
	ok(read_text(HEAD "program a\nbuffer A float32 4\nfor i 4\nA[i + 1] = 1.0\nend\n", &p,
		     &err) == 1 &&
		   pl_tprog_run(&p, d->buffer, &err) == PL_EDATA &&
		   strstr(err.msg, "index 1 of A is 4, and there are 4"),
	   "an index outside is an error %s", err.msg);
	pl_tprog_fini(&p);
	memset(&err, 0, sizeof(err));
	ok(read_text(HEAD
		     "program a\nbuffer A float32 4\nfor i 4\n"
		     "A[(i + 4000000000000000) * 4000000000000000 * 4000000000000000] = 1.0\nend\n",
		     &p, &err) == 1 &&
		   pl_tprog_run(&p, d->buffer, &err) == PL_EDATA &&
		   strstr(err.msg, "and there are 4"),
	   "so is one that no number has: %s", err.msg);
out:
	pl_tprog_fini(&p);
	pl_free(d);
}

/* Which programs may be compiled and run: indices are inside, as ranges or iterations show. */
static void test_bounds(void)
{
	static const struct {
		const char *lines, *says;
	} cases[] = {
		{ "for i 8\nA[i] = 1.0\nend\n", NULL },
		{ "for i 9\nA[i] = 1.0\nend\n", "index 1 of A is 8, and there are 8" },
		{ "for i 8\nA[i - 1] = 1.0\nend\n", "index 1 of A is -1, and there are 8" },
		{ "for i 8\nA[max(i - 1, 0)] = A[min(i + 1, 7)]\nend\n", NULL },
		{ "for i 2147483648\nA[i / 268435456] = A[i % 8]\nend\n", NULL },
		{ "for i 2147483648\nA[(i * 3 + 5) % 8] = 1.0\nend\n", NULL },
		{ "for i 2147483648\nA[i / 268435455] = 1.0\nend\n",
		  "index 1 of A may be 0 to 8, and there are 8 (0 to 7); max and min" },
		{ "for i 4\nfor j 2\nA[i * 2 + j] = B[i * 4 + j * 2, j]\nend\nend\n",
		  "index 1 of B is 4, and there are 4" },
		{ "for i 8\nA[i] = select(0 < i, A[i - 1], 0.0)\nend\n", NULL },
		{ "for i 8\nA[i] = select(0 < i, A[i - 2], 0.0)\nend\n", "index 1 of A is -1" },
		{ "for i 7\nA[i / 2 * 2 + i % 2] = 1.0\nend\n", NULL },
		{ "for i 2147483648\nfor j 8\nA[j] = select(j < 7, A[j + 1], 0.0)\nend\nend\n",
		  NULL },
		{ "for i 8\nA[i] = 4 / i\nend\n", "a whole number is divided by 0" },
		{ "for i 8\nA[i] = 4 % (i - 3)\nend\n", "a whole number is divided by 0" },
		{ "for i 8\nA[i] = select(i == 0, 1, 4 / i)\nend\n", NULL },
		{ "for i 8\nA[i] = 4.0 / i\nend\n", NULL },
		{ "for i 8\nA[i * 4000000000000000 * 4000000000000000 % 8] = 1.0\nend\n",
		  "an index is beyond all numbers" },
		{ "for i 8\nA[i] = B[0, 2]\nend\n", "index 2 of B is 2, and there are 2" },
		{ "alloc t float32 4\nfor i 4\nt[i] = A[i + 4]\nend\nA[0] = t[4]\nend\n",
		  "index 1 of t is 4, and there are 4" },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_tprog p = { .name = NULL };
		struct pl_err err = { 0 };
		char text[512];

		snprintf(text, sizeof(text),
			 HEAD "program a\nbuffer B float32 4 2\nbuffer A float32 8\n%s",
			 cases[i].lines);
		if (ok(read_text(text, &p, &err) == 1, "a program %s", err.msg))
			ok(cases[i].says ? pl_tprog_check(&p, &err) == PL_EDATA &&
						   strstr(err.msg, cases[i].says) &&
						   strstr(err.msg, "which line 2 begins")
					 : pl_tprog_check(&p, &err) == 0,
			   "%s: %s", cases[i].says ? cases[i].says : "inside", err.msg);
		pl_tprog_fini(&p);
	}
}

/* ---- generated programs ---------------------------------------------------------------------- */

static const char tasks_text[] = "paceline-tasks 1\n"
				 "model small\n"
				 "dense m=8 n=12 k=6 then=relu\n"
				 "dense m=5 n=7 k=3\n"
				 "bmm batch=3 m=4 n=6 k=8 then=bias\n"
				 "conv in=3 out=4 size=6 kernel=3 stride=1 pad=1 then=gelu\n"
				 "conv in=2 out=4 size=7 kernel=3 stride=2\n"
				 "depthwise channels=4 size=6 kernel=3 stride=2 pad=1 then=relu\n"
				 "pool channels=4 size=8 kernel=2 stride=2\n"
				 "softmax rows=6 columns=12\n"
				 "layernorm rows=4 columns=16\n"
				 "chain elements=96 length=4\n";

static int make(const struct pl_tprog_task *t, uint64_t seed, struct pl_tprog *p,
		struct pl_err *err)
{
	struct pl_buf text = { 0 };
	int rc = pl_buf_printf(&text, err, HEAD "program p model=%s op=%s\n", t->model,
			       pl_tprog_task_op(t));

	if (rc >= 0)
		rc = pl_tprog_generate(t, seed, &text, err);
	if (rc >= 0)
		rc = pl_buf_put(&text, "", 1, err);
	if (rc >= 0)
		rc = read_text((const char *)text.p, p, err);
	pl_buf_fini(&text);
	return rc;
}

static size_t last_buffer(const struct pl_tprog *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_buffers; i++)
		n += p->buffer[i].node == PL_NONE;
	return n - 1;
}

/* All schedules of an operation compute the same. */
static void test_schedules(const struct pl_tprog_task *t)
{
	struct data *right = new_data(), *d = new_data();
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	double worst = 0, flops = 0;
	size_t out, differ = 0;
	uint64_t seed;

	if (!ok(make(t, 0, &p, &err) == 1 && pl_tprog_run(&p, right->buffer, &err) == 0,
		"%s without a schedule %s", pl_tprog_task_op(t), err.msg))
		goto out;
	out = last_buffer(&p);
	flops = pl_tprog_flops(&p);
	for (seed = 1; seed <= CASES(60) && !err.code; seed++) {
		struct pl_tprog q = { .name = NULL };

		if (make(t, seed, &q, &err) == 1 && pl_tprog_check(&q, &err) == 0 &&
		    pl_tprog_run(&q, d->buffer, &err) == 0)
			for (int64_t i = 0; i < p.buffer[out].n; i++)
				worst = fmax(worst, fabs(d->v[out][i] - right->v[out][i]));
		differ += q.n_nodes != p.n_nodes;
		pl_tprog_fini(&q);
	}
	ok(!err.code && worst < 1e-4, "%s: schedules compute the same: %g %s", pl_tprog_task_op(t),
	   worst, err.msg);
	ok(differ > CASES(8) && flops > 0, "... and %zu differ", differ);
out:
	pl_tprog_fini(&p);
	pl_free(right);
	pl_free(d);
}

static void test_formulas(const struct pl_tprog_tasks *tasks)
{
	struct data *d = new_data(), *before = new_data();
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	double worst = 0;

	/* convolution, stride 1, padding 1, and gelu behind it */
	if (!ok(make(&tasks->v[3], 7, &p, &err) == 1 && pl_tprog_run(&p, d->buffer, &err) == 0,
		"a convolution %s", err.msg))
		goto out;
	for (int o = 0; o < 4; o++)
		for (int y = 0; y < 6; y++)
			for (int x = 0; x < 6; x++) {
				float sum = 0;

				for (int c = 0; c < 3; c++)
					for (int r = 0; r < 9; r++) {
						int h = y + r / 3 - 1, w = x + r % 3 - 1;

						if (h >= 0 && h < 6 && w >= 0 && w < 6)
							sum += before->v[0][(c * 6 + h) * 6 + w] *
							       before->v[1][(o * 3 + c) * 9 + r];
					}
				sum += before->v[2][o];
				sum = 0.5F * sum * (1 + erff(sum * 0.70710678F));
				worst = fmax(worst, fabs(sum - d->v[3][(o * 6 + y) * 6 + x]));
			}
	ok(worst < 1e-4, "it is one: %g", worst);
	pl_tprog_fini(&p);
	if (!ok(make(&tasks->v[7], 3, &p, &err) == 1 && pl_tprog_run(&p, d->buffer, &err) == 0,
		"a softmax %s", err.msg))
		goto out;
	worst = 0;
	for (int r = 0; r < 6; r++) {
		double sum = 0;

		for (int c = 0; c < 12; c++)
			sum += d->v[1][r * 12 + c];
		worst = fmax(worst, fabs(sum - 1));
	}
	ok(worst < 1e-5, "its rows sum up to 1: %g", worst);
out:
	pl_tprog_fini(&p);
	pl_free(d);
	pl_free(before);
}

static void test_tasks(void)
{
	struct pl_tprog_tasks tasks = { .n = 0 };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("tasks", tasks_text, strlen(tasks_text), &err);
	static const char bad[] = "conv in=1 out=1 size=3 kernel=5\n";

	if (ok(in && pl_tprog_tasks_read(in, &tasks, &err) == 0 && tasks.n == 10, "tasks %s",
	       err.msg)) {
		is_str(tasks.v[0].model, "small", "their model");
		for (size_t i = 0; i < tasks.n; i++)
			test_schedules(&tasks.v[i]);
		test_formulas(&tasks);
	}
	pl_in_close(in);
	pl_tprog_tasks_fini(&tasks);
	in = pl_in_open_mem("tasks", bad, strlen(bad), &err);
	ok(in && pl_tprog_tasks_read(in, &tasks, &err) == PL_EDATA &&
		   strstr(err.msg, "the kernel is larger than the image"),
	   "a kernel fits into its image: %s", err.msg);
	pl_in_close(in);
	pl_tprog_tasks_fini(&tasks);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static void near(double got, double want, const char *what)
{
	if (!ok(fabs(got - want) < 1e-4, "%s", what))
		printf("# got %g, want %g\n", got, want);
}

/* Half of a line is written by one thread, and half by the other. */
static void test_contended(void)
{
	static const char text[] = HEAD "program shared model=none op=copy\n"
					"buffer A float32 8 16\n"
					"buffer C float32 8 16\n"
					"for j 16 parallel\n"
					"  for i 8\n"
					"    C[i, j] = A[i, j]\n"
					"  end\n"
					"end\n";
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	struct pl_tprog_leaf *leaf = NULL;
	size_t n = 0;

	if (ok(read_text(text, &p, &err) == 1 && pl_tprog_leaves(&p, &leaf, &n, &err) == 0,
	       "columns for each thread %s", err.msg))
		near(leaf[0].x[PL_TPROG_CDMPP + 42], log2(0.5 + PL_TPROG_LEAST_RATE),
		     "... whose writes meet in lines, on two threads at a time");
	pl_free(leaf);
	pl_tprog_fini(&p);
}

static void test_leaves(void)
{
	struct pl_tprog p = { .name = NULL };
	struct pl_err err = { 0 };
	struct pl_tprog_leaf *leaf = NULL;
	const float *own;
	size_t n = 0;
	bool finite = true;

	if (!ok(read_text(tiled, &p, &err) == 1 && pl_tprog_leaves(&p, &leaf, &n, &err) == 0,
		"leaves %s", err.msg))
		goto out;
	is_i64((long long)n, 3, "one for each store");
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < PL_TPROG_FEATURES; k++)
			finite &= isfinite(leaf[i].x[k]);
	ok(finite, "all numbers are finite");
	is_i64(leaf[0].place, 4, "the first store is the fifth node");
	/* i j.0 acc j.1 store . . k j.1 store */
	is_i64(leaf[1].place, 9, "marks count, too");
	near(leaf[1].x[0], log2(4 * 8 * 6 + 1), "multiplications with additions");
	near(leaf[0].x[16], log2(1 + 1), "one vectorised loop");
	near(leaf[0].x[18], log2(4 + 1), "of four iterations");
	near(leaf[1].x[16], 0, "none around the second");
	near(leaf[1].x[27], log2(1 + 1), "but one that is unrolled");
	near(leaf[1].x[38], log2(1 + 1), "and one that is parallel");
	near(leaf[1].x[161], log2(4 * 8 * 6 + 1), "iterations");
	near(leaf[1].x[162], log2(4 + 1), "loops");
	near(leaf[1].x[157], log2(4 * 4 + 1), "the allocation of its buffer in bytes");
	near(leaf[1].x[159], log2(4 * 2 + 1), "the loops around that");
	own = leaf[1].x + PL_TPROG_CDMPP;
	near(own[0], 2, "the innermost loop has four iterations");
	near(own[3] * 8 + own[2] * 4 + own[1] * 2, 8,
	     "... unrolled, and neither vectorised nor summed up");
	near(own[4], log2(6), "the second one six");
	near(own[5], 1, "... which are summed up");
	near(own[15], log2(1 + 1), "the next sum is stored behind the one before");
	near(own[16], 0, "... and again there for the next k");
	/* acc[j.1] += A[i, k] * B[k, j]: A stays in a register, and acc and B are read */
	near(own[30], log2(2.25 + PL_TPROG_LEAST_RATE), "reads for an iteration");
	near(own[31], log2(1 + PL_TPROG_LEAST_RATE), "writes");
	ok(own[32] >= own[33] && own[33] >= own[36], "larger caches are loaded with less");
	near(own[42], log2(PL_TPROG_LEAST_RATE), "no thread writes where another one does");
	near(own[46], log2(1 + 1), "no chain of sums");
	near(own[47], log2(4 + 1), "each of four sums waits for the other three");
	near(own[48], log2(4 + 1), "four iterations are parallel");
	near(own[49], 1, "... two on each of two threads");
	near(own[50], log2(1 + 1), "... in one loop");
	near(leaf[2].x[PL_TPROG_CDMPP + 42], log2(PL_TPROG_LEAST_RATE),
	     "two rows of the result are a line");
	near(leaf[2].x[PL_TPROG_CDMPP + 47], -1, "nothing is summed up at the end");
out:
	pl_free(leaf);
	pl_tprog_fini(&p);
}

int main(void)
{
	test_text();
	test_times();
	test_errors();
	test_exact();
	test_nested();
	test_storage();
	test_run();
	test_bounds();
	test_tasks();
	test_leaves();
	test_contended();
	return done_testing();
}
