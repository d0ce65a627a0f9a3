/*
 * Do steps get longer and longer, as when a machine gets hot or something else begins to use it? Do
 * they differ because their work does?
 *
 * Steps of unlike work, as of sequences of unlike length, have unlike lengths. So two kinds of
 * operations are told apart: those that all steps have equally often, with the same name and the
 * same recorded sizes (where no sizes are recorded, the same name), and others whose sizes are
 * recorded. If the first grow, the machine gets slower. Else, if the others explain most of the
 * growth of the steps, their work does. Else something that is no operation grows.
 */
#include <math.h>
#include <stdlib.h>

#include "program.h"
#include "sim/straggler_typical.h"

#define DRIFT_STEPS 4	/* fewer show no drift */
#define SIZES	    0.1 /* of the time of operations: so much has sizes if they are recorded */
#define SAME	    0.1 /* of that time: so much must be of the same work */
#define EXPLAINS    0.5 /* of the growth of the steps */
/* Standard deviation of steps, by their mean: so much is looked into, and so much of it is left at
 * most without unlike work. */
#define UNLIKE	     0.1
#define LEFT	     0.5
#define MOST_RECORDS 4000000 /* a limit of memory; steps of more operations are compared whole */

struct record { /* an operation that computes */
	uint32_t class, step;
	pl_ns ns;
	bool sized; /* its sizes are recorded */
};

PL_COMPARATOR(by_class, struct record, class, step);

struct drift {
	const struct report *r;
	struct pl_intern classes;
	struct record *v;
	size_t n, cap;
	/* by reported step, of all ranks: time of operations that all steps have; of the others */
	double *same, *other;
	double all, sized; /* of operations; of those whose sizes are recorded */
	bool by_sizes;	   /* only these are compared */
};

/* The longest of the first half of n steps, and the shortest of the last half. */
static void halves(const double *ns, size_t n, double *first, double *last)
{
	*first = 0;
	*last = INFINITY;
	for (size_t i = 0; i < n / 2; i++) {
		*first = fmax(*first, ns[i]);
		*last = fmin(*last, ns[n - 1 - i]);
	}
}

/* By which factor the last are longer than the first; 0: they are few. */
static double growth(const double *ns, size_t n)
{
	double first, last;

	halves(ns, n, &first, &last);
	return n >= DRIFT_STEPS && first > 0 ? last / first : 0;
}

/* Do the others explain most of the growth of the steps? */
static bool explains(const struct drift *d, const double *length, size_t steps)
{
	double first[2], last[2];

	halves(length, steps, &first[0], &last[0]);
	halves(d->other, steps, &first[1], &last[1]);
	return (last[1] - first[1]) / d->r->g.n_ranks >= EXPLAINS * (last[0] - first[0]);
}

/* The standard deviation of n numbers by the mean of all lengths; less: what is taken from each. */
static double deviation(const double *ns, const double *less, double by, size_t n)
{
	double sum = 0, squares = 0, mean = 0;

	for (size_t i = 0; i < n; i++) {
		double x = ns[i] - (less ? less[i] / by : 0);

		sum += x;
		squares += x * x;
		mean += ns[i] / (double)n;
	}
	return mean > 0 ? sqrt(fmax(squares / (double)n - sum * sum / (double)n / (double)n, 0)) /
				  mean
			: 0;
}

static int note_step(struct drift *d, size_t k, uint32_t step, struct pl_err *err)
{
	const struct pl_graph *g = &d->r->g;
	const struct pl_gstep *st = &g->step[k];
	const struct pl_shape *sh = &g->shape[st->shape];

	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		struct record x = { .step = step, .ns = st->dur[i] };
		struct pl_sim_class class;

		if (sh->role[i] != PL_RO_COMPUTE || !pl_sim_class_of(g, sh, i, &class))
			continue;
		d->all += (double)x.ns;
		x.sized = class.work != PL_NONE;
		d->sized += x.sized ? (double)x.ns : 0;
		PL_CHECK(pl_intern_add(&d->classes, (const char *)&class, sizeof(class), &x.class,
				       err));
		PL_CHECK(pl_append(&d->v, &d->n, &d->cap, &x, sizeof(x), err));
	}
	return 0;
}

/* The records v[0..n) of one class: has each of the steps equally many? */
static bool in_all(const struct record *v, size_t n, size_t steps)
{
	for (size_t i = 0; i < n; i++)
		if (n % steps || v[i].step != i / (n / steps))
			return false;
	return true;
}

static int add_same(struct drift *d, size_t *steps, struct pl_err *err)
{
	const struct report *r = d->r;
	uint64_t all = 0;

	*steps = 0;
	for (size_t k = 0; k < r->g.n_steps; k++)
		all += r->g.shape[r->g.step[k].shape].n_nodes;
	if (all > MOST_RECORDS)
		return 0;
	for (size_t k = 0; k < r->g.n_steps; k++)
		if (pl_sim_reported(r->s, k))
			PL_CHECK(note_step(d, k, (uint32_t)(*steps)++, err));
	PL_CHECK(pl_alloc(&d->same, *steps, sizeof(*d->same), err));
	PL_CHECK(pl_alloc(&d->other, *steps, sizeof(*d->other), err));
	d->by_sizes = d->sized >= SIZES * d->all;
	pl_sort(d->v, d->n, sizeof(*d->v), by_class);
	for (size_t i = 0, k; i < d->n; i = k) {
		double *sum;

		for (k = i; k < d->n && d->v[k].class == d->v[i].class;)
			k++;
		sum = in_all(d->v + i, k - i, *steps) ? d->same : d->other;
		if (d->by_sizes != d->v[i].sized || (sum == d->other && !d->by_sizes))
			continue;
		for (size_t j = i; j < k; j++)
			sum[d->v[j].step] += (double)d->v[j].ns;
	}
	return 0;
}

int find_drift(const struct report *r, double least, double *factor, bool *unlike,
	       struct pl_err *err)
{
	struct drift d = { .r = r };
	double *length = NULL, same = 0, grows = 0, scatter;
	size_t steps;
	int rc;

	*unlike = false;
	PL_TRY(pl_alloc(&length, r->n_steps, sizeof(*length), err));
	for (size_t i = 0; i < r->n_steps; i++)
		length[i] = (double)r->step[i].replayed;
	*factor = growth(length, r->n_steps);
	scatter = deviation(length, NULL, 1, r->n_steps);
	if (*factor < least && scatter < UNLIKE)
		goto out;
	PL_TRY(add_same(&d, &steps, err));
	for (size_t i = 0; i < steps; i++)
		same += d.same[i];
	if (steps && same >= SAME * (d.by_sizes ? d.sized : d.all))
		grows = growth(d.same, steps);
	if (steps == r->n_steps && grows < least)
		*unlike = (*factor >= least && explains(&d, length, steps)) ||
			  deviation(length, d.other, (double)r->g.n_ranks, steps) <= LEFT * scatter;
	if (grows >= least || *unlike)
		*factor = grows;
out:
	pl_intern_fini(&d.classes);
	pl_free(d.v);
	pl_free(d.same);
	pl_free(d.other);
	pl_free(length);
	return rc;
}
