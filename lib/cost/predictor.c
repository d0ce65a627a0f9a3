/*
 * Operations of a graph as questions to a cost model. Each is asked in up to three ways: by its own
 * name, as layers of run(1) have it; by the name of its kernel; by the bytes that it moves. The
 * first answer counts.
 */
#include <math.h>

#include "cost/kernels.h"
#include "cost/predictor.h"

/* The part of the floor that stays: the time of a kernel that does nothing (5 us of 25). Of a floor
 * as short as such a kernel, as in tables of times on the device alone, all stays. A CPU launches
 * nothing. */
#define FLOOR_LEFT 0.2
#define KERNEL_NS  5e3

struct pl_predictor {
	const struct pl_kernel_model *model;
	const struct pl_devices *devices;
	uint32_t device;
	struct pl_kernel_model *own; /* NULL: the caller's */
	struct pl_devices sheets;
};

/* ---- opening --------------------------------------------------------------------------------- */

int pl_predictor_of(const struct pl_kernel_model *m, const struct pl_devices *devices,
		    uint32_t device, struct pl_predictor **p, struct pl_err *err)
{
	PL_CHECK(pl_alloc(p, 1, sizeof(**p), err));
	(*p)->model = m;
	(*p)->devices = devices;
	(*p)->device = device;
	return 0;
}

void pl_predictor_free(struct pl_predictor *p)
{
	if (!p)
		return;
	pl_kernel_model_free(p->own);
	pl_device_fini(&p->sheets);
	pl_free(p);
}

static int read_model(struct pl_predictor *p, const char *path, struct pl_err *err)
{
	struct pl_schema *schema = NULL;
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_kernel_model_is(in)
		     ? pl_kernel_model_read(in, &p->own, &schema, err)
		     : pl_fail(err, PL_EDATA,
			       "%s: no cost model of kernels, as predict --train makes of tables; "
			       "one of tensor programs does not know the operations of graphs",
			       pl_in_name(in));
	pl_schema_free(schema);
	pl_in_close(in);
	p->model = p->own;
	return rc;
}

static int read_sheets(struct pl_predictor *p, const struct pl_predictor_opts *o,
		       struct pl_err *err)
{
	for (size_t i = 0; i < o->n_folders; i++)
		PL_CHECK(pl_device_read(&p->sheets, o->folder[i], err));
	p->devices = &p->sheets;
	return pl_device_add_measured(&p->sheets, pl_kernel_model_devices(p->model), o->log, err);
}

static int find_recorded(struct pl_predictor *p, const struct pl_predictor_opts *o,
			 struct pl_err *err)
{
	const struct pl_devices *known = pl_kernel_model_devices(p->model);
	struct pl_err why = { 0 };

	if (o->device && pl_predictor_find(p, o->device, &p->device, &why) < 0)
		return pl_fail(err, PL_EUSAGE, "--device=%s: %s", o->device, why.msg);
	if (!o->device && known->n != 1)
		return pl_fail(err, PL_EUSAGE,
			       "%s was measured on %zu devices; --device=NAME says which one was "
			       "recorded",
			       o->model, known->n);
	if (!o->device)
		p->device = pl_device_named(p->devices, known->v[0].name);
	return 0;
}

int pl_predictor_open(const struct pl_predictor_opts *o, struct pl_predictor **p,
		      struct pl_err *err)
{
	int rc;

	PL_CHECK(pl_alloc(p, 1, sizeof(**p), err));
	PL_TRY(read_model(*p, o->model, err));
	PL_TRY(read_sheets(*p, o, err));
	rc = find_recorded(*p, o, err);
out:
	if (rc < 0) {
		pl_predictor_free(*p);
		*p = NULL;
	}
	return rc;
}

uint32_t pl_predictor_recorded(const struct pl_predictor *p)
{
	return p->device;
}

uint32_t pl_predictor_n_devices(const struct pl_predictor *p)
{
	return (uint32_t)p->devices->n;
}

const char *pl_predictor_device_name(const struct pl_predictor *p, uint32_t device)
{
	return p->devices->v[device].name;
}

