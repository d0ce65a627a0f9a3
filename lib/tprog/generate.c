/*
 * Tensor programs of the operations of models, by random schedules.
 *
 * The decisions are those of Ansor (OSDI 2020): every dimension of the result is divided into three
 * loops and every dimension that is summed up into two, of extents that divide it; sums are kept in
 * a small buffer or in the result; what follows on each number happens there or in a pass of its
 * own; a padded image is copied first or tested; loops are parallel, vectorised and unrolled.
 * Operations on rows keep the values of a row in it or in buffers of the whole.
 */
#include "tprog/internal.h"

enum task { T_MODEL, T_DENSE, T_BMM, T_CONV, T_DEPTHWISE, T_POOL, T_SOFTMAX, T_LAYERNORM, T_CHAIN };

#define SIZE(i, key, what)                                                                         \
	PL_LANG_FIELD(key, INT, PL_LANG_KEY | PL_LANG_NEED | PL_LANG_BOUND, what, .min = 1,        \
		      .max = 1 << 24, .offset = offsetof(struct pl_tprog_task, size[i]))
#define USUAL(i, key, least, usual, what)                                                          \
	PL_LANG_FIELD(key, INT, PL_LANG_KEY | PL_LANG_BOUND, what, .min = least, .max = 1 << 24,   \
		      .value = usual, .offset = offsetof(struct pl_tprog_task, size[i]))
#define CHAIN_MOST 8
#define THEN                                                                                       \
	PL_LANG_FIELD("then", CHOICE, PL_LANG_KEY | PL_LANG_BOUND,                                 \
		      "what follows on each number of the result",                                 \
		      .choices = "nothing|bias|relu|gelu", .value = "nothing",                     \
		      .offset = offsetof(struct pl_tprog_task, then))

