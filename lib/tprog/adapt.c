/*
 * Adapting cost models of tensor programs to another device or another network (cost.h).
 *
 * Intervals of the training are those of networks that were left out on the source. They say
 * nothing of how well the adaptation fits. So parts of its programs are left out of it in turn, and
 * the errors on these widen the intervals.
 */
#include <math.h>

#include "core/sort.h"
#include "tprog/network.h"

#define PRIOR 8	 /* programs: as much does what all differ by count for an operation */
#define PARTS 10 /* in which programs are left out */
#define NONE  PARTS

struct adaptation {
	struct pl_tprog_model *m;
	const struct pl_tprog_set *s;
	const struct pl_tprog_adapt_opts *o;
	pl_id *op;	     /* of each row; those that the model does not know: ops.n */
	unsigned char *part; /* of each row */
	struct pl_tprog_by_op by;
	double *error;	  /* of logarithms: measured less predicted before */
	double *label;	  /* as predicted before, without offsets and shifts */
	double *offset;	  /* [ops.n + 1]: of each operation, and of all together */
	double *residual; /* what the offsets leave of the errors */
	double *room;	  /* of as many numbers */
};

static void adaptation_fini(struct adaptation *a)
{
	pl_tprog_by_op_fini(&a->by);
	pl_free(a->op);
	pl_free(a->part);
	pl_free(a->error);
	pl_free(a->label);
	pl_free(a->offset);
	pl_free(a->residual);
	pl_free(a->room);
}

/* What the model was before any adaptation. */
static void begin_as_trained(struct pl_tprog_model *m)
{
	pl_boost_fini(&m->adapted);
	m->held_out = (struct pl_tprog_held_out){ .n = 0 };
	if (m->net)
		pl_tprog_network_reset(m->net);
	for (size_t k = 0; k <= m->ops.n; k++)
		m->errors[k].offset = 0;
}

static int find_errors(struct adaptation *a, struct pl_err *err)
{
	const struct pl_tprog_set *s = a->s;
	struct pl_tprog_time *t;
	int rc;

	PL_CHECK(pl_tprog_label(a->m, s, a->label, err));
	PL_CHECK(pl_alloc(&t, s->n, sizeof(*t), err));
	rc = pl_tprog_apply(a->m, s, t, err);
	for (size_t i = 0; i < s->n && rc >= 0; i++)
		a->error[i] = log(s->v[i].ns / t[i].ns);
	pl_free(t);
	return rc;
}

static int adaptation_init(struct adaptation *a, struct pl_err *err)
{
	const struct pl_tprog_set *s = a->s;
	struct pl_tprog_model *m = a->m;

	PL_CHECK(pl_alloc(&a->op, s->n, sizeof(*a->op), err));
	PL_CHECK(pl_alloc(&a->part, s->n, sizeof(*a->part), err));
	PL_CHECK(pl_alloc(&a->error, s->n, sizeof(*a->error), err));
	PL_CHECK(pl_alloc(&a->label, s->n, sizeof(*a->label), err));
	PL_CHECK(pl_alloc(&a->offset, m->ops.n + 1, sizeof(*a->offset), err));
	PL_CHECK(pl_alloc(&a->residual, s->n, sizeof(*a->residual), err));
	PL_CHECK(pl_alloc(&a->room, s->n, sizeof(*a->room), err));
	PL_CHECK(find_errors(a, err));
	for (size_t i = 0; i < s->n; i++) {
		const char *name = s->names.str[s->v[i].op];

		a->op[i] = pl_intern_find(&m->ops, name, strlen(name));
		a->op[i] = a->op[i] == PL_NONE ? m->ops.n : a->op[i];
	}
	PL_CHECK(pl_tprog_by_op_init(&a->by, a->op, s->n, m->ops.n, err));
	for (size_t at = 0; at < s->n; at++) /* each part has rows of all operations */
		a->part[a->by.row[at]] = (unsigned char)(at % PARTS);
	return 0;
}

/* The operation's offset is the median error, as if PRIOR programs more had that of all. */
static double offset_of(double *v, size_t n, double all)
{
	return n ? (pl_median_double(v, n) * (double)n + all * PRIOR) / ((double)n + PRIOR) : all;
}

