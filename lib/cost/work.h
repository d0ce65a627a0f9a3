/*
 * work.h - how long operations take by their work: a model fitted to a recording, and what another
 * batch makes of it.
 *
 * The features of an operation follow from the recorded sizes of its inputs. Part of its bytes and
 * all of its floating-point operations are of samples; the rest of the bytes is of parameters. The
 * time is fixed + bytes / bandwidth + bytes of gradients / bandwidth + operations / rate, less what
 * caches save of the bytes of small products (work.c).
 */
#ifndef PL_COST_WORK_H
#define PL_COST_WORK_H

#include "graph/dims.h"
#include "graph/graph.h"

/* What an operation does, by a row of the graph's work. */
struct pl_work {
	bool of_samples; /* something grows with the batch */
	bool unsure;	 /* samples and parameters have the same sizes */
	bool product;	 /* the operations count: a product, a convolution, attention */
	double flops;	 /* 0: unknown, or no product */
	double sample_bytes, other_bytes;
	double gradient_bytes; /* of parameters, written: of a product; no part of the others */
};

/* Which sizes of tensors follow the batch. */
struct pl_work_batch {
	struct pl_intern params; /* sizes of parameters: "512,1024", and transposed */
	int64_t *rows;		 /* first sizes of tensors with samples, ascending */
	size_t n_rows, cap_rows;
	int64_t pass;	/* samples of one pass, 0: not found */
	int64_t passes; /* forward passes of a rank in a step, 0: not known */
	/* A rank whose passes have other samples, and how many; no rank: 0 samples. */
	int32_t other_rank;
	int64_t other_pass;
	bool any; /* some operation has sizes */
};

/* Operations with the same name, work and type of resource. */
struct pl_work_group {
	pl_id name;
	uint32_t work; /* row of the graph's work; n_work: no operation has sizes */
	uint8_t op;    /* enum pl_operator */
	bool device;
	bool wraps;   /* only calls another operation that does the work */
	double ns;    /* typical duration of the part that computes */
	double share; /* of the time of all operations */
};

/* The terms of the time of a product, in ns: fixed, for each byte, for each byte of a gradient of
 * parameters, what each byte that caches keep saves (its feature is negative), for each
 * floating-point operation. */
enum pl_work_term {
	PL_WORK_FIXED,
	PL_WORK_BYTE,
	PL_WORK_GRADIENT_BYTE,
	PL_WORK_CACHED_BYTE,
	PL_WORK_FLOP,
	PL_WORK_TERMS
};
/* Of products of one operator on one type of resource. */
struct pl_work_fit {
	double ns[PL_WORK_TERMS];
	double cov[PL_WORK_TERMS][PL_WORK_TERMS];
	size_t samples; /* groups; 0: no fit */
};

struct pl_work_model {
	const struct pl_graph *g;
	struct pl_work *work; /* [row of the graph's work], then one for operations without sizes */
	struct pl_work_batch batch;
	struct pl_intern keys; /* of groups */
	struct pl_work_group *group;
	size_t n_groups, cap_groups;
	uint32_t **of_node; /* [shape][node]: group; PL_NONE: none, or a part that does not compute
			     */
	/* by type of resource, 1: device */
	double fixed_ns[2];    /* of an operation on next to nothing; 0: not known */
	double ns_per_byte[2]; /* of operations that only move; 0: not known */
	struct pl_work_fit fit[2][PL_OP_COUNT_];
};

/* *m needs no initialisation; the graph must outlive it. */
int pl_work_fit(const struct pl_graph *g, struct pl_work_model *m, struct pl_err *err) PL_MUST;
void pl_work_fini(struct pl_work_model *m);
#define PL_WORK_RULE_ERROR 0.25 /* of a change of operations whose work is unknown, as a share */
/* With twice the samples, or half, the caches of a processor hold another part of them: the
 * standard error of the time, as a share, which no recording of one batch shows. */
#define PL_WORK_CACHES 0.05
/* The factor of the durations of a group with `by` times the samples. *error: its standard error.
 */
double pl_work_factor(const struct pl_work_model *m, uint32_t group, double by, double *error);
/*
 * The row of the graph's work with `by` times the samples: *to, whose sizes of inputs are in `text`
 * (of `size` bytes, PL_WORK_TEXT) and not in to->dims. False: the sizes do not say which of them
 * follow the samples.
 */
#define PL_WORK_TEXT 1024
bool pl_work_scale(const struct pl_work_model *m, uint32_t row, double by, struct pl_gwork *to,
		   char *text, size_t size) PL_MUST;
/* The features of a product with `by` times the samples, by term. */
void pl_work_features(const struct pl_work *w, double by, double *x);
/* The time of a product with these features. */
double pl_work_time(const struct pl_work_fit *f, const double *x);

/* Does the work of a node show the sizes of parameters? The accumulation of gradients has the phase
 * of weight gradients, as the products that make gradients have. */
bool pl_work_shows_params(unsigned phase, unsigned op);
/* The samples that each rank takes in a step; 0: the recording does not say, or ranks differ. */
static inline int64_t pl_work_samples(const struct pl_work_model *m)
{
	return m->batch.other_pass ? 0
				   : pl_max_i64(pl_dims_product(m->batch.pass, m->batch.passes), 0);
}

#endif
