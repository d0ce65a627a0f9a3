/*
 * network.h - inside of cost models of tensor programs (cost.h): the model, and its network.
 */
#ifndef PL_TPROG_NETWORK_H
#define PL_TPROG_NETWORK_H

#include <math.h>

#include "tprog/cost.h"

struct pl_tprog_network; /* opaque */

/* From the rows use[0 .. n) with the labels y. */
int pl_tprog_network_fit(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
			 const struct pl_tprog_fit_opts *o, struct pl_tprog_network **net,
			 struct pl_err *err) PL_MUST;
void pl_tprog_network_free(struct pl_tprog_network *net); /* NULL is fine */
/* y: (n), the labels of the rows. */
int pl_tprog_network_apply(struct pl_tprog_network *net, const struct pl_tprog_set *s,
			   const size_t *row, size_t n, double *y, struct pl_err *err) PL_MUST;
/* Learn on from the rows `few` with the labels y, while the latent vectors of `all` are held to the
 * moments of those of the source, with this weight (0: they are not); as far as that makes programs
 * of `few` that were left out more exact, or not at all. It begins with the network as
 * it was fitted, so reset it before. */
int pl_tprog_network_adapt(struct pl_tprog_network *net, const struct pl_tprog_set *few,
			   const double *y, const struct pl_tprog_set *all, double weight,
			   uint64_t seed, struct pl_err *err) PL_MUST;
/* Of the latent vectors of all rows from the moments of the source. */
int pl_tprog_network_discrepancy(struct pl_tprog_network *net, const struct pl_tprog_set *s,
				 double *d, struct pl_err *err) PL_MUST;
void pl_tprog_network_reset(struct pl_tprog_network *net); /* undo an adaptation */
/* Its power is that of the labels. */
struct pl_tprog_settings pl_tprog_network_settings(const struct pl_tprog_network *net);
/* Its layers, as paceline-model(5). */
int pl_tprog_network_layers(const struct pl_tprog_settings *s, struct pl_buf *b,
			    struct pl_err *err) PL_MUST;
bool pl_tprog_settings_good(const struct pl_tprog_settings *s);
/* As parts of payloads: as it was fitted; and what an adaptation changed (false: nothing). */
void pl_tprog_network_put(const struct pl_tprog_network *net, struct pl_buf *b);
bool pl_tprog_network_put_adapted(const struct pl_tprog_network *net, struct pl_buf *b);
int pl_tprog_network_get(struct pl_cur *c, struct pl_tprog_network **net,
			 struct pl_err *err) PL_MUST;
int pl_tprog_network_get_adapted(struct pl_cur *c, struct pl_tprog_network *net,
				 struct pl_err *err) PL_MUST;

/* The label of a measured program. */
static inline double pl_tprog_unit(const struct pl_tprog_row *r)
{
	return log(r->ns / r->work);
}

/* The shift c with the least sum of |exp(c - error) - 1|. error: sorted. */
double pl_tprog_best_shift(const double *error, size_t n);
/* PL_EDATA: no rows, or rows of several devices. */
int pl_tprog_check_rows(const struct pl_tprog_set *s, struct pl_err *err) PL_MUST;

/* Of an operation, as logarithms; n 0: not known. */
struct pl_tprog_errors {
	uint32_t n;
	double shift, low, high; /* to the prediction, and to the ends of its interval */
	double offset;		 /* of the device or network that the model was adapted to */
};
/* Errors on n programs that were left out of an adaptation, as logarithms: the 5th and 95th
 * percentile. n 0: not known. */
struct pl_tprog_held_out {
	uint32_t n;
	double low, high;
};
#define PL_TPROG_OPS_MAX 4096
struct pl_tprog_model {
	enum pl_tprog_learner learner;
	char device[160];
	uint64_t n_rows;
	struct pl_intern ops;		/* those that were seen */
	struct pl_tprog_errors *errors; /* [ops.n + 1], the last one of all together */
	float least[PL_TPROG_COLUMNS], most[PL_TPROG_COLUMNS];
	struct pl_boost trees;	      /* n_trees 0: none */
	struct pl_tprog_network *net; /* NULL: none */
	struct pl_boost adapted; /* what pl_tprog_adapt() adds to the trees; n_trees 0: nothing */
	struct pl_tprog_held_out held_out; /* of it */
};

/* Trees that learn y from the vectors of the rows use[0 .. n). start: NULL, or (n). */
int pl_tprog_grow(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
		  const float *start, struct pl_boost_opts o, struct pl_boost *trees,
		  struct pl_err *err) PL_MUST;
/* Labels of all rows of a set, without offsets and shifts. */
int pl_tprog_label(struct pl_tprog_model *m, const struct pl_tprog_set *s, double *y,
		   struct pl_err *err) PL_MUST;
/* Sorts the errors. */
struct pl_tprog_held_out pl_tprog_percentiles(double *error, size_t n);

/* The rows of each operation k: row[first[k] .. first[k + 1]), ascending. op[i], of row i: up to
 * n_ops. */
struct pl_tprog_by_op { /* zero-initialised is empty */
	size_t *row, *first;
};
void pl_tprog_by_op_fini(struct pl_tprog_by_op *r);
int pl_tprog_by_op_init(struct pl_tprog_by_op *r, const pl_id *op, size_t n, size_t n_ops,
			struct pl_err *err) PL_MUST;

#endif