/* By the rows that are not of the part `without`; what they leave of the errors of all rows. */
static void find_offsets(struct adaptation *a, unsigned without)
{
	size_t n_ops = a->m->ops.n, n = 0;
	double *v = a->room, all;

	for (size_t i = 0; i < a->s->n; i++)
		if (a->part[i] != without)
			v[n++] = a->error[i];
	all = a->offset[n_ops] = pl_median_double(v, n);
	for (size_t k = 0; k < n_ops; k++) {
		n = 0;
		for (size_t at = a->by.first[k]; at < a->by.first[k + 1]; at++)
			if (a->part[a->by.row[at]] != without)
				v[n++] = a->error[a->by.row[at]];
		a->offset[k] = offset_of(v, n, all);
	}
	for (size_t i = 0; i < a->s->n; i++)
		a->residual[i] = a->error[i] - a->offset[a->op[i]];
}

/* Trees that learn by how much the model's trees are wrong behind the offsets, from the rows that
 * are not of the part `without`. Where those trees are half of the model, the new ones count half,
 * too.
 */
static int find_trees(const struct adaptation *a, unsigned without, struct pl_boost *trees,
		      struct pl_err *err)
{
	const struct pl_boost_opts few = { .rounds = (uint32_t)pl_min_size(800, 3 * a->s->n),
					   .leaves = 16,
					   .rate = 0.05,
					   .least = 6,
					   .samples = 0.8,
					   .features = 0.3,
					   .loss = PL_BOOST_ABSOLUTE,
					   .seed = 1,
					   .pool = a->o->pool };
	const struct pl_tprog_set *s = a->s;
	float *target = NULL;
	size_t *use = NULL, n = 0;
	int rc;

	if (s->n < PL_TPROG_ADAPT_TREES || !a->m->trees.n_trees)
		return 0;
	PL_TRY(pl_alloc(&target, s->n, sizeof(*target), err));
	PL_TRY(pl_alloc(&use, s->n, sizeof(*use), err));
	for (size_t i = 0; i < s->n; i++) {
		if (a->part[i] == without)
			continue;
		target[n] = (float)(a->label[i] + a->residual[i] -
				    pl_boost_apply(&a->m->trees, s->v[i].x));
		use[n++] = i;
	}
	rc = pl_tprog_grow(s, use, n, target, NULL, few, trees, err);
out:
	pl_free(target);
	pl_free(use);
	return rc;
}

/* What offsets and trees that have not seen the rows of the part leave of their errors, to v. */
static int try_part(struct adaptation *a, unsigned part, double *v, struct pl_err *err)
{
	struct pl_boost trees = { .n_trees = 0 };
	double share = a->m->net ? 0.5 : 1;

	find_offsets(a, part);
	PL_CHECK(find_trees(a, part, &trees, err));
	for (size_t i = 0; i < a->s->n; i++) {
		if (a->part[i] != part)
			continue;
		v[i] = a->residual[i];
		if (trees.n_trees)
			v[i] -= share * pl_boost_apply(&trees, a->s->v[i].x);
	}
	pl_boost_fini(&trees);
	return 0;
}

/* Without what a network learns: it would have to learn anew from each part, and it learns only
 * what makes programs that it has not seen more exact. */
static int find_held_out(struct adaptation *a, struct pl_err *err)
{
	struct pl_tprog_model *m = a->m;
	size_t n = a->s->n;
	double *v;
	int rc = 0;

	if (n < 2 || m->errors[m->ops.n].n < PL_TPROG_INTERVALS)
		return 0;
	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (unsigned k = 0; k < PARTS && k < n && rc >= 0; k++)
		rc = try_part(a, k, v, err);
	m->held_out = pl_tprog_percentiles(v, n);
	pl_free(v);
	return rc;
}

int pl_tprog_adapt(struct pl_tprog_model *m, const struct pl_tprog_set *s,
		   const struct pl_tprog_adapt_opts *o, struct pl_err *err)
{
	struct adaptation a = { .m = m, .s = s, .o = o };
	int rc;

	PL_TRY(pl_tprog_check_rows(s, err));
	begin_as_trained(m);
	PL_TRY(adaptation_init(&a, err));
	PL_TRY(find_held_out(&a, err));
	find_offsets(&a, NONE);
	for (size_t k = 0; k <= m->ops.n; k++)
		m->errors[k].offset = a.offset[k];
	snprintf(m->device, sizeof(m->device), "%s", s->names.str[s->v[0].device]);
	PL_TRY(find_trees(&a, NONE, &m->adapted, err));
	for (size_t i = 0; i < s->n; i++)
		a.label[i] += a.residual[i];
	if (m->net)
		PL_TRY(pl_tprog_network_adapt(m->net, s, a.label, o->target ? o->target : s,
					      o->discrepancy, o->seed, err));
	rc = 0;
out:
	adaptation_fini(&a);
	return rc;
}
