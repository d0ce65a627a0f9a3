/*
 * Cost models: applying.
 *
 * Operations of one part are predicted in blocks, because trees take many at once (learn/flat.c).
 * What is the same for all operations of a part, or of a device, is found once for a block.
 */
#include "kernel/model_internal.h"

#define BLOCK	     256  /* operations that are predicted together */
#define TOLERANCE    1.02 /* of a range */
#define DISTANCE_MAX 40	  /* of a logarithm */

const char *pl_kernel_flag_word(unsigned flag)
{
	static const char *const words[] = { "in-range", "extrapolated", "unknown" };

	return flag < PL_LEN(words) ? words[flag] : "unknown";
}

int pl_kernel_lacks_rate(const struct pl_device *d, const struct pl_kernel *k, struct pl_err *err)
{
	return pl_fail(err, PL_EDATA,
		       "%s%sthe data sheet of %s does not say how fast it computes in %s "
		       "(HalfTensorFLOPs)",
		       d->file ? d->file : "", d->file ? ": " : "", d->name,
		       pl_kernel_type_word(k->type));
}

/* Intervals by the time, of the device of which one was last asked for. */
struct ends {
	bool made[BINS];
	uint32_t device; /* of the model; PL_NONE: it was not measured */
	double low[BINS], high[BINS];
};
struct block { /* operations of one part */
	const struct part *part;
	struct range dim[PL_KERNEL_DIMS], bound, work, bandwidth, rate; /* in-range */
	bool zero[PL_KERNEL_DIMS]; /* may be 0, from which nothing has a distance */
	struct ends ends;
	size_t n, at[BLOCK];
	struct tile_query query[BLOCK];
	struct pl_tile tile[BLOCK]; /* all 0: not of a product */
	float x[BLOCK * PL_FEATURES];
	double y[BLOCK];
};
struct applier {
	const struct pl_kernel_model *m;
	const struct pl_samples *s;
	const struct pl_sample *v;
	struct pl_kernel_time *out;
	const struct part **part; /* [operation of s][family][type]; NULL: not yet looked for */
	uint32_t *op, *device;	  /* of the model, by number of s; PL_NONE */
	struct block **block;	  /* [part of the model]; NULL: none yet */
	size_t lacks;		  /* the first operation whose rate is not known; SIZE_MAX */
};

/* ---- ranges ---------------------------------------------------------------------------------- */

static struct range tolerant(const struct range *r)
{
	return (struct range){ r->low / TOLERANCE, r->high * TOLERANCE };
}

static bool outside(const struct range *r, double v)
{
	return v < r->low || v > r->high;
}

static double distance(double times)
{
	return fmin(log(times), DISTANCE_MAX);
}

/* How far v, above 0, is outside; is it? */
static bool look_outside(const struct range *r, double v, struct pl_kernel_time *t)
{
	if (v > r->high)
		t->above = fmax(t->above, distance(v / r->high));
	if (v < r->low)
		t->below = fmax(t->below, distance(r->low / v));
	return outside(r, v);
}

static unsigned flag_of(const struct block *b, const struct tile_query *q, const struct pl_rates *r,
			struct pl_kernel_time *t)
{
	bool out;

	out = look_outside(&b->bound, t->ns / t->floor_ns, t);
	out |= look_outside(&b->work, pl_part_work(q->k), t);
	for (int i = 0; i < PL_KERNEL_DIMS; i++)
		out |= b->zero[i] ? outside(&b->dim[i], q->k->dim[i])
				  : look_outside(&b->dim[i], q->k->dim[i], t);
	if (b->part->op == PL_NONE) /* out of range or not: its interval grows */
		return PL_KERNEL_UNKNOWN;
	return out || outside(&b->bandwidth, q->d->bandwidth) ||
			       outside(&b->rate, pl_part_rate(b->part, q->d, r))
		       ? PL_KERNEL_EXTRAPOLATED
		       : PL_KERNEL_IN_RANGE;
}

