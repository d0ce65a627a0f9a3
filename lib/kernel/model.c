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
	pl_intern_fini(&m->part_key);
	pl_intern_fini(&m->few_key);
	pl_free(m->few);
	pl_free(m->trained);
	pl_free(m->trained_on);
	pl_device_fini(&m->devices);
	pl_intern_fini(&m->op);
	pl_free(m);
}

const struct pl_devices *pl_kernel_model_devices(const struct pl_kernel_model *m)
{
	return &m->devices;
}

int pl_kernel_add_key(struct pl_intern *keys, uint32_t op, unsigned family, unsigned type,
		      bool *is_new, struct pl_err *err)
{
	const struct pl_kernel_key key = { op, family, type };
	size_t before = keys->n;
	pl_id id;

	PL_CHECK(pl_intern_add(keys, (const char *)&key, sizeof(key), &id, err));
	*is_new = keys->n > before;
	return 0;
}

static pl_id find_key(const struct pl_intern *keys, uint32_t op, unsigned family, unsigned type)
{
	const struct pl_kernel_key key = { op, family, type };

	return pl_intern_find(keys, (const char *)&key, sizeof(key));
}

const struct part *pl_kernel_part(const struct pl_kernel_model *m, uint32_t op, unsigned family,
				  unsigned type)
{
	pl_id at = find_key(&m->part_key, op, family, type);

	if (at == PL_NONE && op != PL_NONE)
		at = find_key(&m->part_key, PL_NONE, family, type);
	return at == PL_NONE ? NULL : &m->part[at];
}

