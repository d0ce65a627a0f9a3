/* Tables of errors, and leaving out one device, model, operation or part of the shapes at a time.
 */
#include <math.h>

#include "core/progress.h"
#include "kernel/eval.h"

#define SHAPE_PARTS 5
#define MODEL_PARTS 20	 /* models that are left out one by one; more are left out in parts */
#define FEW	    20	 /* measured operations that show a floor */
#define SHORTEST    0.02 /* this share of them is shorter than the floor */

void pl_eval_fini(struct pl_eval *e)
{
	pl_free(e->v);
	pl_arena_fini(&e->arena);
	memset(e, 0, sizeof(*e));
}

/* ---- groups ---------------------------------------------------------------------------------- */

struct one { /* a prediction that can be compared */
	uint32_t sample;
	uint32_t key; /* of the group that is being made */
	double error; /* predicted / measured - 1 */
	bool covered;
};
struct errors {
	const struct pl_samples *s;
	const struct pl_kernel_time *t;
	struct one *v;
	size_t n;
	double *floor; /* [device][operation] */
	double *ape;   /* room for n */
};

static bool has_interval(const struct pl_kernel_time *t)
{
	return !isnan(t->lo_ns);
}

static void take_all(struct errors *e, struct pl_eval *to)
{
	for (size_t i = 0; i < e->s->n; i++) {
		const struct pl_kernel_time *t = &e->t[i];
		double ns = (double)e->s->v[i].ns;

		if (!(ns > 0))
			continue;
		if (isnan(t->ns)) {
			to->unpredicted++;
			continue;
		}
		e->v[e->n++] = (struct one){ .sample = (uint32_t)i,
					     .error = t->ns / ns - 1,
					     .covered = ns >= t->lo_ns && ns <= t->hi_ns };
	}
}

static double *floor_of(const struct errors *e, const struct pl_sample *x)
{
	return &e->floor[(size_t)x->device * e->s->op.n + x->k.op];
}

static int by_floor(const void *a, const void *b)
{
	const struct pl_sample *x = *(const struct pl_sample *const *)a;
	const struct pl_sample *y = *(const struct pl_sample *const *)b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->k.op != y->k.op)
		return x->k.op < y->k.op ? -1 : 1;
	return (x->ns > y->ns) - (x->ns < y->ns);
}

static int find_floors(struct errors *e, struct pl_err *err)
{
	const struct pl_sample **v;
	size_t n = 0;

	PL_CHECK(pl_alloc(&v, e->n + 1, sizeof(*v), err));
	for (size_t i = 0; i < e->n; i++)
		v[n++] = &e->s->v[e->v[i].sample];
	pl_sort(v, n, sizeof(*v), by_floor);
	for (size_t i = 0, k; i < n; i = k) {
		size_t at;

		for (k = i + 1; k < n && floor_of(e, v[k]) == floor_of(e, v[i]);)
			k++;
		at = i + (size_t)(SHORTEST * (double)(k - i));
		*floor_of(e, v[i]) = k - i >= FEW ? (double)v[at]->ns : (double)v[i]->ns;
	}
	pl_free(v);
	return 0;
}

static uint32_t key_of(const struct errors *e, const struct one *x, enum pl_eval_by by)
{
	const struct pl_sample *s = &e->s->v[x->sample];

	switch (by) {
	case PL_EVAL_OP:
		return s->k.op;
	case PL_EVAL_DEVICE:
		return s->device;
	case PL_EVAL_MODEL:
		return s->model;
	case PL_EVAL_SHAPE:
		return 2 * s->k.op + ((double)s->ns >= 2 * *floor_of(e, s));
	default:
		return 0;
	}
}

/* "NAME below 2 floors" */
static const char *name_of_shape(const char *op, bool from, struct pl_arena *a)
{
	static const char below[] = " below 2 floors", above[] = " from 2 floors";
	size_t n = strlen(op);
	char *text = pl_arena_take(a, n + sizeof(below));

	if (text) {
		memcpy(text, op, n);
		memcpy(text + n, from ? above : below, from ? sizeof(above) : sizeof(below));
	}
	return text;
}

static const char *name_of(const struct errors *e, uint32_t key, enum pl_eval_by by,
			   struct pl_arena *a)
{
	const char *name = "all";

	if (by == PL_EVAL_SHAPE)
		return name_of_shape(e->s->op.str[key / 2], key % 2, a);
	if (by == PL_EVAL_OP)
		name = e->s->op.str[key];
	else if (by == PL_EVAL_DEVICE)
		name = e->s->devices.v[key].name;
	else if (by == PL_EVAL_MODEL)
		name = e->s->model.str[key];
	return pl_arena_dup(a, name, strlen(name));
}

static int by_key(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->sample > y->sample) - (x->sample < y->sample);
}

static void measure_group(struct errors *e, const struct one *v, size_t n, struct pl_eval_group *g)
{
	size_t covered = 0, intervals = 0, near = 0;
	double sum = 0, bias = 0;

	for (size_t i = 0; i < n; i++) {
		e->ape[i] = fabs(v[i].error);
		sum += e->ape[i];
		bias += v[i].error;
		near += e->ape[i] <= 0.1;
		intervals += has_interval(&e->t[v[i].sample]);
		covered += v[i].covered;
	}
	pl_sort(e->ape, n, sizeof(*e->ape), pl_compare_double);
	g->n = n;
	g->mean_ape = sum / (double)n;
	g->median_ape = (e->ape[(n - 1) / 2] + e->ape[n / 2]) / 2;
	g->p90_ape = e->ape[(size_t)ceil(0.9 * (double)n) - 1];
	g->within10 = (double)near / (double)n;
	g->bias = bias / (double)n;
	g->coverage90 = intervals ? (double)covered / (double)intervals : NAN;
}