static const struct pl_lang_row rows[] = {
	[T_MODEL] = { PL_LANG_ROW("model", STRUCTURE, "the operations below are of this model",
				  PL_LANG_FIELD("name", NAME, PL_LANG_NEED, "its name")) },
	[T_DENSE] = { PL_LANG_ROW("dense", STRUCTURE, "a product of matrices m x k and k x n",
				  SIZE(0, "m", "rows"), SIZE(1, "n", "columns"),
				  SIZE(2, "k", "summed up"), THEN) },
	[T_BMM] = { PL_LANG_ROW("bmm", STRUCTURE, "so many products", SIZE(0, "batch", "products"),
				SIZE(1, "m", "rows"), SIZE(2, "n", "columns"),
				SIZE(3, "k", "summed up"), THEN) },
	[T_CONV] = { PL_LANG_ROW("conv", STRUCTURE, "a convolution of one image",
				 SIZE(0, "in", "channels of the image"),
				 SIZE(1, "out", "channels of the result"),
				 SIZE(2, "size", "height and width of the image"),
				 SIZE(3, "kernel", "height and width of the filter"),
				 USUAL(4, "stride", 1, "1", "of the filter"),
				 USUAL(5, "pad", 0, "0", "zeros around the image"), THEN) },
	[T_DEPTHWISE] = { PL_LANG_ROW("depthwise", STRUCTURE, "a convolution of each channel",
				      SIZE(0, "channels", "of the image"),
				      SIZE(2, "size", "height and width of the image"),
				      SIZE(3, "kernel", "height and width of the filter"),
				      USUAL(4, "stride", 1, "1", "of the filter"),
				      USUAL(5, "pad", 0, "0", "zeros around the image"), THEN) },
	[T_POOL] = { PL_LANG_ROW("pool", STRUCTURE, "the greatest number of each window",
				 SIZE(0, "channels", "of the image"),
				 SIZE(2, "size", "height and width of the image"),
				 SIZE(3, "kernel", "height and width of the window"),
				 USUAL(4, "stride", 1, "1", "of the window")) },
	[T_SOFTMAX] = { PL_LANG_ROW("softmax", STRUCTURE, "shares of each row",
				    SIZE(0, "rows", "rows"), SIZE(1, "columns", "columns")) },
	[T_LAYERNORM] = { PL_LANG_ROW("layernorm", STRUCTURE, "each row, normalised",
				      SIZE(0, "rows", "rows"), SIZE(1, "columns", "columns")) },
	[T_CHAIN] = { PL_LANG_ROW(
		"chain", STRUCTURE, "an operation on each number after another",
		SIZE(0, "elements", "numbers"),
		PL_LANG_FIELD("length", INT, PL_LANG_KEY | PL_LANG_NEED | PL_LANG_BOUND,
			      "operations, in turn add, mul, tanh, relu", .min = 1,
			      .max = CHAIN_MOST,
			      .offset = offsetof(struct pl_tprog_task, size[1]))) },
};
const struct pl_lang_schema pl_tprog_tasks_schema = {
	.name = "tasks", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

void pl_tprog_tasks_fini(struct pl_tprog_tasks *t)
{
	pl_free(t->v);
	pl_arena_fini(&t->arena);
	memset(t, 0, sizeof(*t));
}

static int check_task(const struct pl_lang_reader *r, const struct pl_tprog_task *t,
		      struct pl_err *err)
{
	if (t->row >= T_CONV && t->row <= T_POOL && t->size[3] > t->size[2] + 2 * t->size[5])
		return pl_lang_fail(r, 0, err, "the kernel is larger than the image");
	return 0;
}

int pl_tprog_tasks_read(struct pl_in *in, struct pl_tprog_tasks *t, struct pl_err *err)
{
	struct pl_lang_reader r;
	const char *model = "";
	int rc;

	PL_TRY(pl_lang_open(&r, &pl_tprog_tasks_schema, in, pl_in_name(in), err));
	while ((rc = pl_lang_next(&r, err)) > 0) {
		struct pl_tprog_task x = { .row = (uint32_t)(r.st.row - rows), .then = "" };

		if (x.row == T_MODEL) {
			const char *name = pl_lang_get(&r.st, "name")->s;

			model = pl_arena_dup(&t->arena, name, strlen(name));
			PL_TRY(model ? 0 : pl_fail(err, PL_ENOMEM, "out of memory"));
			continue;
		}
		x.model = model;
		pl_lang_defaults(r.st.row, NULL, &x);
		PL_TRY(pl_lang_bind(&r.st, &x, &t->arena, err));
		PL_TRY(check_task(&r, &x, err));
		PL_TRY(pl_append(&t->v, &t->n, &t->cap, &x, sizeof(x), err));
	}
	if (rc == 0 && !t->n)
		rc = pl_fail(err, PL_EDATA, "%s: no operation in this file", pl_in_name(in));
out:
	pl_lang_close(&r);
	return rc;
}

/* ---- loops ----------------------------------------------------------------------------------- */

#define AXES  6
#define PARTS 3

struct axis {
	char name;
	bool reduce;
	int64_t extent, part[PARTS]; /* the outermost first; 1: there is no such loop */
};
struct nest {
	struct pl_tprog_lines at;
	uint64_t rng;
	bool plain;    /* no schedule */
	bool parallel; /* the next loop is */
	struct axis axis[AXES];
	int n;
};

static bool chance(struct nest *t, double p)
{
	return !t->plain && (double)(pl_rng_next(&t->rng) >> 11) * 0x1p-53 < p;
}

static uint32_t pick(struct nest *t, uint32_t n)
{
	return t->plain ? 0 : (uint32_t)(pl_rng_next(&t->rng) % n);
}

/* A divisor of n up to `most`, any as likely as another. */
static int64_t divisor(struct nest *t, int64_t n, int64_t most)
{
	int64_t v[128] = { 1 };
	uint32_t k = 0;

	for (int64_t d = 1; d <= most && d <= n && k < PL_LEN(v); d++)
		if (n % d == 0)
			v[k++] = d;
	return v[pick(t, k)];
}

static void open_for(struct nest *t, const char *name, int64_t extent, bool reduce,
		     const char *bind)
{
	if (t->parallel && !reduce)
		bind = "parallel";
	t->parallel = false;
	pl_tprog_line(&t->at, "for %s %lld%s%s%s", name, (long long)extent, reduce ? " reduce" : "",
		      *bind ? " " : "", bind);
	t->at.depth++;
}

static void add_axis(struct nest *t, char name, int64_t extent, bool reduce)
{
	t->axis[t->n++] = (struct axis){
		.name = name, .reduce = reduce, .extent = extent, .part = { 1, 1, 1 }
	};
}

static void divide(struct nest *t)
{
	for (int i = 0; i < t->n; i++) {
		struct axis *a = &t->axis[i];

		a->part[2] = t->plain ? a->extent : divisor(t, a->extent, 64);
		a->part[1] = divisor(t, a->extent / a->part[2], 64);
		a->part[0] = a->extent / a->part[2] / a->part[1];
		if (a->reduce) { /* two loops */
			a->part[1] *= a->part[0];
			a->part[0] = 1;
		}
	}
}

/* The index of an axis: "i0 * 32 + i1 * 8 + i2". */
static size_t put_index(const struct axis *a, char *out, size_t size)
{
	int64_t inside = 1;
	size_t n = 0;

	for (int p = 0; p < PARTS; p++)
		inside *= a->part[p];
	for (int p = 0; p < PARTS && n < size; p++) {
		inside /= a->part[p];
		if (a->part[p] == 1)
			continue;
		n += (size_t)snprintf(out + n, size - n, "%s%c%d", n ? " + " : "", a->name, p);
		if (inside > 1 && n < size)
			n += (size_t)snprintf(out + n, size - n, " * %lld", (long long)inside);
	}
	if (!n)
		n = (size_t)snprintf(out, size, "0");
	return n < size ? n : size - 1;
}

/* A text in which "{i}" stands for the index of axis i, and "@" for `value`. */
static const char *expand(const struct nest *t, const char *text, const char *value, char *out,
			  size_t size)
{
	size_t n = 0;

	for (const char *s = text; *s && n + 1 < size; s++) {
		if (*s == '@') {
			n += (size_t)snprintf(out + n, size - n, "%s", value);
			n = pl_min_size(n, size - 1);
		} else if (*s == '{') {
			for (int i = 0; i < t->n; i++)
				if (t->axis[i].name == s[1]) {
					out[n++] = '(';
					n += put_index(&t->axis[i], out + n, size - n - 1);
					out[n++] = ')';
				}
			s += 2;
		} else {
			out[n++] = *s;
		}
	}
	out[n] = '\0';
	return out;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct sum {
	const char *result; /* "C[{i}, {j}]" */
	const char *value;  /* of which sums, or the greatest, are taken */
	const char *begin, *update;
	const char *then; /* of the sum "@"; NULL: it is the result */
};

/* The loops of one part of the axes that are summed up, or not; the last one with `bind`. */
static void open_part(struct nest *t, int part, bool reduce, uint32_t first, const char *bind)
{
	int last = -1;

	for (int i = 0; i < t->n; i++)
		if (t->axis[i].reduce == reduce && t->axis[i].part[part] > 1)
			last = i;
	for (int k = 0; k < t->n; k++) {
		/* the innermost parts stay in their order, so that memory is used in its own */
		int i = part == 2 ? k : (int)((first + (uint32_t)k) % (uint32_t)t->n);
		const struct axis *a = &t->axis[i];
		char name[8];

		if (a->reduce != reduce || a->part[part] == 1)
			continue;
		snprintf(name, sizeof(name), "%c%d", a->name, part);
		open_for(t, name, a->part[part], reduce, i == last && part == 2 ? bind : "");
	}
}

/* The sum is kept here: "acc[i2, j2]", with the dimensions of the innermost parts. */
static void keep_sum(struct nest *t, char *name, size_t size)
{
	char dims[128] = "";
	size_t n = 0, k = (size_t)snprintf(name, size, "acc[");

	for (int i = 0; i < t->n; i++) {
		const struct axis *a = &t->axis[i];

		if (a->reduce)
			continue;
		n += (size_t)snprintf(dims + n, sizeof(dims) - n, " %lld", (long long)a->part[2]);
		if (a->part[2] > 1)
			k += (size_t)snprintf(name + k, size - k, "%s%c2",
					      name[k - 1] == '[' ? "" : ", ", a->name);
		else
			k += (size_t)snprintf(name + k, size - k, "%s0",
					      name[k - 1] == '[' ? "" : ", ");
	}
	snprintf(name + k, size - k, "]");
	pl_tprog_line(&t->at, "alloc acc float32%s", dims);
	t->at.depth++;
}

static void put_sum(struct nest *t, const struct sum *s)
{
	bool keep = chance(t, 0.6), outside = chance(t, 0.7);
	const char *bind = chance(t, 0.8) ? "vectorize" : "";
	uint32_t first[2] = { pick(t, (uint32_t)t->n), pick(t, (uint32_t)t->n) };
	char result[512], value[1024], sum[512];
	int base = t->at.depth, inside;

	divide(t);
	t->parallel = chance(t, 0.8);
	open_part(t, 0, false, first[0], "");
	open_part(t, 1, false, first[1], "");
	t->parallel = false;
	expand(t, s->result, "", result, sizeof(result));
	expand(t, s->value, "", value, sizeof(value));
	snprintf(sum, sizeof(sum), "%s", result);
	if (keep)
		keep_sum(t, sum, sizeof(sum));
	inside = t->at.depth;
	open_part(t, 2, false, 0, bind);
	pl_tprog_line(&t->at, "%s = %s", sum, s->begin);
	pl_tprog_close_lines(&t->at, inside);
	open_part(t, 1, true, 0, "");
	if (outside)
		open_part(t, 2, true, 0, "");
	open_part(t, 2, false, 0, outside ? bind : "");
	if (!outside)
		open_part(t, 2, true, 0, chance(t, 0.5) ? "unroll" : "");
	pl_tprog_line(&t->at, "%s %s %s", sum, s->update, value);
	pl_tprog_close_lines(&t->at, inside);
	if (keep || s->then) {
		char last[512];

		open_part(t, 2, false, 0, bind);
		pl_tprog_line(&t->at, "%s = %s", result,
			      s->then ? expand(t, s->then, sum, last, sizeof(last)) : sum);
	}
	pl_tprog_close_lines(&t->at, base);
}

/* "{j}" is the index of a bias. */
static const char *then_of(const struct pl_tprog_task *t, const char *bias, char *out, size_t size)
{
	if (!strcmp(t->then, "bias"))
		snprintf(out, size, "@ + %s", bias);
	else if (!strcmp(t->then, "relu"))
		snprintf(out, size, "max(@ + %s, 0.0)", bias);
	else if (!strcmp(t->then, "gelu"))
		snprintf(out, size, "0.5 * (@ + %s) * (1.0 + erf((@ + %s) * 0.70710678))", bias,
			 bias);
	else
		return NULL;
	return out;
}

static void put_product(struct nest *t, const struct pl_tprog_task *k)
{
	bool many = k->row == T_BMM;
	const int64_t *v = k->size + many;
	struct sum s = { .begin = "0.0", .update = "+=" };
	char then[256];
	long long b = (long long)k->size[0], m = (long long)v[0], n = (long long)v[1],
		  d = (long long)v[2];

	if (many)
		pl_tprog_line(&t->at, "buffer A float32 %lld %lld %lld", b, m, d);
	else
		pl_tprog_line(&t->at, "buffer A float32 %lld %lld", m, d);
	if (many)
		pl_tprog_line(&t->at, "buffer B float32 %lld %lld %lld", b, d, n);
	else
		pl_tprog_line(&t->at, "buffer B float32 %lld %lld", d, n);
	s.then = then_of(k, "bias[{j}]", then, sizeof(then));
	if (s.then)
		pl_tprog_line(&t->at, "buffer bias float32 %lld", n);
	if (many) {
		pl_tprog_line(&t->at, "buffer C float32 %lld %lld %lld", b, m, n);
		add_axis(t, 'b', k->size[0], false);
	} else {
		pl_tprog_line(&t->at, "buffer C float32 %lld %lld", m, n);
	}
	add_axis(t, 'i', v[0], false);
	add_axis(t, 'j', v[1], false);
	add_axis(t, 'k', v[2], true);
	s.result = many ? "C[{b}, {i}, {j}]" : "C[{i}, {j}]";
	s.value = many ? "A[{b}, {i}, {k}] * B[{b}, {k}, {j}]" : "A[{i}, {k}] * B[{k}, {j}]";
	put_sum(t, &s);
}

/* A number of the image of size x size, with zeros around it: places count from the first zero. */
static void padded(char *out, size_t n, const char *channel, const char *y, const char *x,
		   int64_t pad, int64_t size)
{
	long long first = (long long)pad, behind = (long long)(pad + size),
		  last = (long long)size - 1;

	snprintf(out, n,
		 "select(%lld < %s & %s < %lld & %lld < %s & %s < %lld, "
		 "X[%s, max(min(%s - %lld, %lld), 0), max(min(%s - %lld, %lld), 0)], 0.0)",
		 first - 1, y, y, behind, first - 1, x, x, behind, channel, y, first, last, x,
		 first, last);
}

/* The padded image P. */
static void put_copy(struct nest *t, int64_t channels, int64_t size, int64_t pad)
{
	int64_t wide = size + 2 * pad;
	char value[400];

	pl_tprog_line(&t->at, "alloc P float32 %lld %lld %lld", (long long)channels,
		      (long long)wide, (long long)wide);
	t->at.depth++;
	open_for(t, "pc", channels, false, chance(t, 0.7) ? "parallel" : "");
	open_for(t, "py", wide, false, "");
	open_for(t, "px", wide, false, chance(t, 0.7) ? "vectorize" : "");
	padded(value, sizeof(value), "pc", "py", "px", pad, size);
	pl_tprog_line(&t->at, "P[pc, py, px] = %s", value);
	pl_tprog_close_lines(&t->at, 1);
}

static void put_window(struct nest *t, const struct pl_tprog_task *k)
{
	bool conv = k->row == T_CONV, pool = k->row == T_POOL;
	int64_t size = k->size[2], window = k->size[3], stride = k->size[4], pad = k->size[5];
	int64_t out = (size + 2 * pad - window) / stride + 1, results = k->size[conv];
	long long channels = (long long)k->size[0], w = (long long)window;
	const char *channel = conv ? "{c}" : "{o}";
	bool copies = pad > 0 && (t->plain || chance(t, 0.5));
	char y[64], x[64], image[1024], value[1100], then[256];
	struct sum s = { .result = "Y[{o}, {y}, {x}]",
			 .value = value,
			 .begin = pool ? "-1e30" : "0.0",
			 .update = pool ? "max=" : "+=" };

	pl_tprog_line(&t->at, "buffer X float32 %lld %lld %lld", channels, (long long)size,
		      (long long)size);
	if (conv)
		pl_tprog_line(&t->at, "buffer W float32 %lld %lld %lld %lld", (long long)results,
			      channels, w, w);
	else if (!pool)
		pl_tprog_line(&t->at, "buffer W float32 %lld %lld %lld", channels, w, w);
	s.then = pool ? NULL : then_of(k, "bias[{o}]", then, sizeof(then));
	if (s.then)
		pl_tprog_line(&t->at, "buffer bias float32 %lld", (long long)results);
	pl_tprog_line(&t->at, "buffer Y float32 %lld %lld %lld", (long long)results, (long long)out,
		      (long long)out);
	if (copies)
		put_copy(t, k->size[0], size, pad);
	snprintf(y, sizeof(y), "{y} * %lld + {r}", (long long)stride);
	snprintf(x, sizeof(x), "{x} * %lld + {s}", (long long)stride);
	if (pad && !copies)
		padded(image, sizeof(image), channel, y, x, pad, size);
	else
		snprintf(image, sizeof(image), "%s[%s, %s, %s]", copies ? "P" : "X", channel, y, x);
	snprintf(value, sizeof(value), "%s%s", image,
		 pool	? ""
		 : conv ? " * W[{o}, {c}, {r}, {s}]"
			: " * W[{o}, {r}, {s}]");
	add_axis(t, 'o', results, false);
	add_axis(t, 'y', out, false);
	add_axis(t, 'x', out, false);
	if (conv)
		add_axis(t, 'c', k->size[0], true);
	add_axis(t, 'r', window, true);
	add_axis(t, 's', window, true);
	put_sum(t, &s);
	pl_tprog_close_lines(&t->at, 0);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A line for each column of a row, which "@" stands for. */
static void put_columns(struct nest *t, int64_t columns, bool sums, const char *fmt)
{
	int64_t inner = divisor(t, columns, 64);
	const char *bind = chance(t, 0.8) ? (sums && chance(t, 0.3) ? "unroll" : "vectorize") : "";
	int base = t->at.depth;
	char line[512], index[64];

	open_for(t, "c0", columns / inner, sums, inner == 1 ? bind : "");
	if (inner > 1)
		open_for(t, "c1", inner, sums, bind);
	snprintf(index, sizeof(index), inner > 1 ? "c0 * %lld + c1" : "c0", (long long)inner);
	pl_tprog_line(&t->at, "%s", expand(t, fmt, index, line, sizeof(line)));
	pl_tprog_close_lines(&t->at, base);
}

struct row_pass {
	const char *begin; /* before the columns, NULL */
	bool sums;
	const char *line;
};

/* Passes over each row; `together`: all passes of a row before the next row. */
static void put_rows(struct nest *t, int64_t n, int64_t columns, const struct row_pass *pass,
		     size_t passes)
{
	bool together = t->plain || chance(t, 0.6), parallel = chance(t, 0.8);
	int base = t->at.depth;

	for (size_t i = 0; i < passes; i++) {
		if (!i || !together) {
			pl_tprog_close_lines(&t->at, base);
			open_for(t, "r", n, false, parallel ? "parallel" : "");
		}
		if (pass[i].begin)
			pl_tprog_line(&t->at, "%s", pass[i].begin);
		put_columns(t, columns, pass[i].sums, pass[i].line);
	}
	pl_tprog_close_lines(&t->at, base);
}

static void put_softmax(struct nest *t, const struct pl_tprog_task *k)
{
	static const struct row_pass pass[] = {
		{ "most[r] = -1e30", true, "most[r] max= X[r, @]" },
		{ NULL, false, "Y[r, @] = exp(X[r, @] - most[r])" },
		{ "sum[r] = 0.0", true, "sum[r] += Y[r, @]" },
		{ NULL, false, "Y[r, @] = Y[r, @] / sum[r]" },
	};
	long long n = (long long)k->size[0], m = (long long)k->size[1];

	pl_tprog_line(&t->at, "buffer X float32 %lld %lld", n, m);
	pl_tprog_line(&t->at, "buffer Y float32 %lld %lld", n, m);
	pl_tprog_line(&t->at, "alloc most float32 %lld", n);
	t->at.depth++;
	pl_tprog_line(&t->at, "alloc sum float32 %lld", n);
	t->at.depth++;
	put_rows(t, k->size[0], k->size[1], pass, PL_LEN(pass));
	pl_tprog_close_lines(&t->at, 0);
}

static void put_layernorm(struct nest *t, const struct pl_tprog_task *k)
{
	char part[64], mean[128], spread[128], last[256];
	const struct row_pass pass[] = {
		{ "mean[r] = 0.0", true, mean },
		{ "spread[r] = 0.0", true, spread },
		{ NULL, false, last },
	};
	long long n = (long long)k->size[0], m = (long long)k->size[1];

	snprintf(part, sizeof(part), "%.9g", 1.0 / (double)m);
	snprintf(mean, sizeof(mean), "mean[r] += X[r, @] * %s", part);
	snprintf(spread, sizeof(spread),
		 "spread[r] += (X[r, @] - mean[r]) * (X[r, @] - mean[r]) * %s", part);
	snprintf(last, sizeof(last),
		 "Y[r, @] = (X[r, @] - mean[r]) / sqrt(spread[r] + 0.00001) * G[@] + B[@]");
	pl_tprog_line(&t->at, "buffer X float32 %lld %lld", n, m);
	pl_tprog_line(&t->at, "buffer G float32 %lld", m);
	pl_tprog_line(&t->at, "buffer B float32 %lld", m);
	pl_tprog_line(&t->at, "buffer Y float32 %lld %lld", n, m);
	pl_tprog_line(&t->at, "alloc mean float32 %lld", n);
	t->at.depth++;
	pl_tprog_line(&t->at, "alloc spread float32 %lld", n);
	t->at.depth++;
	put_rows(t, k->size[0], k->size[1], pass, PL_LEN(pass));
	pl_tprog_close_lines(&t->at, 0);
}

/* ---- chains ---------------------------------------------------------------------------------- */

static void put_chain(struct nest *t, const struct pl_tprog_task *k)
{
	static const char *const step[][2] = {
		{ "(", " + B[@])" }, { "(", " * B[@])" }, { "tanh(", ")" }, { "max(", ", 0.0)" }
	};
	bool together = t->plain || chance(t, 0.6);
	int64_t n = k->size[0], inner = divisor(t, n, 256), middle = divisor(t, n / inner, 256);
	const char *outer = chance(t, 0.8) ? "parallel" : "",
		   *bind = chance(t, 0.8) ? "vectorize" : "";
	char value[600] = "X[@]", next[600], line[800], index[64];

	pl_tprog_line(&t->at, "buffer X float32 %lld", (long long)n);
	pl_tprog_line(&t->at, "buffer B float32 %lld", (long long)n);
	pl_tprog_line(&t->at, "buffer Y float32 %lld", (long long)n);
	snprintf(index, sizeof(index), "c0 * %lld + c1 * %lld + c2", (long long)(inner * middle),
		 (long long)inner);
	for (int64_t i = 0; i < k->size[1]; i++) {
		snprintf(next, sizeof(next), "%s%s%s", step[i % 4][0], value, step[i % 4][1]);
		snprintf(value, sizeof(value), "%s", next);
		if (together && i + 1 < k->size[1])
			continue;
		open_for(t, "c0", n / inner / middle, false, outer);
		open_for(t, "c1", middle, false, "");
		open_for(t, "c2", inner, false, bind);
		pl_tprog_line(&t->at, "Y[%s] = %s", index,
			      expand(t, value, index, line, sizeof(line)));
		pl_tprog_close_lines(&t->at, 0);
		snprintf(value, sizeof(value), "Y[@]");
	}
}

/* ---- all ------------------------------------------------------------------------------------- */

const char *pl_tprog_task_op(const struct pl_tprog_task *t)
{
	return rows[t->row].name;
}

int pl_tprog_generate(const struct pl_tprog_task *k, uint64_t seed, struct pl_buf *text,
		      struct pl_err *err)
{
	struct nest t = { .at = { text, err, 0 }, .rng = seed, .plain = seed == 0 };

	switch (k->row) {
	case T_DENSE:
	case T_BMM:
		put_product(&t, k);
		break;
	case T_CONV:
	case T_DEPTHWISE:
	case T_POOL:
		put_window(&t, k);
		break;
	case T_SOFTMAX:
		put_softmax(&t, k);
		break;
	case T_LAYERNORM:
		put_layernorm(&t, k);
		break;
	default:
		put_chain(&t, k);
		break;
	}
	return err->code;
}