int pl_predictor_find(const struct pl_predictor *p, const char *name, uint32_t *device,
		      struct pl_err *err)
{
	*device = pl_device_find(p->devices, name);
	return *device == PL_NONE ? pl_device_missing(p->devices, name, err) : 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static const char *string_of(const struct pl_graph *g, pl_id id)
{
	return id == PL_NONE ? NULL : pl_intern_get(&g->str, id);
}

struct pl_predictor_op pl_predictor_op(const struct pl_predictor *p, const struct pl_graph *g,
				       pl_id name, uint32_t work)
{
	const struct pl_gwork *w = &g->work[work];

	return (struct pl_predictor_op){
		.name = string_of(g, w->name != PL_NONE ? w->name : name),
		.work = *w,
		.dims = string_of(g, w->dims),
		.type = pl_cost_kernel_type(string_of(g, w->type)),
		.device = p->device,
	};
}

struct pl_predictor_op pl_predictor_edit_op(const struct pl_predictor *p, const struct pl_edit *e,
					    uint32_t node)
{
	const struct pl_gwork *w = pl_edit_work(e, node);

	return (struct pl_predictor_op){
		.name = pl_edit_name(e, w->name != PL_NONE ? w->name : e->node[node].name),
		.work = *w,
		.dims = w->dims == PL_NONE ? NULL : pl_edit_name(e, w->dims),
		.type = pl_cost_kernel_type(w->type == PL_NONE ? NULL : pl_edit_name(e, w->type)),
		.device = p->device,
	};
}

static int add_sample(const struct pl_predictor *p, struct pl_samples *s, const struct pl_kernel *k,
		      const char *op, uint32_t device, uint32_t *at, struct pl_err *err)
{
	struct pl_err no = { 0 };
	const struct pl_measure m = { .k = *k,
				      .known = pl_kernel_check(k, &no) >= 0,
				      .op = op,
				      .model = "",
				      .device = device,
				      .ns = NAN };

	*at = (uint32_t)s->n;
	return pl_samples_add(s, &m, p->devices, err);
}

int pl_predictor_ask(const struct pl_predictor *p, const struct pl_predictor_op *op,
		     struct pl_samples *s, struct pl_predictor_asked *a, struct pl_err *err)
{
	struct pl_kernel k = { .type = op->type };

	*a = (struct pl_predictor_asked){ PL_NONE, PL_NONE, PL_NONE, 1 };
	if (pl_cost_kernel(&op->work, op->dims, &k)) {
		const char *kernel = pl_cost_kernel_name(&k, op->name);

		if (strcmp(kernel, op->name) != 0)
			PL_CHECK(add_sample(p, s, &k, op->name, op->device, &a->own, err));
		PL_CHECK(add_sample(p, s, &k, kernel, op->device, &a->kernel, err));
		a->count = pl_cost_kernel_count(&k, &op->work);
	}
	return pl_cost_kernel_bytes(&op->work, &k)
		       ? add_sample(p, s, &k, op->name, op->device, &a->bytes, err)
		       : 0;
}

uint32_t pl_predictor_sample(const struct pl_predictor_asked *a, const struct pl_kernel_time *of,
			     double *times)
{
	*times = 1;
	if (a->own != PL_NONE && (of[a->own].flag != PL_KERNEL_UNKNOWN || of[a->own].few))
		return isnan(of[a->own].ns) ? PL_NONE : a->own;
	if (a->kernel != PL_NONE && !isnan(of[a->kernel].ns)) {
		*times = a->count;
		return a->kernel;
	}
	return a->bytes != PL_NONE && !isnan(of[a->bytes].ns) ? a->bytes : PL_NONE;
}

#define NORMAL 1.645 /* half a 90 % interval in standard deviations */

/*
 * The time, and the standard error of its logarithm, NAN: the model has no interval. The error is
 * that of the time with its launch: without the launch the lower end may be 0, which has no
 * logarithm. What is left errs by as many ns, which are a larger share of it.
 */
static bool answer(const struct pl_predictor *p, uint32_t device,
		   const struct pl_predictor_asked *a, const struct pl_kernel_time *of,
		   struct pl_kernel_time *t, double *error)
{
	double n, launch, with;
	uint32_t sample = pl_predictor_sample(a, of, &n);

	*t = (struct pl_kernel_time){
		.ns = NAN, .lo_ns = NAN, .hi_ns = NAN, .flag = PL_KERNEL_UNKNOWN, .part = PL_NONE
	};
	*error = NAN;
	if (sample == PL_NONE)
		return false;
	*t = of[sample];
	*error = log(t->hi_ns / t->lo_ns) / (2 * NORMAL);
	t->ns *= n;
	t->lo_ns *= n;
	t->hi_ns *= n;
	t->floor_ns *= n;
	if (p->devices->v[device].cpu > 0)
		return true;
	launch = t->floor_ns - fmax(FLOOR_LEFT * t->floor_ns, n * KERNEL_NS);
	/* an operation may be predicted to be shorter than most floors are */
	launch = fmax(0, launch) * fmin(1, t->ns / t->floor_ns);
	with = t->ns;
	t->ns -= launch;
	*error *= with / t->ns;
	t->lo_ns = t->lo_ns < launch ? 0 : t->lo_ns - launch; /* NAN stays */
	t->hi_ns -= launch;
	return true;
}

bool pl_predictor_answer(const struct pl_predictor *p, uint32_t device,
			 const struct pl_predictor_asked *a, const struct pl_kernel_time *of,
			 struct pl_kernel_time *t)
{
	double error;

