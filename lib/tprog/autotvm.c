/*
 * Tuning logs of AutoTVM: lines of JSON into records, and records into programs.
 *
 * TVM 0.7 to 0.20 write {"input": [target, task, tensors, {}], "config": {"entity": [...]},
 * "result": [costs, error, ...]}, TVM 0.6 the same with "i", "r" and more in "i". What else a line
 * holds is skipped. The program is written as text, which is then read. Linear.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "core/sort.h"
#include "io/json.h"
#include "tprog/autotvm_internal.h"

#define LOG_MOST  ((size_t)1 << 30)
#define DIM_MOST  ((int64_t)1 << 24)
#define COST_MOST 1e5 /* seconds */

struct pl_autotvm {
	struct pl_buf text;
	char *name, *at; /* of the log; the next line */
	char *model, *device;
	bool strict;
	uint32_t number; /* of the line */
	struct pl_autotvm_stats stats;
	struct pl_intern seen; /* products, by their sizes */
	double *cost;	       /* of the present line */
	size_t n_costs, cap_costs;
};

enum autotvm_is pl_autotvm_not(struct autotvm_record *r, enum autotvm_is is, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!r->why[0])
		vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return is;
}

/* Names of programs have letters, digits, "_" and ".", and begin with no digit. */
static void take_name(const char *s, size_t n, char *out, size_t size)
{
	size_t k = 0;

	if (n && isdigit((unsigned char)*s))
		out[k++] = '_';
	for (size_t i = 0; i < n && k + 1 < size; i++)
		out[k++] = (char)(isalnum((unsigned char)s[i]) || s[i] == '.' ? s[i] : '_');
	out[k] = '\0';
}

int pl_autotvm_new(struct pl_in *in, const struct pl_autotvm_opts *o, struct pl_autotvm **out,
		   struct pl_err *err)
{
	struct pl_autotvm *r;
	char model[100] = "";
	int rc;

	*out = NULL;
	PL_CHECK(pl_alloc(&r, 1, sizeof(*r), err));
	PL_TRY(pl_in_read_all(in, LOG_MOST, &r->text, err));
	PL_TRY(pl_buf_put(&r->text, "", 1, err));
	if (o->model)
		take_name(o->model, strlen(o->model), model, sizeof(model));
	r->name = pl_strdup(pl_in_name(in));
	r->model = pl_strdup(model);
	r->device = o->device ? pl_strdup(o->device) : NULL;
	r->strict = o->strict;
	PL_TRY(r->name && r->model && (r->device || !o->device)
		       ? 0
		       : pl_fail(err, PL_ENOMEM, "out of memory"));
	r->at = (char *)r->text.p;
	*out = r;
	r = NULL;
out:
	pl_autotvm_free(r);
	return rc;
}

void pl_autotvm_free(struct pl_autotvm *r)
{
	if (!r)
		return;
	pl_buf_fini(&r->text);
	pl_intern_fini(&r->seen);
	pl_free(r->name);
	pl_free(r->model);
	pl_free(r->device);
	pl_free(r->cost);
	pl_free(r);
}

