/*
 * Cost models: fitting.
 *
 * A part is fitted in four stages. First comes the floor of each device: its shortest operations
 * take that long. Then comes the choice of tiles. Then the trees learn the factor
 * log(time / (floor + bound)) from the features of all devices together. Last comes the offset of
 * each device: the median of the errors that are left. A device that was not measured has the
 * median floor and no offset. Operations of few samples have the part of their family, and an
 * offset of their own.
 *
 * O(samples * rounds) for each part.
 */
#include "kernel/model_internal.h"

#define ENOUGH	  60	/* samples of an operation that has a part of its own */
#define FEW	  20	/* samples of a device that show its floor */
#define OF_FAMILY 40000 /* samples of the part of a family: more say nothing new */
#define FLOOR	  0.02	/* this share of the operations is shorter */

/* ---- life -------------------------------------------------------------------------------------
 */

static void part_fini(const struct pl_kernel_model *m, struct part *p)
{
	pl_tiles_fini(&p->tiles);
	if (p->learned)
		m->learner->free(p->learned);
	pl_free(p->device_floor);
	pl_free(p->offset);
}

void pl_kernel_model_free(struct pl_kernel_model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_parts; i++)
		part_fini(m, &m->part[i]);
	pl_free(m->part);
	pl_free(m->adapted);
	pl_free(m->trained);
	pl_free(m->trained_on);
	pl_free(m->of_family);
	pl_device_fini(&m->devices);
	pl_intern_fini(&m->op);
	pl_free(m);
}

const struct pl_devices *pl_kernel_model_devices(const struct pl_kernel_model *m)
{
	return &m->devices;
}

const struct part *pl_kernel_part(const struct pl_kernel_model *m, uint32_t op, unsigned family,
				  unsigned type)
{
	const struct part *best = NULL;

	for (size_t i = 0; i < m->n_parts; i++) {
		const struct part *p = &m->part[i];

		if (p->family != family || p->type != type)
			continue;
		if (p->op == op && op != PL_NONE)
			return p;
		if (p->op == PL_NONE)
			best = p;
	}
	return best;
}

/* ---- samples of a part ------------------------------------------------------------------------
 */

struct fitter {
	struct pl_kernel_model *m;
	const struct pl_samples *s;
	const struct pl_kernel_fit_opts *o;
	uint32_t *v; /* the samples of the part */
	size_t n;
	size_t most; /* samples of the part of a family */
	float *x;    /* [feature][sample] */
	float *y, *bound;
};

static bool is_usable(const struct pl_sample *x)
{
	return x->known && x->ns > 0 && isfinite(x->ns);
}

/* The floor of each device, and that of another one. */
static int find_floors(struct fitter *f, struct part *p, struct pl_err *err)
{
	double *ns, *floors, least = INFINITY;
	size_t known = 0;
	int rc;

	PL_CHECK(pl_alloc(&ns, f->n + 1, sizeof(*ns), err));
	PL_TRY(pl_alloc(&floors, f->s->devices.n + 1, sizeof(*floors), err));
	for (uint32_t d = 0; d < f->s->devices.n; d++) {
		size_t n = 0;

		for (size_t i = 0; i < f->n; i++)
			if (f->s->v[f->v[i]].device == d)
				ns[n++] = (double)f->s->v[f->v[i]].ns;
		p->device_floor[d] = NAN;
		if (n)
			pl_sort(ns, n, sizeof(*ns), pl_compare_double);
		least = n && ns[0] < least ? ns[0] : least;
		if (n >= FEW)
			floors[known++] = p->device_floor[d] = ns[(size_t)(FLOOR * (double)n)];
	}
	p->floor_ns = known ? pl_median_double(floors, known) : least;
	pl_free(floors);
out:
	pl_free(ns);
	return rc;
}