const double *pl_kernel_few(const struct pl_kernel_model *m, uint32_t op, unsigned family,
			    unsigned type)
{
	pl_id at = op == PL_NONE ? PL_NONE : find_key(&m->few_key, op, family, type);

	return at == PL_NONE ? NULL : &m->few[at];
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

/*
 * The rate of communication, which no data sheet has. At least FEW long operations show it: it is
 * the median of theirs. Where there are fewer, it is the time of all operations beyond the floor,
 * divided by all their bytes: long messages count most. A table of short messages alone gives a
 * rate of about 0, and the model is the floor.
 */
static int find_rate(struct fitter *f, struct part *p, struct pl_err *err)
{
	double *rate, beyond = 0, bytes = 0;
	size_t n = 0;

	if (!pl_kernel_is_comm(p->family))
		return 0;
	PL_CHECK(pl_alloc(&rate, f->n + 1, sizeof(*rate), err));
	for (size_t i = 0; i < f->n; i++) {
		const struct pl_sample *x = &f->s->v[f->v[i]];
		double floor_ns = pl_part_floor(p, x->device), more = (double)x->ns - floor_ns;

		if (more > 3 * floor_ns)
			rate[n++] = more / x->k.dim[0];
		beyond += fmax(more, 0);
		bytes += x->k.dim[0];
	}
	p->ns_per_byte = n >= FEW ? pl_median_double(rate, n) : beyond / bytes;
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
	p->bound = p->work = p->bandwidth = p->rate = (struct range){ INFINITY, -INFINITY };
	for (size_t i = 0; i < f->n; i++) {
		const struct pl_sample *x = &f->s->v[f->v[i]];
		const struct pl_device *d = &f->s->devices.v[x->device];

		for (int k = 0; k < PL_KERNEL_DIMS; k++)
			widen(&p->dim[k], x->k.dim[k]);
		widen(&p->bound, (double)f->bound[i] / pl_part_floor(p, x->device));
		widen(&p->work, pl_part_work(&x->k));
		widen(&p->bandwidth, d->bandwidth);
		widen(&p->rate, pl_part_rate(p, d, &f->m->rates));
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
	}
	x.n_features = pl_kernel_n_features(p->family);
	PL_CHECK(f->m->learner->fit(&x, &p->learned, err));
	return find_offsets(f, p, err);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* Samples of one name, family and type, group by group. */
struct groups {
	struct pl_intern key; /* [group]: struct pl_kernel_key; in the order of their samples */
	size_t *first;	      /* [group]: into v; and behind the last one its end */
	uint32_t *v;	      /* numbers of samples */
};

static void groups_fini(struct groups *g)
{
	pl_intern_fini(&g->key);
	pl_free(g->first);
	pl_free(g->v);
}

static struct pl_kernel_key key_of(const struct groups *g, pl_id group)
{
	struct pl_kernel_key key;

	memcpy(&key, g->key.str[group], sizeof(key));
	return key;
}

static int find_groups(const struct pl_samples *s, const bool *use, struct groups *g,
		       struct pl_err *err)
{
	pl_id *of = NULL;
	int rc;

	PL_TRY(pl_alloc(&of, s->n + 1, sizeof(*of), err));
	PL_TRY(pl_alloc(&g->v, s->n + 1, sizeof(*g->v), err));
	for (size_t i = 0; i < s->n; i++) {
		const struct pl_kernel *k = &s->v[i].k;
		const struct pl_kernel_key key = { k->op, k->family, k->type };

		of[i] = PL_NONE;
		if ((!use || use[i]) && is_usable(&s->v[i]))
			PL_TRY(pl_intern_add(&g->key, (const char *)&key, sizeof(key), &of[i],
					     err));
	}
	PL_TRY(pl_alloc(&g->first, g->key.n + 2, sizeof(*g->first), err));
	for (size_t i = 0; i < s->n; i++)
		if (of[i] != PL_NONE)
			g->first[of[i] + 2]++;
	for (size_t k = 2; k < g->key.n + 2; k++)
		g->first[k] += g->first[k - 1];
	/* first[k + 1] moves from the beginning of group k to its end */
	for (size_t i = 0; i < s->n; i++)
		if (of[i] != PL_NONE)
			g->v[g->first[of[i] + 1]++] = (uint32_t)i;
	rc = 0;
out:
	pl_free(of);
	return rc;
}

/* Samples of the family and type into f->v. Of too many, one of each few neighbours is taken, by
 * chance: in wide tables operations take turns, and each second sample may be of one of them. */
static void list_family(struct fitter *f, const bool *use, const struct part *p)
{
	size_t all = 0, every;
	uint64_t rng = f->o->seed;

	for (size_t i = 0; i < f->s->n; i++) {
		const struct pl_sample *x = &f->s->v[i];

		if ((!use || use[i]) && is_usable(x) && x->k.family == p->family &&
		    x->k.type == p->type)
			f->v[all++] = (uint32_t)i;
	}
	every = (all + f->most - 1) / f->most;
	f->n = 0;
	for (size_t i = 0; i < all; i += every) {
		size_t k = i + (size_t)(pl_rng_next(&rng) % every);

		f->v[f->n++] = f->v[pl_min_size(k, all - 1)];
	}
}

/* A part of the samples f->v. */
static int add_part(struct fitter *f, uint32_t op, unsigned family, unsigned type,
		    struct pl_err *err)
{
	struct part p = { .op = op, .family = (uint8_t)family, .type = (uint8_t)type };
	struct pl_kernel_model *m = f->m;
	bool is_new;

	PL_CHECK(pl_append(&m->part, &m->n_parts, &m->cap_parts, &p, sizeof(p), err));
	PL_CHECK(pl_kernel_add_key(&m->part_key, op, family, type, &is_new, err));
	return fit_part(f, &m->part[m->n_parts - 1], err);
}

static int add_family(struct fitter *f, const bool *use, const struct part *family,
		      struct pl_err *err)
{
	list_family(f, use, family);
	return f->n ? add_part(f, PL_NONE, family->family, family->type, err) : 0;
}

/* Of operations, in the order in which the samples have them, then of families and types. */
static int add_parts(struct fitter *f, const bool *use, const struct groups *g, struct pl_err *err)
{
	bool family[PL_KERNEL_FAMILIES_][PL_KERNEL_TYPES_] = { { false } };

	for (pl_id k = 0; k < g->key.n; k++) {
		struct pl_kernel_key key = key_of(g, k);

		family[key.family][key.type] = true;
		f->n = g->first[k + 1] - g->first[k];
		if (f->n < ENOUGH)
			continue;
		memcpy(f->v, g->v + g->first[k], f->n * sizeof(*f->v));
		PL_CHECK(add_part(f, key.op, key.family, key.type, err));
	}
	for (unsigned k = 0; k < PL_KERNEL_FAMILIES_; k++)
		for (unsigned t = 0; t < PL_KERNEL_TYPES_; t++)
			if (family[k][t])
				PL_CHECK(add_family(
					f, use,
					&(struct part){ .family = (uint8_t)k, .type = (uint8_t)t },
					err));
	return f->m->n_parts ? 0
			     : pl_fail(err, PL_EDATA,
				       "no operation with a latency is known to the schema");
}

/*
 * What an operation of few samples has beyond its family: the median of log(measured / predicted).
 * It counts as if PRIOR_SAMPLES more had shown no difference.
 */
#define PRIOR_SAMPLES 4

static int find_few(struct fitter *f, const struct groups *g, struct pl_err *err)
{
	struct pl_kernel_model *m = f->m;
	struct pl_sample *v = NULL;
	struct pl_kernel_time *t = NULL;
	double *left = NULL;
	size_t all = 0, at = 0;
	int rc;

	for (pl_id k = 0; k < g->key.n; k++) {
		size_t n = g->first[k + 1] - g->first[k];

		all += n < ENOUGH ? n : 0;
	}
	PL_TRY(pl_alloc(&v, all + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&t, all + 1, sizeof(*t), err));
	PL_TRY(pl_alloc(&left, all + 1, sizeof(*left), err));
	for (pl_id k = 0; k < g->key.n; k++) {
		bool few = g->first[k + 1] - g->first[k] < ENOUGH;

		for (size_t i = g->first[k]; few && i < g->first[k + 1]; i++)
			v[at++] = f->s->v[g->v[i]];
	}
	PL_TRY(pl_kernel_apply(m, f->s, v, all, t, err));
	for (size_t i = 0; i < all; i++)
		left[i] = log((double)v[i].ns / t[i].ns);
	at = 0;
	for (pl_id k = 0; k < g->key.n; k++) {
		size_t n = g->first[k + 1] - g->first[k];
		struct pl_kernel_key key = key_of(g, k);
		double by;
		bool is_new;

		if (n >= ENOUGH)
			continue;
		by = pl_median_double(left + at, n) * (double)n / (double)(n + PRIOR_SAMPLES);
		at += n;
		PL_TRY(pl_append(&m->few, &m->n_few, &m->cap_few, &by, sizeof(by), err));
		PL_TRY(pl_kernel_add_key(&m->few_key, key.op, key.family, key.type, &is_new, err));
	}
out:
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
	struct groups g = { .first = NULL };
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
	if (only) {
		rc = add_family(&f, use, only, err);
		goto out;
	}
	PL_TRY(find_groups(s, use, &g, err));
	PL_TRY(add_parts(&f, use, &g, err));
	PL_TRY(find_few(&f, &g, err));
	if (o->intervals)
		rc = pl_kernel_find_intervals(m, s, use, o, err);
out:
	pl_free(f.v);
	pl_free(f.x);
	pl_free(f.y);
	pl_free(f.bound);
	groups_fini(&g);
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