const struct pl_autotvm_stats *pl_autotvm_stats(const struct pl_autotvm *r)
{
	return &r->stats;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The rest of the array that is open; `depth`: inside of it. */
static void leave(struct pl_json *j, int depth)
{
	enum pl_json_type t;

	do {
		t = j->depth < depth ? PL_JSON_END : pl_json_next(j);
	} while (t != PL_JSON_END && t != PL_JSON_ERROR);
}

static bool enter(struct pl_json *j)
{
	return pl_json_next(j) == PL_JSON_ARRAY;
}

static void take_text(const struct pl_json *j, char *out, size_t size)
{
	size_t n = pl_min_size(j->len, size - 1);

	memcpy(out, j->text, n);
	out[n] = '\0';
}

static bool is_text(const struct pl_json *j, const char *s)
{
	return j->len == strlen(s) && !memcmp(j->text, s, j->len);
}

/* Whole numbers, up to the end of the array; their number, -1: something else is there. */
static int take_sizes(struct pl_json *j, int64_t *v, int most)
{
	int n = 0;

	for (;;) {
		enum pl_json_type t = pl_json_next(j);

		if (t == PL_JSON_ARRAY_END)
			return n;
		if (t != PL_JSON_NUMBER || n == most || !pl_json_i64(j->text, j->len, &v[n]))
			return -1;
		n++;
	}
}

/* ["TENSOR", [1, 512], "float32"], which is open; other lists are shapes of the result. */
static bool take_tensor(struct pl_json *j, struct autotvm_record *r)
{
	int depth = j->depth;
	struct autotvm_tensor t = { .n = 0 };

	if (pl_json_next(j) != PL_JSON_STRING || !is_text(j, "TENSOR")) {
		leave(j, depth);
		return true;
	}
	if (!enter(j))
		return false;
	t.n = take_sizes(j, t.dim, AUTOTVM_SIZES);
	for (int i = 0; i < t.n; i++)
		if (t.dim[i] < 1 || t.dim[i] > DIM_MOST)
			return false;
	if (t.n < 1 || pl_json_next(j) != PL_JSON_STRING)
		return false;
	t.float32 = is_text(j, "float32");
	leave(j, depth);
	if (r->n_tensors < AUTOTVM_TENSORS) /* no template here has more */
		r->tensor[r->n_tensors++] = t;
	return true;
}

/* The arguments of the task: tensors, types of the result, which operand is transposed. */
static bool take_args(struct pl_json *j, struct autotvm_record *r)
{
	if (!enter(j))
		return false;
	r->float32 = true;
	for (;;) {
		enum pl_json_type t = pl_json_next(j);

		if (t == PL_JSON_ARRAY_END)
			return true;
		if (t == PL_JSON_ARRAY && !take_tensor(j, r))
			return false;
		if (t == PL_JSON_STRING)
			r->float32 &= is_text(j, "float32");
		if ((t == PL_JSON_TRUE || t == PL_JSON_FALSE) && r->n_flags < 2)
			r->flag[r->n_flags++] = t == PL_JSON_TRUE;
		if (t == PL_JSON_ERROR || t == PL_JSON_END || t == PL_JSON_OBJECT)
			return false;
	}
}

/* ["tile_y", "sp", [-1, 8, 4]] or ["auto_unroll_max_step", "ot", 16], which is open. */
static bool take_knob(struct pl_json *j, struct autotvm_record *r)
{
	int depth = j->depth;
	struct autotvm_knob k = { .n = 1 };
	enum pl_json_type t;
	char kind[8];

	if (pl_json_next(j) != PL_JSON_STRING)
		return false;
	take_text(j, k.name, sizeof(k.name));
	if (pl_json_next(j) != PL_JSON_STRING)
		return false;
	take_text(j, kind, sizeof(kind));
	t = pl_json_next(j);
	if (!strcmp(kind, "sp")) {
		k.n = t == PL_JSON_ARRAY ? take_sizes(j, k.size, AUTOTVM_SIZES) : -1;
		if (k.n < 1)
			return false;
	} else if (t != PL_JSON_NUMBER || !pl_json_i64(j->text, j->len, &k.size[0])) {
		k.n = 0; /* a kind that no template here has */
	}
	leave(j, depth);
	if (k.n && r->n_knobs == AUTOTVM_KNOBS)
		return false;
	if (k.n)
		r->knob[r->n_knobs++] = k;
	return true;
}

static bool take_knobs(struct pl_json *j, struct autotvm_record *r)
{
	if (!enter(j))
		return false;
	for (;;) {
		enum pl_json_type t = pl_json_next(j);

		if (t == PL_JSON_ARRAY_END)
			return r->has_config = true;
		if (t != PL_JSON_ARRAY || !take_knob(j, r))
			return false;
	}
}

/* {"index": 5, "code_hash": null, "entity": [...]} */
static bool take_config(struct pl_json *j, struct autotvm_record *r)
{
	const char *p;
	size_t n;

	if (pl_json_next(j) != PL_JSON_OBJECT)
		return false;
	for (;;) {
		enum pl_json_type t = pl_json_next(j);

		if (t == PL_JSON_OBJECT_END)
			return r->has_config;
		if (t != PL_JSON_KEY)
			return false;
		if (is_text(j, "entity") || is_text(j, "e")) {
			if (!take_knobs(j, r))
				return false;
		} else if (is_text(j, "t")) {
			if (pl_json_next(j) != PL_JSON_STRING)
				return false;
			take_text(j, r->key, sizeof(r->key));
		} else if (pl_json_skip(j, &p, &n) < 0) {
			return false;
		}
	}
}

/* [target, task, args, {}]; of TVM 0.6 with the workload and the configuration behind them. */
static bool take_input(struct pl_json *j, struct autotvm_record *r, bool old)
{
	const char *p;
	size_t n;
	int depth;

	if (!enter(j) || pl_json_next(j) != PL_JSON_STRING)
		return false;
	depth = j->depth;
	take_text(j, r->target, sizeof(r->target));
	if (pl_json_next(j) != PL_JSON_STRING)
		return false;
	take_text(j, r->task, sizeof(r->task));
	if (!take_args(j, r))
		return false;
	if (old &&
	    (pl_json_skip(j, &p, &n) < 0 || pl_json_skip(j, &p, &n) < 0 || !take_config(j, r)))
		return false;
	leave(j, depth);
	return r->has_input = true;
}

/* [[costs], error, all the time it took, when] */
static bool take_result(struct pl_autotvm *a, struct pl_json *j, struct autotvm_record *r,
			struct pl_err *err)
{
	int depth;

	if (!enter(j) || !enter(j))
		return false;
	depth = j->depth - 1;
	a->n_costs = 0;
	for (;;) {
		enum pl_json_type t = pl_json_next(j);
		double cost;

		if (t == PL_JSON_ARRAY_END)
			break;
		if (t != PL_JSON_NUMBER && t != PL_JSON_WORD)
			return false;
		cost = t == PL_JSON_NUMBER ? strtod(j->text, NULL) : INFINITY;
		if (pl_append(&a->cost, &a->n_costs, &a->cap_costs, &cost, sizeof(cost), err) < 0)
			return false;
	}
	if (pl_json_next(j) != PL_JSON_NUMBER || !pl_json_i64(j->text, j->len, &r->error))
		return false;
	leave(j, depth);
	return r->has_result = true;
}

/* A line; false: it is no measurement. */
static bool take_record(struct pl_autotvm *a, const char *line, struct autotvm_record *r,
			struct pl_err *err)
{
	struct pl_json j;
	const char *p;
	size_t n;

	pl_json_init(&j, line, strlen(line));
	if (pl_json_next(&j) != PL_JSON_OBJECT)
		return false;
	for (;;) {
		enum pl_json_type t = pl_json_next(&j);
		bool good = true;

		if (t == PL_JSON_OBJECT_END)
			return r->has_input && r->has_config && r->has_result;
		if (t != PL_JSON_KEY)
			return false;
		if ((is_text(&j, "input") || is_text(&j, "i")) && !r->has_input)
			good = take_input(&j, r, is_text(&j, "i"));
		else if (is_text(&j, "config") && !r->has_config)
			good = take_config(&j, r);
		else if ((is_text(&j, "result") || is_text(&j, "r")) && !r->has_result)
			good = take_result(a, &j, r, err);
		else
			good = pl_json_skip(&j, &p, &n) >= 0;
		if (!good)
			return false;
	}
}

/* ---- programs -------------------------------------------------------------------------------- */

/* "cuda -keys=cuda,gpu -model=v100" is of the device v100. TVM writes -model=unknown for what
 * nobody named; so that unlike GPUs are not one device, the architecture then counts. */
static void device_of(const struct autotvm_record *r, char *out, size_t size)
{
	static const char *const key[] = { "-model=", "-mcpu=", "-arch=" };
	const char *s = r->target;
	size_t n = 0;

	for (size_t i = 0; i < PL_LEN(key) && !n; i++) {
		const char *found = strstr(r->target, key[i]);
		const char *value = found ? found + strlen(key[i]) : "";

		n = strcspn(value, " ");
		n = n == strlen("unknown") && !memcmp(value, "unknown", n) ? 0 : n;
		s = n ? value : s;
	}
	take_name(s, n ? n : strcspn(s, " "), out, size);
	if (!*out)
		snprintf(out, size, "tvm");
}

/* The number of the product among those that the log has. */
static int number_of(struct pl_autotvm *a, const struct autotvm_product *o, const char *op,
		     pl_id *id, struct pl_err *err)
{
	char key[200];
	int n = snprintf(key, sizeof(key), "%s %lld %lld %lld %lld %d%d%d%d %lld", op,
			 (long long)o->batch, (long long)o->m, (long long)o->n, (long long)o->k,
			 o->one_a, o->one_b, o->turned_a, o->flat_b, (long long)o->packed);

	return pl_intern_add(&a->seen, key, (size_t)n, id, err);
}

/* measured DEVICE NS ... */
static enum autotvm_is put_measured(struct pl_autotvm *a, struct autotvm_record *r,
				    struct pl_buf *text, struct pl_err *err)
{
	char device[100];
	size_t n = a->n_costs;

	if (!n)
		return pl_autotvm_not(r, AUTOTVM_BAD, "no time was measured");
	for (size_t i = 0; i < n; i++)
		if (!(a->cost[i] > 0 && a->cost[i] < COST_MOST))
			return pl_autotvm_not(r, AUTOTVM_BAD, "a time of %g s", a->cost[i]);
	pl_sort(a->cost, n, sizeof(*a->cost), pl_compare_double);
	if (a->device)
		take_name(a->device, strlen(a->device), device, sizeof(device));
	else
		device_of(r, device, sizeof(device));
	if (pl_buf_printf(text, err, "measured %s %.0f least=%.0f runs=%zu\n", device,
			  fmax(1, (a->cost[n / 2] + a->cost[(n - 1) / 2]) / 2 * 1e9),
			  fmax(1, a->cost[0] * 1e9), n) < 0)
		return AUTOTVM_BAD;
	return AUTOTVM_FINE;
}

/* The text of the program that a line measured; it is the parser that knows the limits. */
static enum autotvm_is build(struct pl_autotvm *a, struct autotvm_record *r, struct pl_tprog *p,
			     struct pl_err *err)
{
	struct pl_buf loops = { 0 }, text = { 0 };
	struct autotvm_product of = { 0 };
	struct pl_tprog_reader *reader = NULL;
	struct pl_in *in = NULL;
	struct pl_err limit = { 0 };
	const char *op = "";
	enum autotvm_is is = pl_autotvm_build(r, &of, &op, &loops, err);
	pl_id id;

	if (!is && !err->code)
		is = put_measured(a, r, &loops, err);
	if (is || err->code || number_of(a, &of, op, &id, err) < 0 ||
	    pl_buf_printf(&text, err, "paceline-tprog %d\nprogram o%u.p%u%s%s op=%s\n",
			  PL_TPROG_MAJOR, id, a->number, *a->model ? " model=" : "", a->model,
			  op) < 0 ||
	    pl_buf_put(&text, loops.p, loops.n, err) < 0)
		goto out;
	in = pl_in_open_mem("program", text.p, text.n, err);
	if (!in || pl_tprog_reader_new(in, &reader, err) < 0)
		goto out;
	if (pl_tprog_next(reader, p, &limit) < 0) {
		pl_tprog_fini(p);
		is = pl_autotvm_not(r, AUTOTVM_OTHER, "%.150s", limit.msg);
		if (limit.code == PL_ENOMEM)
			*err = limit;
	}
out:
	pl_tprog_reader_free(reader);
	pl_in_close(in);
	pl_buf_fini(&loops);
	pl_buf_fini(&text);
	return is;
}

/* Counts a line of which there is no program; strict: an error. */
static int count(struct pl_autotvm *a, const struct autotvm_record *r, enum autotvm_is is,
		 struct pl_err *err)
{
	bool other = is == AUTOTVM_OTHER;
	uint64_t *n = other ? &a->stats.other : &a->stats.bad;
	char *first = other ? a->stats.first_other : a->stats.first_bad;
	const char *why = r->why[0] ? r->why : "not a measurement of AutoTVM";

	if (a->strict)
		return pl_fail(err, PL_EDATA, "%s: line %u: %s", a->name, a->number, why);
	if (!(*n)++)
		snprintf(first, sizeof(a->stats.first_bad), "line %u: %s", a->number, why);
	return 0;
}

/* The next line, which becomes a text of its own; NULL: the log ends. */
static char *next_line(struct pl_autotvm *a)
{
	char *line = a->at, *last = (char *)a->text.p + a->text.n - 1, *end;

	if (line == last)
		return NULL;
	a->number++;
	end = memchr(line, '\n', (size_t)(last - line));
	a->at = end ? end + 1 : last;
	if (end)
		*end = '\0';
	return line;
}

int pl_autotvm_next(struct pl_autotvm *a, struct pl_tprog *p, struct pl_err *err)
{
	char *line;

	while ((line = next_line(a))) {
		struct autotvm_record r = { .n_knobs = 0 };
		enum autotvm_is is = AUTOTVM_BAD;

		line += strspn(line, " \t\r");
		if (!*line || *line == '#')
			continue;
		if (take_record(a, line, &r, err)) {
			if (r.error && !err->code) {
				a->stats.failed++;
				continue;
			}
			is = build(a, &r, p, err);
		}
		if (err->code)
			return err->code;
		if (is == AUTOTVM_FINE) {
			a->stats.programs++;
			return 1;
		}
		PL_CHECK(count(a, &r, is, err));
	}
	return 0;
}