/* The rate of communication, which no data sheet has. */
static int find_rate(struct fitter *f, struct part *p, struct pl_err *err)
{
	double *rate;
	size_t n = 0;

	if (!pl_kernel_is_comm(p->family))
		return 0;
	PL_CHECK(pl_alloc(&rate, f->n + 1, sizeof(*rate), err));
	for (int long_ones = 1; long_ones >= 0 && !n; long_ones--)
		for (size_t i = 0; i < f->n; i++) {
			const struct pl_sample *x = &f->s->v[f->v[i]];
			double floor_ns = pl_part_floor(p, x->device);

			if ((double)x->ns > (long_ones ? 4 : 1) * floor_ns)
				rate[n++] = ((double)x->ns - floor_ns) / x->k.dim[0];
		}
	p->ns_per_byte = n ? pl_median_double(rate, n) : 1;
	pl_free(rate);
	return 0;
}

/*
 * How many clocks of a multiprocessor a byte takes, of operations that only move bytes: the number
 * with which the long ones of all devices take equally many times their bound. One device shows it
 * too, if what is left of the bandwidth of memory alone (BURST) is about the same everywhere.
 */
#define BURST	   1.15
#define PRIOR	   0.25 /* weight of BURST against the differences of devices */
#define CLOCKS	   0.5	/* at most */
#define CLOCK_STEP 0.005

struct moved { /* of a device: how many times the bound of its memory long operations take */
	double times, share; /* share: clocks * share is the other bound by that of the memory */
};

static double misfit(const struct moved *v, size_t n, double clocks)
{
	double mean = 0, sum = 0;

	for (size_t i = 0; i < n; i++)
		mean += log(v[i].times / hypot(1, clocks * v[i].share)) / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = log(v[i].times / hypot(1, clocks * v[i].share)) - mean;

		sum += d * d;
	}
	return sum + PRIOR * (mean - log(BURST)) * (mean - log(BURST));
}

static int find_clocks(struct fitter *f, struct part *p, struct pl_err *err)
{
	const struct pl_devices *all = &f->s->devices;
	struct moved *v = NULL;
	double *times = NULL, best = INFINITY;
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&v, all->n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&times, f->n + 1, sizeof(*times), err));
	for (uint32_t d = 0; d < all->n; d++) {
		double floor_ns = pl_part_floor(p, d);
		size_t count = 0;

		for (size_t i = 0; i < f->n; i++) {
			const struct pl_sample *x = &f->s->v[f->v[i]];
			struct pl_physics bounds;
			float row[PL_FEATURES];

			if (x->device != d || (double)x->ns < 4 * floor_ns)
				continue;
			pl_kernel_features(&x->k, &all->v[d], &f->m->rates, x->tile, &bounds, row);
			if (bounds.request_ns > 0)
				times[count++] = ((double)x->ns - floor_ns) / bounds.memory_ns;
		}
		if (count >= FEW)
			v[n++] = (struct moved){ pl_median_double(times, count),
						 all->v[d].bandwidth / all->v[d].sms /
							 all->v[d].clock_ghz };
	}
	for (double c = 0; n && c <= CLOCKS; c += CLOCK_STEP) {
		double m = misfit(v, n, c);

		if (m < best) {
			best = m;
			p->clocks = c;
		}
	}
out:
	pl_free(v);
	pl_free(times);
	return rc;
}

static void widen(struct range *r, double v)
{
	r->low = fmin(r->low, v);
	r->high = fmax(r->high, v);
}

static void find_ranges(struct fitter *f, struct part *p)
{
	for (int i = 0; i < PL_KERNEL_DIMS; i++)
		p->dim[i] = (struct range){ INFINITY, -INFINITY };
	p->bound = p->bandwidth = p->flops = (struct range){ INFINITY, -INFINITY };
	for (size_t i = 0; i < f->n; i++) {
		const struct pl_sample *x = &f->s->v[f->v[i]];

		for (int k = 0; k < PL_KERNEL_DIMS; k++)
			widen(&p->dim[k], x->k.dim[k]);
		widen(&p->bound, (double)f->bound[i] / pl_part_floor(p, x->device));
		widen(&p->bandwidth, f->s->devices.v[x->device].bandwidth);
		widen(&p->flops, f->s->devices.v[x->device].flops);
	}
}