	return answer(p, device, a, of, t, &error);
}

/* error: NULL, or as of answer(). */
static int find_times(const struct pl_predictor *p, const struct pl_predictor_op *op, size_t n,
		      struct pl_kernel_time *t, double *error, struct pl_err *err)
{
	double one;
	struct pl_samples s = { 0 };
	struct pl_kernel_time *of = NULL;
	struct pl_predictor_asked *a = NULL;
	int rc;

	PL_TRY(pl_alloc(&a, n + 1, sizeof(*a), err));
	for (size_t i = 0; i < n; i++)
		PL_TRY(pl_predictor_ask(p, &op[i], &s, &a[i], err));
	PL_TRY(pl_alloc(&of, s.n + 1, sizeof(*of), err));
	PL_TRY(pl_kernel_apply(p->model, &s, s.v, s.n, of, err));
	for (size_t i = 0; i < n; i++)
		(void)answer(p, op[i].device, &a[i], of, &t[i], error ? &error[i] : &one);
out:
	pl_samples_fini(&s);
	pl_free(of);
	pl_free(a);
	return rc;
}

int pl_predictor_times(const struct pl_predictor *p, const struct pl_predictor_op *op, size_t n,
		       struct pl_kernel_time *t, struct pl_err *err)
{
	return find_times(p, op, n, t, NULL, err);
}

/* ---- what only moves -------------------------------------------------------------------------
 */

#define LEAST_BYTES 1024

int pl_predictor_moves(const struct pl_predictor *p, struct pl_predictor_moves *m,
		       struct pl_err *err)
{
	struct pl_predictor_op op[PL_PREDICTOR_MOVES];
	struct pl_kernel_time t[PL_PREDICTOR_MOVES];

	for (int i = 0; i < PL_PREDICTOR_MOVES; i++)
		op[i] = (struct pl_predictor_op){ .name = "",
						  .work = { .op = PL_OP_ELEMENTWISE,
							    .type = PL_NONE,
							    .dims = PL_NONE,
							    .flops = -1,
							    .bytes = (int64_t)LEAST_BYTES << i,
							    .name = PL_NONE },
						  .type = PL_KERNEL_FLOAT32,
						  .device = p->device };
	PL_CHECK(pl_predictor_times(p, op, PL_PREDICTOR_MOVES, t, err));
	for (int i = 0; i < PL_PREDICTOR_MOVES; i++)
		m->ns[i] = t[i].ns;
	return 0;
}

double pl_predictor_move(const struct pl_predictor_moves *m, double bytes)
{
	double at = fmax(bytes, LEAST_BYTES) / LEAST_BYTES, low;
	int i = (int)pl_min_i64((int64_t)log2(at), PL_PREDICTOR_MOVES - 2);

	low = ldexp(1, i);
	return m->ns[i] + (m->ns[i + 1] - m->ns[i]) * (at - low) / low;
}

/* ---- ratios ---------------------------------------------------------------------------------- */

/* Errors on two sizes whose logarithms differ by x have the correlation exp(-x / ALIKE). */
#define ALIKE 2.0

static bool is_known(const struct pl_kernel_time *t)
{
	return t->flag == PL_KERNEL_IN_RANGE;
}

static struct pl_predictor_ratio ratio(const struct pl_kernel_time *now,
				       const struct pl_kernel_time *then, double a, double b,
				       double distance)
{
	struct pl_predictor_ratio r = { .factor = NAN, .error = NAN, .part = now->part };
	double alike = exp(-distance / ALIKE);

	if (!(now->ns > 0) || !(then->ns > 0) || (now->part != then->part && isfinite(distance)))
		return r;
	if (isnan(a)) /* without an interval the model says nothing of it */
		a = PL_PREDICTOR_ERROR;
	if (isnan(b))
		b = PL_PREDICTOR_ERROR;
	r.known = is_known(now) && is_known(then);
	r.factor = then->ns / now->ns;
	r.error = r.factor * sqrt(fmax(a * a + b * b - 2 * alike * a * b, 0));
	if (!r.known)
		r.error = fmax(r.error, PL_PREDICTOR_UNKNOWN * r.factor);
	return r;
}

int pl_predictor_ratios(const struct pl_predictor *p, const struct pl_predictor_op *now,
			const struct pl_predictor_op *then, size_t n, double distance,
			struct pl_predictor_ratio *r, struct pl_err *err)
{
	struct pl_kernel_time *t = NULL;
	double *error = NULL;
	int rc;

	PL_TRY(pl_alloc(&t, 2 * n + 1, sizeof(*t), err));
	PL_TRY(pl_alloc(&error, 2 * n + 1, sizeof(*error), err));
	PL_TRY(find_times(p, now, n, t, error, err));
	PL_TRY(find_times(p, then, n, t + n, error + n, err));
	for (size_t i = 0; i < n; i++)
		r[i] = ratio(&t[i], &t[n + i], error[i], error[n + i], fabs(distance));
out:
	pl_free(t);
	pl_free(error);
	return rc;
}