static int add_groups(struct errors *e, enum pl_eval_by by, struct pl_eval *to, struct pl_err *err)
{
	for (size_t i = 0; i < e->n; i++)
		e->v[i].key = key_of(e, &e->v[i], by);
	pl_sort(e->v, e->n, sizeof(*e->v), by_key);
	for (size_t i = 0, k; i < e->n; i = k) {
		struct pl_eval_group g = { .by = by };

		for (k = i + 1; k < e->n && e->v[k].key == e->v[i].key;)
			k++;
		g.key = name_of(e, e->v[i].key, by, &to->arena);
		if (!g.key)
			return pl_fail(err, PL_ENOMEM, "out of memory");
		if (by == PL_EVAL_MODEL && !*g.key) /* the table does not say */
			continue;
		measure_group(e, e->v + i, k - i, &g);
		PL_CHECK(pl_append(&to->v, &to->n, &to->cap, &g, sizeof(g), err));
	}
	return 0;
}

int pl_eval_groups(const struct pl_samples *s, const struct pl_kernel_time *t, struct pl_eval *to,
		   struct pl_err *err)
{
	struct errors e = { .s = s, .t = t };
	int rc;

	*to = (struct pl_eval){ 0 };
	PL_TRY(pl_alloc(&e.v, s->n + 1, sizeof(*e.v), err));
	PL_TRY(pl_alloc(&e.ape, s->n + 1, sizeof(*e.ape), err));
	PL_TRY(pl_alloc(&e.floor, s->devices.n * s->op.n + 1, sizeof(*e.floor), err));
	take_all(&e, to);
	PL_TRY(find_floors(&e, err));
	for (int by = PL_EVAL_ALL; by <= PL_EVAL_SHAPE; by++)
		PL_TRY(add_groups(&e, (enum pl_eval_by)by, to, err));
out:
	pl_free(e.v);
	pl_free(e.ape);
	pl_free(e.floor);
	return rc;
}

/* ---- held-out protocols ---------------------------------------------------------------------- */

uint64_t pl_samples_shape(const struct pl_sample *x)
{
	return pl_hash(x->k.dim, sizeof(x->k.dim)) ^ (uint64_t)x->k.op * 0x9e3779b97f4a7c15u;
}

static uint32_t fold_of(const struct pl_sample *x, enum pl_eval_by by)
{
	return by == PL_EVAL_DEVICE  ? x->device
	       : by == PL_EVAL_MODEL ? x->model % MODEL_PARTS
	       : by == PL_EVAL_OP    ? x->k.op
				     : (uint32_t)((pl_samples_shape(x) >> 32) % SHAPE_PARTS);
}

struct cross { /* room for one fold */
	bool *use;
	uint32_t *at; /* samples of the fold */
	struct pl_sample *v;
	struct pl_kernel_time *t;
};

static int one_fold(const struct pl_samples *s, enum pl_eval_by by, uint32_t fold,
		    const struct pl_kernel_fit_opts *o, struct cross *c, struct pl_kernel_time *t,
		    struct pl_err *err)
{
	struct pl_kernel_model *m;
	size_t n = 0, usable = 0, kept = 0;
	int rc;

	for (size_t i = 0; i < s->n; i++) {
		bool learns = s->v[i].known && s->v[i].ns > 0;

		c->use[i] = fold_of(&s->v[i], by) != fold;
		usable += learns;
		kept += learns && c->use[i];
		if (!c->use[i]) {
			c->at[n] = (uint32_t)i;
			c->v[n++] = s->v[i];
		}
	}
	if (!n || (usable && kept == usable)) /* none of them can be predicted */
		return 0;
	if (usable && !kept)
		return pl_fail(err, PL_EDATA,
			       "all operations are of one %s: nothing is left to learn from",
			       by == PL_EVAL_DEVICE  ? "device"
			       : by == PL_EVAL_MODEL ? "model"
			       : by == PL_EVAL_OP    ? "name"
						     : "shape");
	PL_CHECK(pl_kernel_fit(s, c->use, o, &m, err));
	rc = pl_kernel_apply(m, s, c->v, n, c->t, err);
	for (size_t i = 0; i < n && rc >= 0; i++)
		t[c->at[i]] = c->t[i];
	pl_kernel_model_free(m);
	return rc;
}

int pl_kernel_cross(const struct pl_samples *s, enum pl_eval_by by,
		    const struct pl_kernel_fit_opts *o, struct pl_kernel_time *t,
		    struct pl_err *err)
{
	uint32_t folds = by == PL_EVAL_DEVICE  ? (uint32_t)s->devices.n
			 : by == PL_EVAL_MODEL ? (uint32_t)pl_min_size(s->model.n, MODEL_PARTS)
			 : by == PL_EVAL_OP    ? s->op.n
					       : SHAPE_PARTS;
	struct cross c = { 0 };
	int rc;

	PL_TRY(pl_alloc(&c.use, s->n + 1, sizeof(*c.use), err));
	PL_TRY(pl_alloc(&c.at, s->n + 1, sizeof(*c.at), err));
	PL_TRY(pl_alloc(&c.v, s->n + 1, sizeof(*c.v), err));
	PL_TRY(pl_alloc(&c.t, s->n + 1, sizeof(*c.t), err));
	for (size_t i = 0; i < s->n; i++)
		t[i] = (struct pl_kernel_time){ .ns = NAN, .lo_ns = NAN, .hi_ns = NAN };
	for (uint32_t k = 0; k < folds; k++) {
		pl_progress("without part %u of %u", k + 1, folds);
		PL_TRY(one_fold(s, by, k, o, &c, t, err));
	}
out:
	pl_free(c.use);
	pl_free(c.at);
	pl_free(c.v);
	pl_free(c.t);
	return rc;
}