/* Features and what is to be learned, of all samples of the part. */
static int make_columns(struct fitter *f, struct part *p, struct pl_err *err)
{
	float row[PL_FEATURES];

	for (size_t i = 0; i < f->n; i++) {
		const struct pl_sample *x = &f->s->v[f->v[i]];
		const struct pl_device *d = &f->s->devices.v[x->device];
		struct pl_tile tile = x->tile;
		struct pl_physics bounds;
		double bound, base;

		if (!tile.a && (p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV))
			tile = pl_tiles_choose_one(&p->tiles, &x->k, d);
		pl_kernel_features(&x->k, d, &f->m->rates, tile, &bounds, row);
		for (int k = 0; k < PL_FEATURES; k++)
			f->x[(size_t)k * f->n + i] = row[k];
		bound = pl_part_bound(p, &bounds);
		base = f->m->learner->bounds ? pl_part_floor(p, x->device) + bound : 1;
		if (!isfinite(base) || base <= 0)
			return pl_kernel_lacks_rate(d, &x->k, err);
		f->bound[i] = (float)bound;
		f->y[i] = (float)log((double)x->ns / base);
	}
	return 0;
}

/* Sets the offset of each device to its median error after the learning. */
static int find_offsets(struct fitter *f, struct part *p, struct pl_err *err)
{
	double *left = NULL, *y = NULL;
	float *row = NULL;
	int rc;

	PL_TRY(pl_alloc(&left, f->n + 1, sizeof(*left), err));
	PL_TRY(pl_alloc(&y, f->n + 1, sizeof(*y), err));
	PL_TRY(pl_alloc(&row, f->n * PL_FEATURES + 1, sizeof(*row), err));
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < PL_FEATURES; k++)
			row[i * PL_FEATURES + k] = f->x[k * f->n + i];
	f->m->learner->apply(p->learned, row, f->n, y);
	for (uint32_t d = 0; d < f->s->devices.n; d++) {
		size_t n = 0;

		for (size_t i = 0; i < f->n; i++)
			if (f->s->v[f->v[i]].device == d)
				left[n++] = (double)f->y[i] - y[i];
		if (n >= FEW)
			p->offset[d] = pl_median_double(left, n);
	}
out:
	pl_free(left);
	pl_free(y);
	pl_free(row);
	return rc;
}