static int new_block(struct applier *a, const struct part *p, struct block **b, struct pl_err *err)
{
	PL_CHECK(pl_alloc(b, 1, sizeof(**b), err));
	(*b)->part = p;
	for (unsigned i = 0; i < PL_KERNEL_DIMS; i++) {
		double otherwise;

		(*b)->dim[i] = tolerant(&p->dim[i]);
		(*b)->zero[i] = !pl_kernel_dim(p->family, i, &otherwise) || otherwise <= 0;
	}
	(*b)->bound = tolerant(&p->bound);
	(*b)->work = tolerant(&p->work);
	(*b)->bandwidth = tolerant(&p->bandwidth);
	(*b)->rate = tolerant(&p->rate);
	a->block[p - a->m->part] = *b;
	return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

#define SOME 16 /* operations whose features begin before the first one ends */

/* Bounds, features and flags. */
static void begin_times(struct applier *a, struct block *b)
{
	const struct part *p = b->part;
	struct pl_raw_features raw[SOME];

	if (p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV)
		pl_tiles_choose(&p->tiles, b->query, b->n, b->tile);
	for (size_t i = 0; i < b->n; i++) {
		const struct pl_kernel *k = b->query[i].k;
		const struct pl_device *d = b->query[i].d;
		struct pl_kernel_time *t = &a->out[b->at[i]];
		struct pl_physics bounds;

		pl_feature_begin(k, d, &a->m->rates, b->tile[i], &bounds, &raw[i % SOME]);
		if ((i + 1) % SOME == 0 || i + 1 == b->n)
			for (size_t j = i - i % SOME; j <= i; j++)
				pl_feature_end(&raw[j % SOME], b->x + j * PL_FEATURES);
		t->part = (uint32_t)(p - a->m->part);
		t->floor_ns = pl_part_floor(p, a->device[a->v[b->at[i]].device]);
		t->compute_ns = bounds.compute_ns;
		t->memory_ns = pl_part_memory(p, &bounds);
		t->ns = isnan(t->compute_ns) ? NAN : fmax(t->compute_ns, t->memory_ns);
		t->flag = flag_of(b, &b->query[i], &a->m->rates, t);
		if (isnan(t->compute_ns))
			a->lacks = pl_min_size(a->lacks, b->at[i]);
	}
}

static void set_interval(struct applier *a, struct block *b, uint32_t device,
			 struct pl_kernel_time *t)
{
	unsigned bin = bin_of_time(t->ns, t->floor_ns);
	struct ends *e = &b->ends;
	double low, high;

	if (device != e->device)
		*e = (struct ends){ .device = device };
	if (!e->made[bin])
		pl_kernel_interval(a->m, b->part, device, bin, &e->low[bin], &e->high[bin]);
	e->made[bin] = true;
	low = e->low[bin];
	high = e->high[bin];
	if (t->above > 0)
		pl_interval_grow(a->m, b->part, true, t->above, &low, &high);
	if (t->below > 0)
		pl_interval_grow(a->m, b->part, false, t->below, &low, &high);
	t->lo_ns = t->ns * low;
	t->hi_ns = t->ns * high;
}

/* The offset of an operation that has few samples; NULL. */
static const double *beyond_family(const struct applier *a, const struct part *p,
				   const struct pl_sample *x)
{
	return p->op == PL_NONE && a->m->n_few
		       ? pl_kernel_few(a->m, a->op[x->k.op], p->family, p->type)
		       : NULL;
}

/* The times of a block, from what is learned. */
static void finish_block(struct applier *a, struct block *b)
{
	const struct part *p = b->part;

	begin_times(a, b);
	a->m->learner->apply(p->learned, b->x, b->n, b->y);
	for (size_t i = 0; i < b->n; i++) {
		struct pl_kernel_time *t = &a->out[b->at[i]];
		uint32_t d = a->device[a->v[b->at[i]].device];
		bool known = d != PL_NONE && !isnan(p->device_floor[d]);
		const double *beyond = beyond_family(a, p, &a->v[b->at[i]]);

		t->few = beyond != NULL;
		t->factor = exp(b->y[i] + (known ? p->offset[d] : 0) + (beyond ? *beyond : 0));
		t->ns = (a->m->learner->bounds ? t->floor_ns + t->ns : 1) * t->factor;
		set_interval(a, b, known ? d : PL_NONE, t);
	}
	b->n = 0;
}

static int put_in_block(struct applier *a, size_t i, const struct part *p, struct pl_err *err)
{
	const struct pl_sample *x = &a->v[i];
	struct block *b = a->block[p - a->m->part];

	if (!b)
		PL_CHECK(new_block(a, p, &b, err));
	b->query[b->n] = (struct tile_query){ &x->k, &a->s->devices.v[x->device] };
	b->at[b->n++] = i;
	if (b->n == BLOCK)
		finish_block(a, b);
	return 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

static const struct part *find_part(struct applier *a, const struct pl_sample *x)
{
	size_t at = ((size_t)x->k.op * PL_KERNEL_FAMILIES_ + x->k.family) * PL_KERNEL_TYPES_ +
		    x->k.type;

	if (!a->part[at])
		a->part[at] = pl_kernel_part(a->m, a->op[x->k.op], x->k.family, x->k.type);
	return a->part[at];
}

static int map_names(struct applier *a, struct pl_err *err)
{
	const struct pl_samples *s = a->s;

	PL_CHECK(pl_alloc(&a->part, (s->op.n + 1) * PL_KERNEL_FAMILIES_ * PL_KERNEL_TYPES_,
			  sizeof(struct part *), err));
	PL_CHECK(pl_alloc(&a->op, s->op.n + 1, sizeof(*a->op), err));
	PL_CHECK(pl_alloc(&a->device, s->devices.n + 1, sizeof(*a->device), err));
	PL_CHECK(pl_alloc(&a->block, a->m->n_parts, sizeof(struct block *), err));
	for (pl_id i = 0; i < s->op.n; i++)
		a->op[i] = pl_intern_find(&a->m->op, s->op.str[i], s->op.len[i]);
	for (uint32_t i = 0; i < s->devices.n; i++)
		a->device[i] = pl_device_named(&a->m->devices, s->devices.v[i].name);
	return 0;
}

int pl_kernel_apply(const struct pl_kernel_model *m, const struct pl_samples *s,
		    const struct pl_sample *v, size_t n, struct pl_kernel_time *out,
		    struct pl_err *err)
{
	struct applier a = { .m = m, .s = s, .v = v, .out = out, .lacks = SIZE_MAX };
	int rc;

	PL_TRY(map_names(&a, err));
	for (size_t i = 0; i < n; i++) {
		const struct part *p = v[i].known ? find_part(&a, &v[i]) : NULL;

		out[i] = (struct pl_kernel_time){ .ns = NAN,
						  .lo_ns = NAN,
						  .hi_ns = NAN,
						  .flag = PL_KERNEL_UNKNOWN,
						  .part = PL_NONE };
		if (p)
			PL_TRY(put_in_block(&a, i, p, err));
	}
	for (size_t i = 0; i < m->n_parts; i++)
		if (a.block[i] && a.block[i]->n)
			finish_block(&a, a.block[i]);
	if (a.lacks != SIZE_MAX)
		rc = pl_kernel_lacks_rate(&s->devices.v[v[a.lacks].device], &v[a.lacks].k, err);
out:
	for (size_t i = 0; a.block && i < m->n_parts; i++)
		pl_free(a.block[i]);
	pl_free(a.part);
	pl_free(a.op);
	pl_free(a.device);
	pl_free(a.block);
	return rc;
}