/* What is learned of the samples f->v of a part that has its name, family and type. */
static int fit_part(struct fitter *f, struct part *p, struct pl_err *err)
{
	const float *column[PL_FEATURES];
	struct pl_boost_data d = { .n = f->n, .n_features = PL_FEATURES, .x = column, .y = f->y };
	int8_t direction[PL_FEATURES];
	struct learner_data x = {
		.d = &d, .direction = direction, .seed = f->o->seed, .pool = f->o->pool
	};

	p->n = (uint32_t)f->n;
	PL_CHECK(pl_alloc(&p->device_floor, f->s->devices.n + 1, sizeof(*p->device_floor), err));
	PL_CHECK(pl_alloc(&p->offset, f->s->devices.n + 1, sizeof(*p->offset), err));
	PL_CHECK(find_floors(f, p, err));
	PL_CHECK(find_rate(f, p, err));
	PL_CHECK(find_clocks(f, p, err));
	if (p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV)
		PL_CHECK(pl_tiles_fit(&p->tiles, f->s, f->v, f->n, err));
	PL_CHECK(make_columns(f, p, err));
	find_ranges(f, p);
	for (unsigned k = 0; k < PL_FEATURES; k++) {
		column[k] = f->x + k * f->n;
		direction[k] = (int8_t)pl_kernel_feature_direction(p->family, k);
		x.n_features += pl_kernel_feature_name(p->family, k) != NULL;
	}
	PL_CHECK(f->m->learner->fit(&x, &p->learned, err));
	return find_offsets(f, p, err);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* Samples of the operation (PL_NONE: of the family) and type into f->v. */
static void list_samples(struct fitter *f, const bool *use, const struct part *p)
{
	size_t all = 0, every;

	for (size_t i = 0; i < f->s->n; i++) {
		const struct pl_sample *x = &f->s->v[i];

		if ((!use || use[i]) && is_usable(x) && x->k.family == p->family &&
		    x->k.type == p->type && (p->op == PL_NONE || p->op == x->k.op))
			f->v[all++] = (uint32_t)i;
	}
	every = p->op == PL_NONE ? (all + f->most - 1) / f->most : 1;
	f->n = 0;
	for (size_t i = 0; i < all; i += every ? every : 1)
		f->v[f->n++] = f->v[i];
}

static int add_part(struct fitter *f, const bool *use, struct part p, struct pl_err *err)
{
	struct pl_kernel_model *m = f->m;

	list_samples(f, use, &p);
	if (f->n < (p.op == PL_NONE ? 1 : ENOUGH))
		return 0;
	PL_CHECK(pl_append(&m->part, &m->n_parts, &m->cap_parts, &p, sizeof(p), err));
	return fit_part(f, &m->part[m->n_parts - 1], err);
}

/* Which operations, families and types there are. */
static int add_parts(struct fitter *f, const bool *use, struct pl_err *err)
{
	bool family[PL_KERNEL_FAMILIES_][PL_KERNEL_TYPES_] = { { false } };
	struct pl_intern seen = { 0 };
	int rc = 0;

	for (size_t i = 0; i < f->s->n && rc >= 0; i++) {
		const struct pl_sample *x = &f->s->v[i];
		const uint32_t key[3] = { x->k.op, x->k.family, x->k.type };
		size_t before = seen.n;
		pl_id id;

		if ((use && !use[i]) || !is_usable(x))
			continue;
		family[x->k.family][x->k.type] = true;
		rc = pl_intern_add(&seen, (const char *)key, sizeof(key), &id, err);
		if (rc >= 0 && seen.n > before)
			rc = add_part(f, use,
				      (struct part){ .op = x->k.op,
						     .family = x->k.family,
						     .type = x->k.type },
				      err);
	}
	for (unsigned k = 0; k < PL_KERNEL_FAMILIES_; k++)
		for (unsigned t = 0; t < PL_KERNEL_TYPES_ && rc >= 0; t++)
			if (family[k][t])
				rc = add_part(f, use,
					      (struct part){ .op = PL_NONE,
							     .family = (uint8_t)k,
							     .type = (uint8_t)t },
					      err);
	pl_intern_fini(&seen);
	if (rc >= 0 && !f->m->n_parts)
		rc = pl_fail(err, PL_EDATA, "no operation with a latency is known to the schema");
	return rc;
}

/*
 * What an operation of few samples has beyond its family: the median of log(measured / predicted).
 * It counts as if PRIOR_SAMPLES more had shown no difference.
 */
#define PRIOR_SAMPLES 4

static int find_few(struct fitter *f, const bool *use, struct pl_err *err)
{
	struct pl_kernel_model *m = f->m;
	struct pl_sample *v = NULL;
	struct pl_kernel_time *t = NULL;
	double *left = NULL;
	size_t *n = NULL, *at = NULL, all = 0; /* samples of an operation, and where they begin */
	int rc;

	PL_TRY(pl_alloc(&n, m->op.n + 1, sizeof(*n), err));
	PL_TRY(pl_alloc(&at, m->op.n + 1, sizeof(*at), err));
	for (size_t i = 0; i < f->s->n; i++)
		n[f->s->v[i].k.op] += (!use || use[i]) && is_usable(&f->s->v[i]);
	for (pl_id op = 0; op < m->op.n; op++) {
		at[op] = all;
		all += n[op] < ENOUGH ? n[op] : 0;
	}
	PL_TRY(pl_alloc(&v, all + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&t, all + 1, sizeof(*t), err));
	PL_TRY(pl_alloc(&left, all + 1, sizeof(*left), err));
	for (size_t i = 0; i < f->s->n; i++) {
		const struct pl_sample *x = &f->s->v[i];

		if (n[x->k.op] < ENOUGH && (!use || use[i]) && is_usable(x))
			v[at[x->k.op]++] = *x;
	}
	PL_TRY(pl_kernel_apply(m, f->s, v, all, t, err));
	PL_TRY(pl_alloc(&m->of_family, m->op.n + 1, sizeof(*m->of_family), err));
	for (size_t i = 0; i < all; i++)
		left[i] = log((double)v[i].ns / t[i].ns);
	for (pl_id op = 0; op < m->op.n; op++)
		if (n[op] && n[op] < ENOUGH)
			m->of_family[op] = pl_median_double(left + at[op] - n[op], n[op]) *
					   (double)n[op] / (double)(n[op] + PRIOR_SAMPLES);
out:
	pl_free(n);
	pl_free(at);
	pl_free(v);
	pl_free(t);
	pl_free(left);
	return rc;
}

/* The model has the names and the devices of the samples, in their order. */
static int take_names(struct pl_kernel_model *m, const struct pl_samples *s, struct pl_err *err)
{
	for (pl_id i = 0; i < s->op.n; i++) {
		pl_id id;

		PL_CHECK(pl_intern_add(&m->op, s->op.str[i], s->op.len[i], &id, err));
	}
	for (uint32_t i = 0; i < s->devices.n; i++) {
		uint32_t at;

		PL_CHECK(pl_device_copy(&m->devices, &s->devices.v[i], &at, err));
	}
	return 0;
}

/* only: the part of a family that the model has; NULL: all parts. */
static int fit(const struct pl_samples *s, const bool *use, const struct pl_kernel_fit_opts *o,
	       const struct part *only, size_t most, struct pl_kernel_model **out,
	       struct pl_err *err)
{
	struct fitter f = { .s = s, .o = o, .most = most };
	struct pl_kernel_model *m;
	int rc;

	*out = NULL;
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	f.m = m;
	m->learner = pl_kernel_learner(o->learner);
	PL_TRY(m->learner
		       ? 0
		       : pl_fail(err, PL_EUSAGE,
				 "there is no learner \"%s\"; there are " PL_KERNEL_LEARNERS(", "),
				 o->learner));
	PL_TRY(take_names(m, s, err));
	PL_TRY(pl_feature_rates(&m->rates, s, use, err));
	PL_TRY(pl_alloc(&f.v, s->n + 1, sizeof(*f.v), err));
	PL_TRY(pl_alloc(&f.x, s->n * PL_FEATURES + 1, sizeof(*f.x), err));
	PL_TRY(pl_alloc(&f.y, s->n + 1, sizeof(*f.y), err));
	PL_TRY(pl_alloc(&f.bound, s->n + 1, sizeof(*f.bound), err));
	PL_TRY(only ? add_part(&f, use,
			       (struct part){
				       .op = PL_NONE, .family = only->family, .type = only->type },
			       err)
		    : add_parts(&f, use, err));
	if (!only)
		PL_TRY(find_few(&f, use, err));
	if (o->intervals && !only)
		rc = pl_kernel_find_intervals(m, s, use, o, err);
out:
	pl_free(f.v);
	pl_free(f.x);
	pl_free(f.y);
	pl_free(f.bound);
	if (rc < 0)
		pl_kernel_model_free(m);
	else
		*out = m;
	return rc;
}

int pl_kernel_fit(const struct pl_samples *s, const bool *use, const struct pl_kernel_fit_opts *o,
		  struct pl_kernel_model **out, struct pl_err *err)
{
	return fit(s, use, o, NULL, OF_FAMILY, out, err);
}

int pl_kernel_fit_family(const struct pl_samples *s, const bool *use,
			 const struct pl_kernel_fit_opts *o, const struct part *family, size_t most,
			 struct pl_kernel_model **out, struct pl_err *err)
{
	return fit(s, use, o, family, most, out, err);
}
